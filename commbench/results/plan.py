"""The plan of a run: every step that will be measured, and how. It stands in plan.json before the first rank starts."""

import hashlib
import json
from dataclasses import asdict, dataclass, fields
from operator import index
from pathlib import Path
from typing import NamedTuple

from commbench.errors import UsageError
from commbench.ops import algorithms
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


class WorldKey(NamedTuple):
    """What a launch is for: `ranks` ranks over `backend`, started with the `forced` variables (name, value)."""

    backend: str
    ranks: int
    forced: tuple[tuple[str, str], ...] = ()


def world_of(step) -> WorldKey:
    """The world that the points of a step, or some of them, need."""
    return WorldKey(step[0].backend, step[0].world_size, tuple(algorithms.environment(step[0]).items()))


@dataclass(frozen=True)
class Plan:
    """`steps`: tuples of points that run at the same time. A run is plan.json and the journals beside it.

    `seed`: None measures steps in the order in which they stand here; a number shuffles them, differently for each
    repetition. `refine`: more sizes are still to be added around the breaks of each curve. `refined`: how many of the
    last steps have been added so. `later`: (name, steps) of the stages of a ladder that wait for what the stages
    before them find; their steps come to the end of `steps`, and count as refined.
    """

    name: str
    steps: tuple[tuple[Point, ...], ...]
    settings: Settings
    launches: int = 1
    command: tuple[str, ...] = ()
    created_at: str = ""
    seed: int | None = None
    refine: bool = False
    refined: int = 0
    later: tuple[tuple[str, tuple[tuple[Point, ...], ...]], ...] = ()

    @property
    def hash(self) -> str:
        planned = self.steps[: len(self.steps) - self.refined]
        what = {"steps": [[p.id for p in step] for step in planned], "settings": asdict(self.settings)}
        return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:16]

    def worlds(self, repetition: int = 1) -> list[WorldKey]:
        """The worlds that its points need, in the order of their first step; each is launched by itself."""
        return list(dict.fromkeys(world_of(self.steps[number]) for number in self.order(repetition)))

    def order(self, repetition: int) -> list[int]:
        """The numbers of its steps in the order in which repetition `repetition` measures them.

        A randomised block: every repetition holds every step once, in an order of its own. A step's place hangs on
        the seed and the step alone, so that steps that are added later do not move the others.
        """
        numbers = list(range(len(self.steps)))
        if self.seed is None:
            return numbers
        places = [f"{self.seed} {repetition} {step[0].id}" for step in self.steps]
        return sorted(numbers, key=lambda n: hashlib.sha256(places[n].encode()).digest())

    def points(self) -> list[Point]:
        return [point for step in self.steps for point in step]

    def save(self, path: Path) -> None:
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("steps", "later", "settings")}
        data = {"schema": SCHEMA, "hash": self.hash, **own, "settings": asdict(self.settings)}
        told = {key: json.dumps(value) for key, value in data.items()} | {"steps": _lines(self.steps)}
        told["later"] = f"[{', '.join(f'[{json.dumps(name)}, {_lines(steps)}]' for name, steps in self.later)}]"
        text = ",\n".join(f" {json.dumps(key)}: {value}" for key, value in told.items())
        draft = path.with_suffix(".tmp")  # a disk that fills up leaves no half of a plan
        try:
            draft.write_text(f"{{\n{text}\n}}\n")
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
                steps=_steps(data["steps"]),
                settings=Settings(**data["settings"]),
                launches=index(data["launches"]),
                seed=None if data.get("seed") is None else index(data["seed"]),
                refine=bool(data.get("refine", False)),
                refined=index(data.get("refined", 0)),
                later=tuple((str(name), _steps(steps)) for name, steps in data.get("later", [])),
                command=tuple(data["command"]),
                created_at=data["created_at"],
            )
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise UsageError(f"{path} is not a plan that this commbench wrote: {error!r}") from None


def _lines(steps) -> str:
    """A line for each step: its first point, then what each other one differs in, for pairs are many and alike."""
    return "[" + ",".join(f"\n  {json.dumps(list(_told(step)))}" for step in steps) + "]"


def _told(step):
    first, *others = (point.to_json() | {"id": point.id} for point in step)
    yield first
    for point in others:
        yield {key: value for key, value in point.items() if value != first[key]}


def _steps(data) -> tuple[tuple[Point, ...], ...]:
    return tuple(tuple(Point.from_json({**step[0], **point}) for point in step) for step in data)
