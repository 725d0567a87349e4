"""Records from JSON and to it, strictly; and files that are written whole or not at all."""

import copy
import errno
import json
import os
from pathlib import Path

import pytest

from pytest_roofline.baselines.files import write_baseline
from pytest_roofline.core.entries import Baseline, Entry, Session
from pytest_roofline.core.errors import BadFile, BadInput, CannotStore
from pytest_roofline.core.facts import HardwareKey
from pytest_roofline.core.records import Ceiling, Footer, Header, Measurement, Outcome
from pytest_roofline.core.storage import check_name, decode_json, read_bytes, to_plain, to_record
from pytest_roofline.core.writing import refuse_overwriting, write_atomically, write_new

WHERE = "run file r.jsonl, line 2"
KINDS = {
    "header": Header,
    "measurement": Measurement,
    "outcome": Outcome,
    "footer": Footer,
    "baseline": Baseline,
}


def records(make):
    measurement = make.measurement(
        ceiling=Ceiling("traffic_GBps", 4.8e12, "datasheet", "vendor"), verified=True
    )
    return {
        "header": make.header(),
        "measurement": measurement,
        "outcome": make.outcome(measurement),
        "footer": make.footer(not_measured={"needs a GPU": 2}),
        "baseline": Baseline(
            "h200", (make.measured(tolerance=0.1), make.published(value=(1.0, 2.0)))
        ),
    }


def plain(make, kind):
    return json.loads(json.dumps(to_plain(records(make)[kind])))


def at(raw, path):
    for step in path:
        raw = raw[step]
    return raw


def test_a_record_reads_back_as_it_was_written_and_reading_changes_nothing(make):
    for kind, record in records(make).items():
        raw = plain(make, kind)
        before = copy.deepcopy(raw)
        assert (to_record(raw, KINDS[kind], WHERE), raw) == (record, before), kind
    entry = to_record(plain(make, "baseline"), Baseline, WHERE).entries[0]
    assert (type(entry), type(entry.sessions[0]), type(entry.hardware)) == (
        Entry,
        Session,
        HardwareKey,
    )


def test_an_unknown_field_is_refused_at_every_level(make):
    for kind, path, shown in [
        ("header", [], ""), ("header", ["environment", "device"], "$.environment.device"),
        ("measurement", ["key", "hardware"], "$.key.hardware"), ("measurement", ["samples"], "$.samples"),
        ("outcome", [], ""), ("footer", [], ""), ("baseline", [], ""), ("baseline", ["entries", 1], "$.entries[1]"),
        ("baseline", ["entries", 0, "sessions", 0], "$.entries[0].sessions[0]"),
    ]:  # fmt: skip
        raw = plain(make, kind)
        at(raw, path)["surprise"] = 1
        with pytest.raises(BadFile) as error:
            to_record(raw, KINDS[kind], WHERE)
        place = f" - at `{shown}`" if shown else ""
        assert str(error.value) == f"{WHERE}: Object contains unknown field `surprise`{place}"


# By record and field: values that cannot be.
IMPOSSIBLE = {
    ("header", "environment"): [None],
    ("header", "environment", "device", "pcie_width"): ["16"],
    ("measurement", "key", "parameters", "size_bytes"): [[1]],
    ("measurement", "key", "cache"): ["cold"],
    ("measurement", "work", "read_bytes"): ["1", -1, 1.5],
    ("measurement", "samples", "seconds"): ["1", [None], [-1.0], []],
    ("measurement", "gate"): ["yes", 1],
    ("outcome", "outcome"): ["broken"],
    ("footer", "not_measured"): [{"why": "one"}],
    ("baseline", "entries", 0, "tolerance"): [0, "5%"],
    ("baseline", "entries", 0, "sessions", 0, "process_medians"): [[], [-1.0]],
    ("baseline", "entries", 1, "value"): [-1.0, [1.0, 2.0, 3.0], "fast", None],
}


def test_a_value_that_cannot_be_names_the_file_and_the_field(make):
    for (kind, *path), values in IMPOSSIBLE.items():
        for value in values:
            raw = plain(make, kind)
            at(raw, path[:-1])[path[-1]] = value
            # The record that holds it may notice, so the path ends there or at the value itself.
            shown = "".join(
                f"[{step}]" if isinstance(step, int) else f".{step}" for step in path[:-1]
            )
            with pytest.raises(BadFile) as error:
                to_record(raw, KINDS[kind], WHERE)
            assert str(error.value).startswith(f"{WHERE}: "), path
            assert f"${shown}" in str(error.value) or path[-1] in str(error.value), path


def test_a_missing_field_and_a_record_that_is_no_object_are_named(make):
    for kind, *path in [
        *(("header", "run_id"), ("measurement", "samples", "seconds"), ("outcome", "test_id")),
        *(("footer", "exit_status"), ("baseline", "entries", 0, "sessions", 0, "run_id")),
    ]:
        raw = plain(make, kind)
        del at(raw, path[:-1])[path[-1]]
        with pytest.raises(BadFile, match=f"missing required field `{path[-1]}`"):
            to_record(raw, KINDS[kind], WHERE)
    for raw in (None, 1, "text", [{}], True):
        with pytest.raises(BadFile, match="Expected `object`"):
            to_record(raw, Header, WHERE)


def test_json_that_is_none_of_ours_names_what_and_where():
    for text, said in [
        *(
            (text, "is not JSON: ")
            for text in [
                "",
                "{",
                '{"a": 1}}',
                "{'a': 1}",
                "a: 1",
                '"\x1b"',
                '"\\ud83d\\ude00',
                b"\x80",
                '{"v": nan}',
            ]
        ),
        ('{"v": NaN}', "holds NaN (byte 6), which is not a JSON number; expected finite numbers"),
        (
            "[1,\n-Infinity]",
            "holds Infinity (byte 5) in line 2, which is not a JSON number; expected finite numbers",
        ),
        *(
            (text, "holds a number that is too large; expected finite numbers")
            for text in ("1e999", "1" * 5000)
        ),
        ('"\\udcff"', "is not JSON: JSON is malformed: invalid utf-16 surrogate pair (byte 7)"),
        (
            '{"a": 1,\n"b": 2,\n}',
            "is not JSON: JSON is malformed: trailing comma in object (byte 17) in line 3",
        ),
        ("[" * 200_000, "is nested too deeply"),
        (b'"\xff"', "is not UTF-8 text (invalid start byte); expected JSON"),
        ('["a", "\ud800"]', "is not UTF-8 text (invalid continuation byte); expected JSON"),
    ]:
        with pytest.raises(BadFile) as error:
            decode_json(text, WHERE)
        assert str(error.value).startswith(f"{WHERE} {said}"), text[:20]


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "file").write_text("x")
    for name, text in (("empty.json", ""), ("blank.json", " \n\t\n")):
        (tmp_path / name).write_text(text)
    with (tmp_path / "huge.json").open("wb") as file:
        # Nothing of it lies on the disk.
        file.truncate(10**11)
    for name, said in [
        ("gone.json", "does not exist"), (".", "is a directory; expected a file"),
        ("empty.json", "is empty; expected JSON"), ("blank.json", "is empty; expected JSON"),
        ("file/run.jsonl", "cannot be read: Not a directory"),
        ("huge.json", "is longer than 64 MiB; the file is damaged, or another program wrote it"),
    ]:  # fmt: skip
        with pytest.raises(BadFile) as error:
            read_bytes(tmp_path / name, "run file")
        assert str(error.value) == f"run file {tmp_path / name} {said}"


def test_a_name_that_could_leave_its_folder_is_refused():
    for name in ["a", "r1.2+x_Y", "a..b", "x" * 120]:
        assert check_name(name, "run name") == name
    for name in [
        "",
        "..",
        "../x",
        "a/b",
        "a\\b",
        ".hidden",
        "-x",
        "a b",
        "a\n",
        "a\x00",
        "é",
        "x" * 121,
        "<b>",
    ]:
        with pytest.raises(BadInput) as error:
            check_name(name, "run name")
        assert str(error.value).startswith(
            f"run name is {name!r}; expected up to 120 letters, digits and ._+-"
        )


def test_values_at_their_default_stay_out_of_the_file_but_the_schema_version(make):
    written = to_plain(make.measurement())
    assert not {"invalid", "gate", "round", "tolerance", "ceiling", "verified"} & set(written)
    assert to_plain(Baseline("cpu", ()))["schema"] == 1


# Writing.


def test_a_file_is_replaced_whole_with_its_folders_and_keeps_its_permissions(tmp_path):
    path = tmp_path / "a" / "b" / "c.json"
    write_atomically(path, "old")
    assert path.stat().st_mode & 0o777 == 0o644
    path.chmod(0o600)
    write_atomically(path, "µ\n")
    assert (path.read_text(encoding="utf-8"), [*path.parent.iterdir()]) == ("µ\n", [path])
    assert path.stat().st_mode & 0o777 == 0o600


def full_disk(self, *args, **kwargs):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_failure_leaves_the_old_file_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "c.json"
    path.write_text("old")
    for step in ("write_bytes", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(Path, step, full_disk)
            with pytest.raises(CannotStore) as error:
                write_atomically(path, "new")
        assert str(error.value) == f"{path} cannot be written: No space left on device"
        assert (path.read_text(), [*tmp_path.iterdir()]) == ("old", [path])


def test_what_is_no_file_is_not_replaced_by_one_and_half_a_character_leaves_none(tmp_path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    before = {path.name for path in tmp_path.iterdir()}
    for write, name, text, said in [
        (write_atomically, "file/c.json", "new", ""), (write_atomically, "folder", "new", "Is a directory"),
        (write_atomically, "loop", "new", "Too many levels of symbolic links"),
        *((write_atomically, name, "new", "it is a pipe or a device; expected a file, or a new name")
          for name in ("pipe", "link")),
        (write_atomically, "c.json", "a\udcffb", ".*surrogates not allowed"),
        (write_new, "c.json", "a\udcffb", ".*surrogates not allowed"), (write_new, "file/b.jsonl", "new", ""),
    ]:  # fmt: skip
        with pytest.raises(CannotStore, match=f"{name} cannot be written: {said}"):
            write(tmp_path / name, text)
    assert {path.name for path in tmp_path.iterdir()} == before
    assert ((tmp_path / "pipe").is_fifo(), (tmp_path / "link").is_symlink()) == (True, True)


def test_a_link_goes_on_leading_to_its_file(tmp_path):
    for there in (True, False):
        kept, link = tmp_path / f"elsewhere{there}" / "kept.json", tmp_path / f"link{there}.json"
        kept.parent.mkdir()
        if there:
            kept.write_text("old")
        link.symlink_to(kept)
        write_atomically(link, "new")
        assert (link.is_symlink(), kept.read_text(), list(kept.parent.iterdir())) == (
            True,
            "new",
            [kept],
        )


def test_a_new_file_takes_no_name_that_is_taken(tmp_path):
    write_new(tmp_path / "a" / "b.jsonl", "µ\n")
    assert (tmp_path / "a" / "b.jsonl").read_text(encoding="utf-8") == "µ\n"
    (tmp_path / "dangling").symlink_to("nowhere")
    for path in (tmp_path / "a" / "b.jsonl", tmp_path / "dangling"):
        with pytest.raises(
            CannotStore, match="exists already; choose another name or remove that file"
        ):
            write_new(path, "new")
    assert not (tmp_path / "nowhere").exists()


def test_runs_baselines_and_what_a_command_reads_are_not_written_over_and_all_else_may_be(
    tmp_path, make
):
    read, link, twin = (tmp_path / name for name in ("run.json", "link.json", "twin.json"))
    read.write_text("a run\nof two lines\n")
    link.symlink_to(read)
    twin.hardlink_to(read)
    for path in (read, link, twin, tmp_path / "." / "run.json"):
        with pytest.raises(
            BadInput, match="is a file that this command reads; expected another name"
        ):
            refuse_overwriting(path, [tmp_path / "absent", read])
    write_baseline(tmp_path / "h200.json", Baseline("h200", (make.measured(1e-3),)))
    (tmp_path / "night.json").symlink_to("night.jsonl")
    for name, told in (
        ("h200.json", "is a baseline, or another input of pytest-roofline"),
        ("night.jsonl", "has the name of a run file"),
        ("night.json", "has the name of a run file"),
    ):
        with pytest.raises(BadInput, match=told):
            refuse_overwriting(tmp_path / name)
    # What another tool wrote.
    for name, text in {
        "a.json": json.dumps({"benchmarks": []}),
        "b.json": "x" * 10**5,
        "c.json": "",
        "new": None,
    }.items():
        if text is not None:
            (tmp_path / name).write_text(text)
        refuse_overwriting(tmp_path / name)
