"""The page of a device: prediction, found and verdict in a row each, then what holds, is disproved, was not asked."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rank_figures.page import filled, table

from pytest_roofline.core.units import format_amount, format_flops, format_seconds, slug

from .derived import derived
from .facts import STAGE, Fact, Facts
from .predictions import Prediction, predictions

HOLDS, DISPROVED, NOT_ASKED = "holds", "**disproved**", "not asked"
FORMATS = {
    "s": format_seconds,
    "bytes": format_amount,
    "Hz": lambda hz: f"{hz / 1e6:.0f} MHz",
    "FLOP/s": format_flops,
    "share": lambda share: f"{100 * share:.1f} %",
    "yes": lambda yes: "yes" if yes else "no",
    "": lambda count: f"{count:g}",
}
HEAD = """# {product}

{ran_on} Found on {started} by `{command}`; {software}{driver}. {counts}

Every row asks of the device what the fakes of the tests assume or the documentation says. A source names where the
prediction comes from, and what rests on it: a switch of the fake, a constant, a page.
"""
ON_FAKE = "**Made on the faithful fake, not on a card: it shows what the program asks, and nothing of any hardware.**"
ON_DEVICE = "Ran on {device}, a {product}."
QUICK = (
    " Every measurement had little time (`--quick`): its figures try the program and prove nothing."
)


@dataclass(frozen=True, slots=True)
class Row:
    """One prediction with what was found."""

    prediction: Prediction
    found: str
    verdict: str


def slug_of(facts: Facts) -> str:
    """The name of a product's page."""
    return slug(facts.header["product"])


def device_type(facts: Facts) -> str:
    """`cuda`, `hip`, `cpu`, `fake`."""
    facts_of_device = facts.header["environment"]["device"]
    hip = str(facts_of_device.get("architecture", "")).startswith("gfx")
    return "hip" if hip else str(facts_of_device["type"])


def _whole(facts: Facts) -> Facts:
    """The facts that count, with what follows from them."""
    whole = Facts(facts.path)
    whole.header, whole.all = facts.header, [*facts.latest().values(), *derived(facts)]
    return whole


def rows(facts: Facts) -> list[Row]:
    """Every prediction with what was found of it."""
    whole = _whole(facts)
    return [_row(whole, one) for one in predictions(device_type(facts))]


def _row(facts: Facts, prediction: Prediction) -> Row:
    if prediction.product not in facts.header["product"]:
        return Row(prediction, f"foreseen of {prediction.product} only", NOT_ASKED)
    asked = list(facts.find(prediction.stage, prediction.fact))
    found = [
        fact.values[prediction.value]
        for fact in asked
        if fact.values.get(prediction.value) is not None
    ]
    if not found:
        return Row(prediction, _why_not(facts, prediction, asked), NOT_ASKED)
    wrong = [value for value in found if not prediction.holds(value)]
    return Row(prediction, _spelled(prediction, found), DISPROVED if wrong else HOLDS)


def _why_not(facts: Facts, prediction: Prediction, asked: Sequence[Fact]) -> str:
    """Why nothing was found: an error or a lack of what was asked, or of what should have told."""
    owner = prediction.fact.partition(":")[0]
    told = [
        *asked,
        *(fact for fact in facts.find(prediction.stage, owner)),
        *facts.find(prediction.stage, "*"),
    ]
    ended = facts.outcome(prediction.stage)
    if ended is None:
        return "the stage was not called"
    for fact in told:
        if fact.lacking or fact.error:
            return fact.lacking or f"{fact.what}: {fact.error}"
    return "the stage was cut before it" if ended == "cut" else "nothing was found"


def _spelled(prediction: Prediction, found: Sequence[float]) -> str:
    spell = FORMATS[prediction.unit]
    least, most = spell(min(found)), spell(max(found))
    return least if least == most else f"{least} to {most}"


def foreseen(prediction: Prediction) -> str:
    """A prediction's rule in words."""
    spell = FORMATS[prediction.unit]
    least, most = prediction.least, prediction.most
    if least == most:
        return spell(least)
    if most == float("inf"):
        return f"at least {spell(least)}"
    return f"at most {spell(most)}" if least <= 0 else f"{spell(least)} to {spell(most)}"


def page(facts: Facts) -> str:
    """All of it."""
    found, whole = rows(facts), _whole(facts)
    parts = [filled(_head(facts, found))]
    stages = dict.fromkeys(row.prediction.stage for row in found)
    for stage in stages:
        own = [row for row in found if row.prediction.stage == stage]
        parts += [f"## {stage.capitalize()}", _table(own), *_notes(whole, stage)]
    return "\n\n".join([*parts, "## In short", lists(found)]) + "\n"


def _head(facts: Facts, found: Sequence[Row]) -> str:
    known = facts.header
    environment, product = known["environment"], known["product"]
    fake = known["device"] == "fake"
    ran_on = ON_FAKE if fake else ON_DEVICE.format(device=known["device"], product=product)
    ran_on += QUICK if known["quick"] else ""
    ran_on += f" Planted in it: {known['planted']}." if known["planted"] else ""
    software = ", ".join(f"{name} {version}" for name, version in environment["software"].items())
    driver, minutes = environment["device"].get("driver"), known.get("minutes")
    return HEAD.format(
        product=f"{product}, faked" if fake else product, ran_on=ran_on, started=known["started"], software=software,
        driver=f", driver {driver}" if driver else "", counts=counts(found),
        command="python benchmarks/on_hardware.py" + (f" --minutes {minutes:g}" if minutes else ""),
    )  # fmt: skip


def counts(found: Sequence[Row]) -> str:
    """How many rows have each verdict."""
    number = {
        verdict: sum(row.verdict == verdict for row in found)
        for verdict in (HOLDS, DISPROVED, NOT_ASKED)
    }
    return (
        f"Of {len(found)} predictions {number[HOLDS]} hold, {number[DISPROVED]} are disproved and "
        f"{number[NOT_ASKED]} were not asked."
    )


def _table(own: Sequence[Row]) -> str:
    head = ("what", "prediction", "found", "verdict", "source", "rests on it")
    cells = [
        (row.prediction.what, foreseen(row.prediction), row.found, row.verdict, row.prediction.source,
         row.prediction.rests) for row in own
    ]  # fmt: skip
    return table(head, [[cell.replace("|", "\\|") for cell in line] for line in cells])


def _notes(facts: Facts, stage: str) -> Iterator[str]:
    """How the stage ended, and what went wrong in it."""
    ended = facts.latest().get((stage, STAGE))
    told = [f"* {one.what}: {one.error}" for one in facts.find(stage, "*") if one.error]
    told += [f"* {one.what}: {line}" for one in facts.find(stage, "*") for line in _failures(one)]
    if ended is not None:
        words = "was cut at its deadline" if ended.values["outcome"] == "cut" else "came to its end"
        yield f"The stage {words} after {ended.values['seconds']:g} s."
    if told:
        yield "\n".join(told)


def _failures(fact: Fact) -> Iterator[str]:
    failures = fact.values.get("failures") or {}
    yield from (f"{test}: {' '.join(reason.split())}" for test, reason in failures.items())
    names = fact.values.get("names") if fact.what == "selftests" else None
    yield from (f"{name} FAILS" for name in names or ())
    # INVALID ones, by the reason.
    yield from fact.values.get("why") or ()


def lists(found: Sequence[Row]) -> str:
    """What holds, is disproved, was not asked; each with what was found."""
    titles = {HOLDS: "Holds", DISPROVED: "Disproved", NOT_ASKED: "Not asked"}
    return "\n\n".join(
        "\n\n".join(
            [
                f"**{title}**",
                "\n".join(_line(row) for row in found if row.verdict == verdict) or "* nothing",
            ]
        )
        for verdict, title in titles.items()
    )


def _line(row: Row) -> str:
    expected = "" if row.verdict == NOT_ASKED else f"; foreseen {foreseen(row.prediction)}"
    return f"* {row.prediction.name}: {row.found}{expected}"
