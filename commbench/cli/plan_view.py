"""The answers of `commbench plan` as lines for a terminal and a log."""

from commbench.cli.columns import aligned, figure
from commbench.planning.activations import gpt_layer_bytes, layer_bytes, square_dominates_from
from commbench.planning.advice import LayoutAdvice, SearchAdvice
from commbench.planning.experts import nodes_reached
from commbench.planning.goodput import effective_mfu
from commbench.planning.layout import describe, micro_batches
from commbench.planning.links import group_of
from commbench.planning.pipeline import bubble_ratio
from commbench.planning.state import offloaded_bytes
from commbench.shapes.counts import active_parameters, in_words, parameters


def layout_lines(told: LayoutAdvice) -> list[str]:
    """One layout in full: the ledger, the account of a step, utilisation, assumptions, goodput."""
    return [*_head(told), "", *_memory(told), "", *_step(told), "", *_assumed(told), "", *_goodput(told)]


def search_lines(told: SearchAdvice) -> list[str]:
    """The ranking: the best layouts, why the runners-up lose, the best of each tp; then the best one in full."""
    found, best = told.search, told.best
    fits = f"{len(found.candidates)} of {found.looked_at} layouts fit"
    lines = [*_head(best, with_layout=False), fits + _too_large(found.too_large)]
    lines += [*found.left_out, ""]
    rows = [["step s", "MFU %", "x best", "95 %", "free GB", "layout", ""]]
    rows.append([*_speed(told, found.candidates[0]), "1", "", _gb(found.candidates[0].headroom),
                 describe(best.layout), "best"])  # fmt: skip
    for one, against in told.runners_up:
        rows.append([*_speed(told, one), f"{against.times:.3f}", f"{against.low:.3f} to {against.high:.3f}",
                     _gb(one.headroom), describe(one.layout), _why(told, against)])  # fmt: skip
    lines += _left(rows)
    lines += ["", "the best layout of each tp"]
    rows = [["tp", "step s", "x best", "layout"]]
    fastest = found.candidates[0].account.step_us
    for tp, one in told.of_tp.items():
        us = one.account.step_us
        rows.append([str(tp), figure(us / 1e6), f"{us / fastest:.3f}", describe(one.layout)])
    lines += _left(rows)
    if told.break_even:
        lines += [
            f"  tp {below} gives way to tp {above} where NVLink is {ratio:.1f} times as fast as a NIC"
            for ratio, below, above in told.break_even.changes
        ]
    return [*lines, "", *layout_lines(best)]


def _head(told: LayoutAdvice, with_layout: bool = True) -> list[str]:
    shape, job = told.shape, told.job
    count = f"{in_words(parameters(shape))} parameters"
    if shape.moe:
        count += f", {in_words(active_parameters(shape))} of them for a token"
    lines = [
        f"{shape.name} ({count}) on {job.gpus} {told.machine.gpu.name}, {told.machine.links.source}",
        f"a step: {job.global_batch} sequences of {job.sequence} tokens, {job.precision} matrix products",
    ]
    if with_layout:
        cut = told.layout
        lines.append(
            f"layout {describe(cut)}: tp x cp x pp x dp = {cut.tp} x {cut.cp} x {cut.pp} x {cut.dp} = {cut.ranks}"
        )
    return lines


def _memory(told: LayoutAdvice) -> list[str]:
    filled = told.ledger
    rows = [[name, _gb(size), f"{100 * size / filled.capacity:.0f} %"] for name, size in filled.items.items() if size]
    rows.append(["total", _gb(filled.total), f"{100 * filled.total / filled.capacity:.0f} %"])
    end = f"{_gb(filled.headroom)} GB free" if filled.fits else (
        f"DOES NOT FIT: {_gb(-filled.headroom)} GB too much, first at the {filled.first_too_much}"
    )  # fmt: skip
    where = f"pipeline rank {filled.stage} of {told.layout.pp}"
    head = f"memory of the fullest rank ({where}), GB of {_gb(filled.capacity)}: {end}"
    return [head, *aligned(rows), *_activations(told), *([] if filled.fits else _offload(told))]


def _activations(told: LayoutAdvice) -> list[str]:
    """Activations of a layer by the count and by the GPT formula, which differ where the shape is no GPT."""
    shape, cut = told.shape, told.layout.cut(told.job)
    experts = shape.moe is not None
    counted, formula = layer_bytes(shape, cut, experts), gpt_layer_bytes(shape.hidden, shape.heads, cut)
    square = square_dominates_from(shape.hidden, shape.heads)
    kept = "removed by flash attention" if cut.flash else "kept"
    return [
        f"  activations of a layer: {counted / 1e6:.0f} MB counted for this shape, {formula / 1e6:.0f} MB by the GPT "
        f"formula; its square term ({kept}) is the larger part from {square:.0f} tokens on"
    ]


def _offload(told: LayoutAdvice) -> list[str]:
    device, host = offloaded_bytes(told.ledger.items)
    fits = "fits" if device <= told.ledger.capacity else "does not fit either"
    return [f"  with gradients and optimizer on the host: {_gb(device)} GB here, {_gb(host)} GB there a rank: {fits}"]


def _step(told: LayoutAdvice) -> list[str]:
    account, p = told.prediction.account, told.prediction
    rows = [
        [name, f"{us / 1e3:.1f}", f"{100 * us / account.step_us:.1f} %", _moved(told, name)]
        for name, us in account.terms.items()
        if us > 1e-6 * account.step_us
    ]
    span = f"{p.low_us / 1e6:.4g} to {p.high_us / 1e6:.4g}"
    rate = [account.tokens_per_s_per_gpu * account.step_us / us for us in (p.high_us, p.low_us)]
    low, high = (account.step_us / us for us in (p.high_us, p.low_us))
    causal, full, done, done_full = (100 * u[c] for u in (told.mfu, told.hfu) for c in ("causal", "full"))
    micro = micro_batches(told.layout, told.job)
    return [
        f"one step {account.step_us / 1e6:.4g} s (95 %: {span}), {micro} micro-batches, {_bubble(told, micro)}",
        *_left([["", "ms", "share", ""], *rows]),
        f"  {account.tokens_per_s_per_gpu:.0f} tokens/s a GPU ({rate[0]:.0f} to {rate[1]:.0f})",
        f"  MFU {causal:.1f} % with causal attention halved ({causal * low:.1f} to {causal * high:.1f}), "
        f"{full:.1f} % with whole score matrices; HFU {done:.1f} and {done_full:.1f} %",
        f"  of the dense {told.job.wide} peak of {told.machine.gpu.peak_TFLOPs(told.job.wide):g} TFLOP/s",
        f"  the interval comes mostly from: {' and '.join(p.dominant) or 'nothing: all inputs are stated'}",
        *[f"  note: {note}" for note in told.notes],
    ]  # fmt: skip


def _bubble(told: LayoutAdvice, micro: int) -> str:
    cut = told.layout
    if cut.schedule in ("1f1b", "interleaved", "gpipe") and cut.pp > 1:
        return f"a bubble of (p - 1) / (m v) = {100 * bubble_ratio(cut.pp, micro, cut.vpp):.1f} % of the work"
    return "no pipeline" if cut.pp == 1 else f"schedule {cut.schedule}"


def _moved(told: LayoutAdvice, term: str) -> str:
    """What the interval of the input behind a term does to the step."""
    inputs = {"matmul": "kernel efficiency", "memory-bound": "memory rate", "PP send": "PP"}
    us = told.prediction.moved_by.get(inputs.get(term, term), 0.0)
    return f"+- {us / 1e3:.1f}" if us else ""


def _assumed(told: LayoutAdvice) -> list[str]:
    machine, assume, layout = told.machine, told.assume, told.layout
    lines = [
        "resting on",
        f"  kernels reach {100 * machine.efficiency:.1f} % of the peak ({machine.efficiency_source})",
        f"  norms, activations, optimizer reach {100 * assume.memory_share:.0f} % of {machine.gpu.memory_GBps:g} GB/s",
        f"  TP collectives are {'hidden but for one part of tp' if assume.tp_overlap else 'exposed'}",
        f"  DP traffic is {'behind the last backward and the first forward' if assume.dp_overlap else 'exposed'}",
    ]
    if layout.ep > 1:
        group = group_of(layout.ep, 1, machine.links.domain_ranks)
        reached = nodes_reached(told.shape.moe, group.domains)
        lines.append(f"  experts are evenly loaded; a token reaches {reached:.2f} of {group.domains} nodes")
        if layout.schedule == "dualpipe":
            lines.append(f"  all-to-alls hide behind arithmetic, on {100 * assume.dualpipe_share:.0f} % of the SMs")
    if machine.links.ratio:
        lines.append(f"  NVLink : NIC is {machine.links.ratio:.1f}, measured payload one way")
    return lines


def _goodput(told: LayoutAdvice) -> list[str]:
    good = told.goodput
    left = 100 * effective_mfu(told.mfu["causal"], good.share)
    return [
        f"interruptions: {good.per_day:.2g} a day, one in {_hours(good.hours_between)} ({good.source})",
        f"  best checkpoint interval {good.daly_s / 60:.1f} min (Daly; Young {good.young_s / 60:.1f}): "
        f"{100 * good.share:.1f} % of the time is progress, so {left:.1f} % effective MFU",
    ]


def _hours(hours: float) -> str:
    return f"{hours:.1f} hours" if hours < 48 else f"{hours / 24:.0f} days"


def _speed(told: SearchAdvice, one) -> list[str]:
    us = one.account.step_us
    return [figure(us / 1e6), f"{100 * told.best.mfu['causal'] * told.best.prediction.account.step_us / us:.1f}"]


def _why(told: SearchAdvice, against) -> str:
    if not against.distinguishable:
        return "cannot distinguish from the best"
    fastest = told.search.candidates[0].account.step_us
    told_of = [f"{term} {100 * us / fastest:+.1f} %" for term, us in against.by[:3] if abs(us) > 0.001 * fastest]
    return ", ".join(told_of) or "slower by under 0.1 %"


def _too_large(too_large: dict[str, int]) -> str:
    told = ", ".join(f"{name} {count}" for name, count in sorted(too_large.items(), key=lambda pair: -pair[1]))
    return f"; the others lack memory, first for: {told}" if told else ""


def _left(rows: list[list[str]]) -> list[str]:
    """Aligned lines whose last two columns are words, left-aligned where they are."""
    width = max(len(row[-2]) for row in rows)
    head = aligned([row[:-2] for row in rows]) if len(rows[0]) > 2 else [""] * len(rows)
    return [f"{line}  {row[-2].ljust(width)}  {row[-1]}".rstrip() for line, row in zip(head, rows)]


def _gb(size_bytes: float) -> str:
    return f"{size_bytes / 1e9:.1f}"
