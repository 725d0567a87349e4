"""A file is read as its own format and as no other; a file with another digit is refused or read, in one sentence."""

import random
import re

import pytest

from pytest_roofline.core.errors import BadFile

FILES = {
    "a100-all_reduce.log": "nccl-tests",
    "gb10-two-nodes-all_gather.log": "nccl-tests",
    "readme-nvbandwidth.json": "nvbandwidth",
    "mi300x-babelstream.csv": "babelstream",
    "pytest-benchmark-storage-0030.json": "pytest-benchmark",
}


def test_a_file_is_recognised_as_one_format_and_no_other(text, take):
    for name, own in FILES.items():
        for other in set(FILES.values()):
            if own == other:
                assert take(text(name)) == take(text(name), other)
            else:
                with pytest.raises(BadFile):
                    take(text(name), other)


def taken(take, changed, own):
    """The readings of a changed file; none where it is refused, by name and in one line."""
    try:
        return [reading for one in take(changed, own) for reading in one.readings]
    except BadFile as refused:
        told = str(refused)
    assert told.startswith("file")
    assert "\n" not in told
    return []


def test_a_file_with_another_digit_is_read_or_refused_by_name_and_in_one_line(text, take):
    draw = random.Random(8)
    for name, own in FILES.items():
        whole = text(name)
        for at in draw.sample([match.start() for match in re.finditer(r"\d", whole)], 40):
            changed = whole[:at] + draw.choice("0123456789x") + whole[at + 1 :]
            assert all(reading.seconds[0] > 0 for reading in taken(take, changed, own))
