"""What a reader finds: the output of one program, as samples and what else it told."""

from dataclasses import dataclass, field

from commbench.errors import MeasureError
from commbench.results.records import Sample

MOST_SAMPLES = 100_000  # of one file: a record is a few kilobytes of memory
MOST_RANKS = 131_072  # a figure beyond it is damage, not a cluster


@dataclass(frozen=True)
class Given:
    """What the caller knows and the file may not say. `ranks` and `nodes`: 0 where not known. `name`: of the file."""

    op: str = ""
    ranks: int = 0
    nodes: int = 0
    name: str = ""


@dataclass
class Test:
    """One program's output. `rows`: the table rows that `samples` come from. `nodes` and `ranks`: as in the header of
    a journal. `facts`: what else the program said of itself. `notes`: what a reader of the figures must know.
    `cut`: where and after what the output ends too early. `fault`: (line, why) where it holds nothing to use."""

    tool: str
    line: int
    samples: list[Sample] = field(default_factory=list)
    rows: int = 0
    unit: str = "row"
    nodes: list[dict] = field(default_factory=list)
    ranks: list[dict] = field(default_factory=list)
    versions: dict = field(default_factory=dict)
    facts: dict = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    cut: str = ""
    fault: tuple[int, str] | None = None

    def add(self, sample: Sample) -> None:
        """Take in a result. Raises MeasureError where they are too many for one file."""
        if len(self.samples) >= MOST_SAMPLES:
            raise MeasureError(f"more than {MOST_SAMPLES} results stand in one file; split it")
        self.samples.append(sample)

    @property
    def hosts(self) -> list[str]:
        return [node["host"] for node in self.nodes]


def believed(ranks) -> int:
    """`ranks` as a number, 0 (not known) for one that no cluster has."""
    return int(ranks) if 0 < int(ranks) <= MOST_RANKS else 0
