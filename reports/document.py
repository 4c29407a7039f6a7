"""One HTML file that needs nothing else, not even a network, and in which nothing runs but commbench's own scripts."""

import base64
import hashlib
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from commbench.reports.rows import figure
from commbench.units import format_size

_HERE = Path(__file__).parent


def render(template: str, **content) -> str:
    """The page of a template of this folder; all that stands in `content` is escaped."""
    scripts = [Markup(get_plotlyjs()), Markup((_HERE / "report.js").read_text("utf-8"))]
    environment = Environment(
        loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"figure": figure, "size": format_size}
    style = Markup((_HERE / "style.css").read_text("utf-8"))
    return environment.get_template(template).render(policy=_policy(scripts), style=style, scripts=scripts, **content)


def save(html: str, path: Path) -> Path:
    """Write a page to the file `path` and return it. Raises OSError when it cannot be written there."""
    # A lone surrogate, which JSON can hold, has no place in UTF-8.
    path.write_bytes(html.encode("utf-8", errors="replace"))
    return path


def _policy(scripts: list[str]) -> str:
    """A content security policy: nothing is loaded, and no script runs but these, whatever a journal holds."""
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes)
    return f"default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; script-src {allowed}"
