"""What measures a test again elsewhere: its files, the baseline that it was held against, and this package."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..baselines.runs import Run
from ..core.entries import Baseline, Entry, Session
from ..core.rows import Row
from ..core.samples import OVERSUBSCRIBED
from ..core.storage import to_plain
from ..core.writing import json_text
from ..hardware import family_of
from .archive import unportable
from .redacting import Redactor
from .settings_of import CARRIED, LOCAL, kept_settings, options_of, pytest_settings, words_of
from .source_text import redacted_source
from .sources import Sources, sources_of
from .wheel import wheel

FOLDER = "tests"


@dataclass(slots=True)
class Again:
    """Files by their path in the archive, and what must be said of them.

    Args:
        tests: the ids of the tests that can be run, the worst first.
        wheel: what this package's wheel is called in the archive.
        left_out: why other tests cannot be, a sentence each.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    tests: list[str] = field(default_factory=list)
    wheel: str = ""
    left_out: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def commands(self) -> list[str]:
        """What a shell is to be told, in the archive's folder."""
        return [
            f"python -m pip install ./{self.wheel}",
            f"cd {FOLDER} && python -m pytest {shlex.join(self.tests)} --roofline-rounds=auto",
        ]


def again(redactor: Redactor, run: Run, rows: Sequence[Row], original_ids: Sequence[str], root: Path) -> Again:
    """What measures some rows of a run again.

    Args:
        redactor: that knows the names of the run.
        run: without names.
        rows: of it, the worst first.
        original_ids: of each row, the test id as it is called in the checkout.
        root: of the checkout: pytest's root of the run.
    """
    made = Again()
    settings = pytest_settings(root)
    options = options_of(settings, run.header.command)
    sources: list[Sources] = []
    for test_id, original in dict(zip((row.test for row in rows), original_ids, strict=True)).items():
        found = sources_of(original, root, run.header.started, words_of(settings.get("pythonpath", "")))
        why = _copy(redactor, made, found, test_id)
        if why:
            made.left_out.append(f"{test_id}: {redactor.text(why)}")
        else:
            made.tests.append(test_id)
            sources.append(found)
    if not made.tests:
        return Again(left_out=made.left_out)
    texts = {"pytest.ini": kept_settings(settings, _options(run, options)), **_baseline(run, rows)}
    made.files |= {f"{FOLDER}/{name}": redactor.text(text).encode() for name, text in texts.items()}
    why = unportable(made.files)
    if why:
        return Again(left_out=[*made.left_out, why])
    made.wheel, data = wheel()
    made.files[made.wheel] = data
    made.notes = list(dict.fromkeys([*made.notes, *_notes(redactor, rows, sources, options)]))
    return made


def _copy(redactor: Redactor, made: Again, found: Sources, test_id: str) -> str:
    """Put the files of a test into the archive; why not, where it cannot be."""
    if found.missing:
        return found.missing
    files: dict[str, bytes] = {}
    changed: list[str] = []
    for name, text in found.files.items():
        redacted = redacted_source(redactor, text)
        if redacted is None:
            return f"the code of {name} names what is redacted; --keep would let it pass"
        files[f"{FOLDER}/{redactor.text(name)}"] = redacted.encode()
        if redacted != text:
            changed.append(redactor.text(name))
    if f"{FOLDER}/{test_id.partition('::')[0]}" not in files:
        return "its file is called differently without names"
    made.files |= files
    if changed:
        made.notes.append(f"names in strings and comments of {', '.join(changed)} were replaced too")
    return ""


def _options(run: Run, options: Mapping[str, str]) -> list[str]:
    """The run's own options that change how it is measured; on a CPU also that it is one."""
    kind = run.header.environment.device.type
    return [
        *([f"--roofline-device={kind}"] if kind == "cpu" else []),
        *(f"{name}={value}" for name, value in options.items() if name in CARRIED),
    ]


def _baseline(run: Run, rows: Sequence[Row]) -> dict[str, str]:
    """The file of what the rows were held against; none where that was nothing."""
    entries = {entry.identity: entry for row in rows if (entry := _entry(run, row)) is not None}
    if not entries:
        return {}
    family = family_of(run.header.environment.device)
    return {f"baselines/{family}.json": json_text(to_plain(Baseline(family, tuple(entries.values()))))}


def _entry(run: Run, row: Row) -> Entry | None:
    judgement, one = row.judgement, row.measurement
    if judgement is None or one is None:
        return None
    key = one.key
    named: dict[str, Any] = {"benchmark": key.benchmark, "name": key.name, "parameters": key.parameters}
    named |= {"hardware": key.hardware, "unit": "s"}
    if not judgement.reference:
        if judgement.limit_s is None:
            return None
        named |= {"source": judgement.source or "a limit", "convention": "one call", "confidence": "high"}
        return Entry(**named, metric="time_s", kind="threshold", value=judgement.limit_s)
    sessions = tuple(
        Session(
            f"reference-{number}",
            session.started or run.header.started,
            session.process_medians,
            session.device or None,
            # What differs in how it was timed is never compared.
            achieved=one.samples.achieved,
            clock_hz=judgement.reference_clock_hz,
        )
        for number, session in enumerate(judgement.reference, 1)
    )
    return Entry(
        **named,
        metric=key.metric,
        kind="measured",
        cache=key.cache,
        timing=key.timing,
        work=one.work,
        tolerance=judgement.tolerance,
        provenance={"bundle of": run.header.run_id, "source": judgement.source},
        sessions=sessions,
        peak_bytes=judgement.peak.reference_bytes if judgement.peak is not None else None,
    )


def _notes(
    redactor: Redactor, rows: Sequence[Row], sources: Sequence[Sources], options: Mapping[str, str]
) -> list[str]:
    """What whoever runs it should know."""
    newer, needs = (
        redactor.text(", ".join(sorted({name for found in sources for name in getattr(found, kind)})))
        for kind in ("newer", "needs")
    )
    local = ", ".join(name for name in LOCAL if name in options)
    labels = {label for row in rows if row.measurement is not None for label in row.measurement.samples.labels}
    told = {
        newer: f"changed since the run: {newer}; what is copied is how they are now",
        needs: f"its files also import {needs}",
        local: f"the run had {local}, which hold where it ran; add yours",
        OVERSUBSCRIBED if OVERSUBSCRIBED in labels else "": "the run had more ranks than cores",
        "replaced" if "replaced" in labels else "": "the run measured something slower in place of the function (a "
        "drill, or a hook), which is done again only where a conftest.py does it",
    }
    return [note for what, note in told.items() if what]
