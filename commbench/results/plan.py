"""The plan of a run: every step that will be measured, and how. It stands in plan.json before the first rank starts."""

import hashlib
import json
from dataclasses import asdict, dataclass
from operator import index
from pathlib import Path

from commbench.errors import UsageError
from commbench.results.records import SCHEMA, Point


@dataclass(frozen=True)
class Settings:
    """How each point is measured; the same for a whole run.

    iters: None stops by precision, budget or maximum; a number takes exactly that many samples.
    timeout_s: the longest that forming the world, one call or one phase of a point may take.
    """

    warmup: int = 10
    warmup_s: float = 0.25
    iters: int | None = None
    target: float = 0.02
    budget_s: float = 1.0
    max_samples: int = 1000
    checks: int = 1
    timeout_s: float = 60.0
    graph: int = 0


@dataclass(frozen=True)
class Plan:
    """`steps`: tuples of points that run at the same time. A run is plan.json and the journals beside it."""

    name: str
    steps: tuple[tuple[Point, ...], ...]
    settings: Settings
    launches: int = 1
    command: tuple[str, ...] = ()
    created_at: str = ""

    @property
    def hash(self) -> str:
        what = {"steps": [[p.id for p in step] for step in self.steps], "settings": asdict(self.settings)}
        return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:16]

    def worlds(self) -> list[tuple[str, int]]:
        """The (backend, world size) pairs of its points, in order; each is launched by itself."""
        return list(dict.fromkeys((step[0].backend, step[0].world_size) for step in self.steps))

    def points(self) -> list[Point]:
        return [point for step in self.steps for point in step]

    def save(self, path: Path) -> None:
        data = asdict(self)
        data["steps"] = [[p.to_json() | {"id": p.id} for p in step] for step in self.steps]
        draft = path.with_suffix(".tmp")  # a disk that fills up leaves no half of a plan
        try:
            draft.write_text(json.dumps({"schema": SCHEMA, "hash": self.hash, **data}, indent=1))
        except OSError:
            draft.unlink(missing_ok=True)
            raise
        draft.replace(path)

    @staticmethod
    def load(path: Path) -> "Plan":
        """Raises UsageError when the file is missing, is no JSON or has another schema."""
        try:
            data = json.loads(path.read_text())
        except FileNotFoundError:
            raise UsageError(
                f"{path.parent} is no run: it has no plan.json; a run is the folder that `commbench run` printed"
            ) from None
        except (OSError, ValueError, RecursionError) as error:
            raise UsageError(f"{path} cannot be read as JSON: {error}") from None
        if not isinstance(data, dict) or data.get("schema") != SCHEMA:
            found = data.get("schema") if isinstance(data, dict) else type(data).__name__
            raise UsageError(f"{path} has schema {found!r}; this commbench reads schema {SCHEMA}")
        try:
            return Plan(
                name=data["name"],
                steps=tuple(tuple(Point.from_json(p) for p in step) for step in data["steps"]),
                settings=Settings(**data["settings"]),
                launches=index(data["launches"]),
                command=tuple(data["command"]),
                created_at=data["created_at"],
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise UsageError(f"{path} is not a plan that this commbench wrote: {error!r}") from None
