"""Recorded routing: read as it is, and refused by name where it is none."""

import io
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commbench.errors import UsageError
from commbench.routing.named import generate

IDS = np.array([[0, 3], [2, 1], [-1, 3], [3, 0], [1, 2]])


def read(path, tokens=2, ranks=2, experts=4, top_k=2):
    return generate(f"trace:{path}", tokens, ranks, experts, top_k)


def test_csv_and_npz_hold_the_same_tokens(tmp_path):
    plain, named, packed = tmp_path / "a.csv", tmp_path / "b.csv", tmp_path / "c.npz"
    plain.write_text("\n".join(",".join(map(str, row)) for row in IDS) + "\n")
    named.write_text("first,second\n" + plain.read_text())
    np.savez_compressed(packed, ids=IDS)
    for path in (plain, named, packed):
        routing = read(path)
        assert [ids.tolist() for ids in routing.ids] == [IDS[:2].tolist(), IDS[2:4].tolist()]
        assert routing.weights[1][0, 0] == 0 and routing.weights[0].sum(axis=1) == pytest.approx([1, 1])
    uneven = read(plain, tokens=[0, 4])
    assert uneven.tokens == [0, 4] and uneven.ids[1].tolist() == IDS[:4].tolist()


def test_weights_of_an_archive_are_kept(tmp_path):
    weights = np.arange(10, dtype=np.float64).reshape(5, 2) / 10
    np.savez(tmp_path / "w.npz", ids=np.abs(IDS).astype(np.uint8), weights=weights)
    routing = read(tmp_path / "w.npz")
    assert np.array_equal(np.concatenate(routing.weights), weights[:4].astype(np.float32))


@pytest.mark.parametrize(
    "content, told",
    [
        ("0,3\n2,4\n1,2\n0,1\n", "token 2: 4 is no expert; ids are 0 to 3, or -1"),
        ("0,3\n-2,1\n1,2\n0,1\n", "token 2: -2 is no expert"),
        ("0,3\n1,1\n1,2\n0,1\n", "token 2: expert 1 stands there twice"),
        ("0,3\n1\n", "line 2 has 1 ids, the lines before it 2"),
        ("0,3\nx,1\n", "line 2: 'x,1' are no expert ids"),
        ("0,3\n1,0\n2,3\n", "holds 3 tokens, 4 are needed for 2 ranks"),
        ("0,1,2\n" * 4, r"of shape \(4, 3\); top-2 needs \(tokens, 2\)"),
        ("", "holds no tokens"),
        ("first,second\n", "holds no tokens"),
        ("99999999999999999999,1\n" * 4, "cannot be read"),
    ],
)
def test_a_csv_that_is_no_trace_is_refused(tmp_path, content, told):
    path = tmp_path / "t.csv"
    path.write_text(content)
    with pytest.raises(UsageError, match=rf"t\.csv.*{told}"):
        read(path)


def test_an_archive_that_is_no_trace_is_refused(tmp_path):
    path = tmp_path / "t.npz"
    for arrays, told in (
        ({"tokens": IDS}, "no array `ids`; it holds tokens"),
        ({"ids": IDS.astype(float)}, "`ids` are float64"),
        ({"ids": IDS, "weights": np.ones(3)}, "`weights` are float64"),
        ({"ids": IDS, "weights": np.full((5, 2), np.nan)}, "no finite number"),
        ({"ids": IDS + 1}, "4 is no expert"),
        ({"ids": IDS.ravel()}, r"of shape \(10,\)"),
    ):
        np.savez(path, **arrays)
        with pytest.raises(UsageError, match=rf"t\.npz.*{told}"):
            read(path)
    np.savez(path, ids=np.array([[{}, 1]], dtype=object))  # would need pickle
    with pytest.raises(UsageError, match="cannot be read as npz"):
        read(path)
    path.write_bytes(b"PK not a zip")
    with pytest.raises(UsageError, match="cannot be read as npz"):
        read(path)


def test_an_archive_that_would_fill_the_memory_is_refused(tmp_path):
    path, head = tmp_path / "bomb.npz", io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "<i8", "fortran_order": False, "shape": (2**29, 2)})
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("ids.npy", head.getvalue() + bytes(100))
    raw = bytearray(path.read_bytes())
    at = raw.rindex(b"PK\x01\x02") + 24
    raw[at : at + 4] = (2**32 - 2).to_bytes(4, "little")
    path.write_bytes(raw)
    with pytest.raises(UsageError, match="cannot be read as npz|are the most"):
        read(path)


@settings(derandomize=True, database=None, deadline=None, max_examples=60)
@given(st.binary(max_size=80), st.sampled_from(["csv", "npz"]))
def test_any_bytes_are_a_trace_or_a_usage_error(tmp_path_factory, content, kind):
    path = tmp_path_factory.getbasetemp() / f"any.{kind}"
    path.write_bytes(content)
    try:
        read(path, tokens=0)
    except UsageError as error:
        assert f"any.{kind}" in str(error)
