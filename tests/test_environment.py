import os
import subprocess
import sys

import pytest
from fake_sysfs import write

from commbench.world import environment as module
from commbench.world.environment import conf_files, differences, environment
from commbench.world.versions import nvidia_driver, versions


def test_what_changes_collectives_is_kept_and_nothing_else():
    wanted = {
        "NCCL_ALGO": "Tree", "NCCL_IB_HCA": "=mlx5_0,mlx5_3", "NCCL_IB_PKEY": "0", "RCCL_MSCCL_ENABLE": "1",
        "GLOO_SOCKET_IFNAME": "eth0",
        "UCX_TLS": "tcp", "UCC_TLS": "ucp", "OMPI_MCA_coll_hcoll_enable": "0", "PMIX_MCA_gds": "^ds12",
        "PRTE_MCA_rmaps": "x",
        "MPICH_GPU_SUPPORT_ENABLED": "1", "FI_PROVIDER": "efa", "I_MPI_FABRICS": "shm", "TORCH_NCCL_BLOCKING_WAIT": "1",
        "TORCH_DISTRIBUTED_DEBUG": "OFF", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "0",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "ROCR_VISIBLE_DEVICES": "0", "SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": "1", "SLURM_NTASKS": "2",
        "MASTER_ADDR": "n0",
        "MASTER_PORT": "29500", "RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "OMPI_COMM_WORLD_RANK": "0",
        "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "60",
    }  # fmt: skip
    unwanted = {
        "HOME": "/root",
        "PATH": "/bin",
        "USER": "me",
        "MY_NCCL_ALGO": "x",
        "SLURM_JOB_COMMENT": "x",
        "nccl_algo": "x",
        "AWS_REGION": "x",
    }
    assert environment(wanted | unwanted) == wanted
    assert list(environment(wanted)) == sorted(wanted)


@pytest.mark.parametrize(
    "name",
    ["SLURM_JWT", "UCX_JWT", "NCCL_API_KEY", "UCX_AUTH_TOKEN", "OMPI_MCA_plm_password",
     "OMPI_MCA_orte_precondition_transports", "PMIX_MCA_psec",
     "FI_SECRET", "I_MPI_CREDENTIALS", "NCCL_Passphrase", "GLOO_TLS_PRIVATE", "PMIX_MCA_sec_munge", "OMPI_MCA_sec",
     "NCCL_IB_PKEY_TOKEN",
     "TORCH_DISTRIBUTED_TLS_CERT", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY"],
)  # fmt: skip
def test_a_name_that_looks_secret_is_left_out_whatever_its_prefix(name):
    assert environment({name: "hunter2", "NCCL_ALGO": "Ring"}) == {"NCCL_ALGO": "Ring"}


@pytest.mark.parametrize("value", ["http://me:hunter2@proxy:80", "sshpass -p hunter2 ssh", "x,password=hunter2"])
def test_a_value_that_looks_secret_is_hidden(value):
    assert environment({"OMPI_MCA_plm_rsh_agent": value}) == {"OMPI_MCA_plm_rsh_agent": "(hidden)"}


def test_bytes_that_are_no_text_do_not_stop_the_journal():
    [value] = environment({"NCCL_NET": os.fsdecode(b"a\xffb")}).values()
    assert value.encode() == b"a?b"


def test_no_conf_files(tmp_path):
    assert conf_files(tmp_path, tmp_path / "home", {}) == {}
    assert conf_files(tmp_path, environ={}) == {}


def test_conf_files_are_those_nccl_reads(tmp_path):
    home = tmp_path / "home"
    write(home / ".nccl.conf", "NCCL_ALGO=Tree")
    write(tmp_path / "etc/nccl.conf", "# site\nNCCL_ALGO=NVLSTree\nNCCL_IB_HCA==mlx5_0\nNCCL_SITE_TOKEN=hunter2")
    own = write(tmp_path / "mine.conf", "NCCL_PROTO=LL")
    site = "# site\nNCCL_ALGO=NVLSTree\nNCCL_IB_HCA==mlx5_0\nNCCL_SITE_TOKEN=(hidden)"
    assert conf_files(tmp_path, home, {}) == {str(home / ".nccl.conf"): "NCCL_ALGO=Tree", "/etc/nccl.conf": site}
    assert conf_files(tmp_path, None, {"HOME": str(home)}) == conf_files(tmp_path, home, {})
    # With NCCL_CONF_FILE, ~/.nccl.conf is not read.
    assert conf_files(tmp_path, home, {"NCCL_CONF_FILE": str(own)}) == {
        str(own): "NCCL_PROTO=LL",
        "/etc/nccl.conf": site,
    }


def test_conf_files_that_cannot_be_read(tmp_path, monkeypatch):
    (tmp_path / "etc/nccl.conf").mkdir(parents=True)
    missing = str(tmp_path / "none.conf")
    texts = conf_files(tmp_path, None, {"NCCL_CONF_FILE": missing})
    assert texts == {
        missing: "(not readable: there is no such file)",
        "/etc/nccl.conf": "(not readable: not a regular file)",
    }
    os.mkfifo(tmp_path / "pipe")
    assert (
        "not a regular file"
        in conf_files(tmp_path, None, {"NCCL_CONF_FILE": str(tmp_path / "pipe")})[str(tmp_path / "pipe")]
    )
    assert "not a regular file" in conf_files(tmp_path, None, {"NCCL_CONF_FILE": "/dev/zero"})["/dev/zero"]
    long = "/" + "x" * 5000
    assert "too long" in conf_files(tmp_path, None, {"NCCL_CONF_FILE": long})[long]

    def refuse(*arguments):
        raise PermissionError(13, "Permission denied")

    own = write(tmp_path / "mine.conf", "NCCL_PROTO=LL")
    monkeypatch.setattr(module, "open", refuse, raising=False)
    assert conf_files(tmp_path, None, {"NCCL_CONF_FILE": str(own)})[str(own)] == "(not readable: Permission denied)"


def test_conf_files_are_bounded_and_need_not_be_utf8(tmp_path):
    own = write(tmp_path / "big.conf", b"NCCL_NET=\xff\r\n" + b"#\n" * 100_000)
    text = conf_files(tmp_path, None, {"NCCL_CONF_FILE": str(own)})[str(own)]
    assert len(text) < 70_000 and text.endswith("(cut here)") and text.startswith("NCCL_NET=\ufffd\n")


def _node(host="node0", versions=None, environment=None, conf=None):
    return {"host": host, "versions": versions or {}, "environment": environment or {}, "conf_files": conf or {}}


def test_nodes_that_agree():
    own = [
        {
            "RANK": str(i),
            "SLURM_NODEID": str(i),
            "NCCL_HOSTID": str(i),
            "OMPI_MCA_ess_base_vpid": str(i),
            "NCCL_ALGO": "Ring",
        }
        for i in range(2)
    ]
    conf = [{"/etc/nccl.conf": "# node 0\nNCCL_NET=IB"}, {"/etc/nccl.conf": "NCCL_NET=IB\n\n# node 1\nNCCL_NET=Socket"}]
    nodes = [_node(f"node{i}", {"torch": "2.6.0"}, own[i], conf[i]) for i in range(2)]
    assert differences(nodes) == [] and differences(nodes[:1]) == []


@pytest.mark.parametrize(
    "first, second, sentence",
    [
        ({}, {"environment": {"NCCL_ALGO": "Tree"}}, "node1 has NCCL_ALGO=Tree, node0 has it unset"),
        ({"environment": {"NCCL_ALGO": "Tree"}}, {}, "node1 has NCCL_ALGO unset, node0 has NCCL_ALGO=Tree"),
        ({"versions": {"nccl": "2.26.2"}}, {"versions": {"nccl": "2.21.5"}}, "node1 has nccl 2.21.5, node0 has 2.26.2"),
        ({"versions": {"mpi4py": "4.0.1"}}, {}, "node1 has no mpi4py, node0 has 4.0.1"),
        ({}, {"versions": {"driver": "550.54.15"}}, "node1 has driver 550.54.15, node0 has none"),
        (
            {}, {"conf": {"/etc/nccl.conf": "NCCL_ALGO=NVLSTree"}},
            "node1 has NCCL_ALGO=NVLSTree in /etc/nccl.conf, node0 has it unset there",
        ),
        (
            {"conf": {"/etc/nccl.conf": "NCCL_ALGO=Ring\n"}}, {"conf": {"/etc/nccl.conf": "NCCL_ALGO=Tree\r\n"}},
            "node1 has NCCL_ALGO=Tree in /etc/nccl.conf, node0 has NCCL_ALGO=Ring there",
        ),
        ({}, {"environment": {"UCX_TLS": "a\x1b[2Jb"}}, r"node1 has UCX_TLS='a\x1b[2Jb', node0 has it unset"),
        (
            {}, {"environment": {"LD_PRELOAD": "x" * 60 + "y" * 500 + "z" * 35}},
            f"node1 has LD_PRELOAD={'x' * 60}...{'z' * 35}, node0 has it unset",
        ),
    ],
)  # fmt: skip
def test_a_difference_is_a_sentence(first, second, sentence):
    nodes = [_node("node0", **first), _node("node1", **second)]
    assert differences(nodes) == [sentence]


def test_many_nodes_share_a_sentence():
    nodes = [_node()] + [
        _node(f"node{i}", environment={"NCCL_PROTO": "LL" if i < 6 else "Simple"}) for i in range(1, 8)
    ]
    assert differences(nodes) == [
        "node1, node2, node3 and 2 more have NCCL_PROTO=LL, node0 has it unset",
        "node6 and node7 have NCCL_PROTO=Simple, node0 has it unset",
    ]


@pytest.mark.parametrize(
    "line, version",
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.161.08  Sat Feb 24 21:01:38 UTC 2024", "535.161.08"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release Build  (x@y)", "550.54.15"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  570.86.15  Release Build", "570.86.15"),
        ("rubbish", None), (b"\xff\xfe", None), (None, None),
    ],
)  # fmt: skip
def test_the_nvidia_driver(tmp_path, line, version):
    if line:
        write(tmp_path / "driver/nvidia/version", line)
    assert nvidia_driver(tmp_path) == version


def test_versions_load_torch_only_where_a_rank_has_it(tmp_path):
    code = "import sys; from commbench.world.versions import versions; print(versions('mpi'))"
    code += "; assert not {'torch', 'mpi4py.MPI'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "'python'" in done.stdout and "'commbench'" in done.stdout


def test_versions_of_gloo(tmp_path):
    torch = pytest.importorskip("torch")
    told = versions("gloo", tmp_path)
    assert (told["torch"], told["torch_git"]) == (str(torch.__version__), torch.version.git_version)
    assert "driver" not in told and ("cuda" in told) == bool(torch.version.cuda)
    assert all(isinstance(value, str) and value for value in told.values())
    assert not torch.cuda.is_initialized()


def test_versions_of_nccl_and_mpi_where_they_are_loaded(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.version, "cuda", "12.4")
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: True)
    monkeypatch.setattr(torch.cuda.nccl, "version", lambda: (2, 21, 5))
    mpi = type("MPI", (), {"Get_library_version": staticmethod(lambda: "Open MPI v5.0.6, package: x, ident: 5.0.6\0")})
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", mpi)
    told = versions("nccl", tmp_path)
    assert (told["nccl"], told["cuda"]) == ("2.21.5", "12.4") and told["mpi"] == "Open MPI v5.0.6"
