"""A profile as TOML, which the standard library reads but does not write."""

import re


def printable(text: str) -> str:
    """`text` in one line of ASCII, and not too long."""
    return re.sub(r"[^\x20-\x7e]", "?", text)[:400]


def to_toml(tables: dict) -> str:
    """The tables of a profile as TOML: values are text, numbers and booleans only."""
    lines = [f"{key} = {_value(value)}" for key, value in tables.items() if key != "rule"]
    for rule in tables["rule"]:
        lines += ["", "[[rule]]", *(f"{key} = {_value(value)}" for key, value in rule.items())]
    return "\n".join(lines) + "\n"


def _value(value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    return '"' + printable(value).replace("\\", "\\\\").replace('"', '\\"') + '"'
