"""A text file as lines, without what launchers, terminals and web pages put around them.

Streamed: a log of any size passes through a few kilobytes of memory. Log lines of NCCL are kept from the readers; what
they tell (ranks, version, algorithms) is gathered in `told`, and a table row that such a line cut in two keeps its
beginning as a line of its own.
"""

import codecs
import re
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from commbench.errors import MeasureError, UsageError
from commbench.importers.nccl_log import Told

LONGEST = 16 * 2**20  # bytes of one line: a JSON document may stand on one
_WIDEST = 8192  # characters of a row or a sentence; only documents stand on longer lines
_BLOCK = 2**20
_COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"PK\x03\x04": "zip",
}

# mpirun --tag-output of Open MPI 4 and 5, which may also stand within a line.
_TAG = re.compile(r"\[[^\[\]<>\n]{1,120}\]<std(?:out|err|diag)>:?")
_PREFIXES = re.compile(
    r"""\s{0,8}(?:
      (?P<rank>\d{1,7}):\ (?!\d+\s*$)      # srun -l
    | \[(?P<bracket>\d{1,7})\](?=[\s#\w-])\ ?      # mpiexec -prepend-rank
    | \[(?:default|rank|worker-?)\d{1,7}\]:?\ ?        # torchrun --tee, PyTorch
    | \[pod/[^\]\n]{1,200}\]\ ?                    # kubectl logs --prefix
    | (?:x\d{1,6}c\d{1,2}s\d{1,3}b\d|nid\d{3,8})[\w.-]{0,200}\ \d{1,7}:\ ?  # mpiexec --label of Cray PALS
    | [A-Za-z][\w.-]{0,80}[-_]\d{1,5}\ *\|\ (?=.)  # docker compose logs
    | \[?\d{4}-\d\d-\d\d[T\ ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\]?\ +  # a time stamp
      (?:std(?:out|err)\ [FP]\ )?(?=\S|\ )               # of the kubelet
    | \d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:\ |$)                # the time of day alone: Jenkins
    | (?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)\ [A-Z][a-z]{2}\ [\ \d]\d\ \d\d:\d\d:\d\d\ \d{4}\ ?(?=[\[<])  # --timestamp-output
    | \[[^\[\]<>\n]{1,120}\]<std(?:out|err|diag)>:?      # --tag-output
    | <std(?:out|err)>:?
    | (?:>\ ?){1,20}                               # a quotation
    | -\ (?=\#|\ {6,}(?:\#|\d+\ +\d))              # an item of a list: a line of a table
    )""",
    re.VERBOSE,
)
_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]{0,20}[A-Za-z]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|[()][AB012])")
_BOLD = re.compile(r"\*\*([^\s*][^*]{0,60})\*\*")  # how Markdown marks one figure
_PLAIN = str.maketrans(
    {"\u2212": "-", "\ufeff": None, "\u200b": None, "\x00": None, "\t": "  "}
    | dict.fromkeys((0xA0, *range(0x2000, 0x200B), 0x202F, 0x3000), " ")
)


class Line(NamedTuple):
    """One line without its prefixes. `cut`: an NCCL log line followed on it, so the rest comes later."""

    number: int
    text: str
    cut: bool = False


@dataclass
class Lines:
    """The lines of one file for readers that take one after the other; one taken too many is given back.

    `kind_of(text)` names the reader to which a line belongs ("" for no reader in particular). What a reader does not
    understand it drops: a count for each reason, with the first example.
    """

    path: Path
    source: Iterator[Line]
    told: Told
    kind_of: Callable[[str], str] = lambda text: ""
    dropped: dict[str, list] = field(default_factory=dict)  # reason: [how many, first Line]
    stray: deque = field(default_factory=lambda: deque(maxlen=50))  # the last lines that no reader took
    _back: list[Line] = field(default_factory=list)

    def __iter__(self):
        return self

    def __next__(self) -> Line:
        return self._back.pop() if self._back else next(self.source)

    def give_back(self, line: Line) -> None:
        self._back.append(line)

    def section(self, kind: str) -> Iterator[Line]:
        """The lines up to one that belongs to another reader than `kind`."""
        for line in self:
            other = self.kind_of(line.text)
            if other and other != kind:
                self.give_back(line)
                return
            if len(line.text) > _WIDEST and kind != "nccl_xml":
                self.drop(Line(line.number, line.text[:_WIDEST]), f"a line of more than {_WIDEST} characters")
            else:
                yield line

    def drop(self, line: Line, reason: str = "not understood") -> None:
        if reason not in self.dropped:
            self.dropped[reason] = [0, line]
        self.dropped[reason][0] += 1


def open_lines(path: Path) -> Lines:
    """The lines of a file. Raises UsageError when there is no such file and MeasureError when it is no text."""
    if path.is_dir():
        raise UsageError(f"{path} is a folder; `commbench import` takes the files that tools have printed")
    if path.exists() and not path.is_file():
        raise UsageError(f"{path} is no plain file but a pipe or a device; save the output to a file first")
    try:
        with open(path, "rb") as file:
            head = file.read(2**16)
    except FileNotFoundError:
        raise UsageError(f"{path} does not exist") from None
    for magic, name in _COMPRESSED.items():
        if head.startswith(magic):
            raise MeasureError(f"{path} is compressed ({name}); unpack it first")
    encoding = _encoding(head)
    if encoding == "utf-8" and sum(map(head.count, range(9))) > len(head) // 50:
        raise MeasureError(f"{path} is no text: it is full of control characters")
    told = Told()
    return Lines(path, _clean(_decoded(path, encoding), told), told)


def _encoding(head: bytes) -> str:
    """UTF-16 where the byte order mark says so (a redirection in PowerShell), else UTF-8."""
    return "utf-16" if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8"


def _decoded(path: Path, encoding: str) -> Iterator[bytes | str]:
    """The lines without their ends; a line beyond LONGEST is broken."""
    if encoding != "utf-8":
        with open(path, encoding=encoding, errors="replace", newline="\n") as file:
            while text := file.readline(LONGEST):
                yield text.rstrip("\n")
        return
    with open(path, "rb") as file:
        rest = b""
        while block := file.read(_BLOCK):
            found = (rest + block).split(b"\n")
            rest = found.pop()
            yield from found
            if len(rest) > LONGEST:
                yield rest
                rest = b""
        if rest:
            yield rest


def lines_of(text: str) -> Lines:
    """The lines of a text that is in memory."""
    told = Told()
    return Lines(Path("-"), _clean(iter(text.split("\n")), told), told)


def _clean(source: Iterator[bytes | str], told: Told) -> Iterator[Line]:
    for number, raw in enumerate(source, 1):
        if isinstance(raw, bytes):
            if b" NCCL " in raw and told.is_plain(raw):  # most lines of a log tell nothing: they must cost nothing
                continue
            raw = raw.decode(errors="replace")
        cut = False
        if " NCCL " in raw:
            raw, cut = told.heard(raw)
            if not raw:
                continue
        if "CCL version" in raw:
            told.version_line(raw)
        yield Line(number, clean(raw), cut)


def clean(raw: str) -> str:
    """One line without colours, carriage returns, labels of launchers, log stamps and the escapes of Markdown."""
    text = raw.rstrip("\r\n")
    if not text.isascii() or "\t" in text or "\x00" in text:
        text = text.translate(_PLAIN)
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    if "\r" in text:
        text = text.rpartition("\r")[2]  # a progress line that was overwritten
    for _ in range(4):
        found = _PREFIXES.match(text)
        if not found:
            break
        text = text[found.end() :]
        if found["bracket"]:
            text = text.replace(f"[{found['bracket']}]", " ")
        elif found["rank"]:
            text = re.sub(rf"{found['rank']}: (?=\s*[\d.])", " ", text)
    if "]<std" in text:
        text = _TAG.sub(" ", text)
    if text.endswith("| |") and text.lstrip()[:1] != "|":  # the cells of a line of a gist
        text = text[:-3].rstrip()
    if "**" in text:
        text = _BOLD.sub(r"\1", text)
    return text.replace("\\#", "#").replace("\\_", "_") if "\\" in text else text.rstrip()
