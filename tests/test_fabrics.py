"""Shipped fabrics hold together, and a file of one's own is read strictly."""

import pytest

from commbench.errors import UsageError
from commbench.fabrics import SHIPPED, fabric_names, load_fabric

OWN = (SHIPPED / "h100-8x400g.toml").read_text()


@pytest.mark.parametrize("name", fabric_names())
def test_a_shipped_fabric_is_named_like_its_file_and_is_plausible(name):
    fabric = load_fabric(name)
    assert fabric.name == name
    assert fabric.intra.bandwidth_GBps > 3 * fabric.inter.bandwidth_GBps
    assert 0.7 < fabric.intra.bandwidth_GBps / fabric.intra.nominal_GBps < 0.9
    assert 0.9 < fabric.inter.bandwidth_GBps / fabric.inter.nominal_GBps <= 1
    assert fabric.intra.latency_us < fabric.inter.latency_us
    if fabric.in_switch:  # each rank's links carry S(1 + 1/N) each way, so no more than they can
        assert fabric.in_switch.bandwidth_GBps < fabric.intra.nominal_GBps


@pytest.mark.parametrize(
    "name, ratio", [("a100-8x200g", 9.7), ("h100-8x400g", 7.7), ("h800-8x400g", 3.3), ("b200-8x400g", 14.2)]
)
def test_link_ratios_are_those_that_were_measured(name, ratio):
    fabric = load_fabric(name)
    assert fabric.intra.bandwidth_GBps / fabric.inter.bandwidth_GBps == pytest.approx(ratio, abs=0.15)


@pytest.mark.parametrize(
    "name, busbw, ranks",
    [("h100-8x400g", 479.9, 8), ("h800-8x400g", 215, 8), ("b200-8x400g", 845.7, 8), ("gb200-nvl72", 846.8, 72)],
)
def test_in_switch_rates_are_what_the_quoted_busbw_means_on_the_wire(name, busbw, ranks):
    algbw = busbw * ranks / (2 * (ranks - 1))
    assert load_fabric(name).in_switch.bandwidth_GBps == pytest.approx(algbw * (ranks + 1) / ranks, rel=1e-3)


def test_the_nvlink_domain_is_a_rack_where_it_leaves_the_node():
    assert (load_fabric("gb200-nvl72").ranks_per_node, load_fabric("gb200-nvl72").domain_ranks) == (4, 72)
    assert load_fabric("h100-8x400g").domain_ranks == 8


def test_a_file_of_ones_own(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(OWN.replace('"h100-8x400g"', '"mine"').replace("latency_us = 1.9", "latency_us = 2"))
    fabric = load_fabric(str(path))
    assert (fabric.name, fabric.intra.latency_us) == ("mine", 2.0)
    assert isinstance(fabric.intra.latency_us, float)


@pytest.mark.parametrize(
    "old, new, said",
    [
        ("nics_per_node = 8\n", "", "nics_per_node is missing"),
        ("nics_per_node = 8", "nics_per_node = 8\nnic_rate = 4", "nic_rate is not a known key"),
        ("nics_per_node = 8", "nics_per_node = 16", "count the NICs that serve one rank as one"),
        ("nics_per_node = 8", "nics_per_node = 8\ndomain_ranks = 12", "no multiple of 8"),
        ("nics_per_node = 8", "nics_per_node = 8.0", "nics_per_node is 8.0; it must be a whole number"),
        ("nics_per_node = 8", "nics_per_node = true", "nics_per_node is True"),
        ("nics_per_node = 8", "nics_per_node = 0", "nics_per_node is 0"),
        ("latency_us = 1.9", "latency_us = -1.9", "intra.latency_us is -1.9"),
        ("latency_us = 1.9", "latency_us = nan", "intra.latency_us is nan"),
        ("latency_us = 1.9", f"latency_us = 1{'0' * 400}", "intra.latency_us is 1"),
        ("latency_us = 4.0", 'latency_us = "4"', "inter.latency_us is '4'"),
        ("bandwidth_GBps = 48.0", "bandwidth_GBps = 0", "inter.bandwidth_GBps is 0, so nothing would ever arrive"),
        ("bandwidth_GBps = 370.0", "bandwidth_GBps = 900", "both are rates of one direction"),
        ("bandwidth_GBps = 308.5\n", "", "in_switch.bandwidth_GBps is missing"),
        ('name = "h100-8x400g"', 'name = "../x"', "name '../x' is not made of letters"),
        ('nominal_source = "400 Gb/s a NIC and direction"', 'nominal_source = " "', "inter.nominal_source is ' '"),
        ("[inter]", "[outer]", "outer is not a known key"),
        ("[in_switch]", "in_switch = 3\n[x]", "x is not a known key"),
        ("gamma_us_per_byte = 0.0", "gamma_us_per_byte = 0.0\nin_switch = 3", "not valid TOML"),
        ("[inter]", "[inter", "not valid TOML"),
    ],
)
def test_each_mistake_is_one_sentence_with_file_and_key(tmp_path, old, new, said):
    assert old in OWN
    path = tmp_path / "mine.toml"
    path.write_text(OWN.replace(old, new, 1))
    with pytest.raises(UsageError) as caught:
        load_fabric(str(path))
    assert said in str(caught.value) and "mine.toml" in str(caught.value)


def test_a_link_class_that_is_no_table(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(OWN.split("[intra]")[0] + "intra = 3\ninter = 4\n")
    with pytest.raises(UsageError, match=r"intra is 3; it must be a table"):
        load_fabric(str(path))


def test_an_unknown_name_tells_those_there_are():
    with pytest.raises(UsageError, match=r"no fabric or fabric file 'h100'; fabrics: a100-8x200g, .*h800-8x400g"):
        load_fabric("h100")
    for odd in ("", "\0", "x" * 5000, "/"):
        with pytest.raises(UsageError):
            load_fabric(odd)
