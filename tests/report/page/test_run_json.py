"""`run.json` holds everything that a run file does, and results as flat objects."""

import json
import math

import pytest

from pytest_roofline.baselines.runs import LINE_TYPES, read_run
from pytest_roofline.core.records import Ceiling
from pytest_roofline.report.files import run_json

LISTS = (
    "calibrations", "measurements", "figures", "memory_uses", "profiles", "resources", "out_of_memory", "outcomes",
    "verdicts", "exact",
)  # fmt: skip


def test_every_line_of_the_run_file_comes_back_as_it_was(make, report, tmp_path):
    path = make.save(tmp_path / "run.jsonl", *report.everything())
    plain = json.loads(run_json([read_run(path)]))
    (run,) = plain["runs"]
    assert ({"schema", "tool", "runs", "results"}, 2) == (set(plain), plain["schema"])
    assert {"name", "sentence", "path", "cut", "header", "footer", *LISTS} == set(run)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    kinds = {line.pop("type"): None for line in lines}
    assert set(LINE_TYPES) == set(kinds)
    held = [run["header"], run["footer"], *(record for name in LISTS for record in run[name])]
    assert sorted(map(str, lines)) == sorted(map(str, json.loads(json.dumps(held))))


def test_several_runs_stand_beside_each_other(make, report, tmp_path):
    runs = [
        make.run(tmp_path / f"{name}.jsonl", *report.compared("PASSED")) for name in ("old", "new")
    ]
    plain = json.loads(run_json(runs))
    assert ["old", "new"] == [run["header"]["run_id"] for run in plain["runs"]]
    assert ["old", "new"] == [result["run"] for result in plain["results"]]


def test_a_run_that_was_cut_has_no_footer_and_says_so(make, tmp_path):
    path = make.save(tmp_path / "run.jsonl", make.measurement(), ended=False)
    path.write_text(path.read_text() + '{"type": "outc')
    plain = json.loads(run_json([read_run(path)]))
    assert (None, True) == (plain["runs"][0]["footer"], plain["runs"][0]["cut"])


def test_a_share_beyond_every_number_is_left_out_and_never_infinite(make, tmp_path):
    one = make.measurement(ceiling=Ceiling("traffic_GBps", 4.5e12, "measured", "x"))
    path = make.save(tmp_path / "run.jsonl", one)
    # A run never writes this, but somebody's hand may.
    path.write_text(path.read_text().replace('"value": 4500000000000.0', '"value": 1e-300'))
    run = read_run(path)
    assert math.isinf(run.measurements[0].derived()["share_of_ceiling"])
    plain = json.loads(run_json([run]), parse_constant=pytest.fail)
    assert plain["results"][0]["roofline_share"] is None
    assert "share_of_ceiling" not in plain["runs"][0]["measurements"][0]["derived"]


def test_a_path_that_is_no_text_does_not_break_the_file(make, tmp_path):
    run = make.run(tmp_path / "bad\udcff.jsonl", make.measurement(), run_id="run-1")
    plain = json.loads(run_json([run]).encode())
    names = (
        plain["results"][0]["run"],
        plain["runs"][0]["name"],
        plain["runs"][0]["path"].rpartition("/")[2],
    )
    assert ("bad\\udcff", "bad\\udcff", "bad\\udcff.jsonl") == names
