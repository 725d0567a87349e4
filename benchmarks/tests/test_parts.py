"""A part of a page that one program makes while the page around it is made by another."""

import pytest

from pytest_roofline.core.errors import BadFile

BEGIN, END = "<!-- made by a.py -->", "<!-- end of a.py -->"


@pytest.fixture(scope="module")
def parts(program):
    return program("parts")


def test_a_part_is_replaced_between_its_comments_and_nothing_else_changes(parts):
    page = f"# Title\n\n{BEGIN}\n\nold\n\n{END}\n\n## More\n"
    changed = parts.with_part(page, "a.py", "## New\n\nnew\n")
    assert f"# Title\n\n{BEGIN}\n\n## New\n\nnew\n\n{END}\n\n## More\n" == changed
    assert ("old", "## New\n\nnew") == (parts.part_of(page, "a.py"), parts.part_of(changed, "a.py"))
    assert changed == parts.with_part(changed, "a.py", parts.part_of(changed, "a.py"))


def test_an_empty_part_is_its_comments_alone(parts):
    page = f"{BEGIN}\n\n{END}\n"
    assert ("", page) == (parts.part_of(page, "a.py"), parts.with_part(page, "a.py", ""))


@pytest.mark.parametrize("page", ["", BEGIN, f"{END}\n{BEGIN}", f"{BEGIN}{END}{BEGIN}{END}"])
def test_a_page_without_both_comments_in_order_is_refused(parts, page):
    with pytest.raises(BadFile, match="expected both, in this order, once each"):
        parts.with_part(page, "a.py", "new")


def test_a_page_made_anew_keeps_the_parts_of_others_and_a_first_one_has_none(parts):
    new = f"# New\n\n{BEGIN}\n\n{END}\n"
    standing = parts.with_part("# Old\n\n" + new.partition("\n\n")[2], "a.py", "kept")
    assert parts.part_of(parts.keep_parts(new, standing, ("a.py",)), "a.py") == "kept"
    assert parts.keep_parts(new, "", ("a.py",)) == new


@pytest.mark.parametrize("name", ["memcpy_sweep", "rounds"])
def test_a_page_without_a_place_is_refused_before_anything_is_measured(
    program, tmp_path, monkeypatch, name
):
    path = tmp_path / "page.md"
    path.write_text("# A page\n", encoding="utf-8")
    monkeypatch.setattr("subprocess.Popen.__init__", lambda *_: pytest.fail("something ran"))
    with pytest.raises(SystemExit, match="expected both, in this order, once each"):
        program(name).main(["-o", str(path)])
