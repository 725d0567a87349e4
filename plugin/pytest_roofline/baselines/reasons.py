"""Sentences on the reasons of a verdict, made from its codes and numbers where they are printed."""

from collections.abc import Callable, Collection
from functools import partial

from ..core.errors import WIDE_TOLERANCE
from ..core.reasons import Reason, ReasonCode
from ..core.samples import HEAD
from ..core.units import (
    count,
    format_flops,
    format_percent,
    format_rate,
    format_seconds,
    format_tolerance,
)
from ..core.verdicts import Kind, Reference, Verdict
from ..core.work import rate_suffix
from ..stats.analyses import MOST_ROUNDS, SECOND_ANALYSIS
from ..stats.spread import ENOUGH_SESSIONS
from ..stats.stats import growth
from ..stats.verdicts import span_text
from .limit_texts import breach_text, limit_text

_MODES = {"graph": "timed by replaying a graph"}
_REPAIR = (
    "; check errors, clocks and link with `roofline doctor`, then swap the card with a sibling: if the slowness "
    "moves along, replace the card, else check slot, cooling and power"
)


def reason_text(verdict: Verdict) -> str:
    """Return why a verdict is what it is, as one sentence.

    It is empty where the verdict's word is enough.
    """
    return "; ".join(_sentence(verdict, reason) for reason in verdict.reasons)


def _sentence(verdict: Verdict, reason: Reason) -> str:
    template = _TEMPLATES.get(reason.code)
    if template is not None:
        return template.format_map({**reason.numbers, **reason.texts})
    return _WRITERS[reason.code](verdict, reason)


def behind_text(reference: Reference) -> str:
    """Return `15 processes of 3 sessions on 2 devices`."""
    processes = count(len(reference.medians_s), "process", "es")
    text = f"{processes} of {count(len(reference.groups), 'session')}"
    return text + (f" on {reference.devices} devices" if reference.devices > 1 else "")


def left_out_text(verdict: Verdict) -> str:
    """Return why the last of the left-out processes does not count.

    It is empty where all count.
    """
    if not verdict.subject.left_out:
        return ""
    *_, last = verdict.subject.left_out
    return _sentence(verdict, last)


def modes_text(modes: Collection[tuple[str, ...]]) -> str:
    """Return how processes were timed: `host-bound and timed as asked`."""
    words = [[_mode_text(label) for label in labels] for labels in modes]
    return " and ".join(sorted(", ".join(texts) or "timed as asked" for texts in words))


def _mode_text(label: str) -> str:
    if label.startswith(HEAD):
        return label.removeprefix(HEAD)
    return _MODES.get(label, label.replace("_", "-"))


def _text(_: Verdict, reason: Reason) -> str:
    """Return the text that the reason itself holds."""
    return _of_processes(reason) + reason.texts["text"]


def _other_mode(verdict: Verdict, reason: Reason) -> str:
    """Return the sentence that baseline and new processes were timed in different modes."""
    assert verdict.reference is not None
    mode = _modes_of(reason.texts["mode"])
    return (
        f"{_of_processes(reason)}this run is {modes_text(mode)}, the baseline is "
        f"{modes_text(verdict.reference.achieved)}, so the two times are not comparable; find out why the mode "
        "changed, or record the baseline again"
    )


def _of_processes(reason: Reason) -> str:
    """Return `2 of 3 processes: `, or an empty text.

    It is empty where the reason is not that of some processes only.
    """
    if "spoiled" not in reason.numbers:
        return ""
    spoiled, processes = reason.numbers["spoiled"], int(reason.numbers["processes"])
    return f"{spoiled} of {count(processes, 'process', 'es')}: "


def _absurd_baseline(verdict: Verdict, reason: Reason) -> str:
    """Return the sentence that the baseline holds an impossible time."""
    assert verdict.reference is not None
    texts = reason.texts
    return (
        f"{verdict.reference.source} holds {texts['label']} with {texts['observed']}; expected {texts['expected']}; "
        f"the test is not compared; {texts['remedy']}, or remove the entry (`roofline baseline check` lists "
        "such entries)"
    )


def _may_be(verdict: Verdict, _: Reason) -> str:
    """Return the interval of an undecided verdict.

    It reads `the change may be +1.0 to +8.0 % after 3 processes (…)`.
    """
    interval = verdict.own_interval
    assert interval is not None
    assert verdict.difference is not None
    low, high = (format_percent(growth(bound)).removesuffix(" %") for bound in interval)
    processes, spread = count(verdict.processes, "process", "es"), verdict.difference.process
    evidence = f"{processes} (spread {_share(spread.value)}: {spread.origin})"
    return f"the change may be {low} to {high} % after {evidence}"


def _hot_rounds(verdict: Verdict, _: Reason) -> str:
    """Return the sentence that further rounds are slower than the first process."""
    return (
        f"{_looks_slower(verdict)}, but the later rounds are {_share(growth(verdict.hot))} slower than the first "
        "process, and the baseline holds only first processes; earlier rounds may have heated the "
        f"device; record the baseline with --roofline-rounds={SECOND_ANALYSIS}"
    )


def _red_needs(verdict: Verdict, reason: Reason, remedy: str) -> str:
    """Return the sentence that a test looks slower, but red needs more processes."""
    assert verdict.reference is not None
    processes = f"a red verdict needs {reason.numbers['processes']} processes"
    baseline = f"against a baseline of {len(verdict.reference.medians_s)}"
    return f"{_looks_slower(verdict)}; {processes} {baseline}; {remedy}"


def _looks_slower(verdict: Verdict) -> str:
    """Return `looks 8.0 % slower`.

    For a figure of a program, which is no time, it is `looks worse (…)`.
    """
    estimate = verdict.own_estimate
    assert estimate is not None
    if verdict.subject.metric:
        return f"looks worse ({format_percent(growth(estimate))})"
    return f"looks {_share(growth(estimate))} slower"


def _needs_rounds(_: Verdict, reason: Reason) -> str:
    """Return how many processes would decide, with the option that takes them."""
    processes = reason.numbers["processes"]
    rounds = "auto" if processes <= MOST_ROUNDS else processes
    text = f"a verdict needs about {processes} processes; measure with --roofline-rounds={rounds}"
    return text + _wider(reason)


def _needs_logs(_: Verdict, reason: Reason) -> str:
    return f"a verdict needs about {reason.numbers['processes']} logs" + _wider(reason)


def _other_devices(_: Verdict, reason: Reason) -> str:
    """Return the remedy for a baseline of other devices."""
    spread = reason.numbers["spread"]
    text = f"the baseline holds only other devices (spread {spread:.1%}); record this device"
    return text + _wider(reason)


def _few_days(verdict: Verdict, reason: Reason) -> str:
    """Return the remedy for a baseline of too few days."""
    day_text = " of one day" if reason.numbers["days"] == 1 else ""
    processes = f"{_behind(verdict)}{day_text}"
    remedy = f"record {ENOUGH_SESSIONS} sessions or more, each on another day"
    return f"the baseline has only {processes}; {remedy}" + _wider(reason)


def _few_processes(verdict: Verdict, reason: Reason) -> str:
    """Return the remedy for an estimate close to the tolerance."""
    few = f"the baseline has only {_behind(verdict)}, which cannot decide so close to the tolerance"
    return f"{few}; record more processes" + _wider(reason)


def _few_sessions(verdict: Verdict, reason: Reason) -> str:
    """Return the remedy for a baseline whose sessions are too few or too different."""
    text = f"the baseline has only {_behind(verdict)}; record more sessions and processes"
    return text + _wider(reason)


def _behind(verdict: Verdict) -> str:
    assert verdict.reference is not None
    return behind_text(verdict.reference)


def _wider(reason: Reason) -> str:
    """Return the tolerance that could be judged, or an empty text."""
    percent = reason.numbers.get("tolerance_percent")
    if percent is None:
        return ""
    # A wide tolerance is refused, unless an exclamation mark confirms it.
    if percent <= 100 * WIDE_TOLERANCE:
        return f", or set --roofline-tolerance={percent}%"
    return (
        f", or set --roofline-tolerance={percent}%! "
        f"(the mark confirms a tolerance above {100 * WIDE_TOLERANCE:.0f} %)"
    )


def _beyond_limit(verdict: Verdict, reason: Reason) -> str:
    """Return the sentence on a time that is surely beyond a limit."""
    limit, estimate = verdict.limit, verdict.estimate
    assert limit is not None
    assert estimate is not None
    return f"{breach_text(limit, estimate)}, {_behind_limit(verdict, reason)}"


def _within_limit(verdict: Verdict, reason: Reason) -> str:
    """Return the sentence that all limits are kept; it names the nearest."""
    devices = reason.numbers["devices"]
    each = f" on any of {devices} devices" if devices > 1 else ""
    return f"not below {_limit(verdict)}{each}"


def _may_miss_limit(verdict: Verdict, reason: Reason) -> str:
    """Return the sentence on a time whose interval includes a limit."""
    behind = _behind_limit(verdict, reason)
    return f"may be below {_limit(verdict)}, since the interval includes the limit; {behind}"


def _limit_needs_processes(verdict: Verdict, reason: Reason) -> str:
    """Return the sentence on a time beyond a limit with too few processes for red."""
    least = reason.numbers["least"]
    needed = f"a run that may add rounds needs at least {least} processes for a red verdict"
    return f"is below {_limit(verdict)}, but {needed}; {_behind_limit(verdict, reason)}"


def _limit_unsure(verdict: Verdict, reason: Reason) -> str:
    """Return the sentence on a time beyond a limit that may still change."""
    why = "the difference is not clear enough for a run that is analysed several times"
    return f"is below {_limit(verdict)}, but {why}; {_behind_limit(verdict, reason)}"


def _limit(verdict: Verdict) -> str:
    assert verdict.limit is not None
    return limit_text(verdict.limit)


def _behind_limit(verdict: Verdict, reason: Reason) -> str:
    """Return `1 process (1 % apart: prior)`.

    Where several devices were measured, it also names the worst.
    """
    numbers, device = reason.numbers, reason.texts["device"] or "a device without a UUID"
    worst = ""
    if numbers["devices"] > 1:
        worst = f"{device} ({numbers['missed']} of {numbers['devices']} devices miss the limit), "
    spread = f"spread {_share(numbers['spread'])}: {reason.texts['origin']}"
    processes = count(verdict.processes, "process", "es")
    return f"{worst}{processes} ({spread})"


def _few_near_limit(_: Verdict, reason: Reason) -> str:
    """Return the remedy for a time close to a limit."""
    sessions = reason.numbers["sessions"]
    few = "1 session is" if sessions == 1 else f"{sessions} sessions are"
    remedy = "record more and compare all of them together: roofline compare FILE.json RUN,RUN,…"
    return f"{few} too few to decide so close to the limit; {remedy}"


def _moved_together(_: Verdict, reason: Reason) -> str:
    """Return the sentence on the change that all tests share."""
    together, left = (format_percent(growth(reason.numbers[name])) for name in ("together", "left"))
    return (
        f"all {reason.numbers['tests']} tests changed together by {together}; "
        f"beyond that, this test changed by {left}"
    )


def _among_siblings(verdict: Verdict, reason: Reason) -> str:
    """Return the distance of a card from its siblings.

    It ends with a remedy where the card is or may be slow.
    """
    assert verdict.estimate is not None
    change, metric, numbers = growth(verdict.estimate), reason.texts["metric"], reason.numbers
    word = "slower" if change > 0 else "faster"
    slow = f"is {abs(change) * 100:.1f} % {word} than"
    figures = (
        f"{_figure(numbers['value'], metric)} against {_figure(numbers['siblings_value'], metric)}"
    )
    # Both sides in figures of the metric, or in seconds where it has no rate.
    text = (
        f"{_card(verdict, reason)} {slow} its {verdict.siblings} siblings "
        f"({figures}; siblings differ by {numbers['spread'] * 100:.1f} %)"
    )
    if verdict.kind is Kind.REGRESSED:
        return text + _REPAIR
    if verdict.kind is not Kind.INCONCLUSIVE:
        return text
    remedy = "measure more processes with --roofline-rounds=auto"
    if verdict.futile:
        remedy = "compare more GPUs, or repair this GPU"
    return f"{text}, but the siblings differ too much to confirm more than {verdict.tolerance * 100:.0f} %; {remedy}"


def _few_siblings(verdict: Verdict, reason: Reason) -> str:
    """Return the sentence that too few siblings are sound."""
    numbers = reason.numbers
    siblings = f"{verdict.siblings} of the {numbers['siblings']} siblings"
    return (
        f"{siblings} of {_card(verdict, reason)} gave valid numbers; "
        f"expected {numbers['expected']} or more for a comparison"
    )


def _card(verdict: Verdict, reason: Reason) -> str:
    """Return `cuda:3 (GPU-8c2f…)`."""
    return f"{verdict.subject.name} ({reason.texts['device'] or 'without a UUID'})"


def _figure(value: float, metric: str) -> str:
    """Return a value as text: a rate under its metric, or a time.

    The value is a time in seconds where the metric is empty.
    """
    if not metric:
        return format_seconds(value)
    return format_flops(value) if rate_suffix(metric) == "TFLOPS" else format_rate(value)


def _sides_need_processes(verdict: Verdict, _: Reason) -> str:
    """Return the sentence that B looks slower, but red needs more processes."""
    estimate = verdict.own_estimate
    assert estimate is not None
    sound = "sound " if verdict.processes >= verdict.processes_for_red else ""
    change = format_percent(growth(estimate))
    looks = f"looks worse ({change})" if verdict.subject.metric else f"looks {change} slower"
    return f"{looks}, but a red verdict needs {verdict.processes_for_red} {sound}processes a side"


def _sides_may_be(verdict: Verdict, _: Reason) -> str:
    assert verdict.own_interval is not None
    return f"the change may be {span_text(verdict.own_interval)} after {verdict.processes} processes a side"


def _sides_timed(_: Verdict, reason: Reason) -> str:
    return ", ".join(f"{side} {modes_text(_modes_of(reason.texts[side]))}" for side in "AB")


def _modes_of(text: str) -> set[tuple[str, ...]]:
    """Return the modes that a text lists.

    Commas separate the labels of a mode, semicolons separate modes.
    """
    return {tuple(filter(None, labels.split(","))) for labels in text.split(";")}


def _share(value: float) -> str:
    return format_tolerance(round(value, 3))


# The sentences that hold only numbers and texts of their reason.
_TEMPLATES = {
    ReasonCode.SHARED_LINK: "{text}: the link to the host is shared, so the rate is not the card's own; measure again "
    "on a quiet machine",
    ReasonCode.NO_WHOLE_BLOCK: "no block has enough processes of both sides",
    ReasonCode.SIDES_NEED_ABOUT: "a verdict needs about {processes} processes a side",
    ReasonCode.SIDES_TOO_FEW: "{processes} processes a side are too few to decide so close to the tolerance; allow "
    "more with --processes",
    ReasonCode.SIDE_ENDED: "{side}: {text}",
    ReasonCode.OTHER_WORK: "A and B did different work, so their times are not comparable",
    ReasonCode.UNTIMED: "no process timed the test",
}
# All others. The functions have the same two arguments, though some need only one of them.
_WRITERS: dict[ReasonCode, Callable[[Verdict, Reason], str]] = {
    ReasonCode.TEXT: _text,
    ReasonCode.OTHER_MODE: _other_mode,
    ReasonCode.ABSURD_BASELINE: _absurd_baseline,
    ReasonCode.MAY_BE: _may_be,
    ReasonCode.HOT_ROUNDS: _hot_rounds,
    ReasonCode.RED_NEEDS_ROUNDS: partial(_red_needs, remedy="measure with --roofline-rounds=auto"),
    ReasonCode.RED_NEEDS_LOGS: partial(_red_needs, remedy="import more logs"),
    ReasonCode.NEEDS_ROUNDS: _needs_rounds,
    ReasonCode.NEEDS_LOGS: _needs_logs,
    ReasonCode.OTHER_DEVICES: _other_devices,
    ReasonCode.FEW_DAYS: _few_days,
    ReasonCode.FEW_PROCESSES: _few_processes,
    ReasonCode.FEW_SESSIONS: _few_sessions,
    ReasonCode.BEYOND_LIMIT: _beyond_limit,
    ReasonCode.WITHIN_LIMIT: _within_limit,
    ReasonCode.MAY_MISS_LIMIT: _may_miss_limit,
    ReasonCode.LIMIT_NEEDS_PROCESSES: _limit_needs_processes,
    ReasonCode.LIMIT_UNSURE: _limit_unsure,
    ReasonCode.FEW_NEAR_LIMIT: _few_near_limit,
    ReasonCode.MOVED_TOGETHER: _moved_together,
    ReasonCode.AMONG_SIBLINGS: _among_siblings,
    ReasonCode.FEW_SIBLINGS: _few_siblings,
    ReasonCode.SIDES_NEED_PROCESSES: _sides_need_processes,
    ReasonCode.SIDES_MAY_BE: _sides_may_be,
    ReasonCode.SIDES_TIMED: _sides_timed,
}
