"""Verdicts as JUnit XML, which CI systems read: a test case for each rule and subject."""

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from commbench.acceptance.verdict import Judgement, Verdict
from commbench.acceptance.verdict_text import sentence

_NO_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # no XML 1.0 document can hold these
_TAGS = {"fail": "failure", "error": "error", "skip": "skipped"}


def write_junit(judgement: Judgement, path: Path) -> None:
    """Write the file. Raises OSError when it cannot be written there."""
    path.write_text(junit(judgement), encoding="utf-8")


def junit(judgement: Judgement) -> str:
    """The document. A warning is a test that passed, with the warning in its output."""
    counts = judgement.counts
    suite = ElementTree.Element(
        "testsuite", name=_text(f"commbench accept {judgement.profile}"), tests=str(len(judgement.all)),
        failures=str(counts.get("fail", 0)), errors=str(counts.get("error", 0)), skipped=str(counts.get("skip", 0)),
    )  # fmt: skip
    properties = ElementTree.SubElement(suite, "properties")
    told = {"run": judgement.run, "verdict": judgement.word, "exit_code": str(judgement.code)}
    for name, value in told.items():
        ElementTree.SubElement(properties, "property", name=name, value=_text(value))
    for verdict in judgement.all:
        _case(suite, judgement, verdict)
    ElementTree.indent(suite)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(suite, encoding="unicode") + "\n"


def _case(suite, judgement: Judgement, verdict: Verdict) -> None:
    case = ElementTree.SubElement(
        suite, "testcase", classname=_text(f"{judgement.profile}.{verdict.rule}"), name=_text(verdict.subject)
    )
    told = sentence(verdict)
    if verdict.word in _TAGS:
        body = ElementTree.SubElement(case, _TAGS[verdict.word], message=_text(told))
        body.text = _text(
            "\n".join(
                [*verdict.look_at, *[f"again: {verdict.again}"] * bool(verdict.again), f"source: {verdict.source}"]
            )
        )
    else:
        ElementTree.SubElement(case, "system-out").text = _text(f"{verdict.word}: {told}")


def _text(value: str) -> str:
    return _NO_XML.sub("?", value)
