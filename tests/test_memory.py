"""Whether the buffers fit is known before the first rank starts."""

import re

import pytest

from commbench.errors import UsageError
from commbench.results.plan import Plan, Settings
from commbench.suite.expand import expand
from commbench.suite.memory import available_bytes, check_memory, gpu_available_bytes, needed_bytes
from commbench.suite.schema import check_suite

OVERHEAD = 64 * 2**20
MIB, GIB = 2**20, 2**30


def plan(ranks=2, backends=("gloo",), measures=None, **keys):
    tables = {"name": "x", "measure": measures or [{"op": "all_reduce", "size": "1M"} | keys]}
    steps = expand(check_suite(tables, "x"), ranks, list(backends), [0] * ranks)
    return Plan("x", steps, Settings())


def needed(made, per_node=2):
    return needed_bytes(made, {world.ranks: per_node for world in made.worlds()})


def test_buffers_of_all_ranks_of_a_node_count():
    # send, receive, and one more copy inside the library.
    assert needed(plan(size="1M"))[0] == 2 * (3 * MIB + OVERHEAD)
    assert needed(plan(size="1M"), per_node=8)[0] == 8 * (3 * MIB + OVERHEAD)
    assert needed(plan(op="all_gather", size="1M"))[0] == 2 * (512 * 1024 + MIB + MIB + OVERHEAD)
    assert needed(plan(op="barrier"))[0] == 2 * OVERHEAD


def test_in_place_buffers_are_one():
    assert needed(plan(size="1M", in_place=True))[0] == 2 * (2 * MIB + OVERHEAD)
    assert needed(plan(op="all_gather", size="1M", in_place=True))[0] == 2 * (2 * MIB + OVERHEAD)
    assert needed(plan(op="reduce_scatter", size="1M", in_place=True))[0] == 2 * (2 * MIB + OVERHEAD)


def test_nccl_counts_one_rank_per_gpu_and_no_copy():
    assert needed(plan(backends=["nccl"], size="1M"), per_node=8)[0] == 2 * MIB + OVERHEAD


def test_the_largest_send_and_the_largest_receive_buffer_are_kept_side_by_side():
    made = plan(
        measures=[
            {"op": "all_gather", "size": "64M"},
            {"op": "reduce_scatter", "size": "32M"},
            {"op": "all_reduce", "size": "8"},
        ]
    )
    total, heaviest = needed(made)
    assert total == 2 * (32 * MIB + 64 * MIB + 64 * MIB + OVERHEAD)  # all_gather also sends 32M
    assert (heaviest.op, heaviest.size_bytes) == ("all_gather", 64 * MIB)


def test_worlds_run_one_after_the_other_so_the_largest_counts():
    measures = [{"op": "all_reduce", "size": "1M", "ranks": 4}, {"op": "all_reduce", "size": "64M"}]
    made = plan(2, measures=measures)
    total, heaviest = needed_bytes(made, {2: 2, 4: 4})
    assert total == max(4 * (3 * MIB + OVERHEAD), 2 * (192 * MIB + OVERHEAD)) and heaviest.world_size == 2


def test_skipped_points_need_nothing():
    assert needed(plan(dtype="float8_e5m2", size="1T"))[0] == 2 * OVERHEAD


def test_too_much_is_refused_with_what_is_needed_and_what_is_there():
    with pytest.raises(UsageError) as caught:
        check_memory(plan(4, size="1T"), {4: 4}, 8 * GIB)
    told = str(caught.value)
    assert caught.value.exit_code == 2
    assert re.search(
        r"all_reduce of 1T needs 12\.00 TiB .*4 ranks on one node, have 8\.00 GiB; use smaller sizes", told
    )


def test_the_requested_size_is_named_where_the_used_one_is_smaller():
    with pytest.raises(UsageError, match="all_gather of 1T needs"):
        check_memory(plan(3, op="all_gather", size="1T"), {3: 3}, GIB)


def test_the_limit_itself_still_fits_and_unknown_memory_is_no_reason_to_refuse():
    made = plan()
    total, _ = needed(made)
    check_memory(made, {2: 2}, total)
    check_memory(plan(size="1T"), {2: 2}, None)
    with pytest.raises(UsageError):
        check_memory(made, {2: 2}, total - 1)


def test_a_negative_rest_is_told_as_nothing():
    with pytest.raises(UsageError, match="have 0 B"):
        check_memory(plan(), {2: 2}, -5)


# what there is


def write(root, files):
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


MEMINFO = (
    "MemTotal:       16384000 kB\nMemFree:          100000 kB\nMemAvailable:    8192000 kB\nBuffers:           1 kB\n"
)


def v1(limit, used):
    """The files of a memory controller of the first version."""
    return {"memory/memory.limit_in_bytes": limit, "memory/memory.usage_in_bytes": used}


@pytest.mark.parametrize(
    "procfs, cgroup, available",
    [
        ({"meminfo": MEMINFO}, {}, 8192000 * 1024),
        ({"meminfo": MEMINFO}, {"memory.max": "max\n", "memory.current": "5\n"}, 8192000 * 1024),
        ({"meminfo": MEMINFO}, {"memory.max": f"{4 * GIB}\n", "memory.current": f"{GIB}\n"}, 3 * GIB),
        ({"meminfo": MEMINFO}, {"memory.max": f"{400 * GIB}\n", "memory.current": f"{GIB}\n"}, 8192000 * 1024),
        ({"meminfo": MEMINFO}, {"memory.max": f"{4 * GIB}\n"}, 8192000 * 1024),
        ({"meminfo": MEMINFO}, v1(f"{2 * GIB}\n", f"{GIB}\n"), GIB),
        ({"meminfo": MEMINFO}, v1("9223372036854771712\n", "1\n"), 8192000 * 1024),
        ({}, {"memory.max": "1000\n", "memory.current": "1500\n"}, -500),
        ({"meminfo": "MemTotal: 5 kB\n"}, {}, None),
        ({"meminfo": "MemAvailable: many kB\n"}, {}, None),
        ({"meminfo": ""}, {"memory.max": "", "memory.current": ""}, None),
        ({}, {}, None),
    ],
)  # fmt: skip
def test_available_memory(tmp_path, procfs, cgroup, available):
    version_1 = any(name.startswith("memory/") for name in cgroup)
    own = {"self/cgroup": "4:memory:/\n" if version_1 else "0::/\n"}
    write(tmp_path / "sys/fs/cgroup", cgroup)
    assert available_bytes(tmp_path / "sys", write(tmp_path / "proc", procfs | own)) == available


def test_the_cgroup_of_a_job_binds_and_its_file_cache_is_free(tmp_path):
    write(tmp_path / "proc", {"meminfo": MEMINFO, "self/cgroup": "0::/slurm/job_7/step_0\n"})
    job = {
        "memory.max": f"{4 * GIB}\n",
        "memory.current": f"{3 * GIB}\n",
        "memory.stat": f"anon 5\ninactive_file {GIB}\n",
    }
    write(tmp_path / "sys/fs/cgroup/slurm/job_7", job)
    assert available_bytes(tmp_path / "sys", tmp_path / "proc") == 2 * GIB


def test_this_machine_has_some_memory():
    assert available_bytes() > 0


@pytest.mark.parametrize(
    "script, available",
    [
        ("echo 81000; echo 500; echo 79000", 500 * MIB), ("echo '[N/A]'", None), ("exit 9", None),
        ("echo 'No devices were found'; exit 6", None),
        ("true", None),
    ],
)  # fmt: skip
def test_the_fullest_gpu_counts(tmp_path, monkeypatch, script, available):
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert gpu_available_bytes() == available


def test_no_nvidia_smi_is_no_error(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpu_available_bytes() is None
