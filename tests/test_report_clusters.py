"""Several runs on one page: which cluster each is of, its ratio, and the ratio over time."""

import json
from dataclasses import replace

import plotly.graph_objects as go
import pytest
from measured import write_run
from runs import commbench
from test_report_links import cluster, links_samples

from commbench.lab.layout import Lab
from commbench.reports.clusters import cluster_of, clusters_page, entry_of, over_time
from commbench.results.store import load_run

EVIL = '</script><img src=x onerror="alert(1)">'


def run_of(folder, host, day, gpu=None, inter=50.0, environment=None, suite=True):
    samples = [replace(s, started_at=f"2026-01-{day:02d}T00:00:00Z") for s in links_samples(2, 2, cluster(inter=inter))]
    if not suite:
        samples = [s for s in samples if s.point.op == "p2p_latency"]
    write_run(folder, samples)
    nodes = [
        {"host": f"{host}{i}", "gpus": [{"name": gpu}] if gpu else [], "environment": environment or {}} for i in (1, 2)
    ]
    journal = folder / "launch-001.jsonl"
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    lines[0] |= {"nodes": nodes, "ranks": [{"node": i // 2} for i in range(4)]}
    journal.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return load_run(folder)


def test_a_cluster_is_known_by_slurm_by_its_hosts_and_by_its_gpus(tmp_path):
    assert cluster_of(run_of(tmp_path / "a", "gpu-a", 1, "NVIDIA H100")) == "gpu-a*, NVIDIA H100"
    named = {"SLURM_CLUSTER_NAME": "atlas"}
    assert cluster_of(run_of(tmp_path / "b", "n", 1, environment=named)) == "atlas"


def test_runs_of_a_cluster_are_one_line_over_time(tmp_path):
    runs = [run_of(tmp_path / f"r{day}", "n", day, inter=inter) for day, inter in ((3, 40.0), (1, 50.0), (2, 50.0))]
    entries = sorted(map(entry_of, runs), key=lambda entry: entry.started_at)
    ratio, intra, inter = go.Figure(over_time(entries, {"n*": "#123456"})).data
    assert [round(v, 6) for v in ratio.y] == [6, 6, 7.5] and [round(v, 6) for v in inter.y] == [50, 50, 40]
    html = clusters_page(runs)
    assert "+25.0% against the median of 2 earlier" in html and html.count('class="card"') == 1


def test_a_run_without_links_says_so(tmp_path):
    runs = [run_of(tmp_path / "a", "a", 1, suite=False), run_of(tmp_path / "b", "b", 1, gpu="NVIDIA H800")]
    html = clusters_page(runs)
    assert "commbench run links" in html and "datasheet of h800-8x400g: 4 one way" in html
    assert over_time([entry_of(runs[0])], {}) is None


def test_nothing_of_a_run_acts_on_the_page(tmp_path):
    html = clusters_page([run_of(tmp_path / "a", EVIL, 1, gpu=EVIL), run_of(tmp_path / "b", "b", 1)])
    assert "<img" not in html.replace("\\u003cimg", "") and EVIL not in html


@pytest.mark.full
def test_the_verb_takes_several_runs(tmp_path):
    run_of(tmp_path / "a", "a", 1), run_of(tmp_path / "b", "b", 1)
    done = commbench("report", tmp_path / "a", tmp_path / "b", "--out", tmp_path / "c.html")
    assert done.returncode == 0 and "2 clusters, 2 runs" in (tmp_path / "c.html").read_text()
    one = commbench("report", tmp_path / "a")
    assert one.returncode == 0 and 'id="links"' in (tmp_path / "a" / "report.html").read_text()


def test_a_lab_is_no_cluster_but_an_emulated_one(tmp_path):
    run = run_of(tmp_path / "a", "lab-node", 1)
    journal = tmp_path / "a" / "launch-001.jsonl"
    first, *lines = journal.read_text().splitlines(keepends=True)
    lab = Lab("lab", 2, 2, intra_bit_s=8e8, inter_bit_s=2.5e8).to_json()
    journal.write_text(json.dumps(json.loads(first) | {"lab": lab}) + "\n" + "".join(lines))
    emulated = load_run(tmp_path / "a")
    assert cluster_of(run) == "lab-node*" and cluster_of(emulated) == "emulated: lab lab, rate form, 800mbit : 250mbit"
    html = clusters_page([emulated, run_of(tmp_path / "b", "b", 1)])
    assert "emulated: lab lab" in html and html.count("set in the lab: 3.2") == 1
