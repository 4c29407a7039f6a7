"""What a reader must know before the figures: is it right, is it whole, and which figures mean less than they seem."""

from collections import Counter, defaultdict

from commbench.errors import BELOW, HANG, PASS, UNMEASURED, USAGE, WRONG
from commbench.ops import OPS
from commbench.reports.rows import Row
from commbench.results import metrics
from commbench.results.store import Run, exit_code

LISTED = 50  # rows with wrong data or an error that are listed at the top; the table has them all

MEANING = {
    PASS: "pass",
    BELOW: "below the bar",
    USAGE: "usage or configuration",
    UNMEASURED: "could not measure",
    HANG: "hang or lost rank",
    WRONG: "wrong data",
}


def verdict(run: Run, rows: list[Row]) -> dict:
    """Exit code, counts of rows by status, rows that failed (wrong first), skips by reason, and warnings."""
    code, why = exit_code(run)
    counts = Counter(row.sample.status for row in rows)
    planned = len(run.plan.points()) * run.plan.launches
    statuses = [*("ok", "wrong", "error", "skip"), *sorted(set(counts) - {"ok", "wrong", "error", "skip"})]
    failed = [row for row in rows if row.sample.status not in ("ok", "skip")]
    failed.sort(key=lambda row: row.sample.status != "wrong")
    return {
        "code": code,
        "meaning": MEANING.get(code, "unknown"),
        "why": why,
        "counts": [(status, counts[status]) for status in statuses],
        "planned": planned,
        "unmeasured": max(0, planned - len(rows)),
        "failed": failed[:LISTED],
        "failed_total": len(failed),
        "skips": _skips(rows),
        "warnings": _warnings(run, rows),
    }


def _skips(rows: list[Row]) -> list[dict]:
    """Skipped rows by their reason, the most frequent first: reason, how many, and of which operations."""
    by_reason = defaultdict(Counter)
    for row in rows:
        if row.sample.status == "skip":
            by_reason[row.sample.reason or "no reason given"][f"{row.point.backend} {row.point.op}"] += 1
    found = [{"reason": reason, "count": where.total(), "where": _where(where)} for reason, where in by_reason.items()]
    return sorted(found, key=lambda skip: -skip["count"])


def _where(counts: Counter) -> str:
    return ", ".join(f"{name} ({count})" for name, count in counts.items())


def _warnings(run: Run, rows: list[Row]) -> list[str]:
    ok = [row for row in rows if row.ok]
    oversubscribed = sum(row.sample.oversubscribed for row in ok)
    unchecked = Counter(
        f"{r.point.backend} {r.point.op}" + (" in place" if r.point.in_place else "")
        for r in ok
        if r.sample.wrong is None and (r.point.op not in OPS or OPS[r.point.op].sized)
    )
    copied = Counter(f"{row.point.backend} {row.point.op}" for row in ok if metrics.copies_input(row.point))
    short = sum(row.interval_us is None for row in ok)
    misaligned = sum(not row.sample.aligned for row in ok)
    warnings = []
    if oversubscribed:
        warnings.append(
            f"{_rows(oversubscribed)} of {len(ok)} measured with more ranks than cores (oversubscribed): "
            "their times show that the data is right, not how fast the fabric is."
        )
    busy = [row.sample.foreign_cores for row in ok if (row.sample.foreign_cores or 0) >= metrics.BUSY_CORES]
    if busy:
        warnings.append(
            f"Other programs took part in {_rows(len(busy))}, with up to {max(busy):.1f} cores: "
            "their times are not the fabric's alone."
        )
    if unchecked:
        warnings.append(f"The data of {_rows(unchecked.total())} was not checked: {_where(unchecked)}.")
    if ok and len({row.sample.launch for row in ok}) == 1:
        warnings.append(
            "Every interval comes from within one launch. Launches differ by more than samples do, "
            "so expect another launch outside these intervals; measure with several launches to see by how much."
        )
    if copied:
        warnings.append(f"The timed call of {_rows(copied.total())} holds a copy of the input: {_where(copied)}.")
    if short:
        warnings.append(f"{_rows(short)} with fewer than 6 samples: too few for an interval.")
    if misaligned:
        warnings.append(f"{_rows(misaligned)} used buffers that are not aligned, which can cost bandwidth.")
    return warnings + _warnings_of_journals(run)


def _warnings_of_journals(run: Run) -> list[str]:
    warnings, plan_hash = [], run.plan.hash
    for launch in run.launches:
        name = launch.path.name
        if not launch.header:
            warnings.append(f"{name} has no header: what machines and versions it ran on is unknown.")
        if launch.header.get("plan_hash", plan_hash) != plan_hash:
            warnings.append(f"{name} was written for another plan than the plan.json beside it.")
        if not launch.end:
            warnings.append(f"{name} has no end record: it was interrupted or is still running.")
        if launch.unreadable:
            warnings.append(f"{name} has {launch.unreadable} unreadable line(s); what stood there is not shown.")
    return warnings


def _rows(count: int) -> str:
    return f"{count} row" + ("" if count == 1 else "s")
