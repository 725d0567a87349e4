"""Equal contents are equal files, in one folder, and nothing of who packed them is in it."""

import io
import zipfile

import pytest

from pytest_roofline.bundle.archive import write_archive, zipped
from pytest_roofline.core.errors import BadInput, CannotStore

FILES = {"b/c.txt": b"two", "a.txt": b"one"}


def entries(data):
    return zipfile.ZipFile(io.BytesIO(data)).infolist()


def test_entries_are_in_order_below_one_folder():
    assert ["roofline-bundle/a.txt", "roofline-bundle/b/c.txt"] == [one.filename for one in entries(zipped(FILES))]


def test_the_order_and_the_time_of_packing_change_nothing():
    assert zipped(FILES) == zipped(dict(reversed(FILES.items())))
    assert {(1980, 1, 1, 0, 0, 0)} == {one.date_time for one in entries(zipped(FILES))}


def test_no_entry_holds_more_than_its_contents():
    found = entries(zipped(FILES))
    assert {(b"", b"", 3, 0o100644)} == {
        (one.extra, one.comment, one.create_system, one.external_attr >> 16) for one in found
    }


def test_names_that_some_system_cannot_unpack_are_refused():
    names = ["/etc/x", "../x", "a//b", "", ".", "..\\..\\evil.py", "C:x", "te?st.py", "a/aux.py", "CON", "lpt1.tar.gz",
             "x. ", "x./y", "a\nb", "a\u202eb", "\ud800"]  # fmt: skip
    for name in names:
        with pytest.raises(BadInput, match="cannot be unpacked on every system; expected letters"):
            zipped({name: b""})
    with pytest.raises(BadInput, match=r"'Test\.py' and 'test\.py' are the same on some systems"):
        zipped({"Test.py": b"", "test.py": b""})
    ordinary = ["a/b.py", "auxiliary.py", "com10.txt", ".hidden/x", "tëst [1-2]/x.y.z", "console"]
    assert len(ordinary) == len(entries(zipped(dict.fromkeys(ordinary, b""))))


def test_what_is_written_can_be_read(tmp_path):
    write_archive(tmp_path / "x.zip", zipped(FILES))
    with zipfile.ZipFile(tmp_path / "x.zip") as archive:
        assert b"two" == archive.read("roofline-bundle/b/c.txt")


def test_a_file_that_is_there_is_not_overwritten(tmp_path):
    (tmp_path / "x.zip").write_text("mine")
    with pytest.raises(BadInput, match="exists already; choose another name with -o"):
        write_archive(tmp_path / "x.zip", b"new")
    assert "mine" == (tmp_path / "x.zip").read_text()


def test_a_folder_is_not_to_be_removed(tmp_path):
    with pytest.raises(BadInput, match="is a folder; expected the archive's own name behind -o"):
        write_archive(tmp_path, b"new")


def test_a_folder_that_is_not_there_is_told(tmp_path):
    with pytest.raises(CannotStore, match=r"x\.zip cannot be written: No such file or directory; choose another place"):
        write_archive(tmp_path / "no" / "x.zip", b"")
