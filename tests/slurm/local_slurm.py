"""A real Slurm on one Linux machine, as a cluster of several nodes. Needs root, and munged, slurmctld and slurmd.

    python tests/slurm/local_slurm.py --nodes 4          # until Ctrl-C; prints what to export for sbatch and srun

A node is one slurmd in namespaces of its own: host name, /etc/hosts, processes. Its network is of its own too
("namespaces": an address each, where 127.0.0.1 is not the next node), or this machine's ("ports": a port each). The
kernel ends a node with everything in it when its first process goes, so nothing outlives this program, however it ends.
File systems, cores and /dev/shm are shared.
"""

import argparse
import contextlib
import ctypes
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "ip", "unshare")
_PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"
_PR_SET_PDEATHSIG = 1
_START_S = 30

_CONF = """\
ClusterName=local
SlurmctldHost={host}({controller})
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
# A requeued job waits cred_expire and a second more, 120 by default.
AuthInfo=socket={folder}/munge.socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdSpoolDir={folder}/spool-%n
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdLogFile={folder}/slurmd-%n.log
# mpi/pmix makes a folder in here, and nodes that share /tmp would collide.
TmpFS={folder}/tmp-%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
SlurmdParameters=config_overrides
ReturnToService=2
# What can never run is refused at submission instead of pending for ever.
EnforcePartLimits=ALL
SlurmdTimeout=30
KillWait=5
MinJobAge=3600
# Jobs of partition "low" are requeued when one of "debug" needs their nodes.
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
{gres_types}
{nodes}
PartitionName=debug Nodes=ALL Default=YES DefaultTime=00:10:00 MaxTime=INFINITE State=UP PriorityTier=2
PartitionName=low Nodes=ALL DefaultTime=00:10:00 MaxTime=INFINITE State=UP PriorityTier=1
"""

# The first process of a node. It waits for its network, if it gets one, then runs slurmd and reaps orphans.
_NODE = """\
hostname {name} && mount --bind {folder}/hosts /etc/hosts || exit 1
if [ -n "{address}" ]; then
  for _ in $(seq 250); do ip link show eth0 >/dev/null 2>&1 && break; sleep 0.02; done
  ip addr add {address}/24 dev eth0 && ip link set eth0 up && ip link set lo up || exit 1
fi
slurmd -D -N {name} -f {folder}/slurm.conf >/dev/null 2>&1 &
wait $!
"""


class NoSlurm(Exception):
    """Why no Slurm can be started here, and what to do."""


@dataclass
class Cluster:
    """A running cluster. `environment` is what a client of it needs."""

    folder: Path
    network: str
    nodes: list[str]
    subnet: str = ""
    bridge: str = ""
    processes: dict[str, subprocess.Popen] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def call(self, *command: str, check: bool = True, **more) -> str:
        """The output of a Slurm command."""
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=30, env={**os.environ, **self.environment}, **more
        )
        if check and done.returncode:
            raise AssertionError(f"{' '.join(command)}: {done.stderr or done.stdout}")
        return done.stdout

    def power_on(self, name: str) -> None:
        """Start one node, again after power_off."""
        number = self.nodes.index(name) + 1
        address = f"{self.subnet}.{number}" if self.subnet else ""
        script = _NODE.format(name=name, folder=self.folder, address=address)
        spaces = ["--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "slave"]
        spaces += ["--net"] if address else []
        self._start(name, ["unshare", *spaces, "bash", "-c", script])
        if address:
            _give_network(self.processes[name].pid, f"{self.bridge}-{number}", self.bridge)

    def power_off(self, name: str) -> None:
        """End a node with everything in it, as a lost power line does."""
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def _start(self, name: str, command: list[str]) -> None:
        with open(self.folder / f"{name}.out", "ab") as out:
            self.processes[name] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PATH": _PATH},
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )


@contextlib.contextmanager
def local_slurm(folder: Path, nodes: int = 2, network: str = "namespaces", gpus: int = 2, cpus: int = 4):
    """A Cluster whose nodes node1, node2, ... are idle, until the block ends. `gpus` of each node are pretended.

    Raises NoSlurm when a program or a right is missing, or when it does not come up within 30 s.
    """
    check()
    folder.mkdir(parents=True, exist_ok=True)
    cluster = Cluster(folder, network, [f"node{i}" for i in range(1, nodes + 1)])
    try:
        if network == "namespaces":
            _remove_bridges_of_the_dead()
            cluster.subnet, cluster.bridge = _free_subnet(), _free_bridge()
            _ip("link", "add", cluster.bridge, "type", "bridge")
            _ip("addr", "add", f"{cluster.subnet}.254/24", "dev", cluster.bridge)
            _ip("link", "set", cluster.bridge, "up")
        _write_files(cluster, gpus, cpus)
        _start_all(cluster)
        yield cluster
    finally:
        for name in [*cluster.nodes, "slurmctld", "munged"]:
            if name in cluster.processes:
                cluster.power_off(name)
        if cluster.bridge:
            _ip("link", "del", cluster.bridge, check=False)


def check() -> None:
    """Raise NoSlurm when this machine cannot start a Slurm."""
    if os.geteuid() != 0:
        raise NoSlurm("a local Slurm needs root, for namespaces")
    missing = [program for program in PROGRAMS if shutil.which(program, path=_PATH) is None]
    if missing:
        raise NoSlurm(f"{', '.join(missing)} not found: tests/system-packages.sh installs Debian's packages")


def _start_all(cluster: Cluster) -> None:
    folder = cluster.folder
    paths = {"socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed", "key-file": "key"}
    options = [f"--{option}={folder}/munge.{suffix}" for option, suffix in paths.items()]
    cluster._start("munged", ["munged", "--foreground", "--force", *options])
    cluster._start("slurmctld", ["slurmctld", "-D", "-f", str(folder / "slurm.conf")])
    for name in cluster.nodes:
        cluster.power_on(name)
    deadline = time.monotonic() + _START_S
    while cluster.call("sinfo", "-h", "-N", "-p", "debug", "-o", "%T", check=False).split() != ["idle"] * len(
        cluster.nodes
    ):
        gone = [name for name, process in cluster.processes.items() if process.poll() is not None]
        if gone or time.monotonic() > deadline:
            logs = "\n".join(path.read_text(errors="replace")[-2000:] for path in folder.glob("*.[lo]*[gt]"))
            raise NoSlurm(f"{', '.join(gone) or 'some node'} did not come up; the logs in {folder} say:\n{logs}")
        time.sleep(0.05)


def _write_files(cluster: Cluster, gpus: int, cpus: int) -> None:
    folder, host = cluster.folder, socket.gethostname().split(".")[0]
    controller = f"{cluster.subnet}.254" if cluster.subnet else "127.0.0.1"
    key = os.open(folder / "munge.key", os.O_WRONLY | os.O_CREAT, 0o400)
    os.write(key, os.urandom(128))
    os.close(key)
    (folder / "state").mkdir()
    hosts, lines, ports = ["127.0.0.1 localhost", f"{controller} {host}"], [], _free_ports(1 + len(cluster.nodes))
    for number, name in enumerate(cluster.nodes, 1):
        for kind in ("spool", "tmp"):
            (folder / f"{kind}-{name}").mkdir()
            (folder / f"{kind}-{name}").chmod(0o1777)
        address = f"{cluster.subnet}.{number}" if cluster.subnet else f"127.0.1.{number}"
        hosts += [f"{address} {name}", f"::ffff:{address} {name}"]  # torch looks up the second form of its peers
        where = f"NodeAddr={cluster.subnet}.{number}" if cluster.subnet else f"NodeHostname={host} NodeAddr=127.0.0.1"
        gres = f" Gres=gpu:{gpus}" if gpus else ""
        lines.append(f"NodeName={name} {where} Port={ports[number]} CPUs={cpus} RealMemory=8000{gres} State=UNKNOWN")
    (folder / "hosts").write_text("\n".join(hosts) + "\n")
    for gpu in range(gpus):  # a character device that is really /dev/null; Slurm then sets CUDA_VISIBLE_DEVICES
        os.mknod(folder / f"gpu{gpu}", 0o666 | 0o020000, os.makedev(1, 3))
    devices = f"{folder}/gpu[0-{gpus - 1}]" if gpus > 1 else f"{folder}/gpu0"
    names = f"{cluster.nodes[0]}" if len(cluster.nodes) == 1 else f"node[1-{len(cluster.nodes)}]"
    (folder / "gres.conf").write_text(f"NodeName={names} Name=gpu File={devices}\n" if gpus else "")
    (folder / "slurm.conf").write_text(
        _CONF.format(
            host=host,
            controller=controller,
            port=ports[0],
            folder=folder,
            gres_types="GresTypes=gpu" if gpus else "",
            nodes="\n".join(lines),
        )
    )


def _give_network(unshare_pid: int, name: str, bridge: str) -> None:
    """A cable from `bridge` to eth0 of the node whose unshare is `unshare_pid`."""
    ours = os.readlink("/proc/self/ns/net")
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/{unshare_pid}/ns/net") != ours:
                break
        time.sleep(0.005)
    _ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", str(unshare_pid))
    _ip("link", "set", name, "master", bridge, "up")


def _ip(*arguments: str, check: bool = True) -> str:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, env={**os.environ, "PATH": _PATH})
    if check and done.returncode:
        raise NoSlurm(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def _free_subnet() -> str:
    used = set(re.findall(r"inet (\d+\.\d+\.\d+)\.", _ip("-o", "addr")))
    return next(subnet for n in range(1, 255) if (subnet := f"10.213.{n}") not in used)


def _free_bridge() -> str:
    """A name with our pid, by which what we may leave behind is known; one process can run several clusters."""
    used = set(re.findall(r"^\d+: (slurm\w+)", _ip("-o", "link"), re.MULTILINE))
    return next(name for letter in "abcdefgh" if (name := f"slurm{os.getpid()}{letter}") not in used)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("", 0))
        return [one.getsockname()[1] for one in sockets]


def _remove_bridges_of_the_dead() -> None:
    """Bridges that a killed program of this kind has left; their nodes went with it."""
    for bridge, pid in re.findall(r"^\d+: (slurm(\d+)[a-h]):", _ip("-o", "link"), re.MULTILINE):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":  # pid 1 may reap late
                continue
        _ip("link", "del", bridge, check=False)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    parser = argparse.ArgumentParser(description="A real Slurm of several nodes on this machine, until Ctrl-C.")
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--network", choices=["namespaces", "ports"], default="namespaces")
    parser.add_argument("--gpus", type=int, default=2, help="pretended GPUs of each node")
    arguments = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="local-slurm-") as folder, contextlib.suppress(KeyboardInterrupt):
        os.chmod(folder, 0o755)
        with local_slurm(Path(folder), arguments.nodes, arguments.network, arguments.gpus) as cluster:
            print(f"export SLURM_CONF={cluster.environment['SLURM_CONF']}", flush=True)
            signal.pause()


if __name__ == "__main__":
    main()
