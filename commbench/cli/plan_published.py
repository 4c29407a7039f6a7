"""`commbench plan --published` as lines for a terminal and a log."""

from commbench.cli.columns import aligned
from commbench.planning.judged import JudgedRun, Verdict


def published_lines(rows: list[JudgedRun], verdict: Verdict) -> list[str]:
    """The table of published runs beside predictions, and the verdict on the held-out half."""
    table = [["run", "GPUs", "fits, GB", "printed", "MFU %", "predicted", "95 %", "off", "role"]]
    for row in rows:
        printed = row.run.measured.get("mfu_percent")
        hardware = row.run.measured.get("hfu_percent")
        told = f"{printed:g}" if printed is not None else f"HFU {hardware:.0f}" if hardware else "-"
        free = f"{row.ledger.total / 1e9:.0f} of {row.ledger.capacity / 1e9:.0f}{'' if row.ledger.fits else ' NO'}"
        guess = (
            [f"{row.predicted:.1f}", f"{row.low:.1f} to {row.high:.1f}", f"{row.error:+.1f}"]
            if row.predicted
            else ["-"] * 3
        )
        if row.run.links is None:
            free = "-"
        table.append([row.run.name, str(row.run.job.gpus), free, told, f"{row.mfu:.1f}", *guess, row.role])
    lines = ["Published training runs beside the step model (MFU in percent of the dense bf16 peak)", ""]
    lines += aligned(table)
    lines += ["", "what to know of them"]
    lines += [f"  {row.run.name}: {note}" for row in rows for note in row.notes]
    lines += ["", "one constant for each GPU kind: the share of the peak that matrix products reach"]
    for kind, one in verdict.efficiencies.items():
        lines.append(f"  {kind}: {one.value:.3f} ({one.low:.3f} to {one.high:.3f}), {one.source}")
    better = "yes" if verdict.error < verdict.naive / 2 else "NO"
    lines += [
        "",
        f"held out: {verdict.rows} runs, mean error {verdict.error:.1f} points of MFU; quoting the mean of the other "
        f"half is {verdict.naive:.1f} off (under half of that: {better})",
        f"Llama's order 43 > 41 > 38 {'kept' if verdict.llama_order else 'NOT kept'}; a GPU kind with one run is "
        "shown, not judged",
    ]
    return lines
