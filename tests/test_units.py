"""Sizes are read as nccl-tests reads them, and what is printed is what was meant."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commbench.errors import UsageError
from commbench.units import format_bytes, format_size, parse_size, rank_spans

fixed = settings(derandomize=True, database=None, deadline=None, max_examples=300)


@pytest.mark.parametrize(
    "text, size_bytes",
    [
        ("0", 0), ("8", 8), ("8B", 8), ("64K", 65536), ("64k", 65536), ("1M", 2**20), ("2G", 2**31), ("1T", 2**40),
        ("1KiB", 1024),
        ("16MiB", 2**24), ("3MB", 3 * 2**20), (" 8 K ", 8192), ("1.5M", 1572864), ("0.5K", 512), ("1.0", 1),
        (4096, 4096), (0, 0),
    ],
)  # fmt: skip
def test_sizes_are_binary(text, size_bytes):
    assert parse_size(text) == size_bytes
    assert type(parse_size(text)) is int


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "K", "abc", "1X", "-1", "+1", "1e6", "0x10", "1_000", "1,5K", ".5K", "5.", "1 2", "8iB", "1KK",
        "1KiBB", "nan", "inf",
        "1.5", "1.1M", "0.3K", -1, 2**63, True, False, None, 1.5, float("nan"), float("inf"), [], {}, b"8",
        "٣", "１２", "64\u212a",  # digits of other scripts, and the Kelvin sign
        "9" * 400, "9" * 5000, "9" * 400 + ".0", "8\n9",
    ],
)  # fmt: skip
def test_what_is_no_size_is_a_usage_error(text):
    with pytest.raises(UsageError):
        parse_size(text)


def test_the_message_names_the_text_and_what_would_be_right():
    with pytest.raises(UsageError, match=r"'12Q'.*64K"):
        parse_size("12Q")
    with pytest.raises(UsageError, match=r"'1\.1K' is 1126\.4 bytes"):
        parse_size("1.1K")


@fixed
@given(st.text(max_size=12))
def test_any_text_is_a_size_or_a_usage_error(text):
    try:
        size_bytes = parse_size(text)
    except UsageError:
        return
    assert type(size_bytes) is int and size_bytes >= 0


@fixed
@given(st.integers(0, 2**50))
def test_a_size_read_back_from_its_digits_is_the_same(size_bytes):
    assert parse_size(str(size_bytes)) == size_bytes


@fixed
@given(st.integers(1, 1023), st.sampled_from(["", "K", "M", "G", "T"]))
def test_what_is_formatted_exactly_reads_back(number, suffix):
    size_bytes = parse_size(f"{number}{suffix}")
    assert format_size(size_bytes) == f"{number}{suffix}"
    assert parse_size(format_size(size_bytes)) == size_bytes


@pytest.mark.parametrize(
    "size_bytes, text", [(0, "0"), (1, "1"), (1000, "1000"), (1024, "1K"), (1536, "1536"), (10239, "10239")]
)
def test_small_odd_sizes_are_plain_bytes(size_bytes, text):
    assert format_size(size_bytes) == text


@fixed
@given(st.integers(10 * 2**10, 2**45))
def test_a_rounded_size_is_close_and_marked_as_rounded(size_bytes):
    text = format_size(size_bytes)
    if text.startswith("~"):
        unit = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}[text[-1]]
        assert abs(float(text[1:-1]) * unit - size_bytes) <= 0.005 * size_bytes
        assert len(text) <= 9
    else:
        assert parse_size(text) == size_bytes


def test_memory_in_sentences():
    told = [format_bytes(n) for n in (0, 512, 1536, 12 * 2**20, 3 * 2**29, 2**40)]
    assert told == ["0 B", "512 B", "1.50 KiB", "12.00 MiB", "1.50 GiB", "1.00 TiB"]


def test_ranks_in_spans():
    assert rank_spans([1, 2, 3, 9]) == "1..3 9" and rank_spans([]) == "" and rank_spans((0, 2), ", ") == "0, 2"
