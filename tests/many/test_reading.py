"""Thousands of run files as one table: the same rows as one by one, with the index and without."""

import dataclasses
import os
from pathlib import Path

import pytest

from pytest_roofline.baselines.run_files import expand
from pytest_roofline.baselines.runs import encode_line, read_run
from pytest_roofline.core.errors import BadInput
from pytest_roofline.many import reading
from pytest_roofline.many.reading import INDEX, read_run_tables


@pytest.fixture
def save(make, tmp_path):
    """Writes a run file of a GPU that was last changed an hour ago, so that it is settled."""

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
        return settle(path)

    return write


def settle(path, age_s=3600):
    now = path.stat().st_mtime
    os.utime(path, (now - age_s, now - age_s))
    return path


@pytest.fixture
def read(tmp_path):
    """Reads every run, with the index."""
    return lambda: read_run_tables(every(tmp_path), tmp_path / "cache")


def rows_of(many):
    """Everything that a table holds, as plain values."""
    rows = many.rows.astype(dict.fromkeys(("unfit", "hosts"), str))
    return [
        rows.to_dict("records"),
        many.runs.to_dict("records"),
        many.tests,
        many.environments,
        many.left_out,
    ]


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
        many = read_run_tables(every(tmp_path))
        (why,) = many.left_out
        assert (str(bad) in why, words in why, len(many.runs)) == (True, True, 1), words
    bad.write_text("{}\n")
    with pytest.raises(BadInput, match=r"none of 1 run files can be used: .*bad\.jsonl"):
        read_run_tables([str(bad)])
    path = save("bad", 1e-3, 2e-3)
    path.write_text(path.read_text()[:-20])
    many = read_run_tables([str(path)])
    assert (len(many.rows), any("ends in the middle of a line" in note for note in many.notes)) == (
        2,
        True,
    )


def test_a_row_has_the_median_of_its_process_and_whether_it_is_fit_by_the_rule_of_a_run(
    save, make, tmp_path
):
    save("good", 2e-3)
    bad = save("bad", invalid="busy neighbours")
    many, run = read_run_tables(every(tmp_path)), read_run(bad)
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
    many = read_run_tables([str(path)])
    assert many.unfit == {"the test failed: wrong data": 1}
    assert [many.tests[number].label for number in many.fit["test"]] == [slower.label]


def test_the_same_name_on_two_nodes_is_two_runs_and_a_copy_is_one(save, tmp_path):
    first = save("nightly", node="node1")
    (tmp_path / "runs" / "copy.jsonl").write_text(first.read_text())
    save("other", node="node2", run_id="nightly")
    many = read_run_tables(every(tmp_path))
    assert len(many.runs) == 2
    assert [" is left out: it is the same run as " in why for why in many.left_out] == [True]


# The index


def test_with_the_index_everything_is_the_same_as_without_and_only_what_changed_is_read_again(
    save, read, tmp_path
):
    for number in range(6):
        save(
            f"run{number}",
            1e-3 + number * 1e-5,
            2e-3,
            uuid=f"GPU-{number % 2}",
            invalid="x" * (number == 3),
        )
    paths, cache = every(tmp_path), tmp_path / "cache"
    plain, first, later = rows_of(read_run_tables(paths)), read(), read()
    assert (first.read, later.read, plain == rows_of(first) == rows_of(later)) == (6, 0, True)
    # Whatever else the index knows changes nothing.
    assert rows_of(read_run_tables(paths[3:])) == rows_of(read_run_tables(paths[3:], cache))
    save("run1", 7e-3)
    save("run7")
    (tmp_path / "runs" / "run2.jsonl").unlink()
    many = read()
    assert (many.read, rows_of(many) == rows_of(read_run_tables(every(tmp_path)))) == (2, True)
    assert {Path(path).stem for path in reading.load_index(cache / INDEX)[0]} == {
        f"run{n}" for n in (0, 1, 3, 4, 5, 7)
    }
    # What changed just now may change again without its time of change showing it; ahead, since this machine may pause.
    settle(save("run1"), age_s=-3600)
    assert (read().read, read().read) == (1, 1)


def test_a_broken_file_is_remembered_and_mended_when_it_changes(save, read):
    bad = save("bad")
    save("good")
    text = bad.read_text()
    bad.write_text("{}\n")
    settle(bad)
    assert len(read().left_out) == 1
    again = read()
    assert (0, 1) == (again.read, len(again.left_out))
    bad.write_text(text)
    assert len(read().runs) == 2


def test_an_index_that_cannot_be_used_or_written_costs_no_more_than_reading_anew(
    save, read, tmp_path, monkeypatch
):
    save("a")
    path = tmp_path / "cache" / INDEX
    for spoil in (lambda data: b"nonsense", lambda data: data[: len(data) // 2], lambda data: b""):
        read()
        path.write_bytes(spoil(path.read_bytes()))
        many = read()
        assert any("cannot be used" in note for note in many.notes)
        assert (rows_of(many) == rows_of(read_run_tables(every(tmp_path))), read().read) == (
            True,
            0,
        )
    (tmp_path / "file").write_text("")
    many = read_run_tables(every(tmp_path), tmp_path / "file" / "cache")
    assert (len(many.runs), any("cannot be" in note for note in many.notes)) == (1, True)
    # No half index is ever seen.
    before = path.read_bytes()
    save("b")

    def full(path, data):
        path.open("wb").write(data[:4])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        assert any("No space left" in note for note in read().notes)
    assert before == path.read_bytes()
    assert {INDEX, ".gitignore"} == {one.name for one in path.parent.iterdir()}
    monkeypatch.setattr(reading, "__version__", "99")
    many = read()
    assert (many.read, many.notes) == (2, ())


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
