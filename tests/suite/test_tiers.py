"""Which cases of the shipped benchmarks run in which tier, on a CPU and on an accelerator: `tiers/*.txt` has them.

`GOLDEN_RENEW=1 pytest tests/suite/test_tiers.py` writes the files anew; a line is a test with the number of its cases
and what stands at each place of their ids.
"""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from ..golden.stored import renewing
from .benchmarks import run_on_suite

# The benchmarks of copies between GPUs need ranks.
pytestmark = pytest.mark.feature("ranks")
STORED = Path(__file__).with_name("tiers")
# Nobody has that accelerator: collecting opens no device.
CPU, ACCELERATOR = "--roofline-device=cpu", "--roofline-device=cuda:9"
TIERS = {
    "quick on a CPU": ["--roofline-tier=quick", CPU],
    **{tier: [f"--roofline-tier={tier}", ACCELERATOR] for tier in ("quick", "nightly", "full")},
}
# All in one process, since most of the time goes into importing the benchmarks.
PROGRAM = """
import json, sys, pytest

for arguments in json.loads(sys.argv[1]):
    print("==", flush=True)
    print("exit status", int(pytest.main(["-p", "no:cacheprovider", "--collect-only", "-q", *arguments])), flush=True)
"""


@pytest.fixture(scope="module")
def collected():
    """The ids that pytest lists, by tier, and those of an id and of a word that were asked for."""
    asked = {tier: ["perf_tests", *arguments] for tier, arguments in TIERS.items()}
    asked["default"] = ["perf_tests", CPU]
    asked["one"] = ["perf_tests/test_memcpy.py::test_memcpy_h2h[8KiB]"]
    asked["memcpy"] = ["perf_tests", "-k", "memcpy", ACCELERATOR]
    done = run_on_suite(program=[PROGRAM, json.dumps(list(asked.values()))])
    _, *printed = re.split(r"^==$", done.stdout, flags=re.MULTILINE)
    assert re.findall(r"^exit status (\d+)", done.stdout, re.MULTILINE) == ["0"] * len(asked)
    listed = [re.findall(r"^perf_tests/\S+::(\S+)$", text, re.MULTILINE) for text in printed]
    return dict(zip(asked, listed, strict=True))


def table(ids):
    """A line a test: its cases, and what stands at each place of their ids."""
    tests = {}
    for name, _, case in (one.removesuffix("]").partition("[") for one in ids):
        tests.setdefault(name, []).append(case.split("-") if case else [])
    lines = []
    for name, cases in tests.items():
        places = [
            dict.fromkeys(case[place] for case in cases if len(case) > place)
            for place in range(max(map(len, cases)))
        ]
        lines.append(f"{name} {len(cases)}: " + " × ".join(" ".join(choices) for choices in places))
    return "".join(f"{line}\n" for line in lines)


@pytest.mark.parametrize("tier", TIERS)
def test_a_tier_has_these_cases(collected, tier):
    path, now = STORED / f"{tier.replace(' ', '-')}.txt", table(collected[tier])
    if renewing():
        path.write_text(now, encoding="utf-8")
    assert now == path.read_text(encoding="utf-8"), (
        f"if it is right now: GOLDEN_RENEW=1 pytest {Path(__file__).name}"
    )


def test_tiers_grow_ids_are_unique_and_quick_is_what_runs_without_an_option(collected):
    quick, nightly, full = (collected[tier] for tier in ("quick", "nightly", "full"))
    assert set(quick) < set(nightly) < set(full)
    assert [one for one, count in Counter(full).items() if count > 1] == []
    assert collected["default"] == collected["quick on a CPU"]
    # For an accelerator there are quick cases of the transformer beside those for a CPU.
    assert {one.partition("[")[0] for one in set(quick) - set(collected["default"])} == {
        "test_transformer"
    }
    assert set(collected["default"]) <= set(quick)


def test_a_case_is_had_by_its_id_whatever_its_tier_and_a_word_selects_no_more_than_it_says(
    collected,
):
    assert collected["one"] == ["test_memcpy_h2h[8KiB]"]
    assert [one for one in collected["memcpy"] if "memcpy" not in one] == []
    assert [one for one in collected["full"] if "transformer" in one and "attention" in one] == []


def test_the_page_of_the_suite_says_how_much_is_measured_by_default(collected):
    quick, full = (
        len([one for one in collected[tier] if one.startswith("test_memcpy_h2h[")])
        for tier in ("quick", "full")
    )
    page = (STORED.parents[2] / "docs" / "reference" / "suite.md").read_text(encoding="utf-8")
    assert f"measures {quick} of the {full} sizes of a copy" in page


def test_a_night_compiles_at_most_150_kernels(collected):
    """Of a compiler's 1.8 s each, so that CI has done with them in some minutes."""
    assert 0 < sum(one.startswith("test_flash_resources[") for one in collected["nightly"]) <= 150
