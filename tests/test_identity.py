"""Who a process is comes from its launcher's variables; what contradicts or is missing is named, never guessed."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commbench.errors import UsageError
from commbench.launch.identity import Joined, joined_world, resolve

fixed = settings(derandomize=True, database=None, deadline=None, max_examples=300)

TORCHRUN = {
    "RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4", "MASTER_ADDR": "node1",
    "MASTER_PORT": "29777",
    "TORCHELASTIC_RUN_ID": "none", "GROUP_RANK": "1", "ROLE_RANK": "5",
}  # fmt: skip
SRUN = {
    "SLURM_JOB_ID": "4711", "SLURM_JOB_NODELIST": "gpu[003-006]", "SLURM_NTASKS": "16", "SLURM_PROCID": "6",
    "SLURM_LOCALID": "2",
    "SLURM_NODEID": "1", "SLURM_STEP_NUM_TASKS": "8", "SLURM_STEP_NODELIST": "gpu[004-005]",
    "SLURM_STEP_TASKS_PER_NODE": "4(x2)",
    "SLURM_STEP_ID": "0",
}  # fmt: skip
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "OMPI_COMM_WORLD_NODE_RANK": "1", "PMIX_NAMESPACE": "prterun-node1-14712@1", "PMIX_RANK": "1",
}  # fmt: skip
MPICH = {"PMI_RANK": "3", "PMI_SIZE": "4", "PMI_FD": "9", "MPI_LOCALRANKID": "3", "MPI_LOCALNRANKS": "4"}


def without(env, *names):
    return {name: value for name, value in env.items() if name not in names}


def refused(env) -> str:
    with pytest.raises(UsageError) as caught:
        joined_world(env)
    assert caught.value.exit_code == 2
    return str(caught.value)


# alone


@pytest.mark.parametrize(
    "env",
    [
        {}, {"HOME": "/root", "MASTER_ADDR": "node1", "MASTER_PORT": "1"},
        {"RANK": "0", "WORLD_SIZE": "1"},
        OPEN_MPI | {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"},
        MPICH | {"PMI_RANK": "0", "PMI_SIZE": "1"},
        SRUN | {"SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"},  # srun --pty commbench
    ],
)  # fmt: skip
def test_a_lone_process_starts_its_own_ranks(env):
    assert joined_world(env) is None


def test_the_batch_step_of_sbatch_is_no_task_of_a_world():
    batch = without(SRUN, "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NODELIST", "SLURM_STEP_TASKS_PER_NODE", "SLURM_STEP_ID")
    assert (
        joined_world(batch | {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0", "SLURM_NTASKS": "8"})
        is None
    )


def test_a_shell_of_salloc_is_no_task_of_a_world():
    assert joined_world({"SLURM_JOB_ID": "1", "SLURM_NTASKS": "8", "SLURM_JOB_NODELIST": "n[1-2]"}) is None


# torchrun


def test_torchrun():
    assert joined_world(TORCHRUN) == Joined("torchrun", 5, 8, 1, 4, "node1", 29777, "MASTER_ADDR")


def test_a_world_set_by_hand():
    env = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "10.0.0.1"}
    assert joined_world(env) == Joined("environment", 1, 2, 0, 1, "10.0.0.1", 29500, "MASTER_ADDR")


def test_a_container_that_translates_slurms_variables():
    env = SRUN | {"RANK": "6", "WORLD_SIZE": "8", "LOCAL_RANK": "2", "LOCAL_WORLD_SIZE": "4", "MASTER_ADDR": "gpu004"}
    assert joined_world(env) == Joined("environment", 6, 8, 2, 4, "gpu004", 29500, "MASTER_ADDR")


def test_torchrun_in_a_step_of_one_task_a_node():
    env = SRUN | TORCHRUN | {"SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "1"}
    assert joined_world(env).launcher == "torchrun" and joined_world(env).size == 8


def test_a_world_that_contradicts_slurms_step_is_refused():
    told = refused(SRUN | {"RANK": "0", "WORLD_SIZE": "4", "MASTER_ADDR": "gpu004"})
    assert "WORLD_SIZE=4" in told and "SLURM_STEP_NUM_TASKS=8" in told


@pytest.mark.parametrize(
    "change, named",
    [
        ({"RANK": None}, "RANK is not set"), ({"WORLD_SIZE": None}, "WORLD_SIZE is not set"),
        ({"MASTER_ADDR": None}, "MASTER_ADDR is not set"),
        ({"MASTER_ADDR": ""}, "MASTER_ADDR is not set"), ({"RANK": "x"}, "RANK='x'"), ({"RANK": ""}, "RANK=''"),
        ({"RANK": "1.0"}, "RANK='1.0'"),
        ({"WORLD_SIZE": "eight"}, "WORLD_SIZE='eight'"), ({"RANK": "8"}, "RANK=8 does not fit WORLD_SIZE=8"),
        ({"RANK": "-1"}, "RANK=-1"),
        ({"WORLD_SIZE": "0"}, "WORLD_SIZE=0"), ({"WORLD_SIZE": "-4"}, "WORLD_SIZE=-4"),
        ({"LOCAL_RANK": "?"}, "LOCAL_RANK='?'"),
        ({"LOCAL_WORLD_SIZE": ""}, "LOCAL_WORLD_SIZE=''"), ({"MASTER_PORT": "0"}, "MASTER_PORT=0"),
        ({"MASTER_PORT": "65536"}, "MASTER_PORT=65536"),
        ({"MASTER_PORT": "-1"}, "MASTER_PORT=-1"), ({"MASTER_PORT": "http"}, "MASTER_PORT='http'"),
        ({"MASTER_PORT": ""}, "MASTER_PORT=''"),
        ({"SLURM_STEP_NUM_TASKS": "many"}, "SLURM_STEP_NUM_TASKS='many'"), ({"WORLD_SIZE": "9" * 5000}, "WORLD_SIZE"),
    ],
)  # fmt: skip
def test_a_wrong_variable_of_torchrun_is_named(change, named):
    env = without(
        TORCHRUN | {k: v for k, v in change.items() if v is not None}, *(k for k, v in change.items() if v is None)
    )
    assert named in refused(env)


# srun


def test_srun():
    assert joined_world(SRUN) == Joined("srun", 6, 8, 2, 4, "gpu004", 24711, "SLURM_STEP_NODELIST")


def test_the_first_host_of_the_step_and_not_of_the_job_is_rank_0s():
    assert joined_world(SRUN).address == "gpu004"
    assert joined_world(without(SRUN, "SLURM_STEP_NODELIST")).address == "gpu003"
    assert joined_world(without(SRUN, "SLURM_STEP_NODELIST")).source == "SLURM_JOB_NODELIST"


def test_master_addr_and_port_come_before_slurms():
    world = joined_world(SRUN | {"MASTER_ADDR": "ib-gpu004", "MASTER_PORT": "29777"})
    assert (world.address, world.port, world.source) == ("ib-gpu004", 29777, "MASTER_ADDR")


def test_every_task_of_a_step_arrives_at_the_same_place_and_jobs_do_not_meet():
    tasks = [
        joined_world(SRUN | {"SLURM_PROCID": str(i), "SLURM_LOCALID": str(i % 4), "SLURM_NODEID": str(i // 4)})
        for i in range(8)
    ]
    assert len({(t.address, t.port, t.size) for t in tasks}) == 1
    assert [t.rank for t in tasks] == list(range(8)) and [t.local_rank for t in tasks] == [0, 1, 2, 3] * 2
    assert joined_world(SRUN | {"SLURM_JOB_ID": "4712"}).port != tasks[0].port
    for job in ("1", "9999", "10000", "123456789"):
        assert 20000 <= joined_world(SRUN | {"SLURM_JOB_ID": job}).port < 30000


@pytest.mark.parametrize(
    "text, node, here",
    [
        ("4(x2)", 0, 4),
        ("4(x2)", 1, 4),
        ("8(x3),4", 2, 8),
        ("8(x3),4", 3, 4),
        ("2,3,1", 1, 3),
        ("7", 0, 7),
        ("1,8(x2)", 2, 8),
    ],
)
def test_tasks_on_this_node(text, node, here):
    assert joined_world(SRUN | {"SLURM_STEP_TASKS_PER_NODE": text, "SLURM_NODEID": str(node)}).local_size == here


@pytest.mark.parametrize("text", ["", "x", "8(x", "8(x3", "8(3)", "8(x3),", "-1", "8 (x3)", "8(x999999999)", "8(xx)"])
def test_a_task_list_that_is_none_is_named(text):
    assert "SLURM_STEP_TASKS_PER_NODE" in refused(SRUN | {"SLURM_STEP_TASKS_PER_NODE": text})


@pytest.mark.parametrize(
    "name", ["SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_JOB_ID"]
)
@pytest.mark.parametrize("value", ["x", "", "1.5"])
def test_a_wrong_number_of_slurm_is_named(name, value):
    assert f"{name}={value!r}" in refused(SRUN | {name: value})


@pytest.mark.parametrize("text", ["", "gpu[01-", "gpu[2-1]", "a,,b"])
def test_a_node_list_that_is_misread_is_never_a_world(text):
    told = refused(SRUN | {"SLURM_STEP_NODELIST": text})
    assert "node list" in told and "MASTER_ADDR" in told
    assert "node list" in refused(without(SRUN, "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"))


# MPI


def test_open_mpi_on_one_node():
    world = joined_world(OPEN_MPI)
    assert (world.launcher, world.rank, world.size, world.local_rank, world.local_size, world.address) == (
        "mpirun",
        1,
        2,
        1,
        2,
        "127.0.0.1",
    )
    assert 20000 <= world.port < 30000


def test_mpich_on_one_node():
    world = joined_world(MPICH)
    assert (world.launcher, world.rank, world.size, world.local_rank, world.local_size, world.address) == (
        "mpiexec",
        3,
        4,
        3,
        4,
        "127.0.0.1",
    )


def test_all_ranks_of_an_mpirun_meet_and_two_mpiruns_do_not():
    ports = {joined_world(OPEN_MPI | {"OMPI_COMM_WORLD_RANK": r, "PMIX_RANK": r}).port for r in "01"}
    assert len(ports) == 1
    others = {joined_world(OPEN_MPI | {"PMIX_NAMESPACE": f"prterun-node1-{pid}@1"}).port for pid in range(14713, 14763)}
    assert len(others) > 45 and not ports & others


@pytest.mark.parametrize(
    "env, local_size",
    [
        (OPEN_MPI | {"OMPI_COMM_WORLD_SIZE": "16", "OMPI_COMM_WORLD_LOCAL_SIZE": "8"}, "8"),
        (MPICH | {"PMI_SIZE": "16", "MPI_LOCALNRANKS": "8"}, "8"),
    ],
)
def test_several_nodes_under_mpi_need_an_address(env, local_size):
    told = refused(env)
    assert "16 ranks on several nodes" in told and "MASTER_ADDR" in told
    world = joined_world(env | {"MASTER_ADDR": "node1", "MASTER_PORT": "30001"})
    assert (world.address, world.port, world.local_size) == ("node1", 30001, int(local_size))


@pytest.mark.parametrize("env", [OPEN_MPI, MPICH])
def test_a_wrong_number_of_mpi_is_named(env):
    numbers = [
        name
        for name in env
        if name.endswith(("RANK", "SIZE", "RANKID", "NRANKS"))
        and name not in ("PMIX_RANK", "OMPI_COMM_WORLD_NODE_RANK")
    ]
    assert len(numbers) == 4
    for name in numbers:
        assert f"{name}='x'" in refused(env | {name: "x"})


def test_a_missing_rank_of_mpi_is_named():
    assert "OMPI_COMM_WORLD_RANK is not set" in refused(without(OPEN_MPI, "OMPI_COMM_WORLD_RANK"))
    assert "PMI_RANK is not set" in refused(without(MPICH, "PMI_RANK"))


def test_srun_with_mpi_is_slurms():
    assert joined_world(SRUN | {"PMI_RANK": "6", "PMI_SIZE": "8", "PMIX_RANK": "6"}).launcher == "srun"


def test_mpirun_inside_a_batch_step_is_mpiruns():
    batch = {"SLURM_JOB_ID": "5", "SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_JOB_NODELIST": "n1"}
    assert joined_world(batch | OPEN_MPI).launcher == "mpirun"


NAMES = sorted({*TORCHRUN, *SRUN, *OPEN_MPI, *MPICH})
values = st.sampled_from(
    ["", "0", "1", "2", "8", "-1", "x", "1.5", "node1", "n[1-2]", "n[1-", "4(x2)", "65536", " 3 ", "9" * 4400]
)


@fixed
@given(
    st.sampled_from([{}, TORCHRUN, SRUN, OPEN_MPI, MPICH]), st.dictionaries(st.sampled_from(NAMES), values, max_size=6)
)
def test_any_environment_is_a_world_or_none_or_a_usage_error(base, changes):
    try:
        world = joined_world(base | changes)
    except UsageError:
        return
    if world is not None:
        assert world.size > 1 and 1 <= world.port <= 65535 and world.source


# names


def test_addresses_that_resolve_are_taken():
    assert resolve("127.0.0.1", "MASTER_ADDR") == "127.0.0.1"
    assert resolve("localhost", "SLURM_STEP_NODELIST") == "localhost"


@pytest.mark.parametrize(
    "address", ["nosuchhost.invalid", "", "999.1.1.1", "x" * 64, "node1..cluster", ".", "a b", "node1,node2"]
)
def test_an_address_that_does_not_resolve_names_its_variable_within_seconds(address):
    begin = time.monotonic()
    with pytest.raises(UsageError) as caught:
        resolve(address, "SLURM_STEP_NODELIST")
    assert time.monotonic() - begin < 10
    told = str(caught.value)
    assert repr(address) in told and "from SLURM_STEP_NODELIST" in told and "set MASTER_ADDR" in told


def test_ranks_of_mpirun_inside_a_job_are_mpiruns_on_every_node():
    """mpirun's daemons on the other nodes are tasks of an srun, and hand their variables down to the ranks."""
    daemons = {
        "SLURM_PROCID": "0",
        "SLURM_STEP_NUM_TASKS": "2",
        "SLURM_STEP_NODELIST": "node[2-3]",
        "SLURM_STEP_ID": "0",
    }
    assert joined_world(OPEN_MPI | daemons) == joined_world(OPEN_MPI)


def test_a_rank_that_slurm_contradicts_is_refused():
    told = refused({"RANK": "0", "WORLD_SIZE": "8", "MASTER_ADDR": "localhost"} | SRUN)
    assert "RANK=0" in told and f"SLURM_PROCID={SRUN['SLURM_PROCID']}" in told


def test_mpich_that_does_not_say_where_its_ranks_are_needs_an_address():
    assert "MASTER_ADDR" in refused(without(without(MPICH, "MPI_LOCALNRANKS"), "MPI_LOCALRANKID"))
