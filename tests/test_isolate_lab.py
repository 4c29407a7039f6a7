"""A slowed link of an emulated cluster is named, with real traffic. Needs root, as all labs do."""

import pytest
from runs import commbench
from test_lab import standing, why_not

from commbench.acceptance.accuse import accuse
from commbench.lab import build
from commbench.lab.layout import Lab
from commbench.results.store import load_run

LAB = Lab("t-isolate", nodes=4, ranks_per_node=1, intra_bit_s=8e8, inter_bit_s=8e8)


@pytest.mark.full
def test_the_ladder_names_a_link_at_a_tenth_and_goes_on_without_its_node(tmp_path):
    if reason := why_not():
        pytest.skip(reason)
    out = tmp_path / "run"
    with standing(LAB):
        build.change(LAB.name, "node2", ("in",), bit_s=8e7)
        done = commbench(
            "lab", "run", "--name", LAB.name, "--realtime", "--", "commbench", "run", "ladder", "--backend", "gloo", "--size", "512K",
            "--iters", "3", "--warmup", "1", "--no-report", "--out", out, timeout=300,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    run = load_run(out)
    (culprit,) = accuse(run).culprits
    assert (culprit.kind, culprit.hosts, culprit.side) == ("node", ("t-isolate-node2",), "in")
    assert 0.08 < culprit.share < 0.13
    assert "stage scale leaves out t-isolate-node2" in done.stdout and "CULPRIT" in done.stdout
    after = [s.point for s in run.samples() if s.point.group.startswith("first ")]
    assert after and all(2 not in point.members for point in after)
