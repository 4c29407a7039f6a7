"""The MoE page: time against skew, what each rank sends to each, and the load of experts before and after balancing."""

from dataclasses import replace

import numpy as np

from commbench.reports.exchanges import MOST_RANKS, Exchange, exchanges, matrix_of, quietly, too_much
from commbench.reports.moe_figures import load_figure, moved_bytes, skew_figure, traffic_figure
from commbench.reports.rows import figure
from commbench.results.metrics import bandwidth_GBps, flow_words, load, sent_received, time_us
from commbench.results.records import Point, Sample
from commbench.results.store import Run
from commbench.routing.matrices import max_over_mean
from commbench.routing.recipe import Recipe, recipe_of, replicas_of, routed
from commbench.timing.statistics import percentile
from commbench.units import format_size
from commbench.world.dtypes import DTYPES

_MOST_MATRICES = 4


def moe_section(run: Run) -> dict | None:
    """What the page shows of generated traffic; None where the run measured none of it."""
    samples = [s for s in run.samples() if s.status == "ok" and s.samples_us]
    flows = [s for s in samples if flow_words(s.point) and load(s)]
    if not flows:
        return None
    found = exchanges(samples, run)
    recipes = _recipes(flows)
    return {
        "skew": skew_figures(found),
        "rows": [_row(one) for one in found if one.sample.point.op == "all_to_all_v"],
        "counts": [_count(s) for s in samples if s.point.op == "count_exchange"],
        "matrices": _matrices(flows),
        "loads": [drawn for before, after in _balanced(recipes) if (drawn := _loads(before, after))],
    }


def _row(one: Exchange) -> dict:
    point, times = one.sample.point, one.sample.samples_us
    return {
        "place": f"{point.backend}, {point.ranks} ranks{'' if point.group == 'all' else f', {point.group}'}",
        "flow": one.flow,
        "moved": format_size(moved_bytes(one)),
        "sent": f"{one.sent:.3g}",
        "received": f"{one.received:.3g}",
        "busiest": one.busiest,
        "percentiles": [figure(percentile(times, share)) for share in (50, 95, 99)],
        "rate": figure(bandwidth_GBps(one.sample, one.time_us)),
        "predicted": figure(one.predicted.time_us if one.predicted else None),
        "port": one.predicted.busiest if one.predicted else "",
        "off": "" if one.off is None else f"{one.off:+.0%}",
        "padding": "" if one.padding is None else f"{one.padding:.2f} x",
    }


def _count(sample: Sample) -> str:
    point = sample.point
    crowded = ", oversubscribed" if sample.oversubscribed else ""
    return f"{point.backend}, group {point.group}, {point.ranks} ranks: {figure(time_us(sample))} µs{crowded}"


def skew_figures(found: list[Exchange]) -> list[dict]:
    """A figure for each backend, group and kind of timing."""
    groups = {}
    for one in found:
        point = one.sample.point
        key = point.backend, point.group, point.ranks, point.dtype, point.timing
        groups.setdefault(key, []).append(one)
    made = []
    for (backend, group, ranks, dtype, timing), of_group in groups.items():
        place = "" if group == "all" else f"group {group}, "
        title = f"{backend}: {place}{ranks} ranks, {dtype}, {timing}"
        crowded = any(one.sample.oversubscribed for one in of_group)
        made.append({"title": title, "oversubscribed": crowded, "figure": skew_figure(of_group)})
    return made


def _recipes(samples: list[Sample]) -> list[Recipe]:
    """The distinct routings of the run with their placements, as they are when each selection is moved."""
    made = [quietly(recipe_of, s.point.params, len(s.point.members)) for s in samples]
    return list(dict.fromkeys(replace(r, copies="selection") for r in made if r and not too_much(r)))


def _matrices(samples: list[Sample]) -> dict | None:
    """One figure of up to four matrices side by side, with a sentence for each: the largest set ratio, then routers."""
    kept = {}
    for sample in samples:
        point = sample.point
        drawable = point.ranks <= MOST_RANKS and point.dtype in DTYPES
        if point.op == "all_to_all_v" and "copies" not in point.params and drawable:
            kept.setdefault(flow_words(point), point)
    ratios = {flow: max_over_mean(sent_received(kept[flow])[1]) for flow in kept if flow.startswith("ratio:")}
    skewest = max(ratios, key=ratios.get, default=None)
    wanted = [flow for flow in kept if flow not in ratios or flow == skewest]
    found = [(kept[flow], matrix) for flow in wanted if (matrix := matrix_of(kept[flow])) is not None][:_MOST_MATRICES]
    if not found:
        return None
    sizes = [DTYPES[point.dtype].itemsize for point, _ in found]
    drawn = traffic_figure([(flow_words(p), matrix * size) for (p, matrix), size in zip(found, sizes)])
    return {"figure": drawn, "captions": [_told(point, matrix) for point, matrix in found]}


def _told(point: Point, matrix: np.ndarray) -> str:
    recipe = recipe_of(point.params, len(point.members))
    busiest = f"the busiest rank receives {max_over_mean(matrix.sum(axis=0)):.3g} times the mean"
    made = None if too_much(recipe) else quietly(routed, recipe)
    if made is None:
        return f"{_title(recipe)}: {busiest}"
    tokens = max(sum(made[0].tokens), 1)
    each = {name: count / tokens for name, count in made[2].counts.items()}
    return (
        f"{_title(recipe)}: of a token {each['selections']:.3g} selections, {each['unique_rank']:.3g} distinct ranks, "
        f"{each['unique_node']:.3g} distinct nodes with its own, {each['wire']:.3g} copies to other nodes; {busiest}"
    )


def _name(recipe: Recipe) -> str:
    return recipe.routing if recipe.placement == "linear" else f"{recipe.routing}, {recipe.placement}"


def _title(recipe: Recipe) -> str:
    return (
        f"{_name(recipe)}, {recipe.tokens} tokens a rank, top-{recipe.top_k} of {recipe.experts} experts, "
        f"{recipe.ranks} ranks"
    )


def _balanced(recipes: list[Recipe]) -> list[tuple[Recipe, Recipe]]:
    """(placed linearly, placed by load) of each routing that the run has placed both ways."""
    linear = {replace(r, placement="linear"): r for r in recipes if r.placement != "linear"}
    return [(recipe, linear[recipe]) for recipe in recipes if recipe in linear]


def _loads(before: Recipe, after: Recipe) -> dict | None:
    made = quietly(routed, before), quietly(routed, after)
    if None in made:
        return None
    (_, _, was), (_, _, then) = made
    received = [traffic.per_selection.sum(axis=0) for traffic in (was, then)]
    copies = replicas_of(after.placement)
    how = f"{copies} further copies of experts" if copies else "no further copies of experts"
    caption = (
        f"The busiest expert has {max_over_mean(was.expert_load):.3g} times the mean. The busiest rank receives "
        f"{max_over_mean(received[0]):.3g} times the mean before and {max_over_mean(received[1]):.3g} times after "
        f"placing by the load of these very tokens, with {how}."
    )
    return {
        "title": _title(before),
        "figure": load_figure(was.expert_load, then.physical_load, *received),
        "caption": caption,
    }
