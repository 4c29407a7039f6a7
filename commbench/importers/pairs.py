"""Oracle's ncclscout: bus bandwidth of all_reduce between pairs of nodes, held against a threshold."""

import re
from collections.abc import Iterator

from commbench.importers.cells import number, positive
from commbench.importers.found import Given, Test
from commbench.importers.samples import sample
from commbench.importers.text import Lines

_PAIR = re.compile(
    r"Testing (?:unpaired node )?([\w.-]{1,253}) (?:<->|with) ([\w.-]{1,253})(?:\.\.\.|\u2026) *([\d.]{1,20}) GB/s"
)
_BAD = re.compile(
    r"Testing (?:unpaired node )?([\w.-]{1,253}) (?:<->|with) ([\w.-]{1,253})(?:\.\.\.|\u2026) *(\D.{0,80})"
)
_RESULT = re.compile(r"^\s*([\w.-]{1,253}) <-> ([\w.-]{1,253}): ([\d.]{1,20}) GB/s")
_NODES = re.compile(r"(Good|Bad) nodes \((?:\u2265|>=|<) *([\d.]{1,20}) GB/s[^)]{0,40}\): *(\d{1,6})")
_STATISTIC = re.compile(r"^\s*(Maximum|Minimum|Average): ([\d.]{1,20}) GB/s")
WORDS = ("Running NCCL test", "Testing ")


def starts(text: str) -> bool:
    return text.startswith("Running NCCL test on ") or _PAIR.search(text) is not None


def read(lines: Lines, given: Given) -> Iterator[Test]:
    """The pairs of one run; a pair that is told twice (as it is tested, and in the summary) is taken once."""
    test, pairs = None, {}
    for line in lines.section("pairs"):
        test = test or Test("ncclscout", line.number, unit="pair")
        text = line.text.strip()
        if found := _PAIR.search(text) or _RESULT.match(text):
            rate = positive(found[3])
            if rate is None:
                lines.drop(line, "a pair without a rate above 0")
            else:
                pairs.setdefault(frozenset(found.groups()[:2]), (found[1], found[2], rate, ""))
        elif found := _BAD.search(text):
            pairs.setdefault(frozenset(found.groups()[:2]), (found[1], found[2], None, found[3].strip()))
        elif found := _NODES.search(text):
            test.facts |= {f"{found[1].lower()}_nodes": int(found[3]), "threshold_GBps": number(found[2])}
        elif found := _STATISTIC.match(text):
            test.facts[f"{found[1].lower()}_GBps"] = number(found[2])
        elif any(c.isalnum() for c in text) and not _known(text):
            lines.drop(line)
    if test:
        yield _finished(test, pairs)


def _known(text: str) -> bool:
    words = (
        "Running ",
        "Checking",
        "Creat",
        "Unpaired",
        "Testing",
        "Initial Test",
        "COMPREHENSIVE",
        "Total nodes",
        "Reachable",
        "Successfully",
        "Unreachable",
        "Verification",
        "Good Nodes",
        "Bad Nodes",
        "Bandwidth Statistics",
        "Test completed",
        "node",
    )
    return any(word in text for word in words)


def _finished(test: Test, pairs: dict) -> Test:
    hosts = sorted({host for pair in pairs.values() for host in pair[:2]})
    test.nodes = [{"host": host, "gpus": []} for host in hosts]
    for first, second, rate, why in pairs.values():
        what = {
            "kind": "link",
            "ranks": 0,
            "nodes": 2,
            "scope": "mixed",
            "group": f"pair {first},{second}",
            "members": (),
        }
        params = {"first": first, "second": second}
        if rate:
            test.add(sample("all_reduce", "nccl", params=params, reported={"busbw_GBps": rate}, redop="sum", **what))
        else:
            test.add(sample("all_reduce", "nccl", params=params, status="error", reason=why[:200], redop="sum", **what))
    twice = [host for host in hosts if sum(host in pair[:2] for pair in pairs.values()) > 1]
    if twice:
        test.notes.append(f"tested more than once, as the partner of unpaired nodes: {', '.join(twice[:8])}")
    test.rows = len(test.samples)
    if not test.samples:
        test.fault = (test.line, "ncclscout without a pair that was measured")
    return test
