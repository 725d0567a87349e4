"""The options and their ini twins, as data. Light: this is all that a pytest run pays that measures nothing."""

import argparse
from collections.abc import Sequence
from typing import Any

import pytest

TIERS = ("quick", "nightly", "full")
MARKER = "roofline"
FIXTURE = "roofline"
# Tests that use this fixture run functions on ranks.
RANKS_FIXTURE = "distributed"
MARKER_KEYWORDS = (
    "tolerance", "tolerance_reason", "cache", "budget", "setup", "ranks", "gate", "tier", "needs", "mpi", "oom",
    "measures",
)  # fmt: skip
NEEDS = ("cpu", "accelerator", "siblings")
# `--roofline-ci=shadow`: a gate that only says what it would have failed.
SHADOW = "shadow"
# What a test may do where its memory runs out, in place of failing.
OOM = ("record",)
# What looks for where the time goes: torch.profiler, or a tool that started this process.
PROFILERS = ("torch", "external")
LAUNCHERS = ("local", "torchrun", "mpirun", "srun")

# With these, pytest looks at tests but runs none.
NOT_RUNNING = ("collectonly", "setupplan", "setuponly", "showfixtures", "show_fixtures_per_test")

# Names a file into which a run writes where it was saved; `roofline drill` reads it.
SAVED_VARIABLE = "ROOFLINE_SAVED"

# Names the file whose Markdown GitHub shows as the summary of a step.
SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"

# Names a file for the list of all tests that would measure, which `roofline baseline prune` asks for.
PLAN_VARIABLE = "ROOFLINE_PLAN"

# (option, argparse keywords, help); every one has an ini twin with underscores and the same meaning.
_OPTIONS: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("device", {"metavar": "DEVICE"}, "cpu, cuda, cuda:N, mps, xpu or xpu:N; the best there is by default"),
    ("tier", {"metavar": "|".join(TIERS)}, "how many sizes: quick (default), nightly, full"),
    ("budget", {"metavar": "SECONDS"}, "measuring time of one measurement (default 1)"),
    (
        "tolerance",
        {"metavar": "SHARE"},
        "how much slower is still the same, as 5%% or 0.05 of the time (default 5%%, hosts 15%%; above 50%%, 80%%!)",
    ),
    (
        "min-percent",
        {"metavar": "N"},
        "least share of a datasheet's peak, in percent, where neither baseline nor limit is known",
    ),
    (
        "rounds",
        {"metavar": "N|auto"},
        "run undecided tests again in fresh processes: N, or auto up to 12 (default: what looks slow, twice more)",
    ),
    ("time", {"metavar": "DURATION"}, "start no further round after so long: 1800, 30m or 1h"),
    ("fail-on", {"metavar": "LIST"}, "what fails: regressed, and some of degraded, invalid, no-baseline, inconclusive"),
    ("expect", {"metavar": "FILE"}, "what a good node has, as `roofline doctor --write-expect` wrote it"),
    ("drill", {"metavar": "SHARE"}, "slow every measured function down by so much, to see the gate turn red"),
    (
        "profile",
        {"metavar": "|".join(PROFILERS), "nargs": "?", "const": PROFILERS[0]},
        "also show where the time goes, in an untimed pass under torch.profiler (default), or for nsys, ncu or rocprof",
    ),
    ("memory-snapshot", {"metavar": "DIR"}, "write torch's memory snapshot of every measurement there (CUDA, ROCm)"),
    ("save", {"metavar": "NAME"}, "keep this run under a name"),
    ("report", {"metavar": "DIR"}, "write run.json, results.csv, summary.md and index.html with plots there"),
    ("against", {"metavar": "NAME|PATH"}, "compare with this saved run or baseline file instead (repeatable)"),
    ("baselines", {"metavar": "DIR"}, "a site's own baselines, searched before the shipped ones (repeatable)"),
    ("launcher", {"metavar": "|".join(LAUNCHERS)}, "what starts ranks: local (default), or what knows several nodes"),
    ("launcher-args", {"metavar": "ARGS"}, "further arguments for it, in one string: '--hostfile hosts'"),
    ("address", {"metavar": "HOST"}, "under which ranks on other nodes reach this one (default: its name)"),
    ("rank-timeout", {"metavar": "SECONDS"}, "for one call of ranks; 120 s and twenty budgets by default"),
    ("boot-timeout", {"metavar": "SECONDS"}, "until the ranks of a world must have come (default 90)"),
    ("dir", {"metavar": "DIR"}, "where runs are kept (default .roofline in the rootdir)"),
)
_LISTS = ("against", "baselines")
_CI = (
    "a gate: baseline and hardware required, rounds auto, invalid, degraded and nothing compared fail, at most 30 "
    f"minutes; with ={SHADOW} nothing fails, it says what would have, and after 14 nights how often"
)
_FLAGS = (
    ("qualify", "the same for a new driver or node, where inconclusive fails too"),
    ("require-baseline", "fail a test that has nothing to compare with"),
    ("require-hardware", "fail a test that would be skipped for lack of hardware"),
)


class _Profile(argparse.Action):
    """`--roofline-ci` and `--roofline-ci=shadow`, as two flags.

    Of a value that may be left out argparse would take the path behind the option for it.
    """

    def __init__(self, option_strings: Sequence[str], dest: str, **keywords: Any) -> None:
        both = [*option_strings, *(f"{name}={SHADOW}" for name in option_strings)]
        super().__init__(both, dest, nargs=0, **keywords)

    def __call__(
        self,
        _parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        _values: object,
        option_string: str | None = None,
    ) -> None:
        """Keep which of the two it was."""
        setattr(namespace, self.dest, SHADOW if (option_string or "").endswith(f"={SHADOW}") else True)


def add_options(parser: pytest.Parser) -> None:
    """Register every option with its ini twin."""
    group = parser.getgroup("roofline", "roofline: is this machine as fast as it should be?")
    for name, keywords, text in _OPTIONS:
        action = "append" if name in _LISTS else "store"
        group.addoption(f"--roofline-{name}", action=action, default=None, help=text, **keywords)
        ini = f"roofline_{name.replace('-', '_')}"
        if name in _LISTS:
            parser.addini(ini, text, type="args")
        else:
            parser.addini(ini, text.replace("%%", "%"), type="string")
    for name, text in _FLAGS:
        group.addoption(f"--roofline-{name}", action="store_true", default=None, help=text)
        parser.addini(f"roofline_{name.replace('-', '_')}", text, type="bool", default=False)
    group.addoption("--roofline-ci", action=_Profile, default=None, help=_CI)
    # In a TOML file `true` is no text; only pytest from 9.2 on takes either.
    kind: Any = bool | str if pytest.version_tuple >= (9, 2) else "string"
    parser.addini("roofline_ci", _CI, type=kind, default="")


def is_configured(config: pytest.Config) -> bool:
    """Whether any option or ini value of ours is set."""
    names = [name for name, _, _ in _OPTIONS] + [name for name, _ in _FLAGS] + ["ci"]
    return any(option_value(config, name) is not None for name in names)


def option_value(config: pytest.Config, name: str) -> Any:
    """An option's raw value: the command line's, else the ini file's, else None."""
    given = config.getoption(f"--roofline-{name}")
    return given if given is not None else config.getini(f"roofline_{name.replace('-', '_')}") or None
