"""`nvidia-smi topo -m`: how every two devices of a node are connected. A matrix may stand among prose."""

import re
from collections.abc import Iterator

from commbench.importers.found import Given, Test
from commbench.importers.samples import sample
from commbench.importers.text import Lines

_DEVICE = re.compile(r"(?:GPU|NIC|CPU)\d{1,4}|mlx\d_\w{1,20}|bnxt_re\d{1,3}|irdma\d{1,3}|rocep\w{1,20}|ibp\w{1,20}")
_CELL = re.compile(r"X|NV\d{1,3}|SYS|NODE|PHB|PXB|PIX|SOC|PSB|C2C|N/A|Self")
_LEGEND = re.compile(r"^\s*(?:(?:X|SYS|NODE|PHB|PXB|PIX|NV#|SOC|PSB|C2C)\s+= |NIC\d{1,4}: \w)")
_MOST = 1024  # devices of one node
WORDS = ("GPU0",)


def starts(text: str) -> bool:
    words = text.split()[:2]
    return "GPU0" in words[:1] and (len(words) == 1 or _DEVICE.fullmatch(words[1]) is not None or words[1] == "CPU")


def read(lines: Lines, given: Given) -> Iterator[Test]:
    """One test for each matrix; a sample for each pair of devices, with the path that connects them."""
    test, columns, rows, numa = None, [], {}, {}
    for line in lines.section("topo"):
        words = line.text.split()
        if starts(line.text) and words[1:2] != ["X"]:
            if test:
                yield _finished(test, columns, rows, numa)
            columns = [word for word in words if _DEVICE.fullmatch(word)][:_MOST]
            test, rows, numa = Test("nvidia-smi topo -m", line.number, unit="pair"), {}, {}
        elif words and words[0] in columns:
            cells = words[1 : 1 + len(columns)]
            if len(cells) == len(columns) and all(_CELL.fullmatch(cell) for cell in cells) and words[0] not in rows:
                rows[words[0]] = cells
                numa[words[0]] = next(iter(words[2 + len(columns) :]), "")  # behind the CPU affinity
            else:
                lines.drop(line, "a row of the matrix that is not complete")
        elif words and not _LEGEND.match(line.text) and words[-1] != "Legend:" and line.text.strip("`- "):
            lines.drop(line)
    if test:
        yield _finished(test, columns, rows, numa)


def _finished(test: Test, columns: list[str], rows: dict[str, list[str]], numa: dict[str, str]) -> Test:
    gpus = [name for name in columns if name.startswith("GPU")]
    uneven = 0
    for i, first in enumerate(columns):
        for j in range(i + 1, len(columns)):
            second = columns[j]
            there = rows[first][j] if first in rows else None
            back = rows[second][i] if second in rows else None
            if there and back and there != back:
                uneven += 1
            path = there or back
            if path and path not in ("X", "N/A") and (there is None or back is None or there == back):
                test.add(_pair(first, second, path, i, j))
    missing = [name for name in columns if name not in rows]
    if missing:
        test.cut = f"the rows of {', '.join(missing[:8])} are missing"
    if uneven:
        test.notes.append(f"{uneven} pair(s) have one path in one direction and another one back: they were left out")
    test.rows = len(test.samples)
    if not test.samples:
        test.fault = (test.line, "the header of a topology matrix without a row")
        return test
    links = {s.reported["path"] for s in test.samples if s.point.params["kind"] == "GPU-GPU"}
    between = links.pop() if len(links) == 1 else "not uniform" if links else "none"
    test.facts |= {"gpus": len(gpus), "nics": len(columns) - len(gpus), "between_gpus": between}
    if numbers := {numa[name] for name in gpus if numa.get(name, "").isdigit()}:
        test.facts["numa_nodes"] = len(numbers)
    test.nodes = [{"host": "not named", "gpus": [{"name": name} for name in gpus]}]
    return test


def _pair(first: str, second: str, path: str, i: int, j: int):
    links = {"nvlinks": int(path[2:])} if path.startswith("NV") else {}
    kind = "-".join("GPU" if name.startswith("GPU") else "NIC" for name in (first, second))
    return sample(
        "topology", "cuda", kind="link", ranks=2, nodes=1, scope="intra", members=(), group=f"{first} - {second}",
        dtype="bytes", params={"kind": kind, "first": first, "second": second}, reported={"path": path, **links},
    )  # fmt: skip
