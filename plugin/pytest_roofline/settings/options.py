"""The options with their ini twins, as data. They are light, since every run of pytest loads them."""

import argparse
from collections.abc import Sequence
from typing import Any

import pytest

# How every option of ours begins.
PREFIX = "--roofline-"
TIERS = ("quick", "nightly", "full")
MARKER = "roofline"
FIXTURE = "roofline"
# Tests that use this fixture run functions on ranks.
RANKS_FIXTURE = "distributed"
MARKER_KEYWORDS = (
    "tolerance", "tolerance_reason", "cache", "budget", "ranks", "gate", "tier", "needs", "mpi", "oom",
    "measures",
)  # fmt: skip
NEEDS = ("cpu", "accelerator", "siblings")
# The value of `--roofline-ci=shadow`: a gate that fails nothing, and reports what it would have failed.
SHADOW = "shadow"
# What a test may do, instead of failing, if its memory runs out.
OOM = ("record",)
# The profilers: torch.profiler, or a tool that started this process.
PROFILERS = ("torch", "external")
LAUNCHERS = ("local", "torchrun", "mpirun", "srun")

# Options of pytest with which it runs no test: it lists tests, or prints facts on itself.
LOOKING = {
    "collectonly": "--collect-only",
    "setupplan": "--setup-plan",
    "setuponly": "--setup-only",
    "showfixtures": "--fixtures",
    "show_fixtures_per_test": "--fixtures-per-test",
    "markers": "--markers",
    "cacheshow": "--cache-show",
    "help": "--help",
    "version": "--version",
}

# Why tests that measure refuse to run in a worker of pytest-xdist.
SIDE_BY_SIDE = (
    "pytest-xdist runs tests side by side (-n above 0), which disturbs every "
    "timing; expected -n 0 or no -n"
)

# Names a file into which a run writes where it was saved; `roofline drill` reads it.
SAVED_VARIABLE = "ROOFLINE_SAVED"

# Names the file that tells a process to be a round of another run.
ROUND_VARIABLE = "ROOFLINE_ROUND"

# Names the file whose Markdown GitHub shows as the summary of a step.
SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"

# Launchers set these variables in the processes of ranks only.
RANK_VARIABLES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")

# Names a file for the list of all tests that would measure, which `roofline baseline check --prune` asks for.
PLAN_VARIABLE = "ROOFLINE_PLAN"

# (option, its value as usage lines call it, help); each has an ini twin with underscores and the same meaning.
_VALUES = (
    (
        "device",
        "DEVICE",
        "device to measure: cpu, cuda, cuda:N, mps, xpu or xpu:N (default: the best device)",
    ),
    ("tier", "|".join(TIERS), "how many sizes to measure: quick (default), nightly or full"),
    ("budget", "SECONDS", "seconds that one measurement may take (default 1)"),
    (
        "tolerance",
        "SHARE",
        "largest slowdown that still passes: 5%% or 0.05 (default 5%%, on a CPU 15%%). "
        "Above 50%%, end the value with a !, as in 80%%!",
    ),
    ("min-percent", "N", "also fail a test that reaches less than N %% of the datasheet's peak"),
    (
        "rounds",
        "N|auto",
        "measure undecided tests in N fresh processes, or in up to 12 with auto (default: up to 5, and only tests that "
        "look slow)",
    ),
    ("time", "DURATION", "start no further round of the run after this time: 1800, 30m or 1h"),
    (
        "wait",
        "DURATION",
        "wait at most this long for a quiet machine, then end with status 1 (default of a recording: 2m)",
    ),
    (
        "fail-on",
        "LIST",
        "verdicts that fail the run: regressed, and any of degraded, invalid, no-baseline, no-hardware, "
        "inconclusive. +WORD adds a verdict to the default",
    ),
    (
        "expect",
        "FILE",
        "file of the expected hardware, which `roofline doctor --write-expect` writes",
    ),
    (
        "profile",
        "|".join(PROFILERS),
        "also show the time of each kernel, in a separate pass under torch.profiler (default), or under "
        "nsys, ncu or rocprof",
    ),
    ("save", "NAME", "save this run under a name"),
    (
        "report",
        "DIR",
        "write run.json, results.csv, summary.md and index.html with plots into this directory",
    ),
    (
        "against",
        "NAME|PATH",
        "compare with this saved run or baseline file, not with the baselines (repeatable)",
    ),
    (
        "baselines",
        "DIR",
        "directory of a site's own baselines, searched before the shipped ones (repeatable)",
    ),
    (
        "launcher",
        "|".join(LAUNCHERS),
        "program that starts the ranks: local (default); on several nodes torchrun, mpirun or srun",
    ),
    (
        "launcher-args",
        "ARGS",
        "further arguments of the launcher, in one string: '--hostfile hosts'",
    ),
    (
        "address",
        "HOST",
        "host name or IP address to which ranks on other nodes connect (default: this host's name)",
    ),
    (
        "rank-timeout",
        "SECONDS",
        "seconds in which all ranks must start (default 90), and in which each call over ranks must end (default "
        "120 + 20 x budget)",
    ),
    ("dir", "DIR", "directory into which runs are saved (default .roofline in the rootdir)"),
)
# The sentence for a run whose selected tests are all of a higher tier.
tier_key: pytest.StashKey[str] = pytest.StashKey()
# The `AttachedProcesses` of the launch that this pytest is rank 0 of.
attached_key: pytest.StashKey[Any] = pytest.StashKey()
# The `Launcher` of a run with tests that use ranks.
ranks_key: pytest.StashKey[Any] = pytest.StashKey()
LISTS = ("against", "baselines")
# The option that `roofline drill` adds: the share by which every measured function is slowed down. It has no ini twin.
DRILL = "drill"
# The names of all options but those that only the command may have.
NAMES = (*(name for name, *_ in _VALUES), "ci", DRILL)
# Options that only the command may have: with an ini twin every run of a project would write baselines.
_COMMAND_OPTIONS: tuple[tuple[str, dict[str, Any], str], ...] = (
    (
        "record",
        {"action": "store_true"},
        "measure every selected test in 10 fresh processes (or as many as --roofline-rounds says), and write the "
        "baselines of this hardware",
    ),
    (
        "accept-slower",
        {"metavar": "REASON"},
        "with --roofline-record: also record tests that became slower, and keep REASON in their entries",
    ),
)
COMMAND_OPTIONS = tuple(name for name, *_ in _COMMAND_OPTIONS)
# What the columns of the table mean.
COLUMNS = (
    "`of roof` is the share of the hardware's peak (*: the peak was measured here; cache: the data stay in the cache, "
    "so there is no share). `against baseline` is the change of the time, with its 99 % interval over all processes "
    "in brackets"
)
_CI = (
    "run as a gate: fail also where a baseline or the hardware is missing, where a test is INVALID or the device "
    "DEGRADED, and where nothing was compared. A gate takes up to 12 rounds and 30 minutes. "
    f"With ={SHADOW} the gate passes and reports what would have failed"
)


class _Profile(argparse.Action):
    """`--roofline-ci` and `--roofline-ci=shadow`, as two flags.

    With an optional value, argparse would read the path after `--roofline-ci` as the value.
    """

    def __init__(self, option_strings: Sequence[str], dest: str, **keywords: Any) -> None:
        flags = [*option_strings, *(f"{name}={SHADOW}" for name in option_strings)]
        super().__init__(flags, dest, nargs=0, **keywords)

    def __call__(
        self, _parser: object, namespace: object, _values: object, option_string: str | None = None
    ) -> None:
        """Keep the flag that was typed: `shadow`, or True without a value.

        argparse calls this with the object that gets the parsed options, `namespace`.
        """
        is_shadow = (option_string or "").endswith(f"={SHADOW}")
        setattr(namespace, self.dest, SHADOW if is_shadow else True)


def add_options(parser: pytest.Parser) -> None:
    """Register every option of ours.

    Most have an ini setting of the same name.
    """
    group = parser.getgroup(
        "roofline",
        f"roofline: is this machine as fast as it should be? Columns of its table: {COLUMNS}",
    )
    for name, metavar, text in _VALUES:
        is_list = name in LISTS
        # `--roofline-profile` without a value is torch's profiler.
        arity: dict[str, Any] = {"nargs": "?", "const": PROFILERS[0]} if name == "profile" else {}
        action = "append" if is_list else "store"
        group.addoption(
            f"--roofline-{name}",
            action=action,
            default=None,
            metavar=metavar,
            help=text,
            **arity,
        )
        kind: Any = "args" if is_list else "string"
        parser.addini(ini_name(name), text.replace("%%", "%"), type=kind)
    group.addoption(f"--roofline-{DRILL}", default=None, help=argparse.SUPPRESS)
    for name, keywords, text in _COMMAND_OPTIONS:
        group.addoption(f"--roofline-{name}", default=None, help=text, **keywords)
    group.addoption("--roofline-ci", action=_Profile, default=None, help=_CI)
    # A TOML file may have `true` or a text here, and only pytest from 9.2 on takes both.
    kind = bool | str if pytest.version_tuple >= (9, 2) else "string"
    parser.addini("roofline_ci", _CI, type=kind, default="")


def ini_name(name: str) -> str:
    """Return the ini twin of an option of ours: `roofline_fail_on`."""
    return f"roofline_{name.replace('-', '_')}"
