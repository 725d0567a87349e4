"""The text of a file, line by line, as tools and terminals leave it."""

import re
from collections.abc import Iterator

from ..core.errors import BadFile
from .refusing import refuse

# What launchers put before the line of a rank: `[1,0]<stdout>:` of Open MPI, `0: ` of srun --label.
_LABEL = re.compile(r"\[\d+,\d+\]<std(?:out|err)>: ?|\[\d+,\d+\]<std(?:out|err)> |\d+: (?=[#\s\w]|$)")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def decode(data: bytes, source: str) -> str:
    """The text of a file, without a byte order mark.

    Raises:
        BadFile: empty, or not UTF-8.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadFile(
            f"{source}, line {line}: byte {error.start} is not UTF-8 text; expected what the tool printed, converted "
            "with iconv where a shell wrote UTF-16"
        ) from None
    if not text.strip():
        raise BadFile(f"{source} is empty; expected the output of a tool")
    return text


def numbered(text: str, source: str) -> Iterator[tuple[int, str]]:
    """Every line with its number from 1, without its ending and the label of a launcher.

    Raises:
        BadFile: a line holds control characters, as colours of a terminal do.
    """
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.removesuffix("\r")
        if _CONTROL.search(line):
            refuse(source, number, line, "control characters; expected plain text, saved without colours")
        yield number, _LABEL.sub("", line, count=1) if _LABEL.match(line) else line
