"""JSON documents among other lines, and as much as possible of one that is cut."""

import json
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from commbench.importers.text import Line, Lines

_OUTSIDE, _IN_STRING = re.compile(r'["{}\[\],]'), re.compile(r'["\\]')
# How a line within a document begins; perftest's was no valid JSON, with bare words for keys.
_INSIDE = re.compile(r'\s*(?:["{}\[\],]|-?\d[\d.eE+-]{0,30},?\s*$|(?:true|false|null)\b|\w[\w .]{0,60}:|$)')
_DEEPEST, _LONGEST, _TRIES = 100, 64 * 2**20, 64


@dataclass(frozen=True)
class Document:
    """What was read from `line` on. `data` is None where nothing could be; `fault` says where the JSON is damaged."""

    line: int
    last: int
    text: str
    data: object
    fault: str = ""


def starts(text: str) -> bool:
    head = text.lstrip()
    return head.startswith("{") or (
        head.startswith("[") and (not head[1:].strip() or head[1:].lstrip().startswith("{"))
    )


def documents(lines: Lines) -> Iterator[Document]:
    """The documents that stand one after the other, from the next line on."""
    for line in lines:
        if starts(line.text):
            yield _document(line, lines)
        elif line.text.strip():
            lines.give_back(line)
            return


def _document(first: Line, lines: Lines) -> Document:
    """The document that begins on `first`: up to the bracket that closes it, or to the end of the file."""
    texts, depth, length, last = [], 0, 0, first
    line = first
    while line is not None:
        if texts and not _INSIDE.match(line.text):  # another program has gone on: the document was never closed
            lines.give_back(line)
            break
        texts.append(line.text)
        length, last = length + len(line.text) + 1, line
        depth += sum((token in "{[") - (token in "}]") for token, _ in _tokens(line.text))
        if depth <= 0 or length > _LONGEST or depth > _DEEPEST:
            break
        line = next(lines, None)
    text = "\n".join(texts)
    try:
        return Document(first.number, last.number, text, json.loads(text, parse_constant=lambda name: None))
    except (ValueError, RecursionError) as error:
        at = getattr(error, "pos", len(text))
        number = first.number + text.count("\n", 0, at)
        column = at - (text.rfind("\n", 0, at) + 1) + 1
        what = getattr(error, "msg", "too deep")
        return Document(
            first.number,
            last.number,
            text,
            _salvaged(text[:at]),
            f"line {number}, character {column}: the JSON is cut or damaged ({what})",
        )


def _tokens(text: str) -> Iterator[tuple[str, int]]:
    """Brackets and commas outside of strings, with their places; one pass, whatever stands in the text."""
    at = 0
    while found := _OUTSIDE.search(text, at):
        at = found.end()
        if found[0] != '"':
            yield found[0], found.start()
            continue
        while inner := _IN_STRING.search(text, at):
            at = inner.end() + (inner[0] == "\\")
            if inner[0] == '"':
                break
        else:
            return


def _salvaged(text: str):
    """The complete members of a document whose end is missing; None where there are none."""
    open_, cuts = [], deque(maxlen=_TRIES)
    for token, at in _tokens(text):
        if token in "{[":
            open_.append("}" if token == "{" else "]")
            if len(open_) > _DEEPEST:
                return None
        elif token in "}]":
            if not open_ or open_.pop() != token:
                break
            cuts.append((at + 1, "".join(reversed(open_))))
        elif token == ",":
            cuts.append((at, "".join(reversed(open_))))
    for end, closing in reversed(cuts):
        try:
            return json.loads(text[:end] + closing, parse_constant=lambda name: None)
        except (ValueError, RecursionError):
            continue
    return None
