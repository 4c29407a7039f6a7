"""TOML files from anywhere: read, or told in one sentence why not."""

import tomllib
from pathlib import Path

from commbench.errors import UsageError


def read_toml(path: Path, what: str, missing: str) -> dict:
    """The tables of the file at `path`, which is called `what` in sentences. Raises UsageError: `missing` where there
    is no such file, else what is wrong with it."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, IsADirectoryError):
        raise UsageError(missing) from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{what} {path} cannot be read: {error}") from None
    except (ValueError, RecursionError) as error:  # a path with a NUL, no TOML, thousands of digits, nested too deep
        raise UsageError(f"{what} {str(path)!r} is not valid TOML: {error}") from None
