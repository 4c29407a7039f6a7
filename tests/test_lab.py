"""Labs that really stand: made, measured, changed, broken, taken down. Needs root, ip, tc and a kernel that lets us."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from runs import COMMBENCH, alive, clean_environment, commbench, points, records, start, wait_for

from commbench.errors import CommbenchError, MeasureError, UsageError
from commbench.lab import build, commands, namespaces, state, switching, wiring
from commbench.lab.layout import Lab
from commbench.lab.told import sentence
from commbench.results.metrics import time_us
from commbench.results.store import load_run

pytestmark = pytest.mark.full  # labs take seconds to stand and to be measured

RATE = Lab("t-rate", nodes=2, ranks_per_node=2, intra_bit_s=4e8, inter_bit_s=8e7)
LATENCY = Lab("t-latency", 2, 2, intra_bit_s=4e8, inter_bit_s=8e7, delay_us=10_000.0, intra_delay_us=1_000.0)
FORMS = [pytest.param(RATE, id="rate"), pytest.param(LATENCY, id="latency")]


@cache
def why_not() -> str | None:
    """Why labs cannot be made here, None where they can."""
    if os.geteuid() != 0:
        return "labs need root"
    if not (shutil.which("ip") and shutil.which("tc")):
        return "labs need ip and tc: bash tests/system-packages.sh installs them"
    if not Path("/dev/net/tun").exists():
        return "labs of the latency form need /dev/net/tun: modprobe tun"
    try:
        build.up(Lab("t-probe", 1, 2, 1e8, 1e8))
    except CommbenchError as error:
        return str(error)
    finally:
        build.down("t-probe")
    return None


@pytest.fixture(autouse=True)
def _possible():
    if reason := why_not():
        pytest.skip(reason)


@contextmanager
def standing(lab: Lab):
    build.up(lab)
    try:
        yield lab
    finally:
        build.down(lab.name)


def namespaces_there() -> set[str]:
    return {path.name for path in namespaces.NETNS.iterdir()} if namespaces.NETNS.exists() else set()


def payload_MBps(lab: Lab, a: int, b: int, size_bytes: int) -> float:
    """Of a TCP stream from rank a to rank b, without its first 400 kB: a bucket lets some of it through at once."""
    first, got, times = 400_000, 0, []
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))  # busy cores must not slow the stream
    with namespaces.inside(lab.rank(b).namespace):
        server = socket.create_server((lab.rank(b).address, 0))
    with namespaces.inside(lab.rank(a).namespace):
        sender = socket.create_connection(server.getsockname(), timeout=30)
    receiver, _ = server.accept()
    with server, sender, receiver:
        push = threading.Thread(target=sender.sendall, args=(bytes(first + size_bytes),))
        push.start()
        while got < first + size_bytes:
            got += len(receiver.recv(1 << 20))
            if got >= first:
                times.append((time.perf_counter(), got))
        push.join()
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    return (times[-1][1] - times[0][1]) / (times[-1][0] - times[0][0]) / 1e6


def reaches(lab: Lab, a: int, b: int) -> bool:
    """Whether a datagram of rank a comes to rank b."""
    with namespaces.inside(lab.rank(b).namespace):
        there = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with namespaces.inside(lab.rank(a).namespace):
        here = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with here, there:
        there.bind((lab.rank(b).address, 0))
        there.settimeout(0.3)
        here.sendto(b"x", there.getsockname())
        try:
            return there.recv(1) == b"x"
        except TimeoutError:
            return False


@pytest.mark.parametrize("lab", FORMS)
def test_a_lab_is_up_in_seconds_and_leaves_nothing(lab):
    before = namespaces_there()
    done = commbench(
        "lab", "up", "--name", lab.name, "--intra", "400mbit", "--inter", "80mbit",
        *(["--delay", "10ms", "--intra-delay", "1ms"] if lab.form == "latency" else []),
    )  # fmt: skip
    try:
        assert done.returncode == 0, done.stderr
        assert "between nodes 80mbit" in done.stdout and "payload at most 0.009564 GB/s" in done.stdout
        assert state.standing(lab.name) == lab
        assert namespaces_there() - before == set(lab.namespaces())
        assert all(reaches(lab, a, b) for a in range(4) for b in range(4) if a != b)
        told = json.loads(commbench("lab", "status", "--json", "--name", lab.name).stdout)
        assert told["stands"] and told["ranks"][3]["host"] == f"{lab.name}-node1"
        switch = switching.pid_of(lab.name)
    finally:
        began = time.monotonic()
        build.down(lab.name)
    assert time.monotonic() - began < 2
    assert namespaces_there() == before and not state.folder(lab.name).exists()
    assert switch is None or not alive(switch)
    assert commbench("lab", "status", "--name", lab.name).returncode == 3
    assert build.down(lab.name) is False


@pytest.mark.parametrize("lab", FORMS)
def test_streams_have_the_set_rates(lab):
    with standing(lab):
        for a, b, size in ((0, 1, 8_000_000), (1, 0, 8_000_000), (0, 2, 2_000_000), (3, 1, 2_000_000)):
            assert payload_MBps(lab, a, b, size) == pytest.approx(1e3 * lab.payload_GBps(a, b), rel=0.05), (a, b)


def test_the_latency_form_has_the_set_delays():
    def round_trip_ms(a, b):
        with namespaces.inside(LATENCY.rank(b).namespace):
            there = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with namespaces.inside(LATENCY.rank(a).namespace):
            here = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with here, there:
            there.bind((LATENCY.rank(b).address, 0))
            here.bind((LATENCY.rank(a).address, 0))
            took = []
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))  # as the switch has it: busy cores add no delay
            for _ in range(9):
                began = time.perf_counter()
                here.sendto(b"ping", there.getsockname())
                there.sendto(*there.recvfrom(9))
                here.recv(9)
                took.append(time.perf_counter() - began)
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        return 1e3 * sorted(took)[4]

    with standing(LATENCY):
        assert 20 <= round_trip_ms(0, 2) < 22
        assert 2 <= round_trip_ms(2, 3) < 3


@pytest.mark.parametrize("lab", FORMS)
def test_one_link_is_slowed_in_one_direction_and_put_back(lab):
    with standing(lab):
        name = ["--name", lab.name]
        assert commbench("lab", "shape", "node1", "--by", "0.1", "--direction", "in", *name).returncode == 0
        now = state.standing(lab.name)
        assert now.state_of("node1", "in") == (8e6, False) and now.state_of("node1", "out") == (8e7, False)
        assert payload_MBps(lab, 0, 2, 800_000) == pytest.approx(0.9564, rel=0.1)
        assert payload_MBps(lab, 2, 0, 2_000_000) == pytest.approx(9.564, rel=0.05)
        assert payload_MBps(lab, 2, 3, 8_000_000) == pytest.approx(47.82, rel=0.05)
        assert "node1 in: 8mbit" in commbench("lab", "status", *name).stdout
        assert commbench("lab", "shape", "node1", "--restore", *name).returncode == 0
        assert state.standing(lab.name) == lab
        assert payload_MBps(lab, 0, 2, 2_000_000) == pytest.approx(9.564, rel=0.05)


@pytest.mark.parametrize("lab", FORMS)
def test_a_link_is_cut_in_one_direction_or_both_and_put_back(lab):
    with standing(lab):
        build.change(lab.name, "node1", ["out"], cut=True)
        assert reaches(lab, 0, 2) and not reaches(lab, 2, 0) and reaches(lab, 2, 3)
        build.change(lab.name, "node1", cut=True)
        assert not reaches(lab, 0, 2) and not reaches(lab, 2, 0) and reaches(lab, 2, 3)
        build.change(lab.name, "node1", cut=False)
        build.change(lab.name, "rank3", ["in"], cut=True)
        assert reaches(lab, 0, 2) and reaches(lab, 3, 2) and not reaches(lab, 2, 3)
        assert build.change(lab.name, "rank3", cut=False).changes == {}
        assert reaches(lab, 2, 3)


def test_two_labs_stand_side_by_side():
    other = Lab("t-other", 2, 1, intra_bit_s=4e8, inter_bit_s=4e7)
    with standing(RATE), standing(other):
        build.change(other.name, "node0", cut=True)
        assert reaches(RATE, 0, 2) and not reaches(other, 0, 1)
        build.change(other.name, "node0", cut=False)
        assert payload_MBps(RATE, 0, 2, 2_000_000) == pytest.approx(9.564, rel=0.05)
        assert payload_MBps(other, 0, 1, 2_000_000) == pytest.approx(4.782, rel=0.05)
        build.down(other.name)
        assert reaches(RATE, 2, 0) and build.broken(RATE) == []


def test_a_lab_that_stands_and_names_that_are_taken_are_refused():
    with standing(RATE):
        with pytest.raises(UsageError, match="stands already"):
            build.up(RATE)
        assert reaches(RATE, 0, 2)
    foreign = RATE.rank(3).namespace
    subprocess.run(["ip", "netns", "add", foreign], check=True)
    try:
        with pytest.raises(UsageError, match=f"{foreign} that no lab has made"):
            build.up(RATE)
        assert not build.down(RATE.name) and foreign in namespaces_there()
    finally:
        subprocess.run(["ip", "netns", "delete", foreign], check=True)


@pytest.mark.parametrize("lab", FORMS)
@pytest.mark.parametrize("again", ["up", "down"])
def test_what_a_killed_up_has_left_is_found(lab, again):
    """The program is killed when half of the ports are there, and before the switch has started."""
    before = namespaces_there()
    code = (
        "import os, signal; from commbench.lab import build, wiring; from commbench.lab.layout import Lab\n"
        "made = wiring._port\n"
        "def port(lab, rank):\n"
        "    if rank.rank == 2: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return made(lab, rank)\n"
        f"wiring._port = port; build.up({lab!r})"
    )
    killed = subprocess.run([sys.executable, "-c", code], capture_output=True, env=clean_environment())
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert namespaces_there() - before == set(lab.namespaces())
    with pytest.raises(UsageError, match="not built to its end"):
        state.standing(lab.name)
    if again == "up":
        assert build.up(lab) is True
        assert reaches(lab, 0, 3)
    assert build.down(lab.name) is True
    assert namespaces_there() == before


@pytest.mark.parametrize("lab", FORMS)
def test_an_up_that_fails_or_is_stopped_leaves_nothing(lab, monkeypatch):
    before = namespaces_there()
    for trouble in (KeyboardInterrupt, MeasureError("tc: no")):

        def fail(*_, trouble=trouble):
            raise trouble

        monkeypatch.setattr(*((switching, "start") if lab.form == "latency" else (wiring, "_port")), fail)
        with pytest.raises((KeyboardInterrupt, MeasureError)):
            build.up(lab)
        assert namespaces_there() == before and state.load(lab.name) is None


def test_a_switch_that_died_is_told_and_replaced():
    with standing(LATENCY):
        os.kill(switching.pid_of(LATENCY.name), signal.SIGKILL)
        wait_for(lambda: switching.pid_of(LATENCY.name) is None)
        done = commbench("lab", "status", "--name", LATENCY.name)
        assert done.returncode == 3 and "lacks its switch" in done.stdout
        with pytest.raises(MeasureError, match="switch of lab t-latency is gone"):
            build.change(LATENCY.name, "node0", cut=True)
        done = commbench("lab", "run", "--name", LATENCY.name, "--", "true")
        assert done.returncode == 3 and "it lacks its switch" in done.stderr
        assert build.up(LATENCY) is True
        assert reaches(LATENCY, 0, 2)


def test_a_switch_whose_lab_is_gone_ends():
    with standing(LATENCY):
        pid = switching.pid_of(LATENCY.name)
        (state.folder(LATENCY.name) / "switch.pid").unlink()
        wait_for(lambda: not alive(pid), timeout=5)


def test_a_switch_that_cannot_start_is_told(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(MeasureError, match="switch of lab t-latency did not start: it said nothing"):
        build.up(LATENCY)
    assert state.load(LATENCY.name) is None


def test_down_ends_what_runs_in_the_lab_and_nothing_else():
    with standing(RATE):
        stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
        inside = start("lab", "run", "--name", RATE.name, "--", sys.executable, "-c", stubborn)
        outside = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        pids = wait_for(lambda: len(found := namespaces.processes_in(RATE.namespaces())) == 4 and found)
        build.down(RATE.name)
        assert not any(alive(pid) for pid in pids)
        assert outside.poll() is None
        outside.kill()
        outside.wait()
        assert inside.wait(30) == 3


def test_a_killed_run_takes_its_ranks_along():
    with standing(RATE):
        running = start("lab", "run", "--name", RATE.name, "--", "sleep", "600")
        pids = wait_for(lambda: len(found := namespaces.processes_in(RATE.namespaces())) == 4 and found)
        wait_for(lambda: all(Path(f"/proc/{pid}/comm").read_text() == "sleep\n" for pid in pids))
        running.kill()
        running.wait()
        wait_for(lambda: not any(alive(pid) for pid in pids), timeout=10)


def test_ranks_live_on_their_nodes():
    show = (
        "import os, socket, sys; host = socket.gethostname()\n"
        "told = [os.environ[name] for name in ('RANK', 'LOCAL_RANK', 'MASTER_ADDR')]\n"
        "told += [host, socket.gethostbyname(host), *sorted(os.listdir('/sys/class/net'))]\n"
        "sys.stdout.write(' '.join([*told, str(os.path.isdir('/sys/fs/cgroup'))]) + '\\n')"
    )
    with standing(RATE):
        done = commbench("lab", "run", "--name", RATE.name, "--", sys.executable, "-c", show)
        assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        f"{rank} {rank % 2} t-rate-node0 t-rate-node{rank // 2} 10.77.{rank // 2}.10 eth0 lo True" for rank in range(4)
    ]


def test_the_worst_exit_code_of_the_ranks_is_told():
    code = "import os, sys; sys.exit({'2': 5, '3': 4}.get(os.environ['RANK'], 0))"
    with standing(RATE):
        assert commbench("lab", "run", "--name", RATE.name, "--", sys.executable, "-c", code).returncode == 5
        done = commbench("lab", "run", "--name", RATE.name, "--", "no-such-program")
        assert done.returncode == 2 and "no-such-program: No such file or directory" in done.stderr


def test_bad_requests_are_one_sentence(monkeypatch):
    for arguments, said in (
        (["up", "--nodes", "0"], "0 nodes of 2 ranks make no lab"),
        (["up", "--inter", "fast"], "rate 'fast' is not understood"),
        (["up", "--intra-delay", "1ms"], "give --delay too"),
        (["run", "--name", "t-none", "--", "true"], "there is no lab 't-none'"),
        (["cut", "node0", "--name", "t-none"], "there is no lab 't-none'"),
        (["shape", "node0"], "one of the arguments --rate --by --restore is required"),
    ):
        done = commbench("lab", *arguments)
        assert done.returncode == 2 and said in done.stderr, done.stderr
        assert len(done.stderr.splitlines()) == 1
    with standing(RATE):
        done = commbench("lab", "cut", "node7", "--name", RATE.name)
        assert done.returncode == 2 and "node0 to node1" in done.stderr
        done = commbench("lab", "shape", "node0", "--by", "0", "--name", RATE.name)
        assert done.returncode == 2 and "a share is above 0" in done.stderr
    monkeypatch.setattr(commands.shutil, "which", lambda program: None)
    with pytest.raises(MeasureError, match="apt install iproute2"):
        build.up(RATE)


def test_without_root_or_capabilities_nothing_is_made():
    before = namespaces_there()
    code = "import os, sys; from commbench.cli import main; import commbench.cli.lab, commbench.lab.build, commbench.lab.mpi\nos.setuid(65534); main(sys.argv[1:])"
    for action in (["up"], ["down"], ["status"], ["run", "--", "true"], ["cut", "node0"]):
        done = subprocess.run([sys.executable, "-c", code, "lab", *action], capture_output=True, text=True)
        assert done.returncode == 3 and "run it with sudo" in done.stderr, done.stderr
    if shutil.which("setpriv"):
        bare = ["setpriv", "--inh-caps=-all", "--bounding-set=-all"]
        done = subprocess.run([*bare, *COMMBENCH, "lab", "up", "--name", "t-bare"], capture_output=True, text=True)
        assert done.returncode == 3 and "CAP_SYS_ADMIN" in done.stderr, done.stderr
        assert state.load("t-bare") is None
    assert namespaces_there() == before


def _run_on(lab: Lab, out: Path, *arguments, launcher="environment"):
    realtime = ["--realtime"] if launcher == "environment" else []  # so that busy cores do not slow the ranks
    done = commbench(
        "lab", "run", "--name", lab.name, "--launcher", launcher, *realtime, "--",
        "commbench", "run", *arguments, "--warmup", "1", "--no-report", "--out", out,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return load_run(out)


def test_commbench_joins_the_ranks_and_sees_the_nodes(tmp_path):
    with standing(RATE):
        run = _run_on(RATE, tmp_path / "run", "all_reduce", "--backend", "gloo", "--size", "1M", "--iters", "3")
    (sample,) = run.samples()
    assert (sample.point.nodes, sample.point.scope, sample.wrong) == (2, "mixed", 0)
    head = records(tmp_path / "run")[0]
    assert [(rank["node"], rank["host"], rank["address"]) for rank in head["ranks"]] == [
        (rank.node, rank.host, rank.address) for rank in RATE.ranks()
    ]
    assert [node["host"] for node in head["nodes"]] == ["t-rate-node0", "t-rate-node1"]
    assert head["lab"] == RATE.to_json() and head["notes"] == [sentence(RATE)]
    # A ring sends 2 * 3/4 of the buffer over each uplink; the bucket lets 150 kB through at once.
    least_us = (1.5 * 2**20 - 150_000) / RATE.payload_GBps(0, 2) / 1e3
    assert 0.95 * least_us < time_us(sample) < 2 * least_us


@pytest.mark.parametrize("backend, launcher", [("gloo", "environment"), ("mpi", "mpirun")])
def test_commbench_finds_the_ratio_that_was_set(backend, launcher, tmp_path):
    lab = replace(RATE, intra_bit_s=8e8, inter_bit_s=2.5e8)
    with standing(lab):
        pairs = ["--split", "0,1", "--split", "0,2"]
        what = ["p2p_latency", "--backend", backend, "--size", "16M", *pairs, "--iters", "2"]
        run = _run_on(lab, tmp_path / "run", *what, launcher=launcher)
    found = {sample.point.members: sample.point.size_bytes / time_us(sample) / 1e3 for sample in run.samples()}
    assert all(sample.wrong == 0 for sample in run.samples())
    # MPI's ranks wait by polling, the two of no pair too, and take cores from each other.
    within = {"gloo": 0.03, "mpi": 0.15}[backend]
    assert found[0, 1] == pytest.approx(lab.payload_GBps(0, 1), rel=within)
    assert found[0, 2] == pytest.approx(lab.payload_GBps(0, 2), rel=within)
    assert found[0, 1] / found[0, 2] == pytest.approx(3.2, rel=within)


def test_mpirun_starts_gloo_and_mpi_ranks_on_their_nodes(tmp_path):
    out = tmp_path / "run"
    with standing(LATENCY):
        what = ["all_reduce", "--backend", "gloo,mpi", "--size", "8", "--iters", "2"]
        run = _run_on(LATENCY, out, *what, launcher="mpirun")
    assert {(s.point.backend, s.point.nodes, s.wrong) for s in run.samples()} == {("gloo", 2, 0), ("mpi", 2, 0)}
    for launch in run.launches:
        places = [(rank["node"], rank["host"]) for rank in launch.header["ranks"]]
        assert places == [(rank.node, rank.host) for rank in LATENCY.ranks()]
    # Whatever algorithm: data has to go to the other node and back, 10 ms each way, for no result is there before.
    assert all(10_000 < time_us(sample) < 500_000 for sample in run.samples())


def test_a_cut_in_mid_run_ends_it_and_names_the_node(tmp_path):
    out = tmp_path / "run"
    with standing(RATE):
        running = start(
            "lab", "run", "--name", RATE.name, "--", "commbench", "run", "all_reduce", "--backend", "gloo", "--size",
            "8,1M", "--iters", "40", "--timeout", "6", "--no-report", "--out", out,
        )  # fmt: skip
        wait_for(lambda: points(out))
        build.change(RATE.name, "node1", cut=True)
        began = time.monotonic()
        _, told = running.communicate(timeout=90)
        assert running.returncode == 4, told
        assert time.monotonic() - began < 30
    assert "t-rate-node1" in records(out)[-1]["reason"], records(out)[-1]
    assert [row["status"] for row in points(out)][0] == "ok"
