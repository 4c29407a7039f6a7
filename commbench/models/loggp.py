"""LogGP for one pair of ranks: L, o, g and G (Alexandrov, Ionescu, Schauser and Scheiman, SPAA 1995).

One message of S bytes takes L + o_s + o_r + (S - 1) G; further messages follow every max(g, (S - 1) G).
What our operations measure, in netgauge's terms (PRTT(n, d, s): n sends with delay d between them, one reply):

p2p_latency  half of a ping-pong, PRTT(1, 0, S) / 2 with replies of S bytes: L + 2 o + (S - 1) G
p2p_bw       a window of w messages and a short acknowledgement, by w: PRTT(w, 0, S) / w

so w t_bw(S) = t(S) + (w - 1) gap(S) + t(acknowledgement), with t from p2p_latency or, exactly, from p2p_bw with another
window: gap(S) = (w2 t2 - w1 t1) / (w2 - w1). gap(S) = g + S G (netgauge, ptrn_loggp.c).

o alone is not measured: that takes sends with a delay between them, or the host's time in the call. Since o <= g, L
lies between (L + 2 o) - 2 g and L + 2 o.
"""

from dataclasses import dataclass, replace

import numpy as np

from commbench.errors import MeasureError
from commbench.models.checked import count, each, number
from commbench.models.curve import fit_curve
from commbench.models.model import Parameter
from commbench.models.table import Row, Table, table_of

OPS = ("p2p_latency", "p2p_bw")
NO_O = "not determined: o takes sends with a delay between them, which no operation here makes; o <= g"
NAMES = ("L_plus_2o_us", "g_us", "G_us_per_byte", "o_us", "L_us")
_NOT_SHARED = ("op", "window")


@dataclass(frozen=True)
class LogGP:
    """`parameters`: L_plus_2o_us, g_us, G_us_per_byte, o_us and L_us; those that the measurements do not determine have
    no value but a note, and bounds where there are any. `nodes`: 1 for a pair within a node, 2 for one between nodes.
    """

    nodes: int
    parameters: tuple[Parameter, ...]
    size_bytes: tuple[float, float]
    points: int

    @staticmethod
    def from_json(data: dict) -> "LogGP":
        """Of asdict's dictionary; KeyError, TypeError or ValueError for another one."""
        low, high = each(number, data["size_bytes"])
        parameters = each(Parameter.from_json, data["parameters"])
        if tuple(p.name for p in parameters) != NAMES:
            raise ValueError(f"LogGP has the parameters {', '.join(NAMES)}")
        return LogGP(count(data["nodes"], 1), parameters, (low, high), count(data["points"], 1))


def pair_series(tables: list[Table]) -> list[tuple[Table, list[Table]]]:
    """Each latency series with the window series of the same backend, dtype and timing; and these alone, as (None, ..).

    Isolated and streaming stay apart: a window that is started on idle ranks and one that follows another differ.
    """
    groups: dict[tuple, list[Table]] = {}
    for table in tables:
        if table.label["op"] in OPS:
            timing = table.label.get("timing", "").split(" ")[0]  # "streaming x20": the batch may differ
            key = tuple((k, v) for k, v in (table.label | {"timing": timing}).items() if k not in _NOT_SHARED)
            groups.setdefault(key, []).append(table)
    pairs = []
    for group in groups.values():
        latency = next((t for t in group if t.label["op"] == "p2p_latency"), None)
        pairs.append((latency, [t for t in group if t.label["op"] == "p2p_bw"]))
    return pairs


def fit_loggp(latency: Table | None, windows: list[Table]) -> list[LogGP]:
    """The parameters of each kind of pair (within a node, between nodes) from one pair_series, with the intervals that
    a curve has: over launches, or over sizes where there are fewer than three."""
    kinds = sorted({int(n) for table in (latency, *windows) if table is not None for n in table.nodes})
    return [_fit(kind, *_of_kind(kind, latency, windows)) for kind in kinds]


def _of_kind(kind: int, latency, windows):
    own = [None if t is None else t.select(t.nodes == kind) for t in (latency, *windows)]
    own = [t if t is not None and len(t) else None for t in own]
    return own[0], [t for t in own[1:] if t is not None]


def _fit(kind: int, latency: Table | None, windows: list[Table]) -> LogGP:
    one_way, slope = _line(latency, "it takes p2p_latency", "L + 2 o")
    gaps, missing = gap_table(latency, windows)
    g, G = _line(gaps, missing, "")
    if G.value is None and slope.value is not None:
        G = replace(slope, note=f"from p2p_latency, {slope.note}")
    rows = [t for t in (latency, *windows) if t is not None]
    sizes = np.concatenate([t.size_bytes for t in rows])
    parameters = (
        replace(one_way, name="L_plus_2o_us"),
        replace(g, name="g_us"),
        replace(G, name="G_us_per_byte"),
        Parameter("o_us", None, 0.0, g.value, NO_O) if g.value else Parameter("o_us", None, note=NO_O),
        _latency_alone(one_way, g),
    )
    return LogGP(kind, parameters, (float(sizes.min()), float(sizes.max())), sum(t.points for t in rows))


def _line(table: Table | None, missing: str, what: str) -> tuple[Parameter, Parameter]:
    """Latency and cost per byte of a curve; without values, and with the reason, where there is none."""
    if table is None:
        note = f"not determined: {missing}"
        return Parameter("", None, note=note), Parameter("", None, note=note)
    try:
        latency, slope = fit_curve(table).parameters
    except MeasureError as error:
        note = f"not determined: {error}"
        return Parameter("", None, note=note), Parameter("", None, note=note)
    return replace(latency, note=", ".join(filter(None, [what, latency.note]))), slope


def gap_table(latency: Table | None, windows: list[Table]) -> tuple[Table | None, str]:
    """The time between two messages of a window, per size and launch; or None and what is missing for it.

    Gaps that come out at or below zero (noise larger than the gap) are left out.
    """
    by_window = {int(t.label["window"].split()[-1]): t for t in windows}
    several = sorted(w for w in by_window if w > 1)
    if len(by_window) > 1:
        few, many = min(by_window), several[-1]
        first, count = by_window[few], few
    elif several and latency is not None:
        many, count = several[-1], 1
        first = replace(latency, time_us=latency.time_us + _acknowledgement(latency))
    else:
        return None, "it takes p2p_bw with two windows, or with one of 2 or more beside p2p_latency"
    rows = _gaps(first, count, by_window[many], many)
    return (table_of(first.label, rows), "") if rows else (None, "no size and launch stands in both series with a gap")


def _gaps(first: Table, few: int, second: Table, many: int) -> list[Row]:
    """(many t_many - few t_few) / (many - few) wherever both were measured."""
    short = dict(zip(zip(first.size_bytes, first.launch), first.time_us))
    rows = []
    for nodes, size, launch, time_us in zip(second.nodes, second.size_bytes, second.launch, second.time_us):
        gap = (many * time_us - few * short.get((size, launch), np.inf)) / (many - few)
        if gap > 0:
            rows.append(Row(2, int(nodes), int(size), float(gap), int(launch)))
    return rows


def _acknowledgement(latency: Table) -> np.ndarray:
    """Per row the one-way time of the smallest message in the same launch, which the acknowledgement takes."""
    least = latency.size_bytes == latency.size_bytes.min()
    return np.array([np.median(latency.time_us[least & (latency.launch == launch)]) for launch in latency.launch])


def _latency_alone(one_way: Parameter, g: Parameter) -> Parameter:
    if one_way.value is None:
        return Parameter("L_us", None, note=one_way.note)
    if g.value is None:
        return Parameter("L_us", None, 0.0, one_way.value, "not determined: L + 2 o less two o, which is not measured")
    low = max(0.0, one_way.value - 2 * g.value)
    return Parameter("L_us", None, low, one_way.value, "not determined within these bounds: o lies between 0 and g")
