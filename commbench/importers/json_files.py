"""JSON of the tools that write it: each document goes to the reader that knows its keys."""

from collections.abc import Iterator

from commbench.importers import nccl_json, nvbandwidth, perftest, pytest_benchmark
from commbench.importers.found import Given, Test
from commbench.importers.json_text import Document, documents, starts
from commbench.importers.text import Line, Lines

__all__ = ["read", "starts"]
WORDS = ("{", "[")


def read(lines: Lines, given: Given) -> Iterator[Test]:
    one_a_line: list[tuple[int, dict]] = []
    fault = ""
    for document in documents(lines):
        if nccl_json.is_line(document.data):
            one_a_line += nccl_json.lines_of(document.data, document.line)
            fault = fault or document.fault
        else:
            yield from _document(document, lines, given)
    if one_a_line:
        yield nccl_json.from_lines(one_a_line, lines.told, given, fault)


def _document(document: Document, lines: Lines, given: Given) -> Iterator[Test]:
    if "test_info" in document.text[:2000]:
        test = perftest.from_json(document.text, None if document.fault else document.data, document.line)
        test.notes += [f"no valid JSON ({document.fault}); it was read by its keys"] if document.fault else []
        yield test
        return
    if nvbandwidth.wants(document.data):
        test = nvbandwidth.from_json(document.data, document.line, given)
    elif pytest_benchmark.wants(document.data):
        test = pytest_benchmark.from_json(document.data, document.line)
    elif nccl_json.wants(document.data):
        test = nccl_json.from_document(document.data, document.line, lines.told, given)
    else:
        lines.drop(Line(document.line, document.text[:200]), "JSON of no tool that is known, or too damaged to tell")
        return
    if document.fault:
        test.cut = test.cut or document.fault
        test.fault = test.fault and (document.line, f"{document.fault}; nothing complete stands before it")
    yield test
