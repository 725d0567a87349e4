"""What is left when processes are killed, who gets a rank that is not his, and what odd grounds and broken files do.

    python benchmarks/reliability.py -o docs/results/reliability.md
    python benchmarks/reliability.py --kills 4 --fuzz fuzz.json

Takes some ten seconds for each kill; leave the machine alone meanwhile. `--fuzz` takes what an earlier
`python -m tests.fuzz --json` printed. The attacks need root.
"""

import argparse
import contextlib
import itertools
import json
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median

from rank_figures.page import Figure, Goal, table, with_figures
from rank_figures.runs import POLL_S, PYTEST, prepared, running, started
from stamp import commit

from pytest_roofline.baselines.runs import Run, read_run
from pytest_roofline.core.errors import BadFile
from pytest_roofline.processes.system import descendants, stat

ROOT = Path(__file__).resolve().parent.parent
# At night `tox run -e fuzz` tries a million cases, in half an hour where nothing else runs, or in two.
KILLS, CASES, SEED = 200, 100_000, 5
WANTED_KILLS, WANTED_CASES = 200, 100_000
GONE_S, GIVEN_UP_S, HANG_S = 1.0, 20.0, 300.0
# After this long the log says what is left.
SLOW_S = 0.4
# Words of the command lines of rounds and of ranks, which are those of what they are forked from.
ROUND, RANK = "pytest_roofline.plugin.round_server", "pytest_roofline.ranks.rank_server"
SERVERS = (ROUND, RANK)
FORKER = "what forks rounds or ranks"
SIGNALS = {
    "pytest": (signal.SIGKILL, signal.SIGTERM),
    "a round": (signal.SIGKILL,),
    "a rank": (signal.SIGKILL,),
    FORKER: (signal.SIGKILL,),
}
# In one run, beside pytest itself.
MOST = {"a round": 1, "a rank": 2, FORKER: 1}
# Tests of one process and of two ranks, whose forked children know nothing of their ends, in two rounds.
SUITE = """
import json
import os
import time

import pytest
import torch
import torch.distributed as dist
from pytest_roofline import Work

WORK = Work(flops=1)


def note(name):
    with open("measured", "a") as file:
        file.write(json.dumps([os.getpid(), name]) + "\\n")


def all_reduce(rank):
    if os.fork() == 0:
        time.sleep(600)
        os._exit(0)
    values = torch.ones(64)
    return lambda: dist.all_reduce(values)


@pytest.mark.parametrize("number", range(2))
def test_alone(roofline, number):
    values = torch.ones(2**16)
    roofline.measure(values.sum, work=WORK)
    note(f"alone[{number}]")


@pytest.mark.roofline(ranks=2)
@pytest.mark.parametrize("number", range(2))
def test_ranks(roofline, distributed, number):
    roofline.measure_ranks(distributed, all_reduce, work=WORK)
    note(f"ranks[{number}]")
"""
# No time is looked at here, and whether there is a second round must not hang on how busy the machine is.
CONFTEST = """
from pytest_roofline.engine.blocks import conditions
from pytest_roofline.engine.devices import cpu

cpu.MOST_CORES_TAKEN = conditions.MOST_PREEMPTIONS_HZ = float("inf")
"""
COMMAND = (*PYTEST, "--roofline-rounds=2", "--roofline-save=kept", "--roofline-budget=0.1")
HEAD = """# Kills, strangers, broken files

Made by `python benchmarks/reliability.py -o docs/results/reliability.md`: every number of this page, {calls}. {cpu},
{cores} cores, a virtual machine, seed {seed}. Load average {before} when it began and {after} when it ended: what takes
its time here, others took part of.
"""


@dataclass(frozen=True, slots=True)
class Killed:
    """One kill.

    Args:
        victim: a key of `SIGNALS`.
        number: of the signal.
        gone_s: until nothing that descends from it ran any more, and of pytest nothing of the run; None is not at all.
        unread: run files that cannot be read.
        lost: what had been measured before, and is in none.
        ended: whether the run came to its end, where pytest was not killed.
        told: whether it then passed, or told of the kill.
        left: processes of the run, a second after its end.
        commit: of the checkout that was killed.
    """

    victim: str
    number: int
    gone_s: float | None
    unread: int
    lost: int
    ended: bool = True
    told: bool = True
    left: int = 0
    commit: str = ""


def kill_in(
    folder: Path, ends: int | None, most: dict[str, int], chance: random.Random, whole_s: float
) -> list[Killed]:
    """Start the suite, kill rounds and ranks at random moments, and pytest itself if its moment comes.

    Args:
        folder: to run in.
        ends: the signal for pytest; None lets it come to its end.
        most: how many others to kill, by key of `SIGNALS`.
        chance: that gives the moments.
        whole_s: that a run takes.
    """
    place = _prepared(folder)
    temporary = place / "tmp"
    temporary.mkdir()
    left_of, found = dict(most), []
    with started(place, COMMAND, {"TMPDIR": str(temporary), "NO_COLOR": "1"}) as (child, mark):
        ends_s = time.monotonic() + chance.uniform(0, whole_s) if ends is not None else math.inf
        at_s: dict[str, float] = {}
        while child.poll() is None and time.monotonic() < ends_s:
            time.sleep(POLL_S)
            for victim in [one for one, count in left_of.items() if count]:
                pids = _victims(victim, child.pid, mark)
                # A round and ranks live for some third of a run.
                if pids and time.monotonic() >= at_s.setdefault(
                    victim, time.monotonic() + chance.uniform(0, whole_s / 3)
                ):
                    found.append(
                        (victim, signal.SIGKILL, _gone_s(chance.choice(pids), signal.SIGKILL, mark))
                    )
                    left_of[victim] -= 1
                    del at_s[victim]
        cut = ends is not None and child.poll() is None
        if cut:
            found.append(("pytest", ends, _gone_s(child.pid, ends, mark, everything=True)))
            status, left = None, {}
        else:
            status = child.poll()
            ended_s = time.monotonic()
            while (left := running(mark)) and time.monotonic() - ended_s < GONE_S:
                time.sleep(POLL_S)
    kept = _kept(place)
    if cut or not found:
        return [Killed(*one, *kept) for one in found]
    said = (place / "output").read_text(encoding="utf-8", errors="replace")
    told = status == 0 or (" in " in said.splitlines()[-1] and "SIGKILL" in said)
    if not told:
        print(
            f"killed {[victim for victim, *_ in found]}, status {status}, and said:",
            said,
            sep="\n",
            flush=True,
        )
    return [Killed(*one, *kept, status is not None, told, len(left)) for one in found]


def _gone_s(pid: int, number: int, mark: str, everything: bool = False) -> float | None:
    """Kill a process; seconds until nothing of it is left, of `everything` nothing of the run. None is given up."""
    doomed = {pid, *(one.pid for one in descendants(pid))}
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
    began_s, shown = time.monotonic(), False
    while (took_s := time.monotonic() - began_s) < GIVEN_UP_S:
        left = {one: line for one, line in running(mark).items() if everything or one in doomed}
        if not left:
            return time.monotonic() - began_s
        if not shown and took_s > SLOW_S:
            shown = True
            lines = [f"{_state(one)} {line}" for one, line in left.items()]
            print(f"after {took_s:.2f} s:", *lines, sep="\n    ", flush=True)
        time.sleep(POLL_S)
    return None


def _state(pid: int) -> str:
    """What the kernel says of a process: its state, and the function that it waits in."""
    now = stat(pid)
    with contextlib.suppress(OSError):
        if now is not None:
            return f"{now.state} ({Path(f'/proc/{pid}/wchan').read_text()})"
    return "gone"


def _prepared(folder: Path) -> Path:
    place = prepared(folder, SUITE)
    (place / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    return place


def _victims(victim: str, pytest: int, mark: str) -> list[int]:
    """Processes of a run that could be killed now."""
    if victim == "pytest":
        return [pytest]
    # Both lead a group of their own; what they forked is in it, and a guard in none of these.
    children = {one.pid for one in descendants(pytest)}
    words = {"a round": (ROUND,), "a rank": (RANK,)}.get(victim, SERVERS)
    alive = {pid for word in words for pid in running(mark, word)}
    pids = [pid for pid in alive if pid in children and _group(pid) == pid]
    # What is forked has the command line of its server.
    forked = [pid for pid in pids if (now := stat(pid)) is not None and now.parent in pids]
    return [pid for pid in pids if pid not in forked] if victim == FORKER else forked


def _group(pid: int) -> int | None:
    with contextlib.suppress(OSError):
        return os.getpgid(pid)
    return None


def _kept(place: Path) -> tuple[int, int]:
    """How many run files cannot be read, and how much that had been measured is in none."""
    runs: list[Run] = []
    unread = 0
    for path in (file for file in place.rglob("*.jsonl") if file.parent.name == "runs"):
        try:
            runs.append(read_run(path))
        except BadFile as error:
            unread += 1
            print(error, flush=True)
    notes = place / "measured"
    noted = (
        [tuple(json.loads(line)) for line in notes.read_text().splitlines()]
        if notes.exists()
        else []
    )
    # The rounds of a test are told apart by the process; a copy of a round keeps it.
    kept = [measurement.label for run in runs for measurement in run.measurements]
    return unread, sum(
        max(0, sum(n == name for _, n in noted) - kept.count(name))
        for name in {n for _, n in noted}
    )


def kills(folder: Path, count: int, jobs: int, seed: int, found: list[Killed]) -> Figure:
    """So many kills at least, as many of each kind, in so many runs at a time, beside those that were found before."""
    wanted = {
        (victim, number): count / sum(map(len, SIGNALS.values()))
        for victim, numbers in SIGNALS.items()
        for number in numbers
    }
    lock = threading.Lock()

    def lacking() -> list[tuple[str, int]]:
        """What too few were killed by yet, what most are lacking of first."""
        lacks = Counter(wanted) - Counter((one.victim, one.number) for one in found)
        return [kind for kind, _ in lacks.most_common()]

    def work(job: int) -> None:
        chance = random.Random(f"{seed} {job} {len(found)}")
        for attempt in itertools.count():
            with lock:
                lacks = lacking()
            if not lacks:
                return
            ends = next((number for victim, number in lacks if victim == "pytest"), None)
            most = {
                victim: most
                for victim, most in MOST.items()
                if any(kind[0] == victim for kind in lacks)
            }
            # Where only these are lacking, and now and then, the run comes to its own end.
            more = kill_in(
                folder / f"{job}-{attempt}",
                ends if chance.random() < 0.75 else None,
                most,
                chance,
                whole_s,
            )
            more = [replace(one, commit=commit()) for one in more]
            with lock:
                found.extend(more)
            print(*(json.dumps(asdict(one)) for one in more), sep="\n", flush=True)

    if not lacking():
        return kills_figure(found)
    with ThreadPoolExecutor(jobs) as pool:
        whole_s = max(pool.map(_whole_s, [folder / f"whole-{job}" for job in range(jobs)]))
        list(pool.map(work, range(jobs)))
    return kills_figure(found)


def _before(path: Path | None) -> list[Killed]:
    """The kills that an earlier call printed."""
    lines = path.read_text(encoding="utf-8").splitlines() if path is not None else []
    return [Killed(**json.loads(line)) for line in lines if line.startswith("{")]


def _whole_s(folder: Path) -> float:
    """Seconds that a run takes which nobody disturbs."""
    began_s, place = time.monotonic(), _prepared(folder)
    with started(place, COMMAND, {}) as (child, _):
        if child.wait(HANG_S):
            raise RuntimeError((place / "output").read_text())
    return time.monotonic() - began_s


def kills_figure(found: Sequence[Killed]) -> Figure:
    """What became of kills."""
    count = len(found)
    others = [one for one in found if one.victim != "pytest"]
    goals = (
        Goal("kills", f"{WANTED_KILLS}", f"{count}", count >= WANTED_KILLS),
        _all("kills after which every run file could be read", [one.unread == 0 for one in found]),
        _all(
            "kills after which all that had been measured was kept",
            [one.lost == 0 for one in found],
        ),
        _all(
            f"kills with no process of ours after {GONE_S:g} s",
            [one.gone_s is not None and one.gone_s <= GONE_S and not one.left for one in found],
        ),
        _all(
            "runs that ended by themselves when only others than pytest were killed",
            [one.ended for one in others],
        ),
        _all("of these, passed or said who was killed", [one.told for one in others]),
    )
    rows = []
    for victim, numbers in SIGNALS.items():
        for number in numbers:
            group = [one for one in found if (one.victim, one.number) == (victim, number)]
            seconds = [one.gone_s for one in group if one.gone_s is not None]
            times = (f"{median(seconds):.2f} s", f"{max(seconds):.2f} s") if seconds else ("–", "–")
            never = sum(one.gone_s is None for one in group)
            rows.append((victim, signal.Signals(number).name, str(len(group)), *times, str(never)))
    text = f"""Two tests of one process and two of two ranks, each rank with a forked child that sleeps, in two
rounds. In one run up to two ranks, what they are forked from and a round are killed, and pytest itself. Its moment is
uniform over a run, and that of any other over a third of one from when the first is there.
Seconds are until nothing that descends from the killed process runs, and where that is pytest, nothing of the run.
What pytest's own process forks is its test's, and is not ended by the plugin. A rank that is killed between two tests
costs no test, so that such a run passes.{_of_commits(one.commit for one in found)}

{table(("killed", "by", "times", "gone after, median", "longest", "never gone"), rows)}"""
    return Figure("Kills", goals, text)


def _of_commits(names: Iterable[str]) -> str:
    """Return the sentence on the commits that were measured, which may be older than the page; empty if unknown."""
    commits = sorted({f"`{name}`" for name in names if name})
    return f" Measured on {' and '.join(commits)}." if commits else ""


def _all(what: str, right: Sequence[bool]) -> Goal:
    return Goal(what, f"{len(right)} of {len(right)}", f"{sum(right)} of {len(right)}", all(right))


def attacks() -> Figure:
    """Another user of the machine, who was first wherever the ranks of a launch may look."""
    if os.geteuid():
        goal = Goal("ranks that came to another user", "0", "not tried, which needs root", False)
        return Figure("Strangers", (goal,), "Only root can be another user.")
    from tests.ranks.test_rendezvous import SECRET, lured

    ways = {
        "MASTER_ADDR and MASTER_PORT": "env",
        "torchrun": "torchrun",
        "mpirun": "mpirun",
        "srun": "srun",
    }
    got = {
        (way, key): lured(name, secret)
        for way, name in ways.items()
        for key, secret in _keys(SECRET).items()
    }
    goal = Goal(
        "ranks that came to another user",
        f"0 of {len(got)}",
        f"{sum(got.values())} of {len(got)}",
        not sum(got.values()),
    )
    rows = [
        (way, *("a rank" if got[way, key] else "nothing" for key in _keys(SECRET))) for way in ways
    ]
    text = f"""Another user (65534) owns the store at the launch's port before rank 0 does, posts his own address there
under every name, and writes it into the files that ranks look for, in a folder that everybody may write to. What he
got of a process that attaches:

{table(("launch", *_keys(SECRET)), rows)}"""
    return Figure("Strangers", (goal,), text)


def _keys(secret: dict[str, str]) -> dict[str, dict[str, str]]:
    return {"by the file of a key": {}, "by `ROOFLINE_ATTACH_KEY`": secret}


# What else a machine or a stranger may do, by the tests that try it.
GROUNDS = {
    "1,200 strangers connect, say nothing and stay: a rank comes": (
        "tests/ranks/test_listener.py::test_a_peer_comes_while_1200_silent_strangers_stay_connected"
    ),
    "an accept that fails: the listener goes on, and names the reason": (
        "tests/ranks/test_listener.py::"
        "test_an_accept_that_fails_is_tried_again_and_its_reason_remembered"
    ),
    "`ulimit -Sn 64`: 80 ranks come": (
        "tests/ranks/test_listener.py::test_80_ranks_come_under_a_soft_limit_of_64_open_files"
    ),
    "`ulimit -n 64`: the limit is named": (
        "tests/ranks/test_listener.py::"
        "test_a_hard_limit_of_64_open_files_is_named_where_ranks_did_not_come"
    ),
    "what forks the ranks is killed: it is named, and no rank": (
        "tests/ranks/test_fork_server.py::"
        "test_a_server_that_is_killed_is_blamed_and_none_of_its_ranks"
    ),
    "a rank's text would steer a terminal or a CI: it is escaped": (
        "tests/ranks/test_faults.py::test_no_text_of_a_rank_steers_a_terminal_or_a_ci"
    ),
    "a lock that a crash left empty: it is taken over": (
        "tests/baselines/test_renewal.py::test_a_lock_that_a_crash_left_empty_is_taken_over"
    ),
    "`roofline ab` where submodules are left out: `.git/config` stays byte for byte": (
        "tests/ab/test_sides.py::"
        "test_the_submodules_of_a_commit_are_there_and_the_settings_stay_as_they_are"
    ),
    "`roofline ab` under hooks and `core.fsmonitor`: none is run": (
        "tests/ab/test_sides.py::test_no_program_that_the_repository_or_a_template_names_is_run"
    ),
}


def grounds(folder: Path, tests: dict[str, str]) -> Figure:
    """Tests of what a machine or a stranger may do.

    Args:
        folder: for the outcomes.
        tests: node ids by what each tries.
    """
    outcomes = folder / "grounds.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    subprocess.run(
        [*command, f"--junitxml={outcomes}", *tests.values()],
        cwd=ROOT,
        stdout=sys.stderr,
        check=False,
    )
    cases = list(ElementTree.parse(outcomes).iter("testcase"))
    goals = []
    for words, node in tests.items():
        name = node.rpartition("::")[2]
        passed = [len(case) == 0 for case in cases if case.get("name", "").split("[")[0] == name]
        count = f"{sum(passed)} of {len(passed)}"
        goals.append(
            Goal(words, f"{len(passed)} of {len(passed)}", count, bool(passed) and all(passed))
        )
    return Figure("Other grounds", tuple(goals), "Each is a test of the suite, run for this page.")


def fuzzed(path: Path | None, cases: int, seed: int) -> Figure:
    """Changed files against every loader and command: what an earlier run has found, or one of so many cases."""
    if path is not None:
        text = path.read_text(encoding="utf-8")
    else:
        command = [
            sys.executable,
            "-m",
            "tests.fuzz",
            f"--cases={cases}",
            f"--seed={seed}",
            "--json",
        ]
        text = subprocess.run(
            command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False
        ).stdout
    told = json.loads(text)
    goals = (
        Goal(
            "changed files",
            f"{WANTED_CASES:,}",
            f"{told['cases']:,}",
            told["cases"] >= WANTED_CASES,
        ),
        *(
            Goal(f"{rule} among them", "0", str(told[rule]), told[rule] == 0)
            for rule in ("tracebacks", "hangs", "silent")
        ),
    )
    rows = [(f"`{loader}`", f"{count:,}") for loader, count in told["by_loader"].items()]
    return Figure(
        "Broken files",
        goals,
        f"""`python -m tests.fuzz --json`, in {told["seconds"]:,.0f} s. Silent is a file that was taken although a
value of it cannot be. At night `tox run -e fuzz` tries a million.{_of_commits([told.get("commit", "")])}

{table(("read by", "files"), rows)}""",
    )


def page(figures: Sequence[Figure], facts: dict[str, str]) -> str:
    """All of it.

    Args:
        figures: in order.
        facts: `cpu`, `cores`, `seed`, `before` and `after` (load averages).
    """
    return with_figures(HEAD.format(**facts), figures)


def main(arguments: Sequence[str] | None = None) -> None:
    """Kill, attack, fuzz, and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", "--output", type=Path, help="Markdown file to write")
    parser.add_argument("--kills", type=int, default=KILLS, help="default: %(default)s")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time (default: %(default)s)")
    parser.add_argument(
        "--resume", type=Path, help="what an earlier call printed, whose kills count too"
    )
    parser.add_argument("--seed", type=int, default=SEED, help="default: %(default)s")
    parser.add_argument("--fuzz", type=Path, help="what `python -m tests.fuzz --json` has printed")
    parser.add_argument(
        "--cases",
        type=int,
        default=CASES,
        help="of the fuzzer, without --fuzz (default: %(default)s)",
    )
    options = parser.parse_args(arguments)
    # The stranger and the fuzzer are those of the tests.
    sys.path.insert(0, str(ROOT))
    from pytest_roofline.engine.host import host_facts

    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as name:
        figures = [
            kills(Path(name), options.kills, options.jobs, options.seed, _before(options.resume)),
            attacks(),
            grounds(Path(name), GROUNDS),
        ]
    figures.append(fuzzed(options.fuzz, options.cases, options.seed))
    host = host_facts()
    calls = "in several calls (`--resume`)" if options.resume else "in one run"
    facts = {
        "calls": calls,
        "cpu": str(host.cpu_model),
        "cores": str(host.usable_cores),
        "seed": str(options.seed),
    }
    text = page(figures, facts | {"before": f"{before:.1f}", "after": f"{os.getloadavg()[0]:.1f}"})
    if options.output:
        options.output.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
