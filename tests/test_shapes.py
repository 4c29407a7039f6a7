"""Shipped shapes have the parameters that their authors published, and a file of one's own is read strictly."""

import pytest

from commbench.errors import UsageError
from commbench.shapes import SHIPPED, read_shape, shape_names
from commbench.shapes.counts import active_parameters, layer_parameters, parameters

OWN = (SHIPPED / "deepseek-v3.toml").read_text()


@pytest.mark.parametrize("name", shape_names())
def test_a_shipped_shape_is_named_like_its_file_and_has_the_published_parameters(name):
    shape = read_shape(name)
    assert shape.name == name
    # Megatron's and GPT-3's names are rounded to two or three digits: 22B is 22.07, 175B 174.6.
    assert parameters(shape) == pytest.approx(shape.parameters_published, rel=4e-3)


@pytest.mark.parametrize(
    "name, count",
    [
        ("llama3-8b", 8_030_261_248),
        ("llama3-70b", 70_553_706_496),
        ("llama3-405b", 405_853_388_800),
        ("qwen2.5-72b", 72_706_203_648),
    ],
)
def test_parameters_are_exactly_those_in_the_published_weights(name, count):
    assert parameters(read_shape(name)) == count


@pytest.mark.parametrize("name, layers, hidden, billions", [("530b", 105, 20480, 529.6), ("1t", 128, 25600, 1008.0)])
def test_megatron_counts_agree_with_its_own_formula(name, layers, hidden, billions):
    shape = read_shape(f"megatron-{name}")
    # arXiv 2104.04473, equation 2
    formula = 12 * layers * hidden**2 * (1 + 13 / (12 * hidden) + (51200 + 2048) / (12 * layers * hidden))
    assert parameters(shape) == pytest.approx(formula, rel=1e-6)
    assert round(parameters(shape) / 1e9, 1) == billions


def test_a_token_passes_37_of_deepseeks_671_billions():
    shape = read_shape("deepseek-v3")
    assert parameters(shape) == pytest.approx(671.0e9, rel=1e-4)
    without_embedding = active_parameters(shape) - shape.vocab * shape.hidden
    assert without_embedding == pytest.approx(37e9, rel=0.012)
    expert = 3 * 7168 * 2048
    assert layer_parameters(shape, True) - layer_parameters(shape, True, 8) == 248 * expert


def test_a_file_of_ones_own(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(OWN.replace('"deepseek-v3"', '"mine"').replace("671e9", "671"))
    shape = read_shape(str(path))
    assert (shape.name, shape.parameters_published, shape.moe.top_k, shape.mla.kv_lora) == ("mine", 671.0, 8, 512)


@pytest.mark.parametrize(
    "old, new, said",
    [
        ("hidden = 7168\n", "", "hidden is missing"),
        ("hidden = 7168", "hidden = 7168\nwidth = 4", "width is not a known key"),
        ("hidden = 7168", "hidden = 7168.0", "hidden is 7168.0; it must be a whole number"),
        ("hidden = 7168", "hidden = 0", "hidden is 0"),
        ("hidden = 7168", 'hidden = 7168\nbiases = "some"', "biases is 'some'; it must be one of none, qkv, all"),
        ("hidden = 7168", "hidden = 7168\nbiases = 3", "biases is 3"),
        ("gated = true", "gated = 1", "gated is 1; it must be true or false"),
        ("kv_heads = 128", "kv_heads = 48", "no multiple of 48 kv_heads"),
        ("top_k = 8", "top_k = 300", "moe.top_k is 300 of 256 experts"),
        ("top_k = 8\n", "", "moe.top_k is missing"),
        ("dense_layers = 3", "dense_layers = 61", "none has experts"),
        ("671e9", "nan", "parameters_published is nan"),
        ("671e9", "true", "parameters_published is True"),
        ("v_dim = 128", "v_dim = -1", "mla.v_dim is -1"),
        ('name = "deepseek-v3"', 'name = "../x"', "name '../x' is not made of letters"),
        ("[moe]", "moe = 3\n[x]", "moe is 3; it must be a table"),
        ("[mla]", "[mla", "not valid TOML"),
    ],
)
def test_each_mistake_is_one_sentence_with_file_and_key(tmp_path, old, new, said):
    assert old in OWN
    path = tmp_path / "mine.toml"
    path.write_text(OWN.replace(old, new, 1))
    with pytest.raises(UsageError) as caught:
        read_shape(str(path))
    assert said in str(caught.value) and "mine.toml" in str(caught.value)


def test_an_unknown_name_tells_those_there_are():
    with pytest.raises(UsageError, match=r"no model or model file 'llama'; models: deepseek-v3, .*qwen2.5-72b"):
        read_shape("llama")
    for odd in ("", "\0", "x" * 5000, "/"):
        with pytest.raises(UsageError):
            read_shape(odd)
