"""The message of a sick device: its cause first, then every finding with what it does and what would mend it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_roofline.core.facts import Finding
from pytest_roofline.core.units import printable
from pytest_roofline.report.verdicts import health_message

GPU = "GPU 0 (NVIDIA H100 80GB HBM3)"
POWER = Finding("degraded", GPU, "power limit 400 W, shipped with 700 W", "clocks fall", "nvidia-smi -i 0 -pl 700")
MISSING = Finding("degraded", "GPUs", "7 × H100, expected 8", "the node is not like another", "nvidia-smi -L")


def test_one_cause_is_two_lines_with_the_cause_first():
    assert health_message([POWER]).split("\n") == [
        "DEGRADED: power limit 400 W, shipped with 700 W (GPU 0, NVIDIA H100 80GB HBM3)",
        f"  {GPU}: power limit 400 W, shipped with 700 W: clocks fall. Mend: nvidia-smi -i 0 -pl 700.",
    ]


def test_the_first_line_names_the_worst_and_counts_the_others():
    lines = health_message([POWER, MISSING, MISSING]).split("\n")
    assert (lines[0].endswith("(GPU 0, NVIDIA H100 80GB HBM3), and 2 more"), len(lines)) == (True, 4)


def test_every_finding_keeps_its_place():
    worst, other = health_message([MISSING, POWER]).split("\n")[1:]
    assert ("nvidia-smi -L" in worst, "-pl 700" in other) == (True, True)


@pytest.mark.parametrize(
    ("subject", "flat"),
    [
        (GPU, "GPU 0, NVIDIA H100 80GB HBM3"),
        ("GPU 1 (AMD Radeon (TM) Pro)", "GPU 1, AMD Radeon (TM) Pro"),
        ("device (h200-sxm)", "device, h200-sxm"),
        ("GPUs", "GPUs"),
    ],
)
def test_a_subject_stands_in_parentheses_without_parentheses_of_its_own(subject, flat):
    finding = Finding("degraded", subject, "seen", "effect", "remedy")
    assert health_message([finding]).split("\n")[0] == f"DEGRADED: seen ({flat})"


def test_without_findings_there_is_nothing_to_say():
    assert health_message([]) == ""


@given(st.text(max_size=40))
def test_no_name_whatever_breaks_a_line(text):
    lines = health_message([Finding("degraded", text, text, text, text)] * 2).split("\n")
    assert len(lines) == 3
    assert [printable(line) for line in lines] == lines
