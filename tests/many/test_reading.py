"""Thousands of run files as one table: the same rows as by the reader of one run."""

import dataclasses
import os
from pathlib import Path

import pytest

from pytest_roofline.baselines.run_files import expand
from pytest_roofline.baselines.runs import encode_line, read_run
from pytest_roofline.baselines.test_texts import environment_of, text_of_test
from pytest_roofline.core.errors import BadInput
from pytest_roofline.many.files import read_files, read_run_file
from pytest_roofline.many.reading import tables_of

REAL = sorted((Path(__file__).parents[2] / "docs" / "results" / "runs").glob("*/*.jsonl"))


@pytest.fixture
def save(make, tmp_path):
    """Writes a run file of a GPU."""

    def write(name, *seconds, uuid="GPU-1", node="node1", run_id=None, **changes):
        environment = make.environment(uuid=uuid)
        host = dataclasses.replace(environment.host, name=node)
        header = make.header(run_id or name, "2026-01-02T03:04:05Z")
        lines = [
            dataclasses.replace(header, environment=dataclasses.replace(environment, host=host))
        ]
        for number, value in enumerate(seconds or (1e-3,)):
            measurement = make.measurement(
                value, key=make.key(size_bytes=2**20 << number), **changes
            )
            lines += [measurement, make.outcome(measurement)]
        path = tmp_path / "runs" / f"{name}.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(map(encode_line, lines)), encoding="utf-8")
        return path

    return write


def read_tables(paths):
    return tables_of(read_files(paths))


def every(tmp_path):
    return expand([str(tmp_path / "runs")], tmp_path)


def test_a_broken_file_is_named_and_left_out_and_a_cut_one_counts_without_its_last_line(
    save, tmp_path
):
    save("good")
    for spoil, words in (
        (lambda text: text.split("\n")[0] + '\n{"type": "measurement", "key": {}}\n', "line 2"),
        (lambda text: text.replace("0.005", "-0.005"), "above zero"),
        (lambda text: text.replace('"schema": 1', '"schema": 7'), "schema version 7"),
    ):
        bad = save("bad", 5e-3)
        bad.write_text(spoil(bad.read_text()))
        many = read_tables(every(tmp_path))
        (why,) = many.left_out
        assert (str(bad) in why, words in why, len(many.runs)) == (True, True, 1), words
    bad.write_text("{}\n")
    with pytest.raises(BadInput, match=r"none of 1 run files can be used: .*bad\.jsonl"):
        read_tables([str(bad)])
    path = save("bad", 1e-3, 2e-3)
    path.write_text(path.read_text()[:-20])
    (cut,) = read_files([str(path)])
    assert (len(tables_of([cut]).rows), cut.cut) == (2, True)


def test_a_row_has_the_median_of_its_process_and_whether_it_is_fit_by_the_rule_of_a_run(
    save, make, tmp_path
):
    save("good", 2e-3)
    bad = save("bad", invalid="busy neighbours")
    many, run = read_tables(every(tmp_path)), read_run(bad)
    assert many.unfit == {run.unfit(run.measurements[0], accept_slower=True): 1}
    assert [2e-3] == list(many.fit["seconds"])
    # What failed for being slower counts, and what failed for itself does not.
    slower, wrong = (
        make.measurement(1e-3),
        make.measurement(1e-3, key=make.key("other"), test_id="t.py::test_other"),
    )
    ended = make.outcome(slower, "failed", verdicts=("REGRESSED",), by_verdict=True)
    path = make.save(
        tmp_path / "a.jsonl",
        slower,
        ended,
        wrong,
        make.outcome(wrong, "failed", reason="wrong data"),
    )
    many = read_tables([str(path)])
    assert many.unfit == {"the test failed: wrong data": 1}
    assert [many.tests[number].label for number in many.fit["test"]] == [slower.label]


@pytest.mark.parametrize("path", REAL, ids=lambda path: path.stem)
def test_the_rows_of_a_file_are_those_of_the_careful_reader(path):
    run, file = read_run(path), read_run_file(str(path))
    environment = run.header.environment
    assert (run.header.run_id, run.header.started) == (file.run_id, file.started)
    assert environment == environment_of(file.environment)
    expected = [
        (
            text_of_test(entry.key, entry.work, entry.samples.achieved, bool(entry.device)),
            run.unfit(entry, accept_slower=True),
            entry.device,
            entry.median_s,
        )
        for entry in run.tested
    ]
    assert expected == [
        (test, unfit, device, pytest.approx(seconds))
        for test, unfit, _, device, seconds in file.rows
    ]


def test_fields_that_are_not_judged_need_not_be_known(save):
    path = save("good")
    plain = read_run_file(str(path))
    path.write_text(path.read_text().replace('"test_id"', '"later": [1, {"a": 2}], "test_id"'))
    assert plain == read_run_file(str(path))


def test_the_same_name_on_two_nodes_is_two_runs_and_a_copy_is_one(save, tmp_path):
    first = save("nightly", node="node1")
    (tmp_path / "runs" / "copy.jsonl").write_text(first.read_text())
    save("other", node="node2", run_id="nightly")
    many = read_tables(every(tmp_path))
    assert len(many.runs) == 2
    assert [" is left out: it is the same run as " in why for why in many.left_out] == [True]


# Names, folders, patterns


def test_folders_patterns_names_and_lists_are_one_list_without_doubles(save, tmp_path):
    a, b = save("a"), save("b")
    (tmp_path / "runs" / "deep").mkdir()
    deep = tmp_path / "runs" / "deep" / "c.jsonl"
    deep.write_text(a.read_text())
    assert expand([str(tmp_path / "runs"), "a", "-"], tmp_path, [f"{b}\n", "\n"]) == [
        str(a),
        str(b),
        str(deep),
    ]
    assert expand([str(tmp_path / "**" / "[ab].jsonl")], tmp_path) == [str(a), str(b)]
    (tmp_path / "empty").mkdir()
    for names, listed, why in (
        ([str(a), str(tmp_path / "empty")], (), "run file"),
        ([str(a), str(tmp_path / "none*")], (), "run file"),
        ([str(a), "nonsense"], (), r"nonsense\.jsonl does not exist"),
        (["-"], ["\n"], "is empty"),
    ):
        with pytest.raises(BadInput, match=why):
            expand(names, tmp_path, listed)


def test_a_pipe_is_refused_and_not_waited_for(save, tmp_path):
    os.mkfifo(tmp_path / "runs.jsonl")

    (file,) = read_files([str(tmp_path / "runs.jsonl")])

    assert "is a device or a pipe; expected a file" in file.broken
