"""A model file gives back exactly what was fitted, and any other file is refused in one sentence."""

import json

import numpy as np
import pytest
from measured import line_run, sample, write_run

from commbench.cli.fit_view import crossover_lines, series_lines
from commbench.errors import CommbenchError, UsageError
from commbench.models.answer import answer
from commbench.models.contest import contests
from commbench.models.model_file import SCHEMA, ModelFile, load_models, save_models
from commbench.models.series_fit import fit_tables
from commbench.models.table import read_series


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A series on one world size, one over ranks with a contender, point-to-point, and one that is unstable."""
    folder = tmp_path_factory.mktemp("runs")
    runs = [line_run(folder / "gather", op="all_gather", launches=3, launch_sd=0.02)]
    for ranks in (2, 4, 8, 16):
        runs.append(line_run(folder / f"ring{ranks}", alpha_us=5 * ranks, ranks=ranks, algorithm="own:ring"))
        runs.append(line_run(folder / f"tree{ranks}", 20.0, 2e-3, ranks=ranks, algorithm="own:tree"))
    runs.append(line_run(folder / "p2p", 5.0, 1e-4, op="p2p_latency", ranks=2))
    runs.append(line_run(folder / "falls", 1000.0, -2e-7, sizes=[2**k for k in range(20, 33)], op="broadcast"))
    tables = read_series(runs)
    return ModelFile(tuple(fit_tables(tables)), tuple(map(str, runs)), tuple(contests(tables)), "2026-01-01")


def test_everything_comes_back_as_it_was(models, tmp_path):
    save_models(models, tmp_path / "m.json")
    back = load_models(tmp_path / "m.json")
    assert [(s.name, s.kind, s.points, s.launches, s.faults) for s in back.series] == [
        (s.name, s.kind, s.points, s.launches, s.faults) for s in models.series
    ]
    assert {s.kind for s in back.series} == {"pieces", "family", "loggp", "none"}
    assert back.crossovers == models.crossovers and back.sources == models.sources
    sizes = np.geomspace(1, 2**33, 200)
    for old, new in zip(models.series, back.series):
        assert new.family == old.family and new.loggp == old.loggp and new.left_out == old.left_out
        for a, b in zip(old.curves, new.curves, strict=True):
            assert np.array_equal(a.time_us(sizes), b.time_us(sizes)) and a.parameters == b.parameters
            assert np.array_equal(a.interval_us(sizes), b.interval_us(sizes))
    save_models(back, tmp_path / "again.json")
    assert (tmp_path / "again.json").read_text() == (tmp_path / "m.json").read_text()


def test_the_file_is_plain_json_without_nan(models, tmp_path):
    save_models(models, tmp_path / "m.json")
    text = (tmp_path / "m.json").read_text()
    document = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))
    assert document["schema"] == SCHEMA and document["kind"] == "commbench models"
    assert document["series"][0]["curves"][0]["parameters"][0]["name"] == "latency_us"


def damaged(models, tmp_path, change):
    save_models(models, tmp_path / "m.json")
    document = json.loads((tmp_path / "m.json").read_text())
    change(document)
    (tmp_path / "m.json").write_text(json.dumps(document))
    return tmp_path / "m.json"


def family_of(document):
    return next(s["family"] for s in document["series"] if s["family"])


def curve_of(document):
    return document["series"][0]["curves"][0]


@pytest.mark.parametrize(
    "change, sentence",
    [
        (lambda d: d.update(schema=99), "has schema 99; this commbench reads schema 1: fit again"),
        (lambda d: d.pop("schema"), "has schema None"),
        (lambda d: d.update(kind="simulation"), "holds no models"),
        (lambda d: d.pop("series"), "lacks 'series'"),
        (lambda d: d["series"][0].pop("label"), "lacks 'label'"),
        (lambda d: d["series"][0].update(kind="magic"), "kind 'magic' is none of"),
        (lambda d: d["series"][0].update(points=-1), "is no whole number from 1 on"),
        (lambda d: d["series"][0].update(points=1.5), "is no whole number from 1 on"),
        (lambda d: d.update(series=3), "no model file that commbench wrote"),
        (lambda d: d["series"].append("text"), "no model file that commbench wrote"),
        (lambda d: curve_of(d)["pieces"].update(first=[0, 500]), "no model file"),
        (lambda d: curve_of(d)["pieces"].update(first=[1]), "a curve whose pieces are none"),
        (lambda d: curve_of(d)["pieces"].update(intercept_us=["x"]), "no model file"),
        (lambda d: curve_of(d)["pieces"].update(intercept_us=[-9e9] * len(curve_of(d)["pieces"]["first"])), "pieces are none"),
        (lambda d: curve_of(d).update(mape="x"), "no model file"),
        (lambda d: family_of(d)["regimes"][0].update(ranks=[]), "no model file"),
        (lambda d: family_of(d)["regimes"][0]["pieces"][0].update(values=[-1.0] * 9), "no model file"),
        (lambda d: family_of(d)["regimes"][0]["pieces"][0].update(algorithm="none"), "there is no equation"),
        (lambda d: family_of(d).update(regimes=[{}]), "lacks 'choice'"),
        (lambda d: d["crossovers"][0].update(found={}), "lacks 'verdict'"),
    ],
)  # fmt: skip
def test_a_damaged_file_is_one_sentence(models, tmp_path, change, sentence):
    with pytest.raises(UsageError, match=sentence) as error:
        load_models(damaged(models, tmp_path, change))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "content, sentence",
    [
        (b"", "is no JSON"),
        (b"\x80\x04K\x01.", "is no JSON"),
        (b"[1, 2]", "holds no models"),
        (b"[" * 100000, "is no JSON"),
        (b'{"kind": "commbench models", "schema": NaN}', "is no JSON"),
    ],
)
def test_other_files_are_refused(tmp_path, content, sentence):
    (tmp_path / "m.json").write_bytes(content)
    with pytest.raises(UsageError, match=sentence):
        load_models(tmp_path / "m.json")


def test_no_file_a_folder_and_a_place_that_cannot_be_written(models, tmp_path):
    with pytest.raises(UsageError, match="does not exist"):
        load_models(tmp_path / "none.json")
    with pytest.raises(UsageError, match="is a folder"):
        load_models(tmp_path)
    with pytest.raises(UsageError, match="cannot be written"):
        save_models(models, tmp_path / "no" / "m.json")


def test_text_of_the_outside_stays_text(tmp_path):
    rude = "x\x1b[2J\n</script>"
    (table,) = read_series([write_run(tmp_path / "run", [sample(20, 2**k, group=rude) for k in range(3, 12)])])
    save_models(ModelFile(tuple(fit_tables([table]))), tmp_path / "m.json")
    back = load_models(tmp_path / "m.json")
    assert back.series[0].label["group"] == rude
    assert "\x1b" not in back.series[0].name and "\n" not in back.series[0].name


def leaves(value, path=()):
    """The paths of everything in a document, of lists the first two and the last."""
    items = value.items() if isinstance(value, dict) else ()
    if isinstance(value, list):
        items = [(i, value[i]) for i in sorted({0, 1, len(value) - 1}) if 0 <= i < len(value)]
    for key, inner in items:
        yield (*path, key)
        yield from leaves(inner, (*path, key))


def test_any_value_changed_by_hand_is_one_sentence_or_a_model_that_predicts(models, tmp_path):
    """Every place of a file, each with one of these values (all values, over the places of a kind)."""
    save_models(models, tmp_path / "m.json")
    text = (tmp_path / "m.json").read_text()
    values = ["null", '"x"', "[]", "{}", "-1", "0", "1e999", "true"]
    places = [path for path in leaves(json.loads(text)) if path[0] != "schema"]
    refused = 0
    for number, path in enumerate(places):
        document = json.loads(text)
        inner = document
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = "HERE"
        changed = json.dumps(document).replace('"HERE"', values[(number + number // len(values)) % len(values)])
        (tmp_path / "m.json").write_text(changed)
        try:
            loaded = load_models(tmp_path / "m.json")
        except UsageError as error:
            assert len(str(error).splitlines()) == 1
            refused += 1
            continue
        for series in loaded.series:
            assert series_lines(series)
            for ranks, size in ((4, 2**20), (16, 8), (64, 2**40)):
                try:
                    told = answer(series, ranks, 1, size)
                except CommbenchError:
                    continue
                assert 0 < told.low_us <= told.time_us <= told.high_us < np.inf, path
        crossover_lines(list(loaded.crossovers))
    assert refused > len(places) / 2
