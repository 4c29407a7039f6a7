"""What one rank needs to know to take part in a launch."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from commbench.results.plan import WorldKey


@dataclass(frozen=True)
class LaunchSpec:
    """One launch: `ranks` processes over `backend`, of which this supervisor holds `local_ranks`.

    run_dir and journal are used by rank 0 only. repetition is the launch number that rows carry; given_up are point ids
    that ended in an error before. The site fills in scratch (a folder of this node: progress, logs and errors of its
    ranks), local_ranks, and the address and port of the rendezvous store.
    """

    run_dir: str
    journal: str
    backend: str
    ranks: int
    repetition: int
    timeout_s: float
    given_up: tuple[str, ...] = ()
    forced: dict = field(default_factory=dict)  # variables that force an algorithm: this launch is for their points
    seen: dict = field(default_factory=dict)  # what a probe launch saw (launch/probe.py)
    environment: dict = field(default_factory=dict)  # other variables set in the ranks of this launch
    scratch: str = ""
    local_ranks: int = 0
    address: str = ""
    port: int = 0
    notes: tuple[str, ...] = ()

    @property
    def world(self) -> WorldKey:
        return WorldKey(self.backend, self.ranks, tuple(self.forced.items()))

    @property
    def variables(self) -> dict:
        """All variables that are set in its ranks."""
        return {**self.environment, **self.forced}

    @property
    def progress(self) -> Path:
        return Path(self.scratch) / "progress"

    @property
    def launcher_log(self) -> Path:
        """What the mpirun of its ranks prints, with what they print."""
        return Path(self.scratch) / "mpirun.log"

    def log(self, local_rank: int) -> Path:
        return Path(self.scratch) / f"rank-{local_rank}.log"

    def error(self, local_rank: int) -> Path:
        return Path(self.scratch) / f"rank-{local_rank}.error"

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> "LaunchSpec":
        data = json.loads(text)
        return LaunchSpec(**{**data, "given_up": tuple(data["given_up"]), "notes": tuple(data["notes"])})
