"""Sessions that are strange in many tests of a baseline, such as the night on which a neighbour used the memory.

A change that all tests of a session share is removed first, as `shared` does: a session that is slower in everything is
not odd. The remaining times of a session are compared with the other sessions of its device, test by test.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special

from ..core.verdicts import Group, OddSession
from .spread import (
    ENOUGH_SESSIONS,
    NORMAL_DEVIATION,
    STRANGE,
    STRANGE_DEVIATIONS,
    priors,
    within,
)
from .stats import growth

Floats = npt.NDArray[np.float64]

# Fewer strange tests, or less than one in ten of those measured, do not make the session odd.
FEWEST_STRANGE = 5
ONE_IN = 10
# Where many sessions look odd, sessions simply differ. At most two are odd, and at most one in four (or one of three).
MOST_ODD = 2
MOST_ODD_IN = 4
# Quantiles over tests. The shared change lies between the outer two, even where half of the tests are strange.
MIDDLE = (0.4, 0.5, 0.6)
# The shared change is the median, unless the outer two are further apart than this, in log seconds.
WIDE = math.log1p(STRANGE["device"])


def odd_sessions(
    tests: Mapping[str, Sequence[Group]], classes: Mapping[str, str]
) -> dict[OddSession, frozenset[str]]:
    """Return the sessions that are odd: strange in many tests.

    A session is strange in a test if it lies further from each other session than these lie apart.
    Each comes with the names of these tests; of a device the sessions with the most tests come
    first. Only tests with three or more sessions count, and a test has one strange session at most,
    so that two sessions always remain.

    Args:
        tests: by name, the processes of all sessions of a test.
        classes: by name, the class of a test, `device` or `host`.
    """
    devices = dict.fromkeys(group.device for groups in tests.values() for group in groups)
    return dict(odd for device in devices for odd in _odd_sessions_on(device, tests, classes))


def _odd_sessions_on(
    device: str, tests: Mapping[str, Sequence[Group]], classes: Mapping[str, str]
) -> list[tuple[OddSession, frozenset[str]]]:
    """Return the odd sessions of a device, each with the names of the tests in which it is strange."""
    sessions = {name: _by_session(device, groups) for name, groups in tests.items()}
    remaining = {
        name: groups_by_session
        for name, groups_by_session in sessions.items()
        if len(groups_by_session) >= ENOUGH_SESSIONS
    }
    odd: list[tuple[OddSession, frozenset[str]]] = []
    # A table holds tests that share sessions. Those recorded on other days come into a later table.
    while len(remaining) >= FEWEST_STRANGE:
        table = _Levels.of(remaining, classes)
        odd += table.odd_sessions(device)
        remaining = {
            name: groups_by_session
            for name, groups_by_session in remaining.items()
            if name not in table.tests
        }
    return odd


def _by_session(device: str, groups: Sequence[Group]) -> dict[str, Group]:
    """Return the sessions of one test on a device, by the time of their start.

    Sessions of one moment are joined. Those without a date are left out, as other tests cannot share them.
    """
    sessions: dict[str, Group] = {}
    for group in groups:
        if group.device == device and group.started:
            before = sessions.get(group.started, Group(()))
            sessions[group.started] = Group(before.medians_s + group.medians_s, device)
    return sessions


@dataclass(frozen=True, slots=True)
class _Levels:
    """The sessions of a device: rows are tests, columns sessions; NaN where a session did not measure a test.

    Args:
        level: [tests, sessions], mean log seconds without what all tests of the session share.
        error: [tests], the standard error of such a mean by the spread of its processes; NaN where each session has one
            process.
    """

    tests: tuple[str, ...]
    sessions: tuple[str, ...]
    classes: npt.NDArray[np.str_]
    level: Floats
    error: Floats

    @classmethod
    def of(cls, tests: Mapping[str, Mapping[str, Group]], classes: Mapping[str, str]) -> "_Levels":
        """Return the table of tests that share enough sessions with others.

        `tests` gives the processes of each test by session. Tests with too few shared sessions are
        left out.
        """
        columns = {
            started: place
            for place, started in enumerate(dict.fromkeys(itertools.chain(*tests.values())))
        }
        means = np.full((len(tests), len(columns)), math.nan)
        for row, groups in zip(means, tests.values(), strict=True):
            for started, group in groups.items():
                row[columns[started]] = math.fsum(group.logs) / len(group.logs)
        # A session that shares no test with the one that `_shared_shift` takes as the zero becomes NaN here.
        level = means - _shared_shift(means)
        enough = np.sum(~np.isnan(level), axis=1) >= ENOUGH_SESSIONS
        names = list(itertools.compress(tests, enough))
        return cls(
            tests=tuple(names),
            sessions=tuple(columns),
            classes=np.array([classes[name] for name in names]),
            level=level[enough],
            error=np.array([_mean_error(list(tests[name].values())) for name in names]),
        )

    def odd_sessions(self, device: str) -> list[tuple[OddSession, frozenset[str]]]:
        """Return each odd session of a device, with the names of its tests.

        Those that are strange in the most tests come first. The list is empty where more sessions look odd than can be.
        """
        places = range(len(self.sessions))
        candidates = [
            candidate
            for place in places
            if (candidate := self._odd_session(device, place)) is not None
        ]
        measured_sessions = int(np.sum(np.any(~np.isnan(self.level), axis=0)))
        # At most one session in MOST_ODD_IN may be odd.
        most_odd = min(MOST_ODD, max(1, measured_sessions // MOST_ODD_IN))
        if len(candidates) > most_odd:
            return []

        def strange_count(candidate: tuple[OddSession, frozenset[str]]) -> int:
            session, _ = candidate
            return session.strange

        return sorted(candidates, key=strange_count, reverse=True)

    def _odd_session(self, device: str, place: int) -> tuple[OddSession, frozenset[str]] | None:
        """Return the session in a column with its strange tests, or None if it is not odd.

        `place` is the index of its column in `level`.
        """
        other_sessions = np.delete(self.level, place, axis=1)
        low, high = np.nanmin(other_sessions, axis=1), np.nanmax(other_sessions, axis=1)
        # [2, tests]: how far this session lies above all others, and how far below them.
        gaps = np.stack([self.level[:, place] - high, low - self.level[:, place]])
        # [tests]: a smaller gap is noise. A difference of two means varies by √2 as much as one of them.
        least = np.maximum(
            self._least_distances(),
            STRANGE_DEVIATIONS * math.sqrt(2) * self._mean_deviations(other_sessions),
        )
        # This session is further from each other session than these are from one another.
        strange = gaps > np.maximum(least, high - low)
        # All strange tests of an odd session differ in one direction: the one with more of them.
        direction = int(np.argmax(strange.sum(axis=1)))
        odd_tests = strange[direction]
        odd_count = int(odd_tests.sum())
        measured = int(np.sum(~np.isnan(self.level[:, place])))
        is_small_share = odd_count * ONE_IN < measured
        if odd_count < FEWEST_STRANGE or is_small_share:
            return None
        # How far each odd test lies from the median of the other sessions, in log seconds.
        distances = (self.level[:, place] - np.nanmedian(other_sessions, axis=1))[odd_tests]
        session = OddSession(
            device=device,
            started=self.sessions[place],
            strange=odd_count,
            measured=measured,
            change=growth(float(np.median(distances))),
        )
        return session, frozenset(itertools.compress(self.tests, odd_tests))

    def _least_distances(self) -> Floats:
        """Return the least strange distance of each test, in log seconds."""
        return np.array([math.log1p(STRANGE[kind]) for kind in self.classes])

    def _mean_deviations(self, other_sessions: Floats) -> Floats:
        """Return the standard deviation of a session's mean, per test.

        It is estimated from the sessions of the test. A few of these may agree by luck, so it is no less than the
        tests of its class show together.

        Args:
            other_sessions: [tests, sessions], all columns of `level` but that of the session in question.
        """
        # The deviation between sessions that is assumed for the class of each test.
        floor = np.array([priors()[kind].session for kind in self.classes])
        distances = np.abs(other_sessions - np.nanmedian(other_sessions, axis=1, keepdims=True))
        # Where each session has one process, the distances between sessions serve in place of `error`.
        robust = np.maximum(floor, NORMAL_DEVIATION * np.nanmedian(distances, axis=1))
        deviations: Floats = np.where(np.isnan(self.error), robust, np.hypot(self.error, floor))
        freedom = np.sum(~np.isnan(other_sessions), axis=1) - 1
        # The median of an estimated variance, as a multiple of the true one.
        typical = special.chdtri(freedom, 0.5) / freedom
        squares = np.nanvar(other_sessions, axis=1, ddof=1) / typical
        # No test varies less than the median test of its class.
        for kind in set(self.classes):
            rows = self.classes == kind
            deviations[rows] = np.maximum(deviations[rows], math.sqrt(np.median(squares[rows])))
        return deviations


def _mean_error(sessions: Sequence[Group]) -> float:
    """Return the standard error of a session's mean by its processes.

    It is NaN where each session has one process.
    """
    squares, freedom = within(sessions)
    fewest = min(len(group.medians_s) for group in sessions)
    return math.sqrt(squares / freedom / fewest) if freedom else math.nan


def _shared_shift(means: Floats) -> Floats:
    """Return the shift that all tests share in each session, [sessions].

    One session serves as the zero. It is the median over tests of how far a session lies from the
    zero, and NaN where no test measured both. The zero is the session from which the others lie
    most alike in all tests.
    """
    counts = np.sum(~np.isnan(means), axis=0)
    # Each session is tried as the zero; `shared` keeps the result of the one with the least width.
    shared, least = np.full(means.shape[1], math.nan), math.inf
    # A session with less than half as many tests as the largest is no zero.
    for zero in np.flatnonzero(2 * counts >= counts.max()):
        common = means[~np.isnan(means[:, zero])]
        distances = common - common[:, [zero]]
        is_measured = ~np.all(np.isnan(distances), axis=0)
        low, middle, high = np.nanquantile(distances[:, is_measured], MIDDLE, axis=0)
        width = float(np.mean(high - low))
        if width < least:
            # Where half of the tests moved, the outer quantiles are far apart: the one nearer to 0 is shared.
            nearer = np.where(np.abs(low) < np.abs(high), low, high)
            shared[:], least = math.nan, width
            shared[is_measured] = np.where(high - low > WIDE, nearer, middle)
    return shared
