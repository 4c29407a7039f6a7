"""Flags over a suite: traffic and the options of layers stand where they belong, and nowhere else."""

import argparse

import pytest

from commbench.cli import run as run_verb
from commbench.cli.laid_over import lay_layers, lay_traffic
from commbench.cli.planning import suite_tables
from commbench.errors import UsageError
from commbench.suite.schema import check_suite, read_suite


def tables(*words):
    parser = argparse.ArgumentParser()
    run_verb.add_arguments(parser)
    return suite_tables(parser.parse_args(words))


def test_a_skew_replaces_the_skew_of_a_suite_alone():
    before, after = read_suite("moe")["measure"], tables("moe", "--skew", "1,2")["measure"]
    changed = [i for i, pair in enumerate(zip(before, after, strict=True)) if pair[0] != pair[1]]
    assert changed == [1] and after[1]["skew"] == [1.0, 2.0]


def test_tokens_go_to_all_generated_traffic_and_a_routing_to_the_routings():
    after = tables("moe", "--routing", "zipf:2", "--tokens", "64")["measure"]
    assert [m.get("routing") for m in after[:4]] == [None, None, ["zipf:2"], ["zipf:2"]]
    assert [m.get("tokens") for m in after[:4]] == [None, 64, 64, 64]
    assert check_suite({"name": "moe", "measure": after}, "moe")


def test_an_operation_that_says_nothing_takes_what_is_given():
    (measure,) = tables("all_to_all_v", "--skew", "2", "--routing", "uniform", "--top-k", "2")["measure"]
    assert (measure["skew"], measure["routing"], measure["top_k"]) == ([2.0], ["uniform"], 2)


@pytest.mark.parametrize("measures", [[{"op": "all_reduce"}], [{"layer": "pipeline"}], [3], [{"op": 3}], []])
def test_traffic_that_is_for_none_is_told(measures):
    with pytest.raises(UsageError, match="--top-k is for all_to_all_v and all_to_all_padded; mine has none it suits"):
        lay_traffic("mine", measures, {"top_k": 2})
    assert lay_traffic("mine", measures, {}) == measures


def test_an_option_goes_to_the_layers_that_have_it():
    measures = [{"op": "all_reduce"}, {"layer": "pipeline", "set": {"tokens": 8}}, {"layer": ["offload"]}]
    laid = lay_layers(measures, {"degree": [2]}, {"tokens": [64], "link": ["disk"]})
    assert laid == [
        {"op": "all_reduce"},
        {"layer": "pipeline", "set": {"tokens": [64]}, "degree": [2]},
        {"layer": ["offload"], "set": {"link": ["disk"]}, "degree": [2]},
    ]
    assert measures[1] == {"layer": "pipeline", "set": {"tokens": 8}}


def test_an_option_that_none_has_is_left_to_the_check():
    assert lay_layers([{"layer": "pipeline"}, {"op": "barrier"}], {}, {"foo": [1]}) == [
        {"layer": "pipeline", "set": {"foo": [1]}}, {"op": "barrier"},
    ]  # fmt: skip
    assert lay_layers([{"op": "barrier"}, 3], {}, {"foo": [1]}) == [{"op": "barrier", "set": {"foo": [1]}}, 3]


def test_numbers_of_an_option_are_finite():
    with pytest.raises(UsageError, match="write numbers that are finite"):
        tables("pipeline", "--set", "forward_us=nan")
