"""The options of a run, parsed once into a frozen record, with their ini twins."""

import math
import os
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ..core.errors import BadInput, RooflineError
from ..core.features import require
from ..core.units import parse_duration, parse_fraction, parse_tolerance
from ..engine.devices import check_device_name
from ..report.folder import check_folder
from .command_line import OutsideSetting, option_value, settings_elsewhere
from .options import LAUNCHERS, PROFILERS, SHADOW, TIERS
from .record_option import (
    RECORDED_ROUNDS,
    WAIT_S,
    reason_of,
    recording_name,
    records,
    refuse_record,
)
from .round import in_round
from .unknown_options import refuse_settings

# `--roofline-rounds=auto`; `stats.analyses` plans for the same number.
MOST_ROUNDS = 12
# The words of `--roofline-fail-on`.
NO_BASELINE, NO_HARDWARE = "no-baseline", "no-hardware"
FAIL_ON = ("regressed", "degraded", "invalid", NO_BASELINE, NO_HARDWARE, "inconclusive")
DEFAULT_FAIL_ON = ("regressed", "degraded")
GATE_FAIL_ON = (*DEFAULT_FAIL_ON, "invalid", NO_BASELINE, NO_HARDWARE)
# The time limit for the start of all ranks. A queue, a cold file system or a first import may take long.
BOOT_TIMEOUT_S = 90.0
# The time limit of a gate without `--roofline-time`.
GATE_TIME_S = 1800.0
# The beginning of a Windows path: a drive and a backslash.
_WINDOWS_PATH = re.compile(r"[A-Za-z]:\\")
_TRUE, _FALSE = ("true", "yes", "on", "y", "t", "1"), ("false", "no", "off", "n", "f", "0", "")


@dataclass(frozen=True, slots=True)
class Options:
    """The checked options of a run. Paths are absolute.

    `gate` is True with any profile of `--roofline-ci`, and `shadow` with the one that fails nothing. `until_recorded`
    lets single tests with NO BASELINE pass, as long as this hardware has no recorded entry at all. `rounds` is None
    without the option; then only tests that look slow get further processes. `recording` is the number of processes
    for a test without a baseline. `target` is the folder of baselines that a recording (`--roofline-record`) writes,
    and `accept_slower` the reason to record slower tests. `wait_s` is the longest wait for a quiet machine, None
    without one. `elsewhere` are the settings that bear on a gate and do not stand in its command.
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
    gate: bool = False
    shadow: bool = False
    until_recorded: bool = False
    rounds: int | None = None
    recording: int = 1
    target: Path | None = None
    accept_slower: str = ""
    wait_s: float | None = None
    time_s: float | None = None
    fail_on: frozenset[str] = frozenset(DEFAULT_FAIL_ON)
    expect: Path | None = None
    drill: float | None = None
    profile: str | None = None
    launcher: str = LAUNCHERS[0]
    launcher_args: tuple[str, ...] = ()
    address: str | None = None
    rank_timeout_s: float | None = None
    command: tuple[str, ...] = ()
    elsewhere: tuple[OutsideSetting, ...] = ()

    @property
    def requires_hardware(self) -> bool:
        """Return whether missing hardware fails a test."""
        return NO_HARDWARE in self.fail_on

    @property
    def boot_timeout_s(self) -> float:
        """Return the seconds for the start of all ranks."""
        return self.rank_timeout_s or BOOT_TIMEOUT_S

    @property
    def record(self) -> bool:
        """Return whether the run writes baselines at its end."""
        return self.target is not None

    @property
    def is_recording(self) -> bool:
        """Return whether the run may become a baseline.

        It is saved, and has several processes for tests without a baseline. A gate is none: it judges such tests.
        """
        return self.save is not None and self.recording > 1 and not self.gate


def _one_of(*allowed: str, hint: str = "") -> Callable[[str, str], str]:
    """Return a parser that allows these words only.

    `hint` is added to its message, with the option in place of `{option}`.
    """

    def parse(text: str, option: str) -> str:
        """Return the value, if it is an allowed word."""
        if text not in allowed:
            raise BadInput(
                f"{option} is {text!r}; expected one of {', '.join(allowed)}{hint.format(option=option)}"
            )
        return text

    return parse


def _device(text: str, _option: str) -> str:
    """Return the checked name of a device.

    The error of the check names the option itself.
    """
    check_device_name(text)
    return text


def _arguments(text: str, option: str) -> tuple[str, ...]:
    """Return the arguments in a text, split as a shell does."""
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise BadInput(
            f"{option} is {text!r}: {error}; expected arguments quoted as in a shell"
        ) from None


def _rounds(text: str, option: str) -> int:
    """Return a number of rounds, from 1 to 100 or `auto`."""
    if text == "auto":
        return MOST_ROUNDS
    if not text.isdecimal() or not 1 <= int(text) <= 100:
        raise BadInput(f"{option} is {text!r}; expected a number of rounds from 1 to 100, or auto")
    return int(text)


def _percent_of_roofline(text: str, option: str) -> float:
    """Return the share that `80` or `80%` stands for: 0.8."""
    from ..hardware import UPPER_BOUND

    try:
        percent = float(text.strip().removesuffix("%"))
    except ValueError:
        percent = math.nan
    # A number below 1 without `%` may be meant as a share, so it is refused.
    is_percent = percent >= 1 or text.strip().endswith("%")
    if not is_percent or not 0 < percent <= UPPER_BOUND * 100:
        raise BadInput(
            f"{option} is {text!r}; expected percent of the roofline from 1 up to {UPPER_BOUND:.0%}, as in {option}=80"
        )
    return percent / 100


# For each field of `Options`: the option, and the parser of its text. Options that depend on others are parsed below.
_PARSERS: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "tier": ("tier", _one_of(*TIERS)),
    "device": ("device", _device),
    "launcher": ("launcher", _one_of(*LAUNCHERS)),
    "launcher_args": ("launcher-args", _arguments),
    "budget_s": ("budget", parse_duration),
    "tolerance": ("tolerance", parse_tolerance),
    "min_share": ("min-percent", _percent_of_roofline),
    "rounds": ("rounds", _rounds),
    "time_s": ("time", parse_duration),
    "wait_s": ("wait", parse_duration),
    "drill": ("drill", parse_fraction),
    # Its value is optional, so a path behind the option is read as its value, and the message has a hint.
    "profile": (
        "profile",
        _one_of(
            *PROFILERS, hint=f". Type {{option}}={PROFILERS[0]}, or {{option}} without a value"
        ),
    ),
    "address": ("address", lambda text, _: text),
    "rank_timeout_s": ("rank-timeout", parse_duration),
}


def parse_options(config: pytest.Config) -> Options:
    """Return the options of a run.

    The command line goes before the ini file, and that before the default.
    """
    try:
        return _parse(config)
    except RooflineError as error:
        raise pytest.UsageError(str(error)) from None
    except OSError as error:
        raise pytest.UsageError(
            f"{error.filename} cannot be used as a path: {error.strerror}. Name another path"
        ) from None


def _parse(config: pytest.Config) -> Options:
    """Return the checked options of a run.

    An option that is set goes before the values of a gate's profile.
    """
    fields = {
        field: parse(text, f"--roofline-{name}")
        for field, (name, parse) in _PARSERS.items()
        if (text := option_value(config, name)) is not None
    }
    _check_launcher(fields)
    this_round, folder = in_round(config), run_folder(config)
    fields["against"] = _against(config, folder)
    fields |= {"rounds": 1} if this_round else _first_process_fields(config, folder, fields)
    options = Options(
        folder=this_round.folder if this_round else folder,
        baselines=_folders(config),
        expect=_expect(config),
        command=tuple(str(argument) for argument in config.invocation_params.args),
        elsewhere=settings_elsewhere(config),
        **_gate(config) | fields,
    )
    if options.record or options.gate:
        refuse_settings(config)
    if options.target is not None:
        # By option, whether it is in force; each of these excludes a recording.
        options_in_force = {
            "ci": options.gate,
            "against": bool(options.against),
            "drill": options.drill is not None,
            "profile": options.profile is not None,
        }
        refuse_record(config, options_in_force, options.recording, options.target)
    if options.profile is not None:
        # Raises an error if the folder of this feature was removed.
        require("observe")
    return options


def _check_launcher(fields: dict[str, Any]) -> None:
    """Refuse arguments for the launcher that takes none."""
    local, *other_launchers = LAUNCHERS
    if fields.get("launcher_args") and fields.get("launcher", local) == local:
        raise BadInput(
            f"--roofline-launcher-args is given, but the launcher {local} takes no arguments. Pass "
            f"--roofline-launcher with one of {', '.join(other_launchers)}, or remove --roofline-launcher-args"
        )


def _first_process_fields(
    config: pytest.Config, folder: Path, fields: dict[str, Any]
) -> dict[str, Any]:
    """Return the options that rounds do not have.

    Args:
        config: pytest's configuration.
        folder: where runs are saved.
        fields: the options that are parsed already.
    """
    # A test without a baseline is measured in several processes only if the user typed their number.
    has_number = option_value(config, "rounds") not in (None, "auto")
    settings = {
        "save": _save(config, folder, fields["against"]),
        "report": _report(config),
        "recording": fields["rounds"] if has_number else 1,
    }
    if not records(config):
        return settings
    rounds = fields["rounds"] if has_number else RECORDED_ROUNDS
    return settings | {
        "save": settings["save"] or recording_name(),
        "recording": rounds,
        "rounds": rounds,
        "target": _target(config),
        "accept_slower": reason_of(config),
        "wait_s": fields.get("wait_s", WAIT_S),
    }


def _target(config: pytest.Config) -> Path:
    """Return the folder of baselines that a recording writes.

    It is the first that was named, else that of the rootdir.
    """
    names = option_value(config, "baselines")
    return _folders(config)[0] if names else config.rootpath / "baselines"


def _gate(config: pytest.Config) -> dict[str, Any]:
    """Return the fields of the options that `--roofline-ci` and `--roofline-fail-on` set.

    `--roofline-ci` makes the run a gate: it has defaults of its own for what fails, rounds and time.
    """
    profile = _ci(config)
    is_gate = bool(profile)
    words, adds = _fail_on(option_value(config, "fail-on"))
    usual_words = frozenset(GATE_FAIL_ON if is_gate else DEFAULT_FAIL_ON)
    # Words without a plus replace the usual ones, but a gate fails for lack of hardware in any case.
    kept_words = usual_words if adds else usual_words & {NO_HARDWARE}
    return {
        "gate": is_gate,
        "shadow": profile == SHADOW,
        "until_recorded": is_gate and NO_BASELINE not in words,
        "fail_on": words | kept_words,
        "rounds": MOST_ROUNDS if is_gate else None,
        "time_s": GATE_TIME_S if is_gate else None,
    }


def _ci(config: pytest.Config) -> str:
    """Return the profile of a gate: `ci`, `shadow`, or empty."""
    text = str(option_value(config, "ci") or "").strip().lower()
    if text not in (*_TRUE, *_FALSE, SHADOW):
        raise BadInput(f"roofline_ci is {text!r}; expected true, false or {SHADOW}")
    if text == SHADOW:
        return SHADOW
    return "ci" if text in _TRUE else ""


def _fail_on(text: str | None) -> tuple[frozenset[str], bool]:
    """Read `--roofline-fail-on`.

    Returns:
        The words, and whether they are added to the usual ones: `+invalid` is added, and words without a plus replace
        them.

    Raises:
        BadInput: a word is not known, a `+` stands before some of the words only, or a regression would pass.
    """
    if text is None:
        return frozenset(), True
    typed_words = [word.strip().lower() for word in text.split(",") if word.strip()]
    words = frozenset(word.removeprefix("+") for word in typed_words)
    unknown = sorted(words - set(FAIL_ON))
    if unknown or not words:
        fault = f"names {', '.join(unknown)}" if unknown else "is empty"
        raise BadInput(f"--roofline-fail-on {fault}; expected some of {', '.join(FAIL_ON)}")
    with_plus = [word for word in typed_words if word.startswith("+")]
    if with_plus and with_plus != typed_words:
        raise BadInput(
            f"--roofline-fail-on={text} has a + before some words only. Put a + before every word to add the words "
            "to the default list, or before no word to replace the default list"
        )
    # Without a plus these words replace the default list, so a regression must be among them.
    if not with_plus and "regressed" not in words:
        raise BadInput(
            f"--roofline-fail-on={text} lets a regression pass. Name regressed too, or write +{typed_words[0]} to add "
            f"{typed_words[0]} to the default list. To allow larger slowdowns, raise --roofline-tolerance"
        )
    return words, bool(with_plus)


def boot_timeout_of(config: pytest.Config) -> float:
    """Return the seconds for the start of a launch."""
    text = option_value(config, "rank-timeout")
    return BOOT_TIMEOUT_S if text is None else parse_duration(text, "--roofline-rank-timeout")


def run_folder(config: pytest.Config) -> Path:
    """Return the folder where runs are saved."""
    return _path(config, "dir") or config.rootpath / ".roofline"


def _path(config: pytest.Config, option: str, text: str | None = None) -> Path | None:
    """Return the path of an option; None without the option.

    A path of the command line is relative to the folder of the command, one of the ini file to that file's folder.
    `text` replaces the option's value.
    """
    text = option_value(config, option) if text is None else text
    if text is None:
        return None
    if not text:
        raise BadInput(f"--roofline-{option} is empty; expected a path")
    if os.sep == "/" and _WINDOWS_PATH.match(text):
        # The first two characters are the drive.
        raise BadInput(
            f"--roofline-{option} is {text!r}, a Windows path; expected a path of this system, such as "
            + text[2:].replace("\\", "/")
        )
    on_command_line = config.getoption(f"--roofline-{option}") is not None
    base_folder = (
        config.inipath.parent
        if config.inipath and not on_command_line
        else config.invocation_params.dir
    )
    return base_folder / text


def _report(config: pytest.Config) -> Path | None:
    """Return the checked folder of the report, if any."""
    folder = _path(config, "report")
    if folder is None:
        return None
    return check_folder(folder, "--roofline-report")


def _expect(config: pytest.Config) -> Path | None:
    """Return the file of the expected hardware, if any; it must exist."""
    path = _path(config, "expect")
    if path is not None and not path.is_file():
        text = option_value(config, "expect")
        raise BadInput(
            f"--roofline-expect={text}: {path} is no file. Write the file with `roofline doctor --write-expect`"
        )
    return path


def _save(config: pytest.Config, folder: Path, against: tuple[Path, ...]) -> str | None:
    """Return the name to save the run under, if any.

    It must be new.
    """
    name = option_value(config, "save")
    if name is None:
        return None
    from ..baselines.run_files import refuse_existing
    from ..core.storage import check_name

    check_name(name, "--roofline-save")
    if folder / "runs" / f"{name}.jsonl" in against:
        raise BadInput(
            f"--roofline-save and --roofline-against both name {name!r}; a run cannot be its own baseline"
        )
    refuse_existing(folder, name)
    return str(name)


def _against(config: pytest.Config, folder: Path) -> tuple[Path, ...]:
    """Return the files of saved runs and baselines to compare with."""
    paths = []
    for name in option_value(config, "against") or []:
        from ..baselines.run_files import run_path, saved_runs

        path = _path(config, "against", str(run_path(name, folder, argument="--roofline-against")))
        if path is None or not path.exists():
            raise BadInput(
                f"--roofline-against={name}: {path} does not exist; {saved_runs(folder)}"
            )
        paths.append(path)
    return tuple(paths)


def _folders(config: pytest.Config) -> tuple[Path, ...]:
    """Return the folders of baselines, in the order of the search.

    They are those of the option, then the rootdir's, if there is one.
    """
    folders = []
    for name in option_value(config, "baselines") or []:
        folder = _path(config, "baselines", name)
        if folder is None or not folder.is_dir():
            raise BadInput(
                f"--roofline-baselines={name}: {folder} is no directory; expected a directory of baseline files"
            )
        folders.append(folder)
    project_folder = config.rootpath / "baselines"
    return (*folders, project_folder) if project_folder.is_dir() else tuple(folders)
