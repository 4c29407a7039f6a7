"""Matrices of shares become whole elements, and what is no such matrix is refused by name."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commbench.errors import UsageError
from commbench.routing.traffic import PRESETS, check, equal, ramp, read_csv, scaled

fixed = settings(derandomize=True, database=None, deadline=None, max_examples=200)


@st.composite
def matrices(draw):
    n = draw(st.integers(1, 6))
    cell = st.one_of(
        st.just(0.0), st.floats(0, 1e6), st.integers(0, 1000), st.sampled_from([0.1, 1 / 3, 1e-300, 1e308])
    )
    rows = draw(st.lists(st.lists(cell, min_size=n, max_size=n), min_size=n, max_size=n))
    rows[draw(st.integers(0, n - 1))][draw(st.integers(0, n - 1))] = draw(st.floats(1e-3, 1e6))
    return rows


def heaviest(matrix):
    return max([sum(row) for row in matrix] + [sum(column) for column in zip(*matrix)])


@fixed
@given(matrices(), st.integers(0, 10**12))
def test_nobody_sends_or_receives_more_than_asked_for(weights, elements):
    matrix = scaled(weights, elements)
    n = len(weights)
    assert len(matrix) == n and all(len(row) == n for row in matrix)
    assert all(type(cell) is int and cell >= 0 for row in matrix for cell in row)
    # Rounding down costs less than one element a cell.
    assert elements - n < heaviest(matrix) <= elements or (elements == 0 and heaviest(matrix) == 0)


@fixed
@given(matrices(), st.integers(1, 10**9))
def test_shares_keep_their_proportions(weights, elements):
    matrix, n = scaled(weights, elements), len(weights)
    for i in range(n):
        for j in range(n):
            for k in range(n):
                if weights[i][j] == weights[i][k]:
                    assert matrix[i][j] == matrix[i][k]
                if weights[i][j] > weights[i][k]:
                    assert matrix[i][j] >= matrix[i][k]
    assert all(cell == 0 for row, shares in zip(matrix, weights) for cell, share in zip(row, shares) if share == 0)


@pytest.mark.parametrize("share", [1, 1.0, 0.1, 1 / 3, 1e-9, 1e300, 5e-324])
def test_equal_shares_are_equal_parts_of_the_whole(share):
    for n in (1, 2, 3, 7, 8):
        for each in (1, 3, 1000, 2**30 + 1):
            assert scaled([[share] * n] * n, each * n) == ((each,) * n,) * n


def test_a_single_pair_gets_everything():
    assert scaled([[0, 0.3], [0, 0]], 1000) == ((0, 1000), (0, 0))


def test_presets():
    assert equal(3) == [[1.0] * 3] * 3
    assert ramp(4) == [[0.0, 1.0, 2.0, 3.0]] * 4 and ramp(1) == [[1.0]]
    for name, preset in PRESETS.items():
        for n in range(1, 10):
            check(preset(n), n, name)
    # The last rank receives twice the mean, rank 0 nothing.
    received = np.array(scaled(ramp(8), 8 * 700)).sum(axis=0)
    assert received[0] == 0 and received[-1] == pytest.approx(2 * received.mean())


@pytest.mark.parametrize(
    "matrix, told",
    [
        ([[1, 2]], "1 x 2.*2 x 2"), ([[1, 2], [3]], "2 x 1/2.*2 ranks"), ([], "0 x 0"),
        ([[1] * 3] * 3, "3 x 3.*must be 2 x 2"),
        ([[1, -1], [1, 1]], "negative"), ([[1, float("nan")], [1, 1]], "finite"),
        ([[1, float("inf")], [1, 1]], "finite"),
        ([[0, 0], [0, 0.0]], "all zero"),
    ],
)  # fmt: skip
def test_what_is_no_matrix_for_the_group_is_refused(matrix, told):
    with pytest.raises(UsageError, match=f"^the matrix.*{told}"):
        check(matrix, 2, "the matrix")


def test_a_csv_file(tmp_path):
    path = tmp_path / "shares.csv"
    path.write_text("1,2.5\n\n 3e2 ,0\n")
    assert read_csv(path) == [[1.0, 2.5], [300.0, 0.0]]


@pytest.mark.parametrize(
    "content, told",
    [
        (b"1,2\n3,x\n", "row 2: '3,x'"), (b"1,2,\n3,4,\n", "row 1"), (b"\xff\xfe\x00", "cannot be read"),
        (b'"' + b"1" * 200_000 + b'"\n', "cannot be read"), (b"1;2\n3;4\n", "row 1"), (b"1,2\n'3',4\n", "row 2"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_matrix_is_named(tmp_path, content, told):
    path = tmp_path / "shares.csv"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=f"shares.csv.*{told}"):
        read_csv(path)


@pytest.mark.parametrize("name", ["nothing.csv", ".", "a\0b", "x" * 300])
def test_a_file_that_cannot_be_opened_is_named(tmp_path, name):
    with pytest.raises(UsageError, match="cannot be read"):
        read_csv(tmp_path / name)


@fixed
@given(st.binary(max_size=60))
def test_any_bytes_are_numbers_or_a_usage_error(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_bytes(content)
    try:
        matrix = read_csv(path)
    except UsageError:
        return
    assert all(type(cell) is float for row in matrix for cell in row)
