"""Shipped profiles agree with their fabrics, and a profile of one's own is read strictly."""

import pytest
from judged import row

from commbench.acceptance.metrics import most_busbw_GBps, nic_GBps
from commbench.acceptance.profile import SHIPPED, load_profile, profile_names
from commbench.errors import UsageError
from commbench.fabrics import fabric_names, load_fabric

OWN = """\
name = "mine"
about = "a machine"
backend = "nccl"

[[rule]]
name = "all_reduce"
metric = "busbw_GBps"
op = "all_reduce"
scope = "intra"
size = { from = "1G", to = "16G" }
expected = 475
warn = 0.965
fail = 0.93
source = "here"
"""


def test_each_fabric_has_a_profile_of_its_name():
    assert profile_names() == fabric_names()


@pytest.mark.parametrize("name", profile_names())
def test_a_shipped_profile_holds_what_its_fabric_can_do(name):
    profile, fabric = load_profile(name), load_fabric(name)
    assert profile.name == profile.fabric == name
    for rule in profile.rule:
        assert len(rule.source) > 10
        if rule.metric == "busbw_GBps" and rule.check == "value":
            ranks = rule.ranks if isinstance(rule.ranks, int) else 8 * fabric.ranks_per_node
            nodes = -(-ranks // fabric.ranks_per_node)
            most = most_busbw_GBps(rule.op, ranks, nodes, fabric)
            least = 0 if "racks" in rule.name else 0.2 * most
            assert least < rule.expected <= most, f"{rule.name}: {rule.expected} of at most {most}"
        if rule.metric == "nic_GBps":
            assert 0.9 * fabric.inter.bandwidth_GBps < rule.expected <= fabric.inter.nominal_GBps
        if rule.metric == "ratio_ring":
            assert rule.expected == pytest.approx(fabric.intra.bandwidth_GBps / fabric.inter.bandwidth_GBps, rel=0.02)


def test_h100_and_h800_differ_in_what_tells_them_apart():
    told = {
        name: {rule.evidence: rule.expected for rule in load_profile(name).rule if rule.evidence}
        for name in ("h100-8x400g", "h800-8x400g")
    }
    assert told["h100-8x400g"] == {
        "NVLinks": 18, "all_reduce in a node": 475, "all_gather in a node": 365, "ratio_ring": 7.7,
    }  # fmt: skip
    assert told["h800-8x400g"] == {
        "NVLinks": 8, "all_reduce in a node": 215, "all_gather in a node": 160, "ratio_ring": 3.3,
    }  # fmt: skip


@pytest.mark.parametrize("ranks, nodes, busbw", [(16, 2, 93.75), (64, 8, 56.25)])
def test_all_to_all_is_bound_by_nic_rate_times_n_minus_1_over_n_minus_p(ranks, nodes, busbw):
    fabric = load_fabric("h100-8x400g")
    assert most_busbw_GBps("all_to_all", ranks, nodes, fabric) == pytest.approx(busbw)
    at_the_bound = row("all_to_all", busbw, ranks=ranks, nodes=nodes, scope="mixed")
    assert nic_GBps(at_the_bound, "not observed", nodes, fabric) == pytest.approx(50)


def test_the_wire_rate_follows_from_the_algorithm():
    fabric = load_fabric("b200-8x400g")
    ring = row("all_reduce", 381.8, ranks=32, nodes=4, scope="mixed")
    assert nic_GBps(ring, "ring", 4, fabric) == pytest.approx(47.7, abs=0.05)  # 4 x 8 B200, stas00/ml-engineering
    algbw = 381.8 * 32 / (2 * 31)
    assert nic_GBps(ring, "nvlstree", 4, fabric) == pytest.approx(2 * algbw / 8)
    assert nic_GBps(row("all_reduce", 470, ranks=16, nodes=2), "tree", 2, fabric) == pytest.approx(470 * 16 / 30 / 8)
    assert nic_GBps(ring, "own:hierarchical", 4, fabric) == pytest.approx(381.8 * 3 / 31)
    assert nic_GBps(ring, "not observed", 4, fabric) is None
    assert nic_GBps(row("all_gather", 48, ranks=4, nodes=4, scope="inter"), "not observed", 4, fabric) == pytest.approx(
        48
    )
    assert nic_GBps(row("all_reduce", 480), "ring", 1, fabric) is None


def test_busbw_above_the_wire_rate_is_possible_for_all_reduce_only():
    fabric = load_fabric("h100-8x400g")
    assert most_busbw_GBps("all_reduce", 8, 1, fabric) > 483 > most_busbw_GBps("all_gather", 8, 1, fabric) == 450
    assert most_busbw_GBps("all_reduce", 16, 2, fabric) > 471
    rack = load_fabric("gb200-nvl72")
    assert most_busbw_GBps("all_gather", 72, 18, rack) == 900  # the trays of a rack are one NVLink domain
    assert most_busbw_GBps("all_gather", 1, 1, fabric) is None and most_busbw_GBps("barrier", 8, 1, fabric) is None


@pytest.mark.parametrize(
    "old, new, said",
    [
        ('"busbw_GBps"', '"busbw"', "rule 'all_reduce', key metric: there is no metric 'busbw'; there are busbw_GBps"),
        ('op = "all_reduce"', 'op = "allreduce"', "there is no operation 'allreduce'; there are all_reduce"),
        ('op = "all_reduce"\n', "", "judges busbw_GBps of no operation"),
        ("fail = 0.93", "fail = 0.99", "contradicts itself: fail 470.25, warn 458.375"),
        ("fail = 0.93", "minimum = 500", "contradicts itself: minimum 500 is above expected 475"),
        ("fail = 0.93\n", "", "has no level at which it fails"),
        ("fail = 0.93", "fail = 0.93\nminimum = 3", "take it or `fail`"),
        ("expected = 475\n", "", "neither `expected` nor `minimum`"),
        ("expected = 475", 'expected = "475"', "key expected: Input should be a valid number, found '475'"),
        ("expected = 475", "expected = nan", "key expected"),
        ("expected = 475", "expected = -1", "key expected"),
        ('from = "1G"', 'from = "32G"', "to (16G) is smaller than from (32G)"),
        ('from = "1G"', 'from = "1X"', "size '1X' is not understood"),
        ('size = { from = "1G", to = "16G" }\n', "", "names no size"),
        ('scope = "intra"', 'scope = "node"', "key scope"),
        ('scope = "intra"', 'algorithm = "rings"', "there is no algorithm 'rings'"),
        ('source = "here"\n', "", "key source: Field required"),
        ('source = "here"', 'source = "here"\nrun = "rm"', "key run: Extra inputs are not permitted"),
        ('name = "mine"', 'name = "../mine"', "mine.toml: name: String should match"),
        ('backend = "nccl"', 'backend = "nccl"\nfabric = "h100"', "there is no fabric 'h100'; there are a100-8x200g"),
        ('"busbw_GBps"', '"nic_GBps"', "nic_GBps needs `fabric`"),
        ('"busbw_GBps"', '"busbw_GBps"\ncheck = "dip"', "compares the bandwidths of a run with one another"),
        ("[[rule]]", "[[rule]", "is not valid TOML"),
        ("[[rule]]", "[rule]", "rule: Input should be a valid list"),
        ('metric = "busbw_GBps"', 'metric = ["busbw_GBps"]', "there is no metric ['busbw_GBps']"),
    ],
)  # fmt: skip
def test_each_mistake_is_one_sentence_with_the_file_and_the_rule(tmp_path, old, new, said):
    assert old in OWN
    path = tmp_path / "mine.toml"
    path.write_text(OWN.replace(old, new, 1))
    with pytest.raises(UsageError) as caught:
        load_profile(str(path))
    message = str(caught.value)
    assert said in message and "mine.toml" in message and "\n" not in message


def second(**changes) -> str:
    text = OWN.split("[[rule]]\n")[1].replace('name = "all_reduce"', 'name = "another"')
    for old, new in changes.items():
        text = text.replace(f"{old} = ", f"{new} #")
    return OWN + "\n[[rule]]\n" + text


def test_two_rules_that_contradict(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(second(expected="expected = 400"))
    with pytest.raises(UsageError, match=r"rules 'all_reduce' and 'another' contradict.*one at 475, the other at 400"):
        load_profile(str(path))
    path.write_text(second(expected="expected = 400", size='size = "512M"'))
    assert len(load_profile(str(path)).rule) == 2  # at other sizes another figure is no contradiction
    path.write_text(second(name="another"))
    with pytest.raises(UsageError, match="two rules are named 'all_reduce'"):
        load_profile(str(path).replace("mine", "mine")) if path.write_text(
            OWN + OWN[OWN.index("\n[[rule]]") :]
        ) else None


def test_what_is_no_profile(tmp_path):
    with pytest.raises(UsageError, match=r"no profile or profile file 'h100'; profiles: a100-8x200g"):
        load_profile("h100")
    big = tmp_path / "big.toml"
    big.write_bytes(b"#" * (5 << 20))
    with pytest.raises(UsageError, match="more than 4 MiB"):
        load_profile(str(big))
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00" * 100)
    with pytest.raises(UsageError, match="cannot be read"):
        load_profile(str(binary))
    for odd in ("", "\0", "x" * 5000, str(tmp_path)):
        with pytest.raises(UsageError):
            load_profile(odd)


def test_no_rule_holds_code():
    for path in SHIPPED.glob("*.toml"):
        assert "lambda" not in path.read_text() and "eval" not in path.read_text()
