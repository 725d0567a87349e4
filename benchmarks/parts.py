"""A part of a page, between two comments that name its program: that program writes it, and no other changes it."""

from collections.abc import Sequence

from pytest_roofline.core.errors import BadFile


def comments(program: str) -> tuple[str, str]:
    """Return the comments ahead of the part of a program and behind it."""
    return f"<!-- made by {program} -->", f"<!-- end of {program} -->"


def part_of(page: str, program: str) -> str:
    """Return the part of a page that a program made, without the empty lines around it.

    Raises:
        BadFile: the page does not have both comments of the program, once each.
    """
    return _split(page, program)[1].strip()


def with_part(page: str, program: str, part: str) -> str:
    """Return a page with another part of a program.

    Raises:
        BadFile: the page does not have both comments of the program, once each.
    """
    before, _, after = _split(page, program)
    begin, end = comments(program)
    return before + "\n\n".join(filter(None, (begin, part.strip(), end))) + after


def keep_parts(text: str, page: str, programs: Sequence[str]) -> str:
    """Return a page that was made anew, with the parts of other programs as they stand in it.

    Args:
        text: the new page, with empty parts.
        page: the page as it stands; empty where there is none yet.
        programs: whose parts they are.

    Raises:
        BadFile: one of both lacks the comments of a program.
    """
    for program in programs if page else ():
        text = with_part(text, program, part_of(page, program))
    return text


def _split(page: str, program: str) -> tuple[str, str, str]:
    begin, end = comments(program)
    before, _, behind = page.partition(begin)
    part, _, after = behind.partition(end)
    if page.count(begin) != 1 or page.count(end) != 1 or end not in behind:
        raise BadFile(
            f"the page lacks {begin!r} and {end!r}; expected both, in this order, once each"
        )
    return before, part, after
