"""What the user asked for, parsed once at the border into frozen records: options with ini twins, and the marker."""

import math
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from .options import LAUNCHERS, MARKER, MARKER_KEYWORDS, NEEDS, OOM, PROFILERS, SHADOW, TIERS, option_value
from .round_child import in_round

if TYPE_CHECKING:
    from ..core.keys import Cache

# `--roofline-rounds=auto`; `stats.looks` plans for the same number.
MOST_ROUNDS = 12
# What `--roofline-fail-on` may name.
FAIL_ON = ("regressed", "degraded", "invalid", "no-baseline", "inconclusive")
DEFAULT_FAIL_ON = ("regressed", "degraded")
GATE_FAIL_ON = (*DEFAULT_FAIL_ON, "invalid", "no-baseline")
# Until ranks must have come: a queue, a cold file system or a first import may take long.
BOOT_TIMEOUT_S = 90.0
# A gate that nobody told how long it may take.
GATE_TIME_S = 1800.0
_TRUE, _FALSE = ("true", "yes", "on", "y", "t", "1"), ("false", "no", "off", "n", "f", "0", "")


@dataclass(frozen=True, slots=True)
class Options:
    """What the user asked for, checked. Paths are absolute.

    `gate` tells that a profile of a gate was asked for, `shadow` that it only says what it would have failed.
    `until_recorded` lets NO BASELINE of single tests pass as long as this hardware has no recorded entry at all.
    `rounds` is None where nobody said: more processes follow then for what looks slow. `recording` is how many measure
    what nothing is known of.
    """

    folder: Path
    device: str | None = None
    tier: str = "quick"
    budget_s: float = 1.0
    tolerance: float | None = None
    min_share: float | None = None
    save: str | None = None
    report: Path | None = None
    against: tuple[Path, ...] = ()
    baselines: tuple[Path, ...] = ()
    require_baseline: bool = False
    require_hardware: bool = False
    gate: bool = False
    shadow: bool = False
    until_recorded: bool = False
    rounds: int | None = None
    recording: int = 1
    time_s: float | None = None
    fail_on: frozenset[str] = frozenset(DEFAULT_FAIL_ON)
    expect: Path | None = None
    drill: float | None = None
    profile: str | None = None
    memory_snapshot: Path | None = None
    launcher: str = "local"
    launcher_args: tuple[str, ...] = ()
    address: str | None = None
    rank_timeout_s: float | None = None
    boot_timeout_s: float = BOOT_TIMEOUT_S
    command: tuple[str, ...] = field(default=())


def parse_options(config: pytest.Config) -> Options:
    """The options of this run: command line before ini before default.

    Raises:
        pytest.UsageError: a value cannot be used, or two contradict each other.
    """
    from ..core.errors import RooflineError

    try:
        return _parse(config)
    except RooflineError as error:
        raise pytest.UsageError(str(error)) from None
    except OSError as error:
        raise pytest.UsageError(f"{error.filename} cannot be used as a path: {error.strerror}") from None


def _parsed(config: pytest.Config, name: str, parse: Callable[[str, str], Any], default: Any) -> Any:
    text = option_value(config, name)
    return default if text is None else parse(text, f"--roofline-{name}")


def _parse(config: pytest.Config) -> Options:
    from ..core.errors import BadInput
    from ..core.units import parse_duration, parse_fraction, parse_seconds, parse_tolerance

    tier = option_value(config, "tier") or "quick"
    if tier not in TIERS:
        raise BadInput(f"--roofline-tier is {tier!r}; expected one of {', '.join(TIERS)}")
    device = option_value(config, "device")
    if device is not None:
        from ..engine.devices import check_device_name

        check_device_name(device)
    folder = run_folder(config)
    asked_round = in_round(config)
    save, against = None if asked_round else option_value(config, "save"), _against(config, folder)
    if save is not None:
        _check_save(folder, save, against)
    qualify = bool(option_value(config, "qualify"))
    launcher, launcher_args = _launcher(config), _parsed(config, "launcher-args", _arguments, ())
    if launcher_args and launcher == LAUNCHERS[0]:
        raise BadInput(
            f"--roofline-launcher-args is given, but --roofline-launcher is {launcher}, which takes none; expected one "
            f"of {', '.join(LAUNCHERS[1:])} beside it"
        )
    profile = _ci(config)
    gate = qualify or bool(profile)
    asked = any(option_value(config, name) for name in ("require-baseline", "fail-on"))
    return Options(
        folder=asked_round.folder if asked_round else folder,
        device=device,
        tier=tier,
        budget_s=_parsed(config, "budget", parse_seconds, 1.0),
        tolerance=_parsed(config, "tolerance", parse_tolerance, None),
        min_share=_parsed(config, "min-percent", _percent_of_roofline, None),
        save=save,
        report=None if asked_round else _report(config),
        against=against,
        baselines=_folders(config),
        require_baseline=gate or bool(option_value(config, "require-baseline")),
        require_hardware=gate or bool(option_value(config, "require-hardware")),
        gate=gate,
        shadow=profile == SHADOW,
        until_recorded=bool(profile) and not qualify and not asked,
        rounds=1 if asked_round else _parsed(config, "rounds", _rounds, MOST_ROUNDS if gate else None),
        recording=1 if asked_round else _parsed(config, "rounds", _recording, 1),
        time_s=_parsed(config, "time", parse_duration, GATE_TIME_S if gate else None),
        fail_on=_fail_on(config, gate, qualify),
        expect=_expect(config),
        drill=_parsed(config, "drill", parse_fraction, None),
        profile=_parsed(config, "profile", _profiler, None),
        memory_snapshot=_snapshots(config),
        launcher=launcher,
        launcher_args=launcher_args,
        address=option_value(config, "address"),
        rank_timeout_s=_parsed(config, "rank-timeout", parse_duration, None),
        boot_timeout_s=boot_timeout_of(config),
        command=tuple(str(argument) for argument in config.invocation_params.args),
    )


def _ci(config: pytest.Config) -> str:
    """The profile: `ci`, `shadow`, or empty where none was asked for."""
    from ..core.errors import BadInput

    text = str(option_value(config, "ci") or "").strip().lower()
    if text not in (*_TRUE, *_FALSE, SHADOW):
        raise BadInput(f"roofline_ci is {text!r}; expected true, false or {SHADOW}")
    return text if text == SHADOW else "ci" if text in _TRUE else ""


def run_folder(config: pytest.Config) -> Path:
    """Where runs are kept.

    Raises:
        BadInput: `--roofline-dir` is empty.
    """
    asked = option_value(config, "dir")
    return config.rootpath / ".roofline" if asked is None else _path(config, "dir", asked)


def boot_timeout_of(config: pytest.Config) -> float:
    """Seconds until all ranks of a world, or all processes of a launch, must have come.

    Raises:
        BadInput: `--roofline-boot-timeout` is no duration.
    """
    from ..core.units import parse_duration

    return float(_parsed(config, "boot-timeout", parse_duration, BOOT_TIMEOUT_S))


def _launcher(config: pytest.Config) -> str:
    from ..core.errors import BadInput

    name = option_value(config, "launcher") or LAUNCHERS[0]
    if name not in LAUNCHERS:
        raise BadInput(f"--roofline-launcher is {name!r}; expected one of {', '.join(LAUNCHERS)}")
    return str(name)


def _arguments(text: str, what: str) -> tuple[str, ...]:
    from ..core.errors import BadInput

    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise BadInput(f"{what} is {text!r}: {error}; expected arguments as in a shell") from None


def _rounds(text: str, what: str) -> int:
    from ..core.errors import BadInput

    if text == "auto":
        return MOST_ROUNDS
    if not text.isdecimal() or not 1 <= int(text) <= 100:
        raise BadInput(f"{what} is {text!r}; expected a number of rounds from 1 to 100, or auto")
    return int(text)


def _recording(text: str, what: str) -> int:
    """How many processes are measured where nothing is known that could decide: as many as were asked for by number."""
    return 1 if text == "auto" else _rounds(text, what)


def _percent_of_roofline(text: str, what: str) -> float:
    """The share that is meant by `80` or `80%`."""
    from ..core.errors import BadInput
    from ..hardware import UPPER_BOUND

    number = text.strip()
    try:
        percent = float(number.removesuffix("%"))
    except ValueError:
        percent = math.nan
    if 0 < percent < 1 and not number.endswith("%"):
        raise BadInput(
            f"{what} is {text!r}, less than one percent of the roofline; was {percent * 100:g} meant? "
            f"(expected percent, as in {what}=80; with a % behind it, {number}% is taken as it stands)"
        )
    if not 0 < percent <= UPPER_BOUND * 100:
        raise BadInput(
            f"{what} is {text!r}; expected percent of the roofline above 0 and up to {UPPER_BOUND:.0%}, as in {what}=80"
        )
    return percent / 100


def _profiler(text: str, what: str) -> str:
    from ..core.errors import BadInput

    if text not in PROFILERS:
        # The option takes what stands behind it, be it a path.
        raise BadInput(
            f"{what} is {text!r}; expected one of {', '.join(PROFILERS)}, as in {what}={PROFILERS[0]}, or nothing "
            "behind it"
        )
    return text


def _snapshots(config: pytest.Config) -> Path | None:
    from ..core.errors import BadInput

    text = option_value(config, "memory-snapshot")
    if text is None:
        return None
    folder = _path(config, "memory-snapshot", text)
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"--roofline-memory-snapshot={text}: {folder} is no directory; expected one, or a new name")
    return folder


def _report(config: pytest.Config) -> Path | None:
    text = option_value(config, "report")
    if text is None:
        return None
    from ..report.folder import check_folder

    return check_folder(_path(config, "report", text), "--roofline-report")


def _fail_on(config: pytest.Config, gate: bool, qualify: bool) -> frozenset[str]:
    from ..core.errors import BadInput

    text = option_value(config, "fail-on")
    if text is None:
        chosen = {*(GATE_FAIL_ON if gate else DEFAULT_FAIL_ON), *(("inconclusive",) if qualify else ())}
    else:
        chosen = {word.strip().lower() for word in text.split(",") if word.strip()}
        unknown = sorted(chosen - set(FAIL_ON))
        if unknown or not chosen:
            seen = f"names {', '.join(unknown)}" if unknown else "is empty"
            raise BadInput(f"--roofline-fail-on {seen}; expected some of {', '.join(FAIL_ON)}")
        if "regressed" not in chosen:
            raise BadInput(
                f"--roofline-fail-on={text} lets a regression pass; name regressed too, or raise --roofline-tolerance"
            )
    if option_value(config, "require-baseline"):
        chosen.add("no-baseline")
    return frozenset(chosen)


def _expect(config: pytest.Config) -> Path | None:
    from ..core.errors import BadInput

    text = option_value(config, "expect")
    if text is None:
        return None
    path = _path(config, "expect", text)
    if not path.is_file():
        raise BadInput(f"--roofline-expect={text}: {path} is no file; write one with `roofline doctor --write-expect`")
    return path


def _path(config: pytest.Config, option: str, text: str) -> Path:
    """A path as its author meant it: on the command line relative to here, in the ini file relative to that file."""
    from ..core.errors import BadInput

    if not text:
        raise BadInput(f"--roofline-{option} is empty; expected a path")
    on_command_line = config.getoption(f"--roofline-{option}") is not None
    home = config.inipath.parent if config.inipath and not on_command_line else config.invocation_params.dir
    return home / text


def _check_save(folder: Path, save: str, against: tuple[Path, ...]) -> None:
    from ..baselines.run_files import refuse_existing
    from ..core.errors import BadInput
    from ..core.storage import check_name

    check_name(save, "--roofline-save")
    if folder / "runs" / f"{save}.jsonl" in against:
        raise BadInput(f"--roofline-save and --roofline-against both name {save!r}; a run cannot be its own baseline")
    refuse_existing(folder, save)


def _against(config: pytest.Config, folder: Path) -> tuple[Path, ...]:
    names = option_value(config, "against") or []
    if not names:
        return ()
    from ..baselines.run_files import run_path, saved_runs
    from ..core.errors import BadInput

    paths = []
    for name in names:
        path = _path(config, "against", str(run_path(name, folder, what="--roofline-against")))
        if not path.exists():
            raise BadInput(f"--roofline-against={name}: {path} does not exist; {saved_runs(folder)}")
        paths.append(path)
    return tuple(paths)


def _folders(config: pytest.Config) -> tuple[Path, ...]:
    from ..core.errors import BadInput

    folders = []
    for name in option_value(config, "baselines") or []:
        folder = _path(config, "baselines", name)
        if not folder.is_dir():
            raise BadInput(f"--roofline-baselines={name}: {folder} is no directory; expected one with baseline files")
        folders.append(folder)
    shipped = config.rootpath / "baselines"
    return (*folders, shipped) if shipped.is_dir() else tuple(folders)


@dataclass(frozen=True, slots=True)
class Marks:
    """What `@pytest.mark.roofline(...)` says of a test; the marker nearest to the test wins."""

    tolerance: float | None = None
    tolerance_reason: str | None = None
    cache: "Cache | None" = None
    budget: float | None = None
    ranks: int | None = None
    gate: bool = False
    tier: str = "quick"
    needs: str | None = None
    mpi: bool = False
    oom: str | None = None
    measures: bool = True
    setup: float | None = None


# How a test says that a wide tolerance is meant.
WIDE_MARK = "say why by @pytest.mark.roofline(tolerance_reason=…)"


def read_marks(item: pytest.Item) -> Marks:
    """The marker's values for a test.

    Raises:
        pytest.UsageError: an unknown keyword or an impossible value, naming the test.
    """
    merged: dict[str, Any] = {}
    for mark in reversed(list(item.iter_markers(MARKER))):
        unknown = sorted(set(mark.kwargs) - set(MARKER_KEYWORDS))
        if unknown or mark.args:
            seen = ", ".join(unknown) if unknown else "a positional argument"
            raise pytest.UsageError(
                f"{item.nodeid}: @pytest.mark.roofline does not know {seen}; expected {', '.join(MARKER_KEYWORDS)}"
            )
        merged |= mark.kwargs
    from ..core.errors import BadInput, refuse_wide

    _check_marks(item, merged)
    marks = Marks(**merged)
    try:
        refuse_wide(marks.tolerance, marks.tolerance_reason is not None, WIDE_MARK)
    except BadInput as error:
        raise pytest.UsageError(f"{item.nodeid}: @pytest.mark.roofline: {error}") from None
    return marks


def _is_positive(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < float("inf")


def _check_marks(item: pytest.Item, values: dict[str, Any]) -> None:
    from ..core.keys import CACHES

    rules: dict[str, tuple[Callable[[Any], bool], str]] = {
        "tolerance": (_is_positive, "a share above zero, such as 0.05"),
        "tolerance_reason": (lambda value: isinstance(value, str) and bool(value.strip()), "a sentence"),
        "budget": (_is_positive, "seconds above zero"),
        "setup": (_is_positive, "about how many seconds set-up and checks take"),
        "cache": (lambda value: value in CACHES, f"one of {', '.join(CACHES)}"),
        "ranks": (lambda value: _is_positive(value) and isinstance(value, int), "a whole number above zero"),
        "gate": (lambda value: isinstance(value, bool), "True or False"),
        "mpi": (lambda value: isinstance(value, bool), "True or False"),
        "measures": (lambda value: isinstance(value, bool), "True, or False where a test only asserts facts"),
        "tier": (lambda value: value in TIERS, f"one of {', '.join(TIERS)}"),
        "needs": (lambda value: value in NEEDS, f"one of {', '.join(NEEDS)}"),
        "oom": (lambda value: value in OOM, f"{OOM[0]!r}, to record it where memory runs out, instead of failing"),
    }
    for name, value in values.items():
        fits, expected = rules[name]
        if not fits(value) and not (value is None and name not in ("gate", "tier", "mpi", "measures")):
            raise pytest.UsageError(f"{item.nodeid}: @pytest.mark.roofline has {name}={value!r}; expected {expected}")
