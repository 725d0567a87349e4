import errno
import json
import os
from pathlib import Path

import pytest

from pytest_roofline.baselines.files import write_baseline
from pytest_roofline.core.entries import Baseline
from pytest_roofline.core.errors import BadInput, CannotStore
from pytest_roofline.core.writing import refuse_overwriting, write_atomically, write_new


def test_a_file_is_written_whole_with_its_folders(tmp_path):
    write_atomically(tmp_path / "a" / "b" / "c.json", "µ\n")
    assert (tmp_path / "a" / "b" / "c.json").read_text(encoding="utf-8") == "µ\n"


def test_nothing_but_the_file_stays_behind(tmp_path):
    write_atomically(tmp_path / "c.json", "old")
    write_atomically(tmp_path / "c.json", "new")
    assert [tmp_path / "c.json"] == list(tmp_path.iterdir())


def full_disk(self, *args, **kwargs):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("step", ["write_bytes", "replace"])
def test_a_failure_leaves_the_old_file_as_it_was(tmp_path, monkeypatch, step):
    path = tmp_path / "c.json"
    path.write_text("old")
    monkeypatch.setattr(Path, step, full_disk)
    with pytest.raises(CannotStore) as error:
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert [path] == list(tmp_path.iterdir())
    assert str(error.value) == f"{path} cannot be written: No space left on device"


def test_a_folder_that_is_a_file_cannot_be_written_to(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(CannotStore, match=r"c\.json cannot be written: "):
        write_atomically(tmp_path / "file" / "c.json", "new")


def test_a_folder_is_never_replaced_by_a_file(tmp_path):
    (tmp_path / "c.json").mkdir()
    with pytest.raises(CannotStore, match="cannot be written: Is a directory"):
        write_atomically(tmp_path / "c.json", "new")


def test_a_file_keeps_its_permissions_and_a_new_one_may_be_read_by_others(tmp_path):
    private, new = tmp_path / "private.json", tmp_path / "new.json"
    private.write_text("old")
    private.chmod(0o600)
    write_atomically(private, "new")
    write_atomically(new, "new")
    assert (0o600, 0o644) == (private.stat().st_mode & 0o777, new.stat().st_mode & 0o777)


@pytest.mark.parametrize("there", [True, False])
def test_a_link_goes_on_leading_to_its_file(tmp_path, there):
    kept, link = tmp_path / "elsewhere" / "kept.json", tmp_path / "link.json"
    kept.parent.mkdir()
    if there:
        kept.write_text("old")
    link.symlink_to("elsewhere/kept.json")
    write_atomically(link, "new")
    assert (True, "new", [kept]) == (link.is_symlink(), kept.read_text(), list(kept.parent.iterdir()))


def test_a_link_that_leads_to_itself_is_refused(tmp_path):
    (tmp_path / "c.json").symlink_to("c.json")
    with pytest.raises(CannotStore, match=r"c\.json cannot be written: Too many levels of symbolic links"):
        write_atomically(tmp_path / "c.json", "new")


@pytest.mark.parametrize("through_a_link", [True, False])
def test_a_pipe_is_not_replaced_by_a_file(tmp_path, through_a_link):
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    with pytest.raises(
        CannotStore, match="cannot be written: it is a pipe or a device; expected a file, or a new name"
    ):
        write_atomically(link if through_a_link else pipe, "new")
    assert (True, True) == (pipe.is_fifo(), link.is_symlink())


@pytest.mark.parametrize("write", [write_atomically, write_new])
def test_half_a_character_leaves_no_file(tmp_path, write):
    with pytest.raises(CannotStore, match=r"c\.json cannot be written: .*surrogates not allowed"):
        write(tmp_path / "c.json", "a\udcffb")
    assert [] == list(tmp_path.iterdir())


def test_a_new_file_is_written_with_its_folders(tmp_path):
    write_new(tmp_path / "a" / "b.jsonl", "µ\n")
    assert "µ\n" == (tmp_path / "a" / "b.jsonl").read_text(encoding="utf-8")


@pytest.mark.parametrize("dangling", [True, False])
def test_a_new_file_takes_no_name_that_is_taken(tmp_path, dangling):
    path = tmp_path / "b.jsonl"
    if dangling:
        path.symlink_to("nowhere")
    else:
        path.write_text("old")
    with pytest.raises(CannotStore, match=r"b\.jsonl is there already; choose another name or remove that file"):
        write_new(path, "new")
    assert [path] == list(tmp_path.iterdir())


def test_a_new_file_in_a_folder_that_is_a_file_is_not_said_to_be_there(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(CannotStore, match=r"file/b\.jsonl cannot be written: "):
        write_new(tmp_path / "file" / "b.jsonl", "new")


def test_what_a_command_reads_is_not_written_over_by_whatever_name(tmp_path):
    read, link, twin = (tmp_path / name for name in ("run.json", "link.json", "twin.json"))
    read.write_text("a run\nof two lines\n")
    link.symlink_to(read)
    twin.hardlink_to(read)
    for path in (read, link, twin, tmp_path / "." / "run.json"):
        with pytest.raises(BadInput, match="is a file that this command reads; expected another name"):
            refuse_overwriting(path, [tmp_path / "absent", read])


def test_runs_and_baselines_are_not_written_over(tmp_path, make):
    write_baseline(tmp_path / "h200.json", Baseline("h200", (make.measured(1e-3),)))
    (tmp_path / "link.json").symlink_to("night.jsonl")
    for name, told in (
        ("h200.json", "is a baseline, or another file that pytest-roofline reads"),
        ("night.jsonl", "has the name of a run file"),
        ("link.json", "has the name of a run file"),
    ):
        with pytest.raises(BadInput, match=told):
            refuse_overwriting(tmp_path / name)


def test_what_another_tool_wrote_may_be_written_over(tmp_path):
    texts = {"a.json": json.dumps({"benchmarks": []}), "b.json": "x" * 10**5, "c.json": ""}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    for name in (*texts, "new.json"):
        refuse_overwriting(tmp_path / name)
