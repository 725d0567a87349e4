"""The program that makes the pictures of the README."""

import struct

import pytest
from tests.tools import require_tools


@pytest.fixture(scope="module")
def pictures(program):
    return program("readme_pictures")


def test_the_page_is_a_light_picture_and_too_heavy_a_one_is_refused(
    pictures, tmp_path, monkeypatch
):
    require_tools("chromium")
    pictures.report(pictures.DRILL, tmp_path / "report.png")
    data = (tmp_path / "report.png").read_bytes()
    assert (b"\x89PNG", 1280, 900) == (data[:4], *struct.unpack(">II", data[16:24]))
    monkeypatch.setattr(pictures, "MOST_BYTES", 1000)
    with pytest.raises(ValueError, match="bytes; expected 1000 at most"):
        pictures.report(pictures.DRILL, tmp_path / "report.png")


def test_a_terminal_has_its_colours_and_the_command_above_it(pictures):
    drawn = pictures.svg("\x1b[31mREGRESSED\x1b[0m <&>\n")
    for text in ("REGRESSED", "pytest&#160;test_scale.py", "&lt;&amp;&gt;"):
        assert text in drawn
    assert "#cc555a" in drawn
