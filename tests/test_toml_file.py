"""One reader of TOML files: what is wrong with a file is one sentence that names it."""

from pathlib import Path

import pytest

from commbench.errors import UsageError
from commbench.toml_file import read_toml


def test_the_tables_of_a_file(tmp_path):
    path = tmp_path / "a.toml"
    path.write_text("a = 1\n[b]\nc = [2, 3]\n")
    assert read_toml(path, "site file", "there is none") == {"a": 1, "b": {"c": [2, 3]}}


@pytest.mark.parametrize(
    "content, said",
    [
        (b"a = ", "site file .*a.toml' is not valid TOML"),
        (b"a = " + b"[" * 10_000, "is not valid TOML"),
        (b"a = " + b"9" * 5000, "is not valid TOML"),
        (b"\xff\xfe", "site file .*a.toml cannot be read"),
    ],
)
def test_what_is_wrong_with_it(tmp_path, content, said):
    path = tmp_path / "a.toml"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=said):
        read_toml(path, "site file", "there is none")


def test_what_has_no_end():
    with pytest.raises(UsageError, match="site file /dev/zero has more than 4 MiB"):
        read_toml(Path("/dev/zero"), "site file", "there is none")


def test_what_can_be_no_path():
    with pytest.raises(UsageError, match="cannot be read: .*File name too long"):
        read_toml(Path("x" * 5000), "site file", "there is none")


def test_what_is_not_there(tmp_path):
    for path in (tmp_path / "none.toml", tmp_path):
        with pytest.raises(UsageError, match="^there is none$"):
            read_toml(path, "site file", "there is none")
