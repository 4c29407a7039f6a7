"""The jobs and the devices behind a table of nccl-tests: whose rows these are, and on what machines they ran."""

from commbench.importers.nccl_output import Output
from commbench.importers.nccl_rows import Row


def machines(devices: list[dict]) -> tuple[list[dict], list[dict]]:
    """(nodes, ranks) in the form of a journal's header, from the lines that list the devices."""
    number = {host: i for i, host in enumerate(dict.fromkeys(device["host"] for device in devices))}
    gpus: dict[str, dict] = {host: {} for host in number}  # in their order, each once
    for device in devices:
        gpus[device["host"]][device["device_name"], device["device_id"], device["device"]] = None
    nodes = [
        {"host": host, "gpus": [{"name": name, "pci": pci} for name, pci, _ in listed]} for host, listed in gpus.items()
    ]
    return nodes, [{"node": number[device["host"]], **device} for device in devices]


def several(output: Output) -> str:
    """A sentence where more than one job has printed into this table."""
    bare = output.starts > 1 and output.first_ranks <= 1  # one starts before the devices of the other are listed
    consecutive = _doubled(output.rows)
    jobs = max(output.heads, output.first_ranks if output.heads > 1 else 1, 2 if bare else 1, consecutive)
    if jobs < 2:
        return ""
    each = len(output.devices) // output.first_ranks if output.first_ranks else 0
    size = f" of {each} rank(s) each" if each else ""
    return (
        f"not one job: {max(jobs, output.first_ranks)} jobs{size} print into one another, so no row is known to be of "
        "one of them; start the ranks as one job (an nccl-tests built with MPI=1, one launcher)"
    )


def _doubled(rows: list[Row]) -> int:
    """How many times in a row every row stands there: k where k tables are interleaved, else 1."""
    runs, last = [], None
    for row in rows:
        what = row.size_bytes, row.dtype, row.redop, row.root
        if row.size_bytes and what == last:
            runs[-1] += 1
        elif row.size_bytes:
            runs.append(1)
        last = what
    return min(runs) if len(runs) > 1 else 1


def shared_devices(devices: list[dict]) -> int:
    """How many ranks the most crowded device has, where it has more than one."""
    users: dict[tuple, int] = {}
    for device in devices:
        key = device["host"], device["device"], device["group"]
        users[key] = users.get(key, 0) + 1
    most = max(users.values(), default=0)
    return most if most > 1 else 0
