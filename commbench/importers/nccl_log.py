"""What NCCL's own log lines tell, when they stand among the lines of a table.

A line looks like `node01:69:107 [6] NCCL INFO ...` (with a time stamp in front since 2.27); it may have been printed
into the middle of a table row.
"""

import re
from dataclasses import dataclass, field

_LOG = re.compile(
    r"(?:\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,9})?\] ?)?"
    r"(?P<host>[\w.-]{1,255}):\d{1,10}:\d{1,10} \[[^\]\n]{1,20}\] ?(?:[\w./-]{1,100}:\d{1,6} )?NCCL (?:INFO|WARN|TRACE)"
)
_RANKS = re.compile(r"\bnranks (\d{1,7})\b")
_VERSION = re.compile(r"\b(NCCL|RCCL) version ?:? ?(\S{1,60})")
# The label of a launcher between the beginning of a row and the log line, or alone before it.
_LABEL = re.compile(r"\s*(?:\[[^\[\]\n]{1,120}\](?:<std(?:out|err|diag)>:?)?|(?<!\S)\d{1,7}:)\s*$")
# NVIDIA/nccl src/enqueue.cc: "AllReduce: 1024 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..1}".
_TUNING = re.compile(r"\b([A-Z][A-Za-z]{2,20}): (\d{1,18}) Bytes -> Algo ([A-Za-z_]{2,20}) proto ([A-Z0-9a-z]{2,10})")
_FIRST = re.compile(r"\s*(\d{1,7}:) ")
_MOST_HOSTS = 100_000
_FAR = 4096  # characters: a log line begins before that or is none


_PLAIN = re.compile(
    rb"(?:\s{0,8}\d{1,7}: |\[[^\[\]\n]{1,120}\](?:<std(?:out|err)>:?)? ?)?"
    rb"(?:\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,9})?\] ?)?"
    rb"([A-Za-z][\w.-]{0,254}):\d{1,10}:\d{1,10} \[\d{1,7}\] NCCL INFO "
)


@dataclass
class Told:
    """What the log lines of a file told so far: how many there were, ranks of the largest communicator, the library
    and its version, hosts, and for (function, bytes) the algorithms and protocols."""

    lines: int = 0
    ranks: int = 0
    library: str = ""
    version: str = ""
    hosts: dict[str, None] = field(default_factory=dict)
    algorithms: dict[tuple[str, int], set[tuple[str, str]]] = field(default_factory=dict)
    _plain_hosts: set[bytes] = field(default_factory=set)

    def is_plain(self, raw: bytes) -> bool:
        """Take in a line that is nothing but a log line of which only the host matters."""
        found = _PLAIN.match(raw)
        if not found or b"nranks" in raw or b"-> Algo" in raw or b" version" in raw:
            return False
        self.lines += 1
        host = found[1]
        if host not in self._plain_hosts and len(self.hosts) < _MOST_HOSTS:
            self._plain_hosts.add(host)
            self.hosts[host.decode()] = None
        return True

    def heard(self, raw: str) -> tuple[str, bool]:
        """Take in a line that may be of the log. Returns what is left for the readers ("" for nothing), and whether a
        log line followed on it: a row of a table, cut in two."""
        found = _LOG.search(raw, 0, _FAR)
        if not found:
            return raw, False
        self.lines += 1
        if "nranks" in raw and (ranks := _RANKS.search(raw)):
            self.ranks = max(self.ranks, int(ranks[1]))
        if " version " in raw:
            self.version_line(raw)
        if "-> Algo" in raw and (tuned := _TUNING.search(raw)):
            key, pair = (tuned[1], int(tuned[2])), (tuned[3].lower().replace("_", ""), tuned[4].lower())
            if len(self.algorithms) < 10_000:
                self.algorithms.setdefault(key, set()).add(pair)
        host, start = found["host"], found.start()
        label = _LABEL.search(raw, max(0, start - 200), start)
        head = raw[: label.start() if label else start].rstrip()
        if (label := _FIRST.match(raw)) and head.endswith(label[1]):  # srun's label, glued to the cell before it
            head = head[: -len(label[1])]
        if not head and raw[:start].endswith("  ") and (cell := _before("", True, host, self.hosts).strip()):
            return raw[:start] + cell, True  # the first cell of a row, glued to the host's name
        if not head and len(self.hosts) < _MOST_HOSTS:
            self.hosts[host] = None
        return (
            (_before(head, raw[start - 1 : start].isspace(), host, self.hosts), True) if head.strip() else ("", False)
        )

    def version_line(self, text: str) -> None:
        """ "NCCL version 2.23.4+cuda12.6" or "RCCL version ..."."""
        if found := _VERSION.search(text):
            self.library, self.version = found[1], found[2].removesuffix("+cudaCUDA_MAJOR.CUDA_MINOR")


# The cells after which a row may be cut, and which the host's name then follows without a space.
_GLUED = re.compile(r"-?\d+(?:\.\d+)?|none|sum|prod|min|max|avg|float|half|double|bfloat16|u?int(?:8|32|64)")


def _before(head: str, apart: bool, host: str, known) -> str:
    """The beginning of a row before a log line, with the cell that is glued to the host's name, as in `-1node01`.

    `apart`: a space stands before the host's name.
    """
    own = next((name for name in known if host.endswith(name) and host != name), None)
    cell = host[: -len(own)] if own else None
    if not own and host not in known and (found := _GLUED.match(host)) and found.end() < len(host):
        cell = found[0]
    return head + (" " if apart else "") + cell if cell else head
