"""A lab from its plan to its end: up, shape, cut, down."""

import shutil
from dataclasses import replace

from commbench.errors import UsageError
from commbench.lab import shaping, switching, wiring
from commbench.lab.commands import batch, need
from commbench.lab.layout import DIRECTIONS, Lab, check, check_link
from commbench.lab.namespaces import end_processes, missing
from commbench.lab.state import folder, load, lock, need_root, save, standing


def up(lab: Lab) -> bool:
    """Build `lab`; True when the rest of an earlier one of its name had to be removed first.

    Raises UsageError when a lab of that name stands or its names are taken, MeasureError when it cannot be built here;
    then nothing is left of it.
    """
    check(lab)
    need_root()
    need("ip", "tc")
    if lab.form == "latency":
        switching.need_tun()
    with lock():
        found = load(lab.name)
        if found and found[1] and not broken(found[0]):
            raise UsageError(
                f"lab {lab.name!r} stands already; `commbench lab down --name {lab.name}`, or choose another --name"
            )
        if found:
            _remove(found[0])
        gone = set(missing(lab.namespaces()))
        if taken := [namespace for namespace in lab.namespaces() if namespace not in gone]:
            raise UsageError(
                f"there is a network namespace {taken[0]} that no lab has made; choose another --name, "
                f"or remove it with `ip netns delete {taken[0]}`"
            )
        save(lab, complete=False)
        try:
            _build(lab)
        except BaseException:
            _remove(lab)
            raise
        save(lab, complete=True)
    return found is not None


def _build(lab: Lab) -> None:
    place = folder(lab.name)
    (place / "hosts").write_text(lab.hosts_file())
    (place / "sys").mkdir()
    wiring.connect(lab)
    if lab.form == "latency":
        switching.start(lab)
    wiring.await_links(lab)


def down(name: str) -> bool:
    """Take the lab down, with every process that lives in it; True when there was one, whole or in part."""
    with lock():
        found = load(name)
        if found:
            _remove(found[0])
    return found is not None


def _remove(lab: Lab) -> None:
    switching.stop(lab.name)
    end_processes(lab.namespaces())
    wiring.disconnect(lab)
    shutil.rmtree(folder(lab.name))


def broken(lab: Lab) -> list[str]:
    """What a standing lab lacks, in words."""
    lacking = [f"namespace {name}" for name in missing(lab.namespaces())]
    return lacking + (["its switch"] if lab.form == "latency" and switching.pid_of(lab.name) is None else [])


def change(name: str, link: str, directions=DIRECTIONS, bit_s: float | None = None, cut: bool | None = None) -> Lab:
    """Set the rate of a link, or cut and restore it, in the directions given; the lab as it is then.

    Raises UsageError for a lab or a link that is not there, MeasureError when the kernel refuses.
    """
    with lock():
        lab = standing(name)
        link = check_link(lab, link)
        for direction in directions:
            now_bit_s, now_cut = lab.state_of(link, direction)
            state = {"bit_s": bit_s or now_bit_s, "cut": now_cut if cut is None else cut}
            changes = {**lab.changes, f"{link} {direction}": state}
            if state == {"bit_s": lab.set_bit_s(link), "cut": False}:
                del changes[f"{link} {direction}"]
            lab = replace(lab, changes=changes)
            if lab.form == "rate":
                namespace, dev = shaping.device(lab, link, direction)
                batch("tc", shaping.change_lines(dev, state["bit_s"], state["cut"]), namespace)
        save(lab, complete=True)
        if lab.form == "latency":
            switching.reload(name)
    return lab
