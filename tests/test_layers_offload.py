"""Copies to slower memory and the optimizer on the host: right, on real files, and refused where they would lie."""

import os

import pytest
from layer_ranks import on_ranks, tried

from commbench.layers import host_optimizer, load, offload
from commbench.layers.layer import Place

MIB = 2**20


@pytest.mark.parametrize("link", ["memory", "disk"])
def test_copies_are_right(link, tmp_path):
    if link == "disk" and offload._in_memory(tmp_path):
        pytest.skip("the folder of the tests lies in memory")
    cases = [{"link": link, "bytes": 8 * MIB, "folder": str(tmp_path), "direct": direct, "depth": 3}
             for direct in (True, False)]  # fmt: skip
    for rows in on_ranks(2, tried, "offload", cases):
        for case, row in zip(cases, rows, strict=True):
            assert (row["wrong"], row["counted"], row["wanted"]) == (0, {}, {})
            assert row["facts"] == {"moved_bytes": 8 * MIB, "page_cache": int(link == "disk" and not case["direct"])}
    assert not list(tmp_path.iterdir())  # files have no name


def test_a_copy_that_does_not_arrive_is_found(tmp_path, monkeypatch):
    params = load("offload").options | {"dtype": "float32", "bytes": 2 * MIB, "folder": str(tmp_path), "direct": False}
    monkeypatch.setattr(offload._Memory, "start_back", lambda self: [])
    monkeypatch.setattr(offload._Disk, "start_out", lambda self: [])
    for link in ("memory", "disk"):
        assert load("offload").build({}, params | {"link": link}, Place(0, 1), "cpu").check()[0] == 1


def test_what_is_read_was_written_before(tmp_path):
    """A file of holes reads as fast as memory, since nothing is read."""
    params = load("offload").options | {"bytes": 2 * MIB, "folder": str(tmp_path), "direct": False}
    disk = offload._Disk(params, offload._random(params, Place(0, 1)))
    disk.finish(disk.start_back())
    assert bytes(disk.target) == offload._random(params, Place(0, 1)).numpy().tobytes()
    assert os.fstat(disk.read).st_blocks * 512 >= 2 * MIB


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_optimizer_step_on_the_host(dtype):
    (row,) = on_ranks(1, tried, "host_optimizer", [{"parameters": 5000, "dtype": dtype}])[0]
    assert row["wrong"] == 0 and row["error"] < 2e-2
    assert row["facts"] == {
        "parameters": 5000,
        "moved_bytes": 5000 * (4 if dtype == "float32" else 2),
        "host_bytes": 60000,
    }


def test_a_step_that_does_nothing_is_found(monkeypatch):
    record = load("host_optimizer")
    monkeypatch.setattr(host_optimizer, "adam_step", lambda *args: None)
    params = record.options | {"parameters": 1000, "dtype": "bfloat16"}
    assert record.build({}, params, Place(0, 1), "cpu").check()[0] == 2


@pytest.mark.parametrize(
    "given, said",
    [
        ({"bytes": 1000}, "must be a multiple of 1048576"),
        ({"link": "disk", "folder": "/no/such/folder"}, "cannot hold the file: No such file"),
        ({"link": "disk", "folder": "/dev/shm"}, "lies in memory (tmpfs)"),
        ({"link": "disk", "depth": 0, "folder": "/"}, "depth is 0"),
        ({"link": "disk", "folder": "/", "bytes": 2**60}, "no room"),
    ],
)
def test_what_cannot_be_is_said(given, said):
    record = load("offload")
    assert said in record.problem(record.options | {"dtype": "float32"} | given, 2)


def test_without_a_gpu_it_is_said(monkeypatch, tmp_path):
    monkeypatch.setattr(offload, "_GPU", tmp_path / "none")
    for name in ("offload", "host_optimizer"):
        record = load(name)
        assert "needs a GPU" in record.problem(record.options | {"link": "device", "dtype": "float32"}, 1)
