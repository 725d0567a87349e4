"""The folder `reproduce`: the failing test with the plugin's engine, for whoever has torch and pytest."""

import importlib.util
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from ...core.cases import CASE_FILE, Case, Recorded, cases_text, machine_text
from ...core.samples import OVERSUBSCRIBED
from ...judging.report_rows import FAILED, ReportRow
from ...judging.runs import Run
from ...judging.verdicts import DEFAULT_TOLERANCE
from .redacting import Redactor
from .settings_of import CARRIED, LOCAL, import_folders, kept_settings, options_of, pytest_settings
from .source_text import redacted_source
from .sources import Sources, sources_of

FOLDER = "reproduce"
# Of this package: what measures, and what of the pytest layer needs nothing but it and pytest.
_LAYERS = ("core", "measuring", "distributed", "standalone")
_MODULES = (
    "__init__", "attaching", "hooks", "launcher", "options", "planned", "rank_jobs", "rank_measuring", "rank_requests",
    "ranks", "requests", "round_child", "settings", "shadow", "version",
)  # fmt: skip
_PACKAGE = Path(__file__).parents[2]


@dataclass(slots=True)
class Reproducer:
    """Files by their path in the archive, and what must be said of them."""

    files: dict[str, bytes] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def works(self) -> bool:
        """Whether there is a test to run."""
        return bool(self.files)


def reproducer(
    redactor: Redactor, run: Run, rows: Sequence[ReportRow], original_ids: Sequence[str], root: Path
) -> Reproducer:
    """The reproducer of some rows of a run.

    Args:
        redactor: that knows the names of the run.
        run: without names.
        rows: of it, the worst first.
        original_ids: of each row, the test id as it is called in the checkout.
        root: of the checkout: pytest's root of the run.
    """
    made = Reproducer()
    settings = pytest_settings(root)
    options, folders = options_of(settings, run.header.command), import_folders(settings)
    cases: dict[str, Case] = {}
    sources: list[Sources] = []
    for row, test_id in zip(rows, original_ids, strict=True):
        if row.test_id in cases:
            continue
        case = _case(run, rows, row, options)
        found = sources_of(test_id, root, run.header.started, folders) if case is not None else Sources()
        why = _no_time(row) if case is None else _copy(redactor, made, found, row.test_id)
        if why or case is None:
            made.left_out.append(f"{row.label}: {redactor.text(why)}")
            continue
        cases[row.test_id] = case
        sources.append(found)
    made.files = made.files if cases else {}
    if cases:
        kernels = any(found.kernels for found in sources)
        texts = {
            CASE_FILE: cases_text(list(cases.values())),
            "tests/pytest.ini": redactor.text(kept_settings(settings)),
        }
        made.files |= _library(kernels) | {f"{FOLDER}/{name}": text.encode() for name, text in texts.items()}
        made.notes += _notes(redactor, rows, sources, options)
        if cases.keys() & {*(one.test_id for one in run.memory_uses), *(one.test_id for one in run.resources)}:
            made.notes.append(
                "where it follows memory or compiles a kernel, which takes pytest-roofline, the test ends"
            )
    return made


def _no_time(row: ReportRow) -> str:
    if row.what == "kernel":
        return "it is compiled and never run, and what its binary holds is read by pytest-roofline itself"
    return "the run has no time of it to compare with"


def _copy(redactor: Redactor, made: Reproducer, found: Sources, test_id: str) -> str:
    """Put the files of a test into the archive; why not, where it cannot be."""
    if found.missing:
        return found.missing
    files: dict[str, bytes] = {}
    changed: list[str] = []
    for name, text in found.files.items():
        redacted = redacted_source(redactor, text)
        if redacted is None:
            return f"the code of {name} names what is redacted; --keep would let it pass"
        files[f"{FOLDER}/tests/{redactor.text(name)}"] = redacted.encode()
        if redacted != text:
            changed.append(redactor.text(name))
    if f"{FOLDER}/tests/{test_id.partition('::')[0]}" not in files:
        return "its file is called differently without names"
    made.files |= files
    if changed:
        made.notes.append(f"names in strings and comments of {', '.join(changed)} were replaced too")
    return ""


def _library(kernels: bool) -> dict[str, bytes]:
    """The copied packages; those that they must not be without are small."""
    library = f"{FOLDER}/lib"
    paths = [path for layer in _LAYERS for path in (_PACKAGE / layer).rglob("*.py")]
    paths += [_PACKAGE / f"{name}.py" for name in _MODULES]
    files = _read(f"{library}/{_PACKAGE.name}", _PACKAGE, paths)
    spec = importlib.util.find_spec("roofline_kernels") if kernels else None
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        inside = [path for path in Path(folder).rglob("*") if path.suffix in (".py", ".json")]
        files |= _read(f"{library}/roofline_kernels", Path(folder), inside)
    script = (_PACKAGE / "standalone" / "reproduce.py").read_bytes()
    return files | {f"{FOLDER}/reproduce.py": script}


def _read(into: str, root: Path, paths: Iterable[Path]) -> dict[str, bytes]:
    return {f"{into}/{path.relative_to(root).as_posix()}": path.read_bytes() for path in paths}


def _case(run: Run, rows: Sequence[ReportRow], first: ReportRow, options: Mapping[str, str]) -> Case | None:
    """The test of a row with all its measurements; None where it has none."""
    same = [row for row in rows if row.test_id == first.test_id and row.measurement is not None]
    recorded = tuple(_recorded(row) for row in same)
    if not recorded:
        return None
    environment = run.header.environment
    ranks = any(row.measurement is not None and row.measurement.ranks is not None for row in same)
    return Case(
        node_id=first.test_id,
        device=_device(environment.device.type, 0 if ranks else environment.device.index),
        options=tuple(f"{name}={value}" for name, value in options.items() if name in CARRIED),
        machine=machine_text(environment),
        recorded=recorded,
        failure=first.outcome.reason if first.word == FAILED and first.outcome is not None else "",
    )


def _device(kind: str, index: int) -> str:
    """As users name it; nothing where a conftest.py gives it."""
    return "" if kind == "fake" else f"{kind}:{index}" if index else kind


def _recorded(row: ReportRow) -> Recorded:
    one = row.measurement
    assert one is not None
    sound = [process.median_s for process in row.processes if not process.invalid]
    judged = row.judgement.tolerance if row.judgement is not None else one.tolerance
    return Recorded(
        name=one.key.name,
        label=row.label,
        metric=one.key.metric,
        work=one.work,
        seconds=tuple(sound) or (median(process.median_s for process in row.processes),),
        baseline_s=row.reference_s,
        tolerance=DEFAULT_TOLERANCE if judged is None else judged,
        labels=one.samples.labels,
        limit_s=row.judgement.limit_s if row.judgement is not None else None,
        invalid="" if sound else one.invalid,
    )


def _notes(
    redactor: Redactor, rows: Sequence[ReportRow], sources: Sequence[Sources], options: Mapping[str, str]
) -> list[str]:
    """What whoever runs it should know."""
    newer = sorted({name for found in sources for name in found.newer})
    needs = sorted({name for found in sources for name in found.needs})
    data = sorted({name for found in sources for name in found.data})
    local = [name for name in LOCAL if name in options]
    measured = [row.measurement for row in rows if row.measurement is not None]
    notes = []
    if newer:
        notes.append(redactor.text(f"changed since the run: {', '.join(newer)}; what is copied is how they are now"))
    if needs:
        notes.append(f"its files also import {', '.join(needs)}")
    if data:
        notes.append(redactor.text(f"its files name {', '.join(data)}; only Python files are copied"))
    if local:
        notes.append(f"the run had {', '.join(local)}, which hold where it ran; add yours to `options` in {CASE_FILE}")
    if any(one.ranks is not None for one in measured):
        notes.append("it starts ranks; those on GPUs also need numpy and scipy")
    if any(OVERSUBSCRIBED in one.samples.labels for one in measured):
        notes.append("the run had more ranks than cores")
    if any("replaced" in one.samples.labels for one in measured):
        notes.append("the run measured something slower in place of the function (a drill, or a hook); the reproducer "
                     "does so only where a conftest.py does")  # fmt: skip
    return notes
