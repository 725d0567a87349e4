"""The files of one report, and annotations, say the same word for the same result, and count them alike."""

import csv
import io
import json
import re
from collections import Counter
from html import unescape

import pytest

from pytest_roofline.baselines.run_rows import rows_of
from pytest_roofline.core.memory import FailedAllocation, LostResults, OutOfMemory
from pytest_roofline.core.records import Outcome
from pytest_roofline.core.resources import ResourceKey, Resources
from pytest_roofline.core.verdicts import ExactVerdict
from pytest_roofline.report.files import results_csv, run_json
from pytest_roofline.report.page import page
from pytest_roofline.report.page_text import sentence_family
from pytest_roofline.report.summary import annotations, summary

BADGE = r'<span class="badge [a-z]*"><span aria-hidden="true">.</span> ([A-Z ]+)</span>'
# What every file has to say of each, and whether it is red.
EXPECTED = {
    "green": ("PASSED", False),
    "slower": ("REGRESSED", True),
    "teardown": ("FAILED", True),
    "new": ("NO BASELINE", False),
    "new_teardown": ("FAILED", True),
    "slower_teardown": ("FAILED", True),
    "strict": ("FAILED", True),
    "expected": ("XFAIL", False),
    "judged_elsewhere": ("REGRESSED", True),
    "passed_elsewhere": ("PASSED", False),
    "uncompared": ("NO BASELINE", False),
    "test_never": ("SKIPPED", False),
    "test_wrong": ("FAILED", True),
    "device health": ("DEGRADED", True),
    "expected_oom": ("OUT OF MEMORY", False),
    "lost_oom": ("REGRESSED", True),
    "sudden_oom": ("FAILED", True),
    "kernel": ("REGRESSED", True),
    "kernel_teardown": ("FAILED", True),
}


@pytest.fixture
def run(make, report, tmp_path):
    """A run with a result of every kind that files could call by different words."""
    return make.run(
        tmp_path / "run.jsonl", *_timed(make, report), *_bare(), *_memory(), *_kernels()
    )


def _timed(make, report):
    def judged(label, word, *ends):
        one, verdict, ended = report.compared(word, label=label)
        given = [make.outcome(one, outcome, **changes) for outcome, changes in ends]
        return [one, verdict, *(given or [ended])]

    def unjudged(label, outcome, **changes):
        one = make.measurement(label=label, test_id=f"test_a.py::test_{label}")
        return [one, make.outcome(one, outcome, **changes)]

    torn = "failed", {"reason": "in teardown"}
    return [
        *judged("green", "PASSED"),
        *judged("slower", "REGRESSED"),
        *judged("teardown", "PASSED", ("passed", {}), torn),
        *judged("new", "NO BASELINE"),
        *judged("new_teardown", "NO BASELINE", ("passed", {}), torn),
        *judged("slower_teardown", "REGRESSED", ("failed", {"by_verdict": True}), torn),
        *judged("strict", "NO BASELINE", ("failed", {"reason": "[XPASS(strict)] "})),
        *unjudged("expected", "failed", reason="xfail: known"),
        *unjudged(
            "judged_elsewhere",
            "failed",
            verdicts=("REGRESSED",),
            by_verdict=True,
            reason="+203 % time",
        ),
        *unjudged("passed_elsewhere", "passed", verdicts=("PASSED",)),
        *unjudged("uncompared", "passed"),
    ]


def _bare():
    return [
        Outcome("test_a.py::test_never", "skipped", reason="needs 2 GPUs"),
        Outcome("test_a.py::test_wrong", "failed", reason="wrong data"),
        Outcome(
            "device health", "failed", ("DEGRADED",), "DEGRADED: half the links", by_verdict=True
        ),
    ]


def _memory():
    def lost(label, **changes):
        return OutOfMemory(
            f"test_m.py::test_{label}",
            label,
            {},
            label,
            "cuda:0",
            FailedAllocation("no room"),
            **changes,
        )

    return [
        lost("expected_oom"), Outcome("test_m.py::test_expected_oom", "passed", ("OUT OF MEMORY",)),
        lost("lost_oom", lost=LostResults({"": 1e-3})),
        Outcome("test_m.py::test_lost_oom", "failed", ("OUT OF MEMORY", "REGRESSED"), "had a time", by_verdict=True),
        lost("sudden_oom", recorded=False),
        Outcome("test_m.py::test_sudden_oom", "failed", ("OUT OF MEMORY",), "OutOfMemoryError"),
    ]  # fmt: skip


def _kernels():
    found = []
    figures = dict.fromkeys(
        ("registers", "spill_loads", "spill_stores", "shared_bytes", "matrix_instructions"), 8
    )
    for label, word, by_verdict in (
        ("kernel", "REGRESSED", True),
        ("kernel_teardown", "REGRESSED", False),
    ):
        key, test_id = ResourceKey(label, {}, "sm_90"), f"test_k.py::test_{label}"
        found += [
            Resources(key, test_id, label, "p", figures),
            ExactVerdict(test_id, label, "kernel", word, target="sm_90", reason="more registers"),
            Outcome(test_id, "failed", ("REGRESSED",), "why", by_verdict=by_verdict),
        ]
    return found


def test_results_and_their_table_have_the_same_words(run):
    results = json.loads(run_json([run]))["results"]
    assert EXPECTED == {
        result["label"]: (result["verdict"], result["outcome"] == "failed") for result in results
    }
    table = csv.DictReader(io.StringIO(results_csv([run]), newline=""))
    assert EXPECTED == {row["label"]: (row["verdict"], row["outcome"] == "failed") for row in table}


def test_the_summary_has_them(run):
    text = summary([run])
    rows = re.findall(r"^\| (\*\*)?([A-Z ]+?)(?:\*\*)? \| `(.*?)` \|", text, re.MULTILINE)
    skipped = {label: told for label, told in EXPECTED.items() if told[0] == "SKIPPED"}
    assert EXPECTED == {label: (word, bool(bold)) for bold, word, label in rows} | skipped
    (counts,) = [line.strip("*") for line in text.splitlines() if line.startswith("**")]
    assert _counted() == {
        word: int(number) for number, word in (part.split(" ", 1) for part in counts.split(", "))
    }


def test_every_file_has_the_sentence_with_which_the_run_ended(run):
    (sentence,) = [told["sentence"] for told in json.loads(run_json([run]))["runs"]]
    assert sentence.startswith("RED: ")
    assert f"## roofline: `{sentence}`" == summary([run]).splitlines()[0]
    assert f'<p class="sentence {sentence_family(sentence)}">{sentence}</p>' in unescape(
        page([run])
    )


def test_the_page_has_them(run):
    text = unescape(page([run]))
    assert _counted() == {
        word: int(number) for number, word in re.findall(rf"<b>(\d+)</b> {BADGE}", text)
    }
    red = {label: word for label, (word, is_red) in EXPECTED.items() if is_red}
    assert red == {label: word for word, label in re.findall(rf"<h3[^>]*>{BADGE} (.*?)</h3>", text)}
    listed = re.findall(rf'<tr data-verdict="[a-z-]+"><th[^>]*>(.*?)</th>.*?{BADGE}', text)
    assert {label: word for label, (word, _) in EXPECTED.items()} == dict(listed)


def test_annotations_have_them(run):
    told = re.findall(
        r"^::(error|warning) .*?title=([A-Z ]+?) ([a-z_ ]+)::", _annotated(run), re.MULTILINE
    )
    warned = ("NO BASELINE", "INVALID", "INCONCLUSIVE")
    assert {
        label: (word, is_red) for label, (word, is_red) in EXPECTED.items() if is_red or word in warned
    } == {label: (word, kind == "error") for kind, word, label in told}  # fmt: skip


def _annotated(run):
    return "\n".join(annotations(rows_of([run]), lambda test_id: None, most=len(EXPECTED)))


def _counted():
    return dict(Counter(word for word, _ in EXPECTED.values()))
