"""What a communication costs on the machine that was measured: times and intervals from a run's fitted models."""

from collections.abc import Callable
from functools import cache

from commbench.errors import MeasureError, UsageError
from commbench.models.answer import answer
from commbench.models.model_file import ModelFile, SeriesModel
from commbench.planning.links import Group, Links, Told, Unmeasured

_OPS = {"send": "p2p_latency"}  # half of a ping-pong is what one message takes
_TIMED = ("pieces", "family")


def fitted_links(models: ModelFile, name: str, containing: str = "", per_node: int | None = None) -> Links:
    """The links as `models` have them. containing: only series whose name holds this text. per_node: ranks of a node,
    the most that were measured on one where it is not given.

    Each time is asked of the series of its operation, for the group's own ranks and nodes. Raises UsageError where
    there is no series at all; its time() where an operation has several, and Unmeasured (links.py) where it has none,
    or none that says anything about the group.
    """
    measured = [s for s in models.series if s.label.get("algorithm", "library") == "library" and containing in s.name]
    if not any(series.kind in _TIMED for series in measured):
        why = next((f", of {len(measured)} measured: {s.name}: {s.faults[0]}" for s in measured if s.faults), "")
        raise UsageError(
            f"{name} holds no fitted series{f' with {containing!r}' if containing else ''}{why}; "
            "`commbench fit` says of each series what it lacks"
        )
    domain = per_node or max(ranks for series in measured for ranks in _ranks_of_a_node(series))

    @cache
    def time(op: str, group: Group, size_bytes: float) -> Told:
        if group.ranks == 1 or size_bytes <= 0:
            return Told(0.0, 0.0, 0.0)
        series = _only(measured, _OPS.get(op, op), name)
        try:
            told = answer(series, group.ranks, group.domains, max(1, round(size_bytes)))
        except MeasureError as error:
            raise Unmeasured(f"{op} on {group.ranks} ranks of {group.domains} nodes: {error}") from None
        note = "" if told.label == "interpolation" else f"{op} on {group.ranks} ranks: {told.label}"
        return Told(told.time_us, told.low_us, told.high_us, note)

    return Links(name, domain, time, None, f"models of {', '.join(models.sources) or name}")


def _ranks_of_a_node(series: SeriesModel) -> list[int]:
    """Ranks that were measured on one node, by the curves, and where there are none by the measurements."""
    if len(series.nodes) == 1:
        return [ranks // series.nodes[0] for ranks in series.ranks]
    return [curve.ranks // curve.nodes for curve in series.curves]


def _only(measured: list[SeriesModel], op: str, name: str) -> SeriesModel:
    """The fitted series of an operation."""
    of_op = [series for series in measured if series.label["op"] == op]
    found = [series for series in of_op if series.kind in _TIMED]
    if of_op and not found:
        raise Unmeasured(f"{of_op[0].name} was measured but has no model: {'; '.join(of_op[0].faults[:1])}")
    if not found:
        there = ", ".join(sorted({series.label["op"] for series in measured if series.kind in _TIMED}))
        raise Unmeasured(
            f"{name} holds nothing of {op}, which this layout calls (it has {there}); `commbench run {op}` measures it"
        )
    if len(found) > 1:
        names = "; ".join(series.name for series in found)
        raise UsageError(f"{name} holds {len(found)} series of {op}; choose one by --series TEXT out of {names}")
    return found[0]


def noted(links: Links) -> tuple[Links, Callable[[], list[str]]]:
    """The links, and what to call for the notes of all times they told since (extrapolations), each once."""
    notes: dict[str, None] = {}

    def time(op: str, group: Group, size_bytes: float) -> Told:
        told = links.time(op, group, size_bytes)
        if told.note:
            notes[told.note] = None
        return told

    return Links(links.name, links.domain_ranks, time, links.ratio, links.source), lambda: list(notes)
