"""The labs of this machine, as files: /run/commbench-lab/NAME/lab.json. Only root sees them, and no reboot keeps them.

A lab's file is written before its first namespace is made, so that a later call finds what a killed one has left.
"""

import fcntl
import json
import os
from contextlib import contextmanager
from pathlib import Path

from commbench.errors import MeasureError, UsageError
from commbench.lab.layout import Lab, check_name

RUN = Path("/run/commbench-lab")


def need_root() -> None:
    """Raise MeasureError for a user who may not make network namespaces."""
    if os.geteuid() != 0:
        raise MeasureError("a lab needs root, for it makes network namespaces: run it with sudo")


def folder(name: str) -> Path:
    """Where the lab keeps its files: lab.json, hosts, sys (a mount point), switch.pid, switch.log, switch.socket."""
    return RUN / name


@contextmanager
def lock():
    """Held while labs are built, changed or taken down: one at a time. Raises as need_root does."""
    need_root()
    RUN.mkdir(mode=0o700, exist_ok=True)
    with open(RUN / "lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        os.set_inheritable(file.fileno(), True)  # commands.batch hands it on
        yield


def names() -> list[str]:
    """The labs that have left a file, standing or half built."""
    return sorted(path.parent.name for path in RUN.glob("*/lab.json"))


def save(lab: Lab, complete: bool) -> None:
    """Write the lab's file, whole or not at all."""
    path = folder(lab.name) / "lab.json"
    path.parent.mkdir(mode=0o700, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(json.dumps({"complete": complete, **lab.to_json()}))
    new.rename(path)


def load(name: str) -> tuple[Lab, bool] | None:
    """(the lab, whether it was built to its end); None where there is none of that name.

    Raises UsageError for what can be no lab's name, MeasureError for a file that is none of ours.
    """
    path = folder(check_name(name)) / "lab.json"
    try:
        data = json.loads(path.read_text())
        complete = data.pop("complete")
        return Lab(**data), complete
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, AttributeError):
        raise MeasureError(
            f"{path} cannot be read; remove it, and the namespaces that `ip netns list` shows as commbench-{name}-..."
        ) from None


def standing(name: str) -> Lab:
    """The lab `name`. Raises UsageError, naming those there are, where there is none, or only half of one."""
    need_root()
    found = load(name)
    if found is None:
        there = f"; there are {', '.join(names())}" if names() else ""
        raise UsageError(f"there is no lab {name!r}{there}; `commbench lab up --name {name}` makes it")
    if not found[1]:
        raise UsageError(f"lab {name!r} was not built to its end; `commbench lab down --name {name}` removes the rest")
    return found[0]
