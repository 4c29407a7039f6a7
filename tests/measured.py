"""Runs and CSV files with known times, written for the tests of the models."""

from pathlib import Path

import numpy as np

from commbench.results.journal import Journal
from commbench.results.plan import Plan, Settings
from commbench.results.records import Point, Sample

SIZES = [2**k for k in range(3, 31)]


def point(size_bytes, op="all_reduce", ranks=4, nodes=1, backend="gloo", **what) -> Point:
    members = tuple(range(ranks))
    return Point(op, backend, size_bytes, ranks=ranks, members=members, world_size=ranks, nodes=nodes, **what)


def sample(time_us, size_bytes, launch=1, status="ok", samples=20, noise=0.01, seed=0, **what) -> Sample:
    """A measured point whose median is time_us within `noise`; one that is not ok has no times."""
    rng = np.random.default_rng([seed, launch, size_bytes])
    times = tuple((time_us * np.exp(rng.normal(0, noise, samples))).tolist()) if status in ("ok", "wrong") else ()
    return Sample(point(size_bytes, **what), launch, "2026-01-01T00:00:00Z", samples_us=times, status=status)


def line_run(
    folder: Path, alpha_us=20.0, beta_us_per_byte=1e-3, sizes=SIZES, launches=1, launch_sd=0.0, **what
) -> Path:
    """A run of alpha + beta * size, each launch off by its own factor of relative standard deviation launch_sd."""
    rng = np.random.default_rng(5)
    samples = []
    for launch in range(1, launches + 1):
        factor = float(np.exp(rng.normal(0, launch_sd)))
        samples += [sample(factor * (alpha_us + beta_us_per_byte * size), size, launch, **what) for size in sizes]
    return write_run(folder, samples)


def write_run(folder: Path, samples) -> Path:
    """The samples as a run on the disk."""
    folder.mkdir(parents=True, exist_ok=True)
    points = {s.point.id: s.point for s in samples}
    launches = sorted({s.launch for s in samples})
    Plan("test", tuple((p,) for p in points.values()), Settings(), len(launches)).save(folder / "plan.json")
    for launch in launches:
        journal = Journal(folder / f"launch-{launch:03d}.jsonl")
        journal.write({"record": "header", "schema": 1})
        for s in samples:
            if s.launch == launch:
                journal.write(s.to_json())
        journal.write({"record": "end", "schema": 1, "exit_code": 0})
        journal.close()
    return folder


def write_csv(path: Path, times: dict[int, float], op="all_reduce", ranks=8, **columns) -> Path:
    """{size_bytes: time_us} as the smallest CSV that can be fitted."""
    names = ["op", "ranks", "size_bytes", "time_us", *columns]
    lines = [",".join(map(str, [op, ranks, size, time, *columns.values()])) for size, time in times.items()]
    path.write_text("\n".join([",".join(names), *lines]) + "\n")
    return path
