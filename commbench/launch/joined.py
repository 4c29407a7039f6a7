"""A run whose ranks a launcher started: each task is a supervisor that forks one child per launch.

Supervisors talk through a rendezvous store of their own, which rank 0's serves (torchrun's agent serves it under
torchrun). Rank 0's supervisor alone reads the suite, writes the run folder and decides; the others follow.
"""

import json
import os
import socket
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import timedelta

from commbench.errors import HANG, PASS, UNMEASURED, CommbenchError, HangError, MeasureError, disk_sentence
from commbench.launch.forks import Forks
from commbench.launch.identity import Joined, resolve
from commbench.launch.in_time import in_time
from commbench.launch.spec import LaunchSpec
from commbench.launch.watch import Outcome, watch
from commbench.world.progress import Progress

_START_S = 300.0  # thousands of tasks import torch from one disk before the last has come
_SILENT_S = 60.0  # between launches: rank 0's store answers at once, whatever rank 0 itself is busy with
_HEARD_S = 5.0  # for the others to tell how a launch ended that has failed: they kill their ranks first


def run_joined(me: Joined, timeout: float | None, lead) -> int:
    """A run under a launcher, on every task; the exit code, the same on all of them.

    `lead(node_of, site)` is what rank 0 does once it knows which node each rank is on; it returns the exit code.
    """
    resolve(me.address, me.source)
    timeout_s = timeout or _START_S
    store = _connect(me, timeout_s)
    if me.rank == 0:
        return _lead(me, store, timeout_s, lead)
    return follow(me, store)


def _connect(me: Joined, timeout_s: float):
    import torch.distributed as dist

    served = me.launcher == "torchrun" and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    try:
        store = dist.TCPStore(
            me.address,
            me.port,
            me.size,
            me.rank == 0 and not served,
            timedelta(seconds=timeout_s),
            wait_for_workers=False,
        )
    except RuntimeError as error:
        first = str(error).splitlines()[0]
        if me.rank == 0:
            host = socket.gethostname()
            raise HangError(
                f"rank 0 is on {host} and does not reach itself at {me.server} (from {me.source}) within "
                f"{timeout_s:g} s; set MASTER_ADDR to the name or an address of {host}"
            ) from None
        raise HangError(
            f"rank {me.rank} of {me.size} cannot reach rank 0 at {me.server} (from {me.source}) "
            f"within {timeout_s:g} s: {first}"
        ) from None
    return dist.PrefixStore("commbench", store)


def _lead(me: Joined, store, timeout_s: float, lead) -> int:
    site = JoinedSite(me, store)
    code = HANG
    try:
        store.set("host/0", site.host)
        hosts = _collect_hosts(store, me, timeout_s)
        names = list(dict.fromkeys(hosts))
        site.nodes = len(names)
        code = lead([names.index(host) for host in hosts], site)
    except CommbenchError as error:
        code = error.exit_code
        print(f"commbench: {error}", file=sys.stderr)
    except BrokenPipeError:
        raise
    except OSError as error:
        # Told before the others are let go: srun ends this task when the first of them has left with a code.
        code = UNMEASURED
        print(f"commbench: {disk_sentence(error)}", file=sys.stderr, flush=True)
    finally:
        site.dismiss(code)
    return code


def _collect_hosts(store, me: Joined, timeout_s: float) -> list[str]:
    keys = [f"host/{rank}" for rank in range(me.size)]
    try:
        store.wait(keys, timedelta(seconds=timeout_s))
    except RuntimeError:
        missing = [rank for rank in range(me.size) if not store.check([f"host/{rank}"])]
        raise HangError(
            f"{len(missing)} of {me.size} tasks did not come within {timeout_s:g} s: missing rank(s) {missing[:16]}"
        ) from None
    return [store.get(key).decode() for key in keys]


def follow(me: Joined, store) -> int:
    """The life of every supervisor but rank 0's: launches as they are announced, until the run is over."""
    site = JoinedSite(me, store)
    store.set(f"host/{me.rank}", site.host)
    number = 0
    while True:
        announced = _await(store, f"launch/{number}", me)
        if "exit_code" in announced:
            with suppress(RuntimeError):  # a leader that waits no longer has closed the store
                store.set(f"heard/{me.rank}", "")
            return announced["exit_code"]
        site.take_part(number, LaunchSpec.from_json(announced["spec"]))
        number += 1


def _await(store, key: str, me: Joined) -> dict:
    """The JSON of `key`, however long it takes; a leader that is gone closes the store, and that ends the wait."""
    while True:
        try:
            with in_time(_SILENT_S, me.server):
                if store.check([key]):
                    return json.loads(store.get(key))
        except RuntimeError:
            raise HangError("rank 0's supervisor is gone") from None
        time.sleep(0.05)


class JoinedSite:
    """The tasks of a launcher as the place where ranks live."""

    starts_mpi = False

    def __init__(self, me: Joined, store):
        self.me, self.store = me, store
        self.host = socket.gethostname()
        self.nodes = 1
        self._poll_s = max(0.3, me.size / 2000)  # one small server answers all of them
        self._number = 0
        self._mpi_formed = False

    def can_launch(self, backend: str) -> bool:
        """Whether a launch over `backend` can still be started.

        The ranks of a second MPI world would be given the addresses of the first one's by the launcher's PMIx server,
        where they are on another node, and connect to nobody or to the wrong rank.
        """
        return not (backend == "mpi" and self._mpi_formed and self.nodes > 1)

    def launch(self, spec: LaunchSpec, tick) -> Outcome:
        """Rank 0's part: announce the launch, take part in it, and hear how it ended everywhere."""
        if spec.ranks != self.me.size:
            raise MeasureError(f"this point wants {spec.ranks} ranks, the launcher started {self.me.size}")
        self._mpi_formed |= spec.backend == "mpi"
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("", 0))
            listener.listen(min(4096, spec.ranks + 8))
            spec = replace(spec, address=self.me.address, port=listener.getsockname()[1])
            self.store.set(f"launch/{self._number}", json.dumps({"spec": spec.to_json()}))
            outcome = self.take_part(self._number, spec, tick, listener)
        outcome = self._heard(self._number, outcome, spec)
        self._number += 1
        return outcome

    def take_part(self, number: int, spec: LaunchSpec, tick=lambda: None, listener=None) -> Outcome:
        """Fork this task's rank, watch it, and tell the others when it fails."""
        key, due = f"abort/{number}", [0.0]

        def poll() -> Outcome | None:
            tick()
            if time.monotonic() < due[0]:
                return None
            due[0] = time.monotonic() + self._poll_s
            # Where rank 0 is cut off it comes to its end first, for launchers kill all once one task has failed.
            patience_s = spec.timeout_s + progress.rows()[0]["allowance_ms"] / 1e3 + 2 * (_HEARD_S + self._poll_s)
            try:
                with in_time(patience_s, self.me.server):
                    return Outcome(**json.loads(self.store.get(key))) if self.store.check([key]) else None
            except RuntimeError:
                return Outcome(HANG, "rank 0's supervisor is gone")

        with tempfile.TemporaryDirectory(prefix="commbench-") as scratch:
            spec = replace(spec, scratch=scratch, local_ranks=1)
            progress = Progress(spec.progress, 1, create=True)
            outcome = watch(
                Forks(spec, [self.me.rank], listener, self.me.local_rank), spec, [self.me.rank], self.host, poll
            )
        try:
            with in_time(_SILENT_S, self.me.server):
                if outcome.exit_code != PASS:
                    self.store.compare_set(key, "", json.dumps(asdict(outcome)))
                self.store.set(f"ended/{number}/{self.me.rank}", json.dumps(asdict(outcome)))
        except RuntimeError:
            pass  # the leader is gone; there is nobody to tell
        return outcome

    def _heard(self, number: int, own: Outcome, spec: LaunchSpec) -> Outcome:
        """The worst outcome of all supervisors; one that does not answer any more is itself the lost part."""
        keys = [f"ended/{number}/{rank}" for rank in range(self.me.size)]
        try:
            # The watches of the others end within the time-out, and at once after one has told of a death.
            rest_s = spec.timeout_s if own.exit_code == PASS else self._poll_s
            self.store.wait(keys, timedelta(seconds=_HEARD_S + rest_s))
        except RuntimeError:
            silent = [rank for rank, key in enumerate(keys) if not self.store.check([key])]
            hosts = {rank: self.store.get(f"host/{rank}").decode() for rank in silent[:16]}
            missing = [
                {"rank": rank, "host": host, "why": "its supervisor does not answer"} for rank, host in hosts.items()
            ]
            told = ", ".join(f"rank {m['rank']} on {m['host']}" for m in missing)
            return Outcome(HANG, f"lost {told}: the supervisor there does not answer any more", missing, own.step)
        outcomes = [Outcome(**json.loads(self.store.get(key))) for key in keys]
        bad = [outcome for outcome in outcomes if outcome.exit_code != PASS]
        named = [outcome for outcome in bad if outcome.missing]
        return (named or bad or [own])[0]

    def dismiss(self, code: int) -> None:
        """Let the other supervisors go, with the exit code of the run; the store stays until they have heard, however
        busy their cores are. After a hang some never will."""
        self.store.set(f"launch/{self._number}", json.dumps({"exit_code": code}))
        others = [f"heard/{rank}" for rank in range(self.me.size) if rank != self.me.rank]
        deadline = time.monotonic() + (2 if code == HANG else 30) + self.me.size / 1000
        while not self.store.check(others) and time.monotonic() < deadline:
            time.sleep(0.05 + self.me.size / 10000)
