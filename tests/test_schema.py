"""A suite file is taken whole or refused with all of its errors, each with its path; never with a traceback."""

import tomllib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commbench.errors import UsageError
from commbench.ops import OPS
from commbench.suite.schema import Measure, check_suite, read_suite, shipped_suites

fixed = settings(derandomize=True, database=None, deadline=None, max_examples=400)


def suite(measure=None, **tables):
    return {"name": "x", "measure": [{"op": "all_reduce"} | (measure or {})]} | tables


def errors(tables) -> dict[str, str]:
    """{path: message} of what is wrong with `tables`."""
    with pytest.raises(UsageError) as caught:
        check_suite(tables, "the suite")
    first, *lines = str(caught.value).splitlines()
    told = dict(line.strip().split(": ", 1) for line in lines)
    assert first == f"the suite has {len(lines)} error{'s' * (len(lines) > 1)}:"
    assert len(told) == len(lines) > 0
    return told


def measure(**keys):
    return check_suite(suite(keys), "the suite").measure[0]


# what is taken


@pytest.mark.parametrize("name", shipped_suites())
def test_shipped_suites_parse(name):
    shipped = check_suite(read_suite(name), name)
    assert shipped.name == name
    assert all(m.size == sorted(set(m.size)) for m in shipped.measure)


def test_quick_and_full_are_shipped_and_hold_every_operation():
    for name in ("quick", "full"):
        assert {op for m in check_suite(read_suite(name), name).measure for op in m.op} == set(OPS)


def test_the_example_of_the_design():
    tables = tomllib.loads("""
        name = "quick"
        ranks = 4
        backend = ["gloo", "mpi"]
        [[measure]]
        op = ["all_reduce", "all_gather"]
        algorithm = "library"
        size = { from = "8", to = "16M", factor = 4 }
        timing = "isolated"
    """)
    parsed = check_suite(tables, "quick")
    assert (parsed.ranks, parsed.backend, parsed.launches) == (4, ["gloo", "mpi"], 1)
    assert parsed.measure[0].op == ["all_reduce", "all_gather"]
    assert parsed.measure[0].size == [8 * 4**i for i in range(11)]


def test_one_value_is_a_list_of_one():
    m = measure(
        dtype="bf16",
        size="64K",
        redop="max",
        root=2,
        in_place=True,
        timing="streaming",
        batch=5,
        split="MOD 2",
        window=8,
    )
    assert (m.dtype, m.size, m.redop, m.root) == (["bfloat16"], [65536], ["max"], [2])
    assert (m.in_place, m.timing, m.batch, m.split, m.window) == ([True], ["streaming"], [5], ["MOD 2"], [8])


@pytest.mark.parametrize(
    "sweep, sizes",
    [
        ({"from": 8, "to": 64}, [8, 16, 32, 64]), ({"from": "8", "to": "65", "factor": 2}, [8, 16, 32, 64]),
        ({"from": "1K", "to": "4K", "step": "1K"}, [1024, 2048, 3072, 4096]),
        ({"from": 0, "to": 16, "step": 8}, [0, 8, 16]),
        ({"from": 5, "to": 5}, [5]), ({"from": 0, "to": 0}, [0]),
        ({"from": 1, "to": 5, "factor": 1.1}, [1, 2, 3, 4, 5]),
        ({"from": 8, "to": 100, "factor": 2.5}, [8, 20, 50]),
    ],
)  # fmt: skip
def test_sweeps(sweep, sizes):
    assert measure(size=sweep).size == sizes


def test_a_sweep_has_at_most_ten_thousand_sizes():
    assert len(measure(size={"from": 1, "to": 10_000, "step": 1}).size) == 10_000
    assert "10000 sizes" in errors(suite({"size": {"from": 1, "to": 10_001, "step": 1}}))["measure.0.size"]


def test_lists_keep_their_order():
    assert measure(size=["1M", 8, "64K"]).size == [2**20, 8, 65536]


# what is refused


def test_all_errors_are_told_at_once_with_their_paths():
    told = errors(
        {
            "name": "two words",
            "colour": "red",
            "launches": 0,
            "settings": {"budget_s": -1, "iterations": 3},
            "measure": [
                {"op": ["all_reduce", "all_refuse"], "size": True, "backend": "foo", "ranks": 3.5, "bar": 2},
                {"size": -1, "dtype": "float31", "root": [-1, 0]},
            ],
        }
    )
    assert set(told) == {
        "name", "colour", "launches", "settings.budget_s", "settings.iterations", "measure.0.op.1", "measure.0.size.0",
        "measure.0.backend.0", "measure.0.ranks", "measure.0.bar", "measure.1.size.0",
        "measure.1.dtype.0",
        "measure.1.root.0",
    }  # fmt: skip
    assert "'all_refuse'" in told["measure.0.op.1"] and "reduce_scatter" in told["measure.0.op.1"]
    assert "'gloo', 'nccl' or 'mpi'" in told["measure.0.backend.0"] and "'foo'" in told["measure.0.backend.0"]
    assert "'float31'" in told["measure.1.dtype.0"] and "bfloat16" in told["measure.1.dtype.0"]
    assert (
        "3.5" in told["measure.0.ranks"]
        and "True" in told["measure.0.size.0"]
        and "negative" in told["measure.1.size.0"]
    )


@pytest.mark.parametrize(
    "key, value",
    [
        ("size", True), ("size", -1), ("size", "1Q"), ("size", 1.5), ("size", ""), ("size", None), ("size", [[8]]),
        ("size", ["8", {}]),
        ("size", 2**70), ("size", float("nan")), ("size", float("inf")),
        ("size", {"from": 8, "to": 4}), ("size", {"from": 8, "to": 64, "factor": 1}),
        ("size", {"from": 8, "to": 64, "factor": float("inf")}),
        ("size", {"from": 8, "to": 64, "factor": float("nan")}), ("size", {"from": 8, "to": 64, "factor": "2"}),
        ("size", {"from": 8, "to": 64, "factor": 2, "step": 8}), ("size", {"from": 8, "to": 64, "step": 0}),
        ("size", {"from": 0, "to": 64}),
        ("size", {"from": 8}), ("size", {"to": 8}), ("size", {}), ("size", {"from": 8, "to": 64, "by": 2}),
        ("size", {"from": [8], "to": 64}),
        ("size", {"from": 8, "to": "1G", "step": 8}), ("size", {"from": 1, "to": "1T", "factor": 1.0000001}),
        ("op", "all"), ("op", 3), ("op", None), ("op", [["all_reduce"]]), ("op", {"a": 1}), ("op", True),
        ("backend", "foo"), ("backend", "GLOO"), ("backend", 1), ("backend", ["gloo", ["mpi"]]),
        ("ranks", 3.5), ("ranks", 0), ("ranks", -2), ("ranks", "4"), ("ranks", True), ("ranks", [2]), ("ranks", 2.0),
        ("algorithm", "rign"), ("algorithm", "own:rign"), ("algorithm", "ring/x"), ("algorithm", 1), ("algorithm", [["library"]]),
        ("dtype", "float31"), ("dtype", 32), ("dtype", [["float32"]]), ("dtype", {}), ("dtype", None),
        ("redop", "xor"), ("redop", 1), ("root", -1), ("root", 1.5), ("root", "0"), ("root", True), ("root", ["all"]),
        ("in_place", "yes"), ("in_place", 1), ("in_place", "both"), ("timing", "fast"), ("timing", 1),
        ("batch", 0), ("batch", 2.5), ("batch", "20"), ("window", 0), ("window", "many"), ("split", 8),
        ("split", [["MOD 2"]]),
        ("matrix", 3), ("matrix", [[1, "a"]]), ("matrix", [1, 2]), ("matrix", [[float("inf")]]), ("align", 0),
        ("align", "16"),
        ("sizes", "1M"), ("", 1),
    ],
)  # fmt: skip
def test_a_wrong_value_is_told_with_its_path(key, value):
    told = errors(suite({key: value}))
    assert all(path.startswith(f"measure.0.{key}") for path in told)


_ROUTED = ("tokens", "experts", "top_k", "masked", "routing_seed", "ranks_per_node")
_ONE = ("ranks", "matrix", "align", "soak_s", "stage", "set", *_ROUTED)  # take one value, no list


@pytest.mark.parametrize(
    "given, said",
    [
        ({}, "give either op or layer"),
        ({"op": "all_reduce", "layer": "tensor_parallel"}, "give either op or layer"),
        ({"op": "all_reduce", "set": {"tokens": 8}}, "set and degree are for layers"),
        ({"op": "all_reduce", "degree": 2}, "set and degree are for layers"),
        ({"layer": "pipeline", "degree": 2, "split": "MOD 2"}, "give degree or split, not both"),
        ({"layer": "tensor_parallell"}, "'tensor_parallel'"),
        ({"layer": "tensor_parallel", "set": {"tokens": [[1]]}}, "found"),
    ],
)
def test_a_measure_is_of_operations_or_of_layers(given, said):
    with pytest.raises(UsageError) as told:
        check_suite({"name": "mine", "measure": [given]}, "a suite")
    assert said in str(told.value)


@pytest.mark.parametrize("key", [key for key in Measure.model_fields if key not in _ONE])
def test_an_empty_list_would_measure_nothing_and_is_refused(key):
    assert "empty" in errors(suite({key: []}))[f"measure.0.{key}"]


@pytest.mark.parametrize(
    "key, value",
    [
        ("warmup", -1), ("warmup", 1.5), ("warmup_s", -0.1), ("warmup_s", float("inf")), ("iters", 0),
        ("iters", "many"), ("iters", True),
        ("target", 0), ("target", 1), ("target", float("nan")), ("budget_s", 0), ("budget_s", float("inf")),
        ("budget_s", "1"),
        ("max_samples", 0), ("checks", -1), ("checks", True), ("timeout_s", 0), ("timeout_s", float("inf")),
        ("graph", 1),
    ],
)  # fmt: skip
def test_a_wrong_setting_is_told_with_its_path(key, value):
    assert set(errors(suite(settings={key: value}))) == {f"settings.{key}"}


@pytest.mark.parametrize(
    "key, value",
    [
        ("name", ""), ("name", 3), ("name", "a/b"), ("name", ".hidden"), ("name", "x" * 65), ("name", "x\n"),
        ("name", None),
        ("ranks", 0), ("ranks", 3.5), ("ranks", True), ("backend", "foo"), ("backend", []), ("launches", 0),
        ("launches", "2"),
        ("settings", 3), ("settings", [1]), ("measure", []), ("measure", {}), ("measure", "all_reduce"),
        ("measure", [3]), ("measure", [[]]),
    ],
)  # fmt: skip
def test_a_wrong_table_is_told_with_its_path(key, value):
    assert all(path.startswith(key) for path in errors(suite() | {key: value}))


def test_nothing_at_all():
    assert set(errors({})) == {"name", "measure"}
    for nothing in ([], None, 3, "suite"):
        assert set(errors(nothing)) == {"the file"}


garbage = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["gloo", "8", "all_reduce", "sum"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=4) | st.sampled_from(["from", "to", "step"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@fixed
@given(
    st.dictionaries(
        st.sampled_from(["name", "ranks", "backend", "launches", "settings", "measure"]) | st.text(max_size=3),
        garbage,
        max_size=4,
    ),
    st.dictionaries(st.sampled_from(sorted(Measure.model_fields)) | st.text(max_size=3), garbage, max_size=4),
)
def test_garbage_is_a_usage_error(tables, keys):
    for candidate in (tables, suite(keys), suite(keys) | tables, suite(settings=keys)):
        try:
            check_suite(candidate, "the suite")
        except UsageError as error:
            assert str(error).startswith("the suite has ")


# files


def test_a_file_is_read(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('name = "mine"\n[[measure]]\nop = "barrier"\n')
    assert check_suite(read_suite(str(path)), "mine").measure[0].op == ["barrier"]


@pytest.mark.parametrize("name", ["nothing", "", ".", "nothing.toml", "/nowhere/suite.toml"])
def test_a_missing_file_is_told_with_what_there_is(name):
    with pytest.raises(UsageError, match="no suite.*quick.*all_reduce"):
        read_suite(name)


@pytest.mark.parametrize(
    "content, told",
    [
        (b"name = ", "not valid TOML"), (b"name = x", "not valid TOML.*line 1"), (b"a = 1\na = 2", "not valid TOML"),
        (b"\xff\xfe", "cannot be read"),
        (b"\x00", "not valid TOML"), (b"a = " + b"9" * 5000, "not valid TOML"),
        (b"a = " + b"[" * 10_000, "not valid TOML"),
        (b"[[measure]\nop = 1", "not valid TOML"), (b"\x7fELF\x02\x01\x01\x00", "not valid TOML"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_toml_is_told_by_name(tmp_path, content, told):
    path = tmp_path / "bad.toml"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=f"bad.toml.*{told}"):
        read_suite(str(path))


def test_an_empty_file_lacks_a_name_and_a_measure(tmp_path):
    path = tmp_path / "empty.toml"
    path.touch()
    assert set(errors(read_suite(str(path)))) == {"name", "measure"}


def test_a_name_too_long_for_a_file_is_told():
    with pytest.raises(UsageError, match="cannot be read"):
        read_suite("x" * 5000)
