"""The shipped suite of layers: every layer is in it, and every point of it can be measured on four local ranks."""

import pytest

from commbench.cli.laid_over import lay_axes
from commbench.errors import UsageError
from commbench.layers import NAMES, load
from commbench.models.layer_time import COLLECTIVES
from commbench.suite.expand import expand
from commbench.suite.schema import check_suite, read_suite


def test_every_layer_is_measured_on_four_ranks():
    suite = check_suite(read_suite("layers"), "layers")
    assert (suite.ranks, suite.backend) == (4, ["gloo"])
    points = [point for step in expand(suite, 4, ["gloo"], [0] * 4) for point in step]
    assert {point.reason for point in points} == {""}
    assert {point.op for point in points} == set(NAMES) | set(COLLECTIVES)
    models = {point.params.get("model") for point in points if point.kind == "layer"}
    assert {"llama3-405b", "deepseek-v3", "gpt3-175b"} <= models
    zero = {point.params["zero"] for point in points if point.op == "data_parallel"}
    recompute = {point.params["recompute"] for point in points if point.op == "tensor_parallel"}
    assert zero == {0, 1, 2, 3} and recompute == {"none", "selective", "full", "full_early_stop"}


WORDS = [(name, key) for name in NAMES for key in load(name).words]
TEXTS = [(name, key) for name in NAMES for key in ("model", "routing") if key in load(name).options]


@pytest.mark.parametrize("name, key", WORDS + TEXTS)
def test_a_word_that_is_none_ends_a_sweep_before_it_runs(name, key):
    known = load(name).options[key]
    told = {"layer": name, "degree": 2, "set": {key: [known, "misspelt"]}}
    suite = check_suite({"name": "t", "measure": [told]}, "t")
    with pytest.raises(UsageError, match="misspelt"):
        list(expand(suite, 2, ["gloo"], [0] * 2))


def test_every_word_of_every_layer_is_one_it_takes():
    assert len(WORDS) >= 10
    for name, key in WORDS:
        record = load(name)
        assert record.options[key] in record.words[key]


@pytest.mark.parametrize(
    "name, given, told",
    [
        ("expert_parallel", {"tokens": "99999999"}, "99999999 of top-8 are 1599999984 selections on 2 ranks"),
        ("expert_parallel", {"tokens": "1,99999999"}, "800000000 selections"),
        ("tensor_parallel", {"sequence_parallel": 1}, "must be true or false$"),
        ("tensor_parallel", {"tokens": 2**40}, "from 0 up, below 2"),
        ("pipeline", {"schedule": []}, "schedule of layer pipeline is an empty list"),
    ],
)
def test_what_is_far_too_much_or_no_value_is_refused_before_anything_is_drawn(name, given, told):
    suite = check_suite({"name": "t", "measure": [{"layer": name, "set": given}]}, "t")
    with pytest.raises(UsageError, match=told):
        list(expand(suite, 2, ["gloo"], [0] * 2))


@pytest.mark.parametrize(
    "key, value", [("size", "1M"), ("algorithm", "own:ring"), ("timing", "streaming"), ("redop", "max")]
)
def test_what_only_operations_have_is_refused_for_layers(key, value):
    with pytest.raises(UsageError, match=f"{key}: for operations; a measure of layers has backend, degree"):
        check_suite({"name": "t", "measure": [{"layer": "pipeline", key: value}]}, "t")


def test_flags_fall_on_the_measures_that_they_suit():
    measures = [{"op": "all_reduce"}, {"layer": "pipeline"}]
    laid = lay_axes("mine", measures, {"size": ["1M"], "dtype": ["bfloat16"]})
    assert laid == [
        {"op": "all_reduce", "size": ["1M"], "dtype": ["bfloat16"]},
        {"layer": "pipeline", "dtype": ["bfloat16"]},
    ]
    with pytest.raises(UsageError, match="--in-place is for operations; pipeline measures layers alone"):
        lay_axes("pipeline", measures[1:], {"in_place": [True]})
