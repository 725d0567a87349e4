"""Where run files lie: names and paths, what a run is called beside others, and a writer that loses nothing."""

import errno
import io
import json
import os
from pathlib import Path

import pytest

from pytest_roofline.baselines.nights import ShadowRun, shadow_runs
from pytest_roofline.baselines.run_files import (
    RunWriter,
    make_run_folder,
    refuse_existing,
    run_names,
    run_path,
)
from pytest_roofline.baselines.run_rows import rows_of, rows_of_run
from pytest_roofline.baselines.runs import ends_of, new_run_id, read_run
from pytest_roofline.core.errors import BadInput, CannotStore
from pytest_roofline.hardware import key_of


class FullDisk(io.StringIO):
    """A file on a disk that has no room left."""

    def flush(self):
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "system-tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "system-tmp"))
    return tmp_path / ".roofline"


def test_a_name_is_that_of_a_saved_run_and_what_has_a_slash_or_a_suffix_of_ours_a_path(folder):
    for name in ("./r", "a/r.jsonl", "/tmp/r", "r.json", "r.jsonl"):
        assert str(run_path(name, folder)) == name.removeprefix("./")
    assert run_path("driver-550", folder) == folder / "runs" / "driver-550.jsonl"
    for name in ("", "..", "a b", ".r"):
        with pytest.raises(BadInput, match="run name is"):
            run_path(name, folder)
    # Two runs at once do not share a name.
    assert str(os.getpid()) in new_run_id()


def test_the_folder_of_runs_ignores_itself_in_git_and_a_name_that_is_taken_is_refused(make, folder):
    folder.mkdir()
    (folder / ".gitignore").write_text("mine\n")
    make_run_folder(folder)
    assert [(one / ".gitignore").read_text() for one in (folder / "runs", folder)] == [
        "*\n",
        "mine\n",
    ]
    refuse_existing(folder, "r")
    path = make.save(folder / "runs" / "r.jsonl")
    with pytest.raises(
        CannotStore, match=f"a run named 'r' is already saved as {path}; choose another name"
    ):
        refuse_existing(folder, "r")


def written(folder, *records):
    writer = RunWriter(folder, "r")
    for record in records:
        writer.write(record)
    return writer


def test_a_line_is_on_disk_as_soon_as_it_is_written_and_no_run_is_overwritten(make, folder):
    writer = written(folder, make.header())
    for count in (1, 2, 3):
        writer.write(make.measurement())
        assert len(read_run(writer.path).measurements) == count
    writer.close()
    before = writer.path.read_bytes()
    second = written(folder, make.header())
    second.close()
    assert writer.path.read_bytes() == before
    assert (
        f"the run could not be saved as {writer.path}: File exists; saved as {second.path} ins"
        in second.trouble
    )


def test_a_run_whose_folder_is_a_file_goes_on_under_the_systems_temporary_folder_or_in_memory(
    make, folder, tmp_path
):
    folder.write_text("not a folder")
    writer = written(folder, make.header(), make.measurement(), make.measurement())
    assert (writer.path.parent.parent, len(read_run(writer.path).measurements)) == (
        tmp_path / "system-tmp",
        2,
    )
    assert writer.trouble.endswith(
        f"saved as {writer.path} instead; choose another folder with --roofline-dir"
    )
    # A second failure ends in memory without a second folder; the first has what there was.
    begun = writer.path
    writer._file.close()
    writer._file = FullDisk()
    writer.write(make.measurement())
    writer.close()
    assert (
        writer.path,
        len(list((tmp_path / "system-tmp").iterdir())),
        len(read_run(begun).measurements),
    ) == (
        None,
        1,
        2,
    )
    assert writer.trouble.endswith(
        f"No space left on device; {begun} holds the measurements until then; later measurements are only printed "
        "here; choose another folder with --roofline-dir"
    )
    for one in (tmp_path / "system-tmp").iterdir():
        (one / "r.jsonl").unlink()
        one.rmdir()
    (tmp_path / "system-tmp").rmdir()
    nowhere = written(folder, make.header(), make.measurement())
    nowhere.close()
    assert nowhere.path is None
    assert nowhere.trouble.endswith(
        "the measurements of this run are only printed here; choose another folder with --roofline-dir"
    )


def test_a_disk_that_fills_up_moves_the_whole_run_elsewhere(make, folder, tmp_path):
    full = [FullDisk()]
    if os.path.exists("/dev/full"):  # noqa: PTH110
        full.append(open("/dev/full", "w", encoding="utf-8", buffering=1))  # noqa: PTH123, SIM115
    for number, disk in enumerate(full):
        writer = written(folder / f"{number}", make.header(), make.measurement(1.0))
        writer._file.close()
        writer._file = disk
        writer.write(make.measurement(2.0))
        writer.close()
        assert [measurement.median_s for measurement in read_run(writer.path).measurements] == [
            1.0,
            2.0,
        ]
        assert tmp_path / "system-tmp" in writer.path.parents
        assert "No space left on device" in writer.trouble


def test_a_run_is_called_by_its_file_with_as_many_folders_as_tell_it_from_others(
    make, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    for files, expected in [
        (("runs/nightly.jsonl",), ["nightly"]),
        (("a/x/n.jsonl", "b/x/n.jsonl", "c/other.jsonl"), ["a/x/n", "b/x/n", "other"]),
        # What no folder tells apart is numbered; a name is printable and stays unique.
        (("n.jsonl", "n.json", "n.txt"), ["n", "n (2)", "n (3)"]),
        (("a\nb.jsonl", "a\\nb.jsonl"), ["a\\nb", "a\\nb (2)"]),
    ]:
        assert list(run_names([make.run(tmp_path / file) for file in files]).values()) == expected
    absolute, relative = (
        make.run(tmp_path / "a" / "n.jsonl"),
        make.run(Path("b", "n.jsonl"), run_id="run-2"),
    )
    assert run_names([absolute, relative]) == {absolute.path: "a/n", relative.path: "b/n"}
    one = make.measurement(1e-3)
    runs = [make.run(tmp_path / folder / "n.jsonl", one) for folder in "ab"]
    assert [row.run for row in rows_of(runs)] == ["a/n", "b/n"]
    assert [row.run for row in rows_of_run(runs[0])] == ["n"]


def test_only_runs_that_watched_to_their_end_here_are_nights_in_the_order_of_their_beginning(
    make, tmp_path
):
    def save(name, started, shadow, status=0, cut=False):
        path = make.save(tmp_path / "runs" / f"{name}.jsonl", make.measurement())
        records = [json.loads(line) for line in path.read_text().splitlines()]
        header, *between = [record for record in records if record["type"] != "footer"]
        footer = {"type": "footer", "finished": started, "exit_status": status, "measured": 1}
        footer |= {} if shadow is None else {"shadow": shadow}
        lines = [header | {"started": started}, *between, *([] if cut else [footer])]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return path

    late = save("late", "2026-01-03T01:00:00Z", ["one: +20.0 % time (1 GB/s)"])
    save("early", "2026-01-02T23:00:00Z", [])
    save("own", "2026-01-04T01:00:00Z", [], status=1)
    save("plain", "2026-01-05T01:00:00Z", None)
    save("cut", "2026-01-06T01:00:00Z", ["never"], cut=True)
    (tmp_path / "runs" / "damaged.jsonl").write_text('{"type": "footer", "shadow": [}\n')
    hardware = key_of(read_run(late).header.environment)
    found = shadow_runs(tmp_path, hardware)
    assert found == [
        ShadowRun("2026-01-02", ()),
        ShadowRun("2026-01-03", ("one: +20.0 % time (1 GB/s)",)),
        ShadowRun("2026-01-04", (), failed=True),
    ]
    assert [run.why for run in found[1:]] == [
        "one: +20.0 % time",
        "a test failed before its verdict",
    ]
    other = type(hardware)("another", "80gb", None, 1, "none")
    assert shadow_runs(tmp_path, other) == shadow_runs(tmp_path / "elsewhere", hardware) == []
    run = read_run(late)
    assert ends_of(late) == (run.header, run.footer)
