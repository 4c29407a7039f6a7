"""What one program of nccl-tests has printed, before it is made into samples."""

from dataclasses import dataclass, field

from commbench.importers.nccl_rows import Row, Rows


@dataclass
class Output:
    """What one program has printed so far. The counters tell whether several print into one another."""

    line: int
    rows: list[Row] = field(default_factory=list)
    table: Rows = field(default_factory=Rows)
    devices: list[dict] = field(default_factory=list)
    program: str = ""
    tool: str = ""
    version: str = ""
    library: str = ""
    settings: dict = field(default_factory=dict)
    hints: list[int] = field(default_factory=list)
    said: list[int] = field(default_factory=list)  # numbers of GPUs in sentences above the table
    command_nodes: int = 0
    starts: int = 0
    heads: int = 0
    first_ranks: int = 0
    head_line: int = 0
    average: float | None = None
    average_failed: bool = False
    failed: str = ""
    asterisks: bool = False
    amd: bool = False
    ended: bool = False
    gap: bool = False
    odd: tuple[int, str] | None = None
