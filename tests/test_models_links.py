"""A fabric made of measured pairs."""

import pytest

from commbench.cli import main
from commbench.errors import UsageError
from commbench.models.links import measured_fabric
from commbench.models.loggp import LogGP
from commbench.models.model import Parameter
from commbench.models.model_file import ModelFile, SeriesModel, save_models


def pair(nodes, latency_us, bandwidth_GBps, backend="mpi"):
    slope = None if bandwidth_GBps is None else 1 / bandwidth_GBps / 1e3
    found = LogGP(
        nodes,
        (
            Parameter("L_plus_2o_us", latency_us), Parameter("g_us", None),
            Parameter("G_us_per_byte", slope, note="not determined: x"), Parameter("o_us", None), Parameter("L_us", None),
        ),
        (8.0, 1e6),
        17,
    )  # fmt: skip
    label = {"op": "LogGP", "backend": backend, "timing": "isolated"}
    return SeriesModel(label, "LogGP", "loggp", 17, 3, (2,), (nodes,), loggp=found)


def test_links_are_what_was_measured():
    fabric = measured_fabric(ModelFile((pair(1, 2.0, 300.0), pair(2, 5.0, 40.0))), "m", per_node=4)
    assert (fabric.intra.latency_us, fabric.inter.latency_us) == (2.0, 5.0)
    assert fabric.intra.bandwidth_GBps == pytest.approx(300) and fabric.inter.bandwidth_GBps == pytest.approx(40)
    assert fabric.domain_ranks == fabric.nics_per_node == 4
    alone = measured_fabric(ModelFile((pair(2, 5.0, 40.0),)), "m", per_node=1)
    assert alone.domain_ranks == 1 and alone.inter.latency_us == 5.0
    one = measured_fabric(ModelFile((pair(1, 2.0, 300.0),)), "m")
    assert one.inter == one.intra and one.domain_ranks == 131_072


@pytest.mark.parametrize(
    "series, per_node, said",
    [
        ([], None, "holds no model of messages between two ranks"),
        ([pair(1, 2.0, 300.0), pair(1, 2.0, 300.0, "gloo")], None, "gloo isolated, mpi isolated; fit the runs of one"),
        ([pair(1, 2.0, 300.0), pair(2, 2.0, 300.0)], None, "by --per-node"),
        ([pair(1, 2.0, 300.0)], 8, "no pairs between nodes"),
        ([pair(2, 2.0, 300.0)], 4, "no pair within a node, so only --per-node 1"),
        ([pair(1, 2.0, None)], None, "G_us_per_byte of a pair within a node is not determined: x"),
    ],
)
def test_what_is_missing_is_said(series, per_node, said):
    with pytest.raises(UsageError, match=said):
        measured_fabric(ModelFile(tuple(series)), "m", per_node)


def test_the_verb_simulates_on_measured_links(tmp_path, capsys):
    save_models(ModelFile((pair(1, 2.0, 1.0),)), tmp_path / "m.json")
    with pytest.raises(SystemExit) as ended:
        main(["simulate", "all_reduce", "--algorithm", "ring", "--ranks", "4", "--model", str(tmp_path / "m.json")])
    out = capsys.readouterr().out
    assert ended.value.code == 0 and "on m.json: 1 GB/s and 2 us a hop" in out
    assert f"{6 * (2 + 2**18 / 1e3):.4g}" in out  # 6 steps of a quarter of 1 MiB
    with pytest.raises(SystemExit) as ended:
        main(["simulate", "all_reduce", "--model", str(tmp_path / "m.json"), "--fabric", "h100-8x400g"])
    assert ended.value.code == 2 and "not both" in capsys.readouterr().err
