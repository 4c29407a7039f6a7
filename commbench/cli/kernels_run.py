"""A run of `commbench kernels`: one process, a plan, a journal, a record for each pass of each kernel."""

import fcntl
import sys
from dataclasses import asdict, replace
from datetime import UTC, datetime

import numpy as np

from commbench.cli.run_here import new_folder
from commbench.errors import HANG, PASS, UNMEASURED, WRONG, MeasureError, UsageError, worst
from commbench.kernels import yardsticks
from commbench.kernels.bench import How, Outcome, fits, run
from commbench.kernels.check import expected
from commbench.kernels.flops import Attention, backward_bytes, executed_backward_flops, forward_bytes, forward_flops
from commbench.kernels.inputs import draw
from commbench.kernels.params import to_params
from commbench.kernels.peaks import Peak, given_peak, peak_of
from commbench.kernels.utilisation import PASSES, percent, rates
from commbench.results.journal import Journal
from commbench.results.plan import Plan, Settings
from commbench.results.records import SCHEMA, Point, Sample
from commbench.results.store import exit_code, load_run
from commbench.timing.stop_rule import StopRule
from commbench.world.environment import environment
from commbench.world.inventory import node_inventory
from commbench.world.versions import versions

_CODES = {"ok": PASS, "skip": PASS, "wrong": WRONG, "error": UNMEASURED}


def measure(args, cases: list[Attention], backends: list, device: str, view) -> int:
    """Measure every case on every backend into a new run folder; the run's exit code."""
    name = device_name(device)
    peak = given_peak(args.peak) if args.peak is not None else peak_of(name, cases[0].dtype)
    for case in cases:
        try:
            fits(case, device)
        except MeasureError as error:
            raise UsageError(str(error)) from None
    how = How(warmup_s=args.budget / 5, rule=StopRule(budget_s=args.budget))
    steps = [_copy_point(device), _matmul_point(device, cases[0].dtype)]
    steps += [point(case, b.name, which, device) for case in cases for b in backends for which in PASSES]
    settings = Settings(warmup_s=how.warmup_s, budget_s=args.budget, checks=1)
    folder = new_folder(args.out, "kernels", resumes=False)
    plan = Plan("kernels", tuple((p,) for p in steps), settings, 1, ("commbench", *sys.argv[1:]), _now())
    plan.save(folder / "plan.json")
    with open(folder / "lock", "w") as lock:  # `commbench status` sees by it that the run is going on
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        journal = Journal(folder / "launch-001.jsonl")
        try:
            _measure(journal, plan, cases, backends, device, name, peak, how, view)
        except KeyboardInterrupt:
            journal.write(_end(HANG, "stopped by Ctrl-C or SIGTERM"))
            print(f"commbench: stopped by Ctrl-C or SIGTERM; finished rows are kept in {folder}", file=sys.stderr)
            return HANG
        finally:
            journal.close()
    return _finish(folder, view, args.no_report)


def _measure(journal, plan, cases, backends, device, name, peak, how, view) -> None:
    journal.write(_header(plan, device, name, peak))
    view.begin(name, device, cases[0], peak)
    written = []

    def write(sample: Sample) -> None:
        journal.write(sample.to_json())
        written.append(sample)

    yards = [_copied(device, how), _multiplied(device, cases[0].dtype, how)]
    for sample in yards:
        write(sample)
    view.yardsticks(*yards)
    for case in cases:
        inputs = draw(case, device)
        right = expected(case, *inputs)
        view.case(case)
        for backend in backends:
            outcomes = run(case, backend, device, inputs, right, how)
            samples = [_sample(case, backend.name, which, device, outcomes[which], peak) for which in PASSES]
            for sample in samples:
                write(sample)
            view.row(case, backend, dict(zip(PASSES, samples, strict=True)))
    code = worst(_CODES[sample.status] for sample in written)
    reason = next((s.reason for s in written if code and _CODES[s.status] == code), "")
    journal.write(_end(code, reason))


def _finish(folder, view, no_report: bool) -> int:
    stored = load_run(folder)
    code, reason = exit_code(stored)
    view.end(stored, code, reason)
    if not no_report:
        from commbench.reports.page import write_report

        try:
            print(f"report: {write_report(stored, folder / 'report.html').resolve()}")
        except OSError as error:  # the run stands; its page can be written elsewhere
            print(f"the report cannot be written ({error.strerror}): commbench report {folder} --out FILE")
    return code


def point(case: Attention, backend: str, which: str, device: str) -> Point:
    """The point of one pass. Its size is the least traffic to memory."""
    size = forward_bytes(case) if which == "forward" else backward_bytes(case)
    return _point(f"attention_{which}", device, size, backend, case.dtype, to_params(case))


def _copy_point(device: str) -> Point:
    return _point("copy", device, yardsticks.copy_bytes(device), "torch", "float32", {})


def _matmul_point(device: str, dtype: str) -> Point:
    side = yardsticks.matmul_side(device)
    size = 3 * side * side * (4 if dtype == "float32" else 2)
    return _point("matmul", device, size, "torch", dtype, {"side": side})


def _point(op: str, device: str, size_bytes: int, algorithm: str, dtype: str, params: dict) -> Point:
    return Point(
        op, device, size_bytes, kind="kernel", params=params, algorithm=algorithm, members=(0,), ranks=1,
        world_size=1, dtype=dtype,
    )  # fmt: skip


def _sample(case: Attention, backend: str, which: str, device: str, outcome: Outcome, peak: Peak | None) -> Sample:
    made = point(case, backend, which, device)
    flops = forward_flops(case) if which == "forward" else executed_backward_flops(case)
    status, reason = outcome.status, outcome.reason
    sample = Sample(made, 1, _now(), flops=float(flops), status=status, reason=reason, algorithm_seen=backend)
    if outcome.checked:
        told = {"error_allowed": outcome.checked.allowed, "heads_checked": outcome.heads_checked}
        error = outcome.checked.error if outcome.checked.error < float("inf") else None  # no JSON has infinity
        sample = replace(sample, wrong=outcome.checked.wrong, error_max=error, reported=told)
    if outcome.timed is None:
        return sample
    sample = _timed(sample, outcome.timed, device, outcome.foreign_cores)
    sample = replace(sample, reported=sample.reported | {"memory_bytes": outcome.memory_bytes})
    if peak is None:
        return sample
    try:
        percent(rates(case, which, float(np.median(sample.samples_us))).executed, peak)
    except MeasureError as error:
        return replace(sample, status="error", reason=str(error))
    return sample


def _timed(sample: Sample, timed, device: str, foreign: float | None = None) -> Sample:
    median = float(np.median(timed.samples_us))
    return replace(
        sample, clock="host" if device == "cpu" else "cuda_event", warmup=timed.warmup, samples_us=timed.samples_us,
        rank_median_us=(median,), slowest_count=(len(timed.samples_us),), foreign_cores=foreign,
        stop_reason=timed.stop_reason,
    )  # fmt: skip


def _copied(device: str, how: How) -> Sample:
    return _timed(Sample(_copy_point(device), 1, _now()), yardsticks.copy(device, how), device)


def _multiplied(device: str, dtype: str, how: How) -> Sample:
    made = _matmul_point(device, dtype)
    sample = Sample(made, 1, _now(), flops=2.0 * made.params["side"] ** 3)
    return _timed(sample, yardsticks.matmul(device, dtype, how), device)


def device_name(device: str) -> str:
    """As the driver, or the processor, names it."""
    if device == "cpu":
        return node_inventory()["cpu"] or "a processor without a name"
    import torch

    return torch.cuda.get_device_name()


def _header(plan: Plan, device: str, name: str, peak: Peak | None) -> dict:
    import os

    from commbench.world.nvml import gpus

    node = node_inventory()
    found = versions("gloo")
    listed = {**node, "environment": environment(os.environ), "gpus": gpus() if device == "cuda" else []}
    notes = ["One process; every time is of one launch"]
    notes += ["Kernels on GPUs are unverified: this code had not met a GPU when it was written"] * (device == "cuda")
    return {
        "record": "header", "schema": SCHEMA, "suite": plan.name, "plan_hash": plan.hash, "launch": 1,
        "backend": device, "world_size": 1, "started_at": _now(), "command": list(plan.command),
        "versions": found | _triton(), "nodes": [listed], "library": {}, "oversubscribed": False, "notes": notes,
        "ranks": [{"node": 0, "rank": 0, "host": node["host"], "device": device, "device_name": name}],
        "peak": asdict(peak) if peak else None,
    }  # fmt: skip


def _triton() -> dict:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return {"triton": version("triton")}
    except PackageNotFoundError:
        return {}


def _end(code: int, reason: str) -> dict:
    return {
        "record": "end", "schema": SCHEMA, "exit_code": code, "reason": reason, "missing": [], "finished_at": _now()
    }  # fmt: skip


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
