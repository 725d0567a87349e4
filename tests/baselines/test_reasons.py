"""Sentences on why a verdict is what it is, made of its codes and numbers."""

from dataclasses import replace

import pytest

from pytest_roofline.baselines.reasons import reason_text
from pytest_roofline.core.errors import BadInput
from pytest_roofline.core.reasons import Reason, ReasonCode, text_reasons
from pytest_roofline.core.verdicts import Kind, TimeLimit, Verdict

NUMBERS = {"processes": 12, "days": 2, "tests": 20, "together": 0.1, "left": 0.0, "value": 1e9,
           "siblings_value": 2e9, "spread": 0.01, "siblings": 3, "devices": 4, "sessions": 1, "least": 3,
           "expected": 3, "spoiled": 2, "missed": 1}  # fmt: skip
TEXTS = {
    "text": "why",
    "mode": "graph",
    "label": "copy",
    "observed": "1 s",
    "expected": "2 s",
    "remedy": "mend it",
    "origin": "prior",
    "device": "GPU-0",
    "metric": "traffic_GBps",
    "side": "B",
    "A": "as",
    "B": "so",
}


def test_every_code_has_a_sentence_of_its_own(make):
    limit = TimeLimit(2.0, make.published())
    verdict = replace(make.result(1.2e-3).time_verdict, limit=limit)
    sentences = {
        reason_text(replace(verdict, reasons=(Reason(code, NUMBERS, TEXTS),)))
        for code in ReasonCode
    }
    assert (len(sentences), "" in sentences) == (len(ReasonCode), False)


def test_clauses_are_one_sentence_and_a_word_alone_has_none():
    verdict = Verdict(Kind.INVALID, 0.05, reasons=text_reasons("too hot", "", "too busy"))
    assert reason_text(verdict) == "too hot; too busy"
    assert reason_text(Verdict(Kind.PASSED, 0.05)) == ""


def test_rounds_that_auto_does_not_take_are_asked_for_by_their_number():
    def sentence(processes, **numbers):
        reason = Reason(ReasonCode.NEEDS_ROUNDS, {"processes": processes} | numbers)
        return reason_text(Verdict(Kind.INCONCLUSIVE, 0.05, reasons=(reason,)))

    assert sentence(12) == "a verdict needs about 12 processes; measure with --roofline-rounds=auto"
    assert sentence(15) == "a verdict needs about 15 processes; measure with --roofline-rounds=15"
    assert sentence(5, tolerance_percent=9).endswith("=auto, or set --roofline-tolerance=9%")
    assert sentence(5, tolerance_percent=90).endswith(
        ", or set --roofline-tolerance=90%! (the mark confirms a tolerance above 50 %)"
    )


def test_a_reason_without_what_its_sentence_needs_is_refused():
    with pytest.raises(BadInput, match="reason needs_rounds has no processes; every"):
        Reason(ReasonCode.NEEDS_ROUNDS)
    with pytest.raises(BadInput, match="reason text has no text; every"):
        Reason(ReasonCode.TEXT, NUMBERS)
    with pytest.raises(BadInput, match="reason may_be has no interval; expected"):
        Verdict(Kind.INCONCLUSIVE, 0.05, reasons=(Reason(ReasonCode.MAY_BE),))
