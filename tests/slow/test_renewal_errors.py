"""How far renewals of unchanged code drift, and how soon creep is found: simulated nights whose truth is known."""

import math
import random
from statistics import fmean

import pytest

from pytest_roofline.baselines.renewal import MOST_SESSIONS, renew
from pytest_roofline.stats.spread import priors

from ..baselines.test_renewal import WEEKS, approve_weekly, entry, held, ids, session, weekly

# Ten renewals of unchanged code, a night each; σ of a night is that of session and process together.
RENEWALS, CHAINS, SIGMA = 10, 120, 0.01 * math.sqrt(2)


def chain(make, dice, tolerance):
    """The log centre after the renewals, and what min(old, new) would have made of the same nights, in σ."""
    logs = [dice.gauss(0, 0.01) + dice.gauss(0, 0.01) for _ in range(RENEWALS + 1)]
    known = entry(make, session(0, math.exp(logs[0])), tolerance=tolerance)
    for number, value in enumerate(logs[1:], 1):
        known = renew(entry(make, session(number, math.exp(value))), known, priors()).entry
    return fmean(map(math.log, known.medians)) / SIGMA, min(logs) / SIGMA


def test_ten_renewals_of_unchanged_code_drift_nowhere_while_the_minimum_would(make):
    """Also where the tolerance is far below the noise, so that chance replaces a baseline now and then."""
    for tolerance in (0.05, 0.002):
        dice = random.Random(4)
        renewed, luckiest = zip(*(chain(make, dice, tolerance) for _ in range(CHAINS)), strict=True)
        spread = math.sqrt(fmean(value**2 for value in renewed) / CHAINS)
        assert abs(fmean(renewed)) < 4 * spread
        # The mean of eleven nights is known to 0.3 σ; what is replaced now and then, a little less well.
        assert math.sqrt(fmean(value**2 for value in renewed)) < 0.5
        assert fmean(luckiest) == pytest.approx(-1.55, abs=0.15)


def test_noise_moves_the_refusal_of_creep_by_a_week_or_two_at_most(make, tmp_path):
    """An anchor of three nights of 1 % is known to 0.6 %, which is half a week's creep.

    Of twenty such anchors one has nights so far apart that only more creep tells it from chance.
    """
    first = [
        approve_weekly(tmp_path / f"{seed}", weekly(make, 0.01, noise=0.01, seed=seed))[0]
        for seed in range(20)
    ]
    assert sum(number in (4, 5, 6, 7) for number in first) >= 19
    assert max(first) < WEEKS
    assert sum(number in (5, 6) for number in first) >= 15


def test_unchanged_noisy_code_is_never_refused(make, tmp_path):
    for seed in range(5):
        folder = tmp_path / f"{seed}"
        assert approve_weekly(folder, weekly(make, noise=0.01, seed=seed)) == (WEEKS, "")
        one = held(folder)
        assert (len(one.sessions), ids(one.anchor)) == (MOST_SESSIONS, ["run-0", "run-1", "run-2"])
        assert len(one.renewals) == WEEKS - 1
        assert max(abs(renewal.drift) for renewal in one.renewals) < 0.03
