"""What two runs differ in beside their figures: versions, settings, machines."""

from commbench.results.nccl_tests import one_line
from commbench.results.store import Run

_MOST = 100  # characters of a value that are told
_OF_NODES = ("cpu", "kernel", "cores")
_OF_GPUS = ("name", "driver")
# What differs between any two launches and says nothing.
_OWN = (
    "SLURM_JOB",
    "SLURM_STEP",
    "MASTER_",
    "PMI",
    "OMPI_COMM_WORLD",
    "RANK",
    "LOCAL_RANK",
    "SLURM_TOPOLOGY",
    "SLURMD_",
)


def environment_differences(a: Run, b: Run) -> list[str]:
    """A sentence for each thing in which the runs differ: "driver: 550.54 in A, 560.35 in B"."""
    told_a, told_b = (_told(run) for run in (a, b))
    return [
        one_line(f"{name}: {_values(told_a.get(name))} in A, {_values(told_b.get(name))} in B")
        for name in sorted({*told_a, *told_b})
        if told_a.get(name) != told_b.get(name)
    ]


def _values(values: set[str] | None) -> str:
    if not values:
        return "none"
    text = " and ".join(sorted(values)[:3]) + (f" and {len(values) - 3} more" if len(values) > 3 else "")
    return text if len(text) <= _MOST else text[: _MOST - 3] + "..."


def _told(run: Run) -> dict[str, set[str]]:
    """{name: its values over all launches and nodes}."""
    found = {}

    def add(name, value):
        if value not in (None, "", [], {}):
            found.setdefault(str(name), set()).add(str(value))

    for launch in run.launches:
        header = launch.header
        add("world size", header.get("world_size"))
        add("nodes", len(header.get("nodes", [])) or None)
        add("oversubscribed", header.get("oversubscribed"))
        for name, version in _table(header.get("versions")).items():
            add(name, version)
        for name, value in _table(header.get("library")).items():
            add(f"library {name}", value)
        for node in header.get("nodes", []):
            add("hosts", node.get("host"))
            for name in _OF_NODES:
                add(name, node.get(name))
            gpus = node.get("gpus")
            for gpu in gpus if isinstance(gpus, list) else []:
                for name in _OF_GPUS:
                    add(f"GPU {name}", _table(gpu).get(name))
            for name, value in _table(node.get("environment")).items():
                if not str(name).startswith(_OWN):
                    add(name, value)
            for path, text in _table(node.get("conf_files")).items():
                add(path, text)
    return found


def _table(value) -> dict:
    return value if isinstance(value, dict) else {}
