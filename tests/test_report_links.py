"""The links of a run: the matrix, what is slow in it, rails, and the page."""

import json
from dataclasses import replace

import numpy as np
import plotly.graph_objects as go
import pytest
from measured import write_run

from commbench.lab import told
from commbench.lab.layout import Lab
from commbench.reports.links import links_section, matrix_figure, rails_figures
from commbench.reports.matrix import matrices, slow_links, slow_ranks
from commbench.reports.page import page
from commbench.results.records import Sample
from commbench.results.store import load_run
from commbench.suite.expand import expand
from commbench.suite.schema import check_suite, read_suite


def links_samples(nodes, per_node, rate_of, backend="nccl"):
    """The links suite measured on a cluster whose one-way rate between two ranks is rate_of(from, to) GB/s."""
    node_of = [rank // per_node for rank in range(nodes * per_node)]
    samples = []
    for step in expand(check_suite(read_suite("links"), "links"), len(node_of), [backend], node_of):
        for point in step:
            if point.status != "ok":
                samples.append(Sample(point, 1, "2026-01-01T00:00:00Z", status="skip", reason=point.reason))
                continue
            pair = point.members if point.root < 1 else point.members[::-1]
            factor = (point.ranks - 1) / point.ranks if point.op == "all_gather" else 1
            time_us = factor * point.size_bytes / rate_of(*pair[:2]) / 1e3
            samples.append(Sample(point, 1, "2026-01-01T00:00:00Z", samples_us=(time_us,) * 8, wrong=0))
    return samples


def cluster(per_node=2, slow_links=(), slow_node=None, intra=300.0, inter=50.0):
    def rate(a, b):
        rate = intra if a // per_node == b // per_node else inter
        touched = rate == inter and slow_node in (a // per_node, b // per_node)
        return rate / 10 if touched or (a, b) in slow_links else rate

    return rate


def pairs_of(samples):
    return next(m for m in matrices(samples) if m.kind == "pairs")


def test_the_matrix_holds_every_direction_of_every_pair():
    matrix = pairs_of(links_samples(2, 2, lambda a, b: 100 + 10 * a + b))
    expected = [[np.nan if a == b else 100 + 10 * a + b for b in range(4)] for a in range(4)]
    np.testing.assert_allclose(matrix.rate_GBps, expected)
    assert matrix.scope[0, 1] == "intra" and matrix.scope[0, 2] == "inter"


def test_one_slow_direction_is_named():
    matrix = pairs_of(links_samples(4, 2, cluster(slow_links={(5, 2)})))
    ((a, b, rate, share, scope),) = slow_links(matrix)
    assert (a, b, scope) == (5, 2, "inter") and rate == pytest.approx(5) and share == pytest.approx(0.1)
    assert slow_ranks(matrix) == []


@pytest.mark.parametrize("nodes", [2, 3, 4, 8])
def test_a_slow_node_is_named_even_where_most_links_touch_it(nodes):
    matrix = pairs_of(links_samples(nodes, 2, cluster(slow_node=1)))
    if nodes == 2:
        assert slow_ranks(matrix) == []  # all links between two nodes are alike: nothing is slow for its class
    else:
        assert slow_ranks(matrix) == [(2, "inter"), (3, "inter")]


def test_the_class_decides_what_is_slow():
    assert slow_links(pairs_of(links_samples(4, 2, cluster(intra=900.0, inter=50.0)))) == []


def test_node_pairs_are_a_matrix_of_their_own():
    found = {m.kind: m for m in matrices(links_samples(3, 2, cluster()))}
    assert found["node pairs"].ranks == (0, 2, 4) and found["pairs"].ranks == tuple(range(6))


def test_figures_are_what_plotly_takes():
    samples = links_samples(3, 2, cluster(slow_links={(0, 3)}))
    heat, rows, columns = go.Figure(matrix_figure(pairs_of(samples))).data
    assert heat.z[0][0] is None and heat.z[0][3] == pytest.approx(0.1)
    assert len(rows.z) == 6 and len(columns.z[0]) == 6
    (rails,) = rails_figures(samples)
    assert go.Figure(rails["figure"]).data[0].x == (0, 1) and rails["rates"][1] == pytest.approx(50)


def test_one_node_has_a_matrix_and_no_ratio(tmp_path):
    run = load_run(write_run(tmp_path / "run", links_samples(1, 3, cluster())))
    section = links_section(run)
    assert section["cards"] == [] and len(section["matrices"]) == 1 and section["rails"] == []


def test_the_page_shows_ratios_and_names_what_is_slow(tmp_path):
    samples = [replace(s, launch=launch) for launch in (1, 2) for s in links_samples(4, 2, cluster(slow_node=3))]
    html = page(load_run(write_run(tmp_path / "run", samples)))
    assert (
        'id="links"' in html
        and "ratio_ring" in html
        and "nearly all links between nodes of ranks 6..7 are slow" in html
    )


@pytest.mark.parametrize("per_node", [1, 2])
def test_the_suite_measures_nothing_twice_under_one_name(per_node):
    ids = [sample.point.id for sample in links_samples(3, per_node, cluster())]
    assert len(set(ids)) == len(ids)


def _page_with(folder, **header):
    """The page of a run whose header tells these things as well."""
    journal = write_run(folder, links_samples(2, 2, cluster())) / "launch-001.jsonl"
    first, *lines = journal.read_text().splitlines(keepends=True)
    journal.write_text(json.dumps(json.loads(first) | header) + "\n" + "".join(lines))
    return page(load_run(folder))


def test_a_run_on_a_lab_says_so_and_what_was_set(tmp_path):
    lab = Lab("demo", 2, 2, intra_bit_s=8e8, inter_bit_s=1e8)
    html = _page_with(tmp_path / "lab", lab=lab.to_json(), notes=[told.sentence(lab)])
    assert "<dt>emulated cluster</dt><dd>lab demo, rate form, 800mbit : 100mbit</dd>" in html
    assert "no real machine: lab demo" in html and html.count("set in the lab: 8") == 2
    assert "emulated" not in _page_with(tmp_path / "real")


def test_gpu_links_are_named_by_their_class(tmp_path):
    html = _page_with(tmp_path / "gpu", link_classes={"intra": "NVLink 4 x 18", "inter": "network, GPU to card PIX"})
    assert "within a node: NVLink 4 x 18; between nodes: network, GPU to card PIX (from NVML" in html
    assert "unverified on a GPU" in html
    assert "unverified on a GPU" not in _page_with(tmp_path / "odd", link_classes=["x"])


def test_a_run_without_links_has_no_such_section(tmp_path):
    samples = [s for s in links_samples(2, 2, cluster()) if s.point.op == "p2p_latency"]
    assert links_section(load_run(write_run(tmp_path / "run", samples))) is None
