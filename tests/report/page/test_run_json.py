"""`run.json` holds everything, in the form that its schema describes, and the schema allows nothing else."""

import copy
import json
import math

import jsonschema
import pytest

from pytest_roofline.baselines.runs import LINE_TYPES, read_run
from pytest_roofline.core.records import Ceiling
from pytest_roofline.report.files import as_plain, run_json, schema

LISTS = (
    "calibrations", "measurements", "figures", "memory_uses", "profiles", "resources", "out_of_memory", "outcomes",
    "judgements", "exact",
)  # fmt: skip


@pytest.fixture(scope="module")
def validator():
    jsonschema.Draft202012Validator.check_schema(schema())
    return jsonschema.Draft202012Validator(schema())


@pytest.fixture
def plain(make, report, tmp_path):
    run = make.run(tmp_path / "run.jsonl", *report.everything())
    return json.loads(run_json([run]))


def test_a_run_with_a_record_of_every_kind_agrees_with_the_schema(plain, validator):
    (run,) = plain["runs"]
    assert [] == [name for name in (*LISTS, "header", "footer") if not run[name]]
    assert [] == [error.message for error in validator.iter_errors(plain)]


def test_every_line_of_the_run_file_comes_back_as_it_was(make, report, tmp_path):
    path = make.save(tmp_path / "run.jsonl", *report.everything())
    (run,) = as_plain([read_run(path)])["runs"]
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    kinds = {line.pop("type"): None for line in lines}
    assert set(LINE_TYPES) == set(kinds)
    held = [run["header"], run["footer"], *(record for name in LISTS for record in run[name])]
    assert sorted(map(str, lines)) == sorted(map(str, json.loads(json.dumps(held))))


def test_several_runs_stand_beside_each_other(make, report, tmp_path, validator):
    runs = [make.run(tmp_path / f"{name}.jsonl", *report.compared("PASSED")) for name in ("old", "new")]
    plain = json.loads(run_json(runs))
    assert ["old", "new"] == [run["header"]["run_id"] for run in plain["runs"]]
    assert ["old", "new"] == [result["run"] for result in plain["results"]]
    validator.validate(plain)


def test_a_run_that_was_cut_has_no_footer_and_says_so(make, tmp_path, validator):
    path = make.save(tmp_path / "run.jsonl", make.measurement(), ended=False)
    path.write_text(path.read_text() + '{"type": "outc')
    plain = json.loads(run_json([read_run(path)]))
    assert (None, True) == (plain["runs"][0]["footer"], plain["runs"][0]["cut"])
    validator.validate(plain)


def test_a_share_beyond_every_number_is_left_out_and_never_infinite(make, tmp_path, validator):
    one = make.measurement(ceiling=Ceiling("traffic_GBps", 4.5e12, "measured", "x"))
    path = make.save(tmp_path / "run.jsonl", one)
    # A run never writes this, but somebody's hand may.
    path.write_text(path.read_text().replace('"value": 4500000000000.0', '"value": 1e-300'))
    run = read_run(path)
    assert math.isinf(run.measurements[0].derived()["share_of_ceiling"])
    plain = json.loads(run_json([run]), parse_constant=pytest.fail)
    assert plain["results"][0]["roofline_share"] is None
    assert "share_of_ceiling" not in plain["runs"][0]["measurements"][0]["derived"]
    validator.validate(plain)


def test_a_path_that_is_no_text_does_not_break_the_file(make, tmp_path):
    run = make.run(tmp_path / "bad\udcff.jsonl", make.measurement(), run_id="run-1")
    plain = json.loads(run_json([run]).encode())
    names = plain["results"][0]["run"], plain["runs"][0]["name"], plain["runs"][0]["path"].rpartition("/")[2]
    assert ("bad\\udcff", "bad\\udcff", "bad\\udcff.jsonl") == names


def wrong_type(value):
    return {"an": "object"} if not isinstance(value, dict) else "text"


def places(plain, path=()):
    """Every object of the file with its path; of lists the first element stands for all."""
    if isinstance(plain, dict):
        yield path
        for name, value in plain.items():
            yield from places(value, (*path, name))
    elif isinstance(plain, list) and plain:
        yield from places(plain[0], (*path, 0))


def at(plain, path):
    for part in path:
        plain = plain[part]
    return plain


# Objects whose names are the data's own, so that any is allowed.
OPEN = {"parameters", "software", "figures", "arguments", "compiler", "slack", "options", "categories", "phase_peaks",
        "reached", "not_measured", "derived"}  # fmt: skip


def test_no_object_takes_an_unknown_field_or_a_value_of_another_type(plain, validator):
    forgiven = []
    for path in list(places(plain)):
        if path and path[-1] in OPEN:
            continue
        for name in [*at(plain, path), "unknown"]:
            changed = copy.deepcopy(plain)
            at(changed, path)[name] = wrong_type(at(plain, path).get(name))
            if validator.is_valid(changed):
                forgiven.append((*path, name))
    assert forgiven == []


def test_a_file_or_a_result_without_one_of_its_parts_and_another_version_is_refused(plain, validator):
    for name in ("schema", "tool", "runs", "results"):
        assert not validator.is_valid({other: value for other, value in plain.items() if other != name}), name
    assert not validator.is_valid(plain | {"schema": 1})
    for name in plain["results"][0]:
        changed = copy.deepcopy(plain)
        del changed["results"][0][name]
        assert not validator.is_valid(changed), name
