"""The ten files of `docs/authors/design.md`: a run of one test enters them in the order in which they stand there."""

import inspect
import re
import sys
from pathlib import Path
from types import CodeType, FrameType

import pytest

import pytest_roofline

PACKAGE = Path(pytest_roofline.__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "authors" / "design.md"
# An entry of the list: its number, its file, and its sentence.
LISTED = re.compile(r"^(\d+)\. `((?:\w+/)+\w+\.py)`: ([^\n]+)$", re.MULTILINE)


class Entered:
    """Notes the first call into each file of the package, in a `with` block.

    To import a module, or to make an object, enters nothing.
    """

    def __init__(self) -> None:
        self.files: list[str] = []
        self._seen: set[CodeType] = set()

    def __enter__(self) -> "Entered":
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if event != "call" or code in self._seen:
            return
        self._seen.add(code)
        path = Path(code.co_filename)
        is_function = code.co_flags & inspect.CO_OPTIMIZED and code.co_name != "__init__"
        if is_function and path.is_relative_to(PACKAGE):
            name = path.relative_to(PACKAGE).as_posix()
            if name not in self.files:
                self.files.append(name)


@pytest.fixture
def entered(desk):
    """The files that a saved run of one test enters, which is compared with five sessions."""
    options = desk.five_sessions_of_one()
    with Entered() as entered:
        result = desk.run("--roofline-save=new", *options)
    result.assert_outcomes(passed=1)
    assert len(desk.saved("new").measurements) >= 1
    return entered.files


def test_the_ten_files_of_the_design_are_those_of_a_run_in_its_order(entered):
    numbers, files, _ = zip(*LISTED.findall(PAGE.read_text(encoding="utf-8")), strict=True)
    assert [str(number) for number in range(1, 11)] == list(numbers)
    assert [file for file in entered if file in files] == list(files)


def test_each_of_the_ten_files_has_a_sentence_whose_places_exist():
    for _, file, sentence in LISTED.findall(PAGE.read_text(encoding="utf-8")):
        assert re.fullmatch(r"\S+( \S+){5,}\.", sentence), file
        places = re.findall(r"`((?:\w+/)+(?:\w+\.py)?)`", sentence)
        assert [place for place in places if not (PACKAGE / place).exists()] == [], file
