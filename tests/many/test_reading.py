"""Thousands of run files as one table: the same rows as one by one, with the index and without."""

import dataclasses
import json
import os
from pathlib import Path

import msgspec
import pytest

from pytest_roofline.baselines.run_files import expand
from pytest_roofline.baselines.runs import encode_line, read_run
from pytest_roofline.core.errors import BadInput
from pytest_roofline.many import reading
from pytest_roofline.many.reading import INDEX, read_many


@pytest.fixture
def save(make, tmp_path):
    """Writes a run file of a GPU that was last changed an hour ago, so that it is settled."""

    def write(name, *seconds, uuid="GPU-1", node="node1", started="2026-01-02T03:04:05Z", index=0, **changes):
        environment = make.environment(uuid=uuid)
        environment = dataclasses.replace(
            environment,
            device=dataclasses.replace(environment.device, index=index),
            host=dataclasses.replace(environment.host, name=node),
        )
        header = dataclasses.replace(make.header(name, started), environment=environment)
        lines = [header]
        for number, value in enumerate(seconds or (1e-3,)):
            measurement = make.measurement(value, key=make.key(size_bytes=2**20 << number), **changes)
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


def rows_of(many):
    """Everything that a table holds, as plain values."""
    rows = many.rows.astype(dict.fromkeys(("unfit", "hosts"), str))
    return [rows.to_dict("records"), many.runs.to_dict("records"), many.tests, many.environments, many.left_out]


def every(tmp_path):
    return expand([str(tmp_path / "runs")], tmp_path)


def test_a_broken_file_is_named_with_the_careful_readers_words_and_left_out(save, tmp_path):
    save("good")
    for spoil, words in (
        (lambda text: text.split("\n")[0] + '\n{"type": "measurement", "key": {}}\n', "line 2"),
        (lambda text: text.split("\n")[0] + '\n{"type": "nonsense"}\n', "type 'nonsense'"),
        (lambda text: text.split("\n")[0] + "\n{\n", "is not JSON"),
        (lambda text: text.replace('"outcome": "passed"', '"outcome": "passed", "more": 1'), "more"),
        (lambda text: text.replace("0.005", "-0.005"), "above zero"),
        (lambda text: text.replace('"schema": 1', '"schema": 7'), "schema version 7"),
    ):
        bad = save("bad", 5e-3)
        bad.write_text(spoil(bad.read_text()))
        many = read_many(every(tmp_path))
        (why,) = many.left_out
        assert str(bad) in why, words
        assert words in why, words
        assert list(many.runs["path"]) == [str(tmp_path / "runs" / "good.jsonl")]


def test_a_cut_file_counts_without_its_last_line_and_says_so(save, tmp_path):
    path = save("a", 1e-3, 2e-3)
    path.write_text(path.read_text()[:-20])
    many = read_many(every(tmp_path))
    assert len(many.rows) == 2
    assert any("ends in the middle of a line" in note for note in many.notes)


def test_none_that_can_be_used_is_an_error_with_the_reason(tmp_path):
    (tmp_path / "a.jsonl").write_text("{}\n")
    with pytest.raises(BadInput, match=r"none of 1 run files can be used: .*a\.jsonl"):
        read_many([str(tmp_path / "a.jsonl")])


def test_a_row_has_the_median_of_its_process_and_whether_it_is_fit_by_the_rule_of_a_run(save, tmp_path):
    save("good", 2e-3)
    bad = save("bad", invalid="busy neighbours")
    many, run = read_many(every(tmp_path)), read_run(bad)
    assert many.unfit == {run.unfit(run.measurements[0], accept_slower=True): 1}
    assert [2e-3] == list(many.fit["seconds"])


def test_a_test_that_failed_for_being_slower_counts_and_one_that_failed_for_itself_does_not(make, tmp_path):
    slower, wrong = make.measurement(1e-3), make.measurement(1e-3, key=make.key("other"), test_id="t.py::test_other")
    records = [
        make.header(),
        slower,
        make.outcome(slower, "failed", verdicts=("REGRESSED",), by_verdict=True),
        wrong,
        make.outcome(wrong, "failed", reason="wrong data"),
    ]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(map(encode_line, records)))
    many = read_many([str(path)])
    assert many.unfit == {"its test failed: wrong data": 1}
    assert [many.tests[number].label for number in many.fit["test"]] == [slower.label]


def test_the_same_name_on_two_nodes_is_two_runs_and_a_copy_is_one(save, tmp_path):
    first = save("nightly", node="node1")
    (tmp_path / "runs" / "copy.jsonl").write_text(first.read_text())
    save("other", node="node2")
    other = tmp_path / "runs" / "other.jsonl"
    other.write_text(other.read_text().replace('"run_id": "other"', '"run_id": "nightly"'))
    many = read_many(every(tmp_path))
    assert len(many.runs) == 2
    assert [why.split(" is left out: ")[1].split(" ")[:4] for why in many.left_out] == [["it", "is", "the", "same"]]


# The index


def test_with_the_index_everything_is_the_same_as_without(save, tmp_path):
    for number in range(6):
        save(f"run{number}", 1e-3 + number * 1e-5, 2e-3, uuid=f"GPU-{number % 2}", invalid="x" * (number == 3))
    paths, cache = every(tmp_path), tmp_path / "cache"
    plain = rows_of(read_many(paths))
    first, later = read_many(paths, cache), read_many(paths, cache)
    assert (6, 0) == (first.read, later.read)
    assert plain == rows_of(first) == rows_of(later)
    # Whatever else the index knows, and in whatever order it came to know it, changes nothing.
    assert rows_of(read_many(paths[3:])) == rows_of(read_many(paths[3:], cache))


def test_only_what_is_new_or_changed_is_read_again(save, tmp_path):
    save("a")
    save("b")
    cache = tmp_path / "cache"
    read_many(every(tmp_path), cache)
    save("b", 7e-3)
    save("c")
    many = read_many(every(tmp_path), cache)
    assert many.read == 2
    assert rows_of(many) == rows_of(read_many(every(tmp_path)))


def test_a_broken_file_is_remembered_and_mended_when_it_changes(save, tmp_path):
    bad = save("bad")
    save("good")
    text = bad.read_text()
    bad.write_text("{}\n")
    settle(bad)
    cache = tmp_path / "cache"
    assert len(read_many(every(tmp_path), cache).left_out) == 1
    again = read_many(every(tmp_path), cache)
    assert (0, 1) == (again.read, len(again.left_out))
    bad.write_text(text)
    assert len(read_many(every(tmp_path), cache).runs) == 2


def test_a_file_that_changed_just_now_is_not_remembered(save, tmp_path):
    path = save("a")
    os.utime(path)
    cache = tmp_path / "cache"
    assert [1, 1] == [read_many(every(tmp_path), cache).read for _ in range(2)]


def spoiled(data, **changes):
    """An index with something else in it."""
    return msgspec.msgpack.encode(
        msgspec.structs.replace(msgspec.msgpack.decode(data, type=reading._Stored), **changes)
    )


def test_a_corrupt_index_is_noted_read_anew_and_replaced(save, tmp_path):
    save("a")
    cache = tmp_path / "cache"
    text = json.dumps({"key": {"nonsense": 1}, "work": {}, "achieved": []})
    for spoil in (
        lambda data: b"nonsense",
        lambda data: data[: len(data) // 2],
        lambda data: b"",
        lambda data: spoiled(data, rows=[[(9, 9, 9, 1.0)]]),
        lambda data: spoiled(data, rows=[[(-1, 0, 0, 1.0)]]),
        lambda data: spoiled(data, rows=[]),
        lambda data: spoiled(data, texts=[text, ""]),
    ):
        read_many(every(tmp_path), cache)
        path = cache / INDEX
        path.write_bytes(spoil(path.read_bytes()))
        many = read_many(every(tmp_path), cache)
        assert any("cannot be used" in note for note in many.notes)
        assert rows_of(many) == rows_of(read_many(every(tmp_path)))
        assert 0 == read_many(every(tmp_path), cache).read
        path.unlink()


def test_another_version_reads_anew_without_a_word(save, tmp_path, monkeypatch):
    save("a")
    cache = tmp_path / "cache"
    read_many(every(tmp_path), cache)
    monkeypatch.setattr(reading, "__version__", "99")
    many = read_many(every(tmp_path), cache)
    assert (1, ()) == (many.read, many.notes)


def test_where_no_index_can_be_written_the_runs_are_read_all_the_same(save, tmp_path):
    save("a")
    (tmp_path / "file").write_text("")
    many = read_many(every(tmp_path), tmp_path / "file" / "cache")
    assert len(many.runs) == 1
    assert any("cannot be" in note for note in many.notes)


def test_no_half_index_is_ever_seen_and_none_is_left_behind(save, tmp_path, monkeypatch):
    save("a")
    cache = tmp_path / "cache"
    read_many(every(tmp_path), cache)
    before = (cache / INDEX).read_bytes()
    save("b")

    def full(path, data):
        path.open("wb").write(data[:4])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    many = read_many(every(tmp_path), cache)
    assert any("No space left" in note for note in many.notes)
    assert before == (cache / INDEX).read_bytes()
    assert {INDEX, ".gitignore"} == {path.name for path in cache.iterdir()}


def test_a_file_that_is_gone_leaves_the_index(save, tmp_path):
    gone = save("a")
    save("b")
    cache = tmp_path / "cache"
    read_many(every(tmp_path), cache)
    gone.unlink()
    save("c")
    read_many([str(tmp_path / "runs" / "c.jsonl")], cache)
    assert {"b.jsonl", "c.jsonl"} == {Path(path).name for path in reading.load_index(cache / INDEX)[0]}


# Names, folders, patterns


def test_folders_patterns_names_and_lists_are_one_list_without_doubles(save, tmp_path):
    a, b = save("a"), save("b")
    (tmp_path / "runs" / "deep").mkdir()
    deep = tmp_path / "runs" / "deep" / "c.jsonl"
    deep.write_text(a.read_text())
    assert expand([str(tmp_path / "runs"), "a", "-"], tmp_path, [f"{b}\n", "\n"]) == [str(a), str(b), str(deep)]
    assert expand([str(tmp_path / "**" / "[ab].jsonl")], tmp_path) == [str(a), str(b)]


def test_what_names_no_run_file_is_an_error_and_not_one_of_many_broken_files(save, tmp_path):
    (tmp_path / "empty").mkdir()
    for names, listed, why in (
        (["empty"], (), "run file"),
        (["none*"], (), "run file"),
        (["nonsense"], (), r"nonsense\.jsonl does not exist"),
        (["-"], ["\n"], "is empty"),
    ):
        known = [str(tmp_path / name) if name in ("empty", "none*") else name for name in names]
        with pytest.raises(BadInput, match=why):
            expand([str(save("a")), *known] if known != ["-"] else known, tmp_path, listed)


def test_progress_tells_how_many_of_how_many(save, tmp_path, monkeypatch):
    save("a")
    save("b")
    told = []
    read_many(every(tmp_path), None, lambda done, of: told.append((done, of)))
    assert told == [(2, 2)]
