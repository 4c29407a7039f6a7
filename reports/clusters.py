"""Several runs side by side: a card for each cluster, and its links over time."""

import re
import statistics
from dataclasses import dataclass
from pathlib import Path

from commbench.lab.told import lab_of, set_ratio, short
from commbench.models.ratio import Ratio, datasheet, gpus_of, ratios
from commbench.reports.document import render, save
from commbench.reports.looks import text
from commbench.reports.rows import figure
from commbench.results.store import Run, exit_code

_COLOURS = ("#20639b", "#d1495b", "#2e9e6b", "#b5651d", "#7a5bb5", "#1fa2a8", "#8a8f2d", "#6f7f8f")
_HEADLINE = ("ratio_ring", "ratio_p2p")  # the first one that a run holds


@dataclass(frozen=True)
class Entry:
    """One run: when it began, its cluster, its ratios (the headline first), and how it ended."""

    run: Run
    started_at: str
    cluster: str
    ratios: tuple[Ratio, ...]
    code: int

    @property
    def headline(self) -> Ratio | None:
        return self.ratios[0] if self.ratios else None

    @property
    def shape(self) -> str:
        """Nodes and ranks of its largest launch."""
        header = max((launch.header for launch in self.run.launches), key=lambda h: len(h.get("ranks", [])), default={})
        return f"{len(header.get('nodes', []))} nodes, {len(header.get('ranks', []))} ranks"


def entry_of(run: Run) -> Entry:
    found = sorted(ratios(run.samples()), key=lambda ratio: _HEADLINE.index(ratio.name))
    started = [s.started_at for launch in run.launches for s in launch.samples] or [run.plan.created_at]
    return Entry(run, min(started), cluster_of(run), tuple(found), exit_code(run)[0])


def cluster_of(run: Run) -> str:
    """SLURM_CLUSTER_NAME where the run was started by Slurm, else the first host's name without its number; with the
    GPUs where there are any. A lab is called an emulated one."""
    if lab := lab_of(run):
        return f"emulated: {short(lab)}"
    nodes = [node for launch in run.launches for node in launch.header.get("nodes", [])]
    named = [(node.get("environment") or {}).get("SLURM_CLUSTER_NAME") for node in nodes]
    hosts = [str(node.get("host", "")) for node in nodes]
    name = next((str(n) for n in named if n), None) or (re.sub(r"\d+$", "*", hosts[0]) if hosts else "unknown")
    gpus = sorted(set(gpus_of(run)))
    return f"{name}, {' + '.join(gpus)}" if gpus else name


def write_clusters(runs: list[Run], path: Path) -> Path:
    """Write the page of several runs to the file `path` and return it. Raises OSError when it cannot be written."""
    return save(clusters_page(runs), path)


def clusters_page(runs: list[Run]) -> str:
    """One card per cluster from its newest run with a ratio, the ratio over time, and every run in a table."""
    entries = sorted(map(entry_of, runs), key=lambda entry: entry.started_at)
    names = list(dict.fromkeys(entry.cluster for entry in entries))
    colour = {name: _COLOURS[i % len(_COLOURS)] for i, name in enumerate(names)}
    cards = []
    for name in names:
        own = [entry for entry in entries if entry.cluster == name]
        told = [entry for entry in own if entry.headline]
        newest = (told or own)[-1]
        cards.append({
            "name": name, "colour": colour[name], "newest": newest, "runs": len(own),
            "sheet": datasheet(gpus_of(newest.run)), "of_lab": set_ratio(lab_of(newest.run)),
            "change": _change(told),
        })  # fmt: skip
    return render("clusters.html", cards=cards, entries=entries[::-1], figure_over_time=over_time(entries, colour))


def _change(entries: list[Entry]) -> str:
    """How the newest headline compares with the ones before it."""
    same = (
        [e.headline for e in entries if (e.headline.name, e.headline.backend) == _way(entries[-1])] if entries else []
    )
    if len(same) < 2:
        return ""
    before = statistics.median(ratio.value for ratio in same[:-1])
    return f"{same[-1].value / before - 1:+.1%} against the median of {len(same) - 1} earlier"


def _way(entry: Entry) -> tuple[str, str]:
    return entry.headline.name, entry.headline.backend


def over_time(entries: list[Entry], colour: dict[str, str]) -> dict | None:
    """The headline ratio, and both sides of it, against the time of the run; None where no run has one."""
    told = [entry for entry in entries if entry.headline]
    if not told:
        return None
    data, named = [], set()
    for name in dict.fromkeys(entry.cluster for entry in told):
        for way in dict.fromkeys(_way(entry) for entry in told if entry.cluster == name):
            own = [entry for entry in told if (entry.cluster, _way(entry)) == (name, way)]
            label = text(f"{name}: {way[0]} over {way[1]}", 70)
            for axis, value, low, high in (
                ("", *zip(*((e.headline.value, e.headline.low, e.headline.high) for e in own))),
                ("2", *zip(*((s.busbw_GBps, s.low_GBps, s.high_GBps) for s in (e.headline.intra for e in own)))),
                ("3", *zip(*((s.busbw_GBps, s.low_GBps, s.high_GBps) for s in (e.headline.inter for e in own)))),
            ):
                data.append(
                    _trace(own, label, colour[name], axis, value, low, high) | {"showlegend": label not in named}
                )
                named.add(label)
    height = 330 + 19 * len(named)
    layout = {
        "height": height,
        "margin": {"l": 60, "r": 14, "t": 14 + 19 * len(named), "b": 46},
        "hovermode": "closest",
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "groupclick": "togglegroup"},
    }
    titles = ("intra / inter", "within a node, GB/s", "between nodes, GB/s")
    for axis, title, domain in zip(("", "2", "3"), titles, ([0, 0.27], [0.365, 0.635], [0.73, 1])):
        layout[f"xaxis{axis}"] = {"type": "date", "domain": domain, "anchor": f"y{axis}", "nticks": 4}
        layout[f"yaxis{axis}"] = {"title": {"text": title, "standoff": 8}, "rangemode": "tozero", "anchor": f"x{axis}"}
    return {"data": data, "layout": layout}


def _trace(entries, label: str, colour: str, axis: str, value, low, high) -> dict:
    spread = [(h - v, v - b) if b is not None else (0, 0) for v, b, h in zip(value, low, high)]
    hover = [
        f"{text(e.run.path.name)}<br>{text(e.started_at)}<br>{figure(v)}"
        + (f" ({figure(b)} to {figure(h)})" if b else "")
        for e, v, b, h in zip(entries, value, low, high)
    ]
    return {
        "type": "scatter", "mode": "lines+markers", "name": label, "legendgroup": label,
        "x": [entry.started_at for entry in entries], "y": list(value), "hoverinfo": "text", "hovertext": hover,
        "xaxis": f"x{axis}", "yaxis": f"y{axis}", "line": {"color": colour, "width": 1.6}, "marker": {"size": 6},
        "error_y": {
            "type": "data", "symmetric": False, "array": [up for up, _ in spread], "arrayminus": [d for _, d in spread],
            "color": colour, "thickness": 1, "width": 2,
        },
    }  # fmt: skip
