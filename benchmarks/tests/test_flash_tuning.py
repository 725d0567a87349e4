"""The program that tunes FlashAttention: what it tries, what it chooses, what it keeps, and when it refuses."""

import argparse
import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
from threadpoolctl import threadpool_limits

from roofline_kernels.attention.architectures import REFUSED, SHARED_BYTES
from roofline_kernels.attention.configurations import (
    PASSES,
    Configuration,
    configuration,
    registers,
    shipped,
)

ARCHITECTURES = sorted(set(SHARED_BYTES) - set(REFUSED))
HEADER = {"device": "a GPU", "architecture": "sm_90", "triton": "3.9.0"}
SMALL = Configuration(64, 64, 4, 2)
FAST = Configuration(128, 64, 8, 4)
SLOW = Configuration(256, 32, 8, 1)


@pytest.fixture(scope="module")
def lab(program):
    """The program and the modules that it is made of."""
    names = ("problems", "candidates", "compiling", "log", "choosing", "sweeping", "wording")
    modules = {name: program(f"tuning.{name}") for name in names}
    return SimpleNamespace(main=program("flash_tuning"), **modules)


@pytest.fixture
def problem(lab):
    """The forward kernel at the leaderboard's shape."""
    return lab.problems.Problem("forward", lab.problems.Setting(64, True, 1, 16, 16384))


@pytest.fixture
def tried(lab, problem):
    """Makes a line of the log."""

    def make(configuration, seconds=None, step="sweep", turn=0, trouble="", of=problem):
        return lab.log.Tried(of, configuration, step, turn, seconds, trouble)

    return make


@pytest.fixture
def begun(lab, tmp_path):
    """Begins a log, or goes on with it."""
    return lambda resume=False, header=HEADER: lab.log.begin(
        tmp_path / "log.jsonl", header, resume=resume
    )


class FakeTimer:
    """Scripted seconds by configuration; an exception is raised, a word is the trouble."""

    def __init__(self, lab, script, default=1e-3):
        self.lab, self.script, self.default, self.asked = lab, script, default, []

    def __call__(self, problem, configuration, step, turn=0):
        self.asked.append((configuration, step, turn))
        answer = self.script.get(configuration, self.default)
        if isinstance(answer, BaseException):
            raise answer
        if isinstance(answer, str):
            return self.lab.log.Tried(problem, configuration, step, turn, trouble=answer)
        return self.lab.log.Tried(problem, configuration, step, turn, answer)


# Problems


def test_the_default_shapes_are_the_leaderboard_and_flash_attention_2s_columns(lab):
    shapes = [lab.problems.parse_shape(text) for text in lab.main.SHAPES]
    found = lab.problems.settings(shapes, (64, 256), (True,))
    assert [(one.batch, one.heads, one.sequence, one.head_dim) for one in found] == [
        (1, 16, 16384, 64), (4, 32, 4096, 64), (1, 16, 16384, 256), (4, 8, 4096, 256),
    ]  # fmt: skip


def test_kernels_count_the_products_that_they_do(lab, problem):
    forward, d_keys, d_queries = (replace(problem, kernel=kernel).flops for kernel in PASSES)
    assert forward == problem.setting.flops("forward")
    # Both backward kernels work out the scores and dP: seven products, of which five are counted.
    assert 5 * (d_keys + d_queries) == 7 * problem.setting.flops("backward")


# Candidates


@pytest.mark.parametrize("kernel", PASSES)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_shipped_configuration_comes_first_and_each_once(lab, architecture, kernel):
    for head_dim in lab.main.HEAD_DIMS:
        own = configuration(architecture, kernel, head_dim, 2)
        found = lab.candidates.candidates(architecture, kernel, head_dim, own)
        assert found[0] == own
        assert len(set(found)) == len(found) > 20
        assert {one.num_warps for one in found[1:]} == {4, 8}
        assert {one.num_stages for one in found[1:]} == {1, 2, 3, 4}
        assert {one.block_m for one in found[1:]} | {one.block_n for one in found[1:]} == {
            32,
            64,
            128,
            256,
        }


@pytest.mark.parametrize(
    ("architecture", "descriptors", "waves", "rows"),
    [
        ("sm_80", {False}, {None}, {None}),
        ("sm_89", {False}, {None}, {None}),
        ("sm_90", {False, True}, {None}, {None}),
        ("sm_120", {False, True}, {None}, {None}),
        ("gfx942", {False}, {1, 2}, {16, 32}),
    ],
)
def test_an_architecture_tries_what_it_knows(lab, architecture, descriptors, waves, rows):
    found = list(lab.candidates.grid(architecture))
    assert {one.descriptors for one in found} == descriptors
    assert {one.waves_per_eu for one in found} == waves
    assert {one.matrix_instr_nonkdim for one in found} == rows


def test_what_cannot_be_held_in_registers_is_left_out(lab):
    # 256 x 64 of output and 256 x 256 scores over 128 threads: 640 registers each.
    assert registers("sm_90", "forward", 64, Configuration(256, 256, 4, 1)) == (640, 255)
    # As many over 512 lanes: 160; two waves share the registers of a SIMD.
    assert registers("gfx942", "forward", 64, Configuration(256, 256, 8, 1, waves_per_eu=2)) == (
        160,
        256,
    )
    # dK and dV: 2 x 64 x 128, and 32 x 64 scores.
    assert registers("sm_80", "d_keys", 128, Configuration(32, 64, 4, 1)) == (144, 255)
    assert registers("sm_100", "forward", 256, Configuration(256, 256, 4, 1)) == (0, 255)
    tried = lab.candidates.candidates(
        "sm_90", "forward", 64, shipped()["sm_90"]["forward"]["16-bit"][64]
    )
    assert Configuration(256, 256, 8, 2) not in tried


def test_what_cannot_be_loaded_ahead_is_left_out(lab):
    own = shipped()["sm_90"]["forward"]["16-bit"][256]
    tried = lab.candidates.candidates("sm_90", "forward", 256, own)
    # Two tensors of 128 rows of 256 columns, two bytes each: 131,072 bytes a stage of 232,448.
    assert Configuration(64, 128, 8, 1, descriptors=True) in tried
    assert Configuration(64, 128, 8, 2, descriptors=True) not in tried
    # By pointers the compiler decides.
    assert Configuration(64, 128, 8, 2) in tried


def test_hopper_tries_other_ways_through_the_loop_behind_the_shipped_one(lab):
    own = shipped()["sm_90"]["forward"]["16-bit"][128]
    names = [
        lab.candidates.name_of(one)
        for one in lab.candidates.candidates("sm_90", "forward", 128, own)[:8]
    ]
    assert names == [
        "128×128 w8 s2 tma", "128×64 w8 s2 tma overlap", "128×64 w8 s3 tma overlap", "128×128 w8 s2 tma threshold8",
        "128×128 w8 s2 tma persistent", "128×64 w8 s2 tma overlap persistent", "64×128 w4 s2 tma ws",
        "128×128 w8 s2 tma persistent gluon",
    ]  # fmt: skip
    for architecture, kernel in (("sm_80", "forward"), ("sm_90", "d_keys"), ("gfx942", "d_keys")):
        assert lab.candidates.variants(architecture, kernel, 128, own) == []


def test_mi300_tries_four_warps_first(lab):
    own = shipped()["gfx942"]["forward"]["16-bit"][128]
    found = lab.candidates.candidates("gfx942", "forward", 128, own)[:3]
    assert [lab.candidates.name_of(one) for one in found] == [
        "128×64 w8 s1 wpe2", "128×64 w4 s1 wpe1 k16", "128×32 w4 s1 wpe2 k16",
    ]  # fmt: skip


# What the compiler says


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"shared_bytes": 65536, "vgpr_spills": 0}, ""),
        (
            {"shared_bytes": 65537, "vgpr_spills": 0},
            "needs 65,537 bytes of shared memory, there are 65,536",
        ),
        ({"shared_bytes": 0, "spill_stores": 60, "spill_loads": 40}, ""),
        ({"shared_bytes": 0, "spill_stores": 60, "spill_loads": 41}, "101 spills"),
        ({"shared_bytes": 0}, ""),
    ],
)
def test_what_does_not_fit_or_spills_badly_is_left_out(lab, asked, why):
    assert lab.compiling.too_much(asked, 65536, most_spills=100) == why


def test_a_candidate_is_compiled_without_a_gpu(lab, problem):
    triton = pytest.importorskip("triton", reason="needs Triton, found none")
    before = triton.runtime.driver._active
    try:
        candidate = lab.compiling.Candidate("sm_80", problem, Configuration(64, 32, 4, 1))
        found = lab.compiling.figures(candidate)
        unknown = replace(candidate, configuration=replace(SMALL, waves_per_eu=2))
        assert lab.compiling.why_not(unknown, 0).startswith("cannot be compiled: KeyError:")
    finally:
        triton.runtime.driver._active = before
    assert found["HMMA"] > 0
    assert 0 < found["shared_bytes"] < SHARED_BYTES["sm_80"]


# The choice


def test_the_best_of_the_finals_is_chosen_whatever_was_lucky_in_the_sweep(lab, problem, tried):
    log = [tried(SMALL, 4.0), tried(FAST, 3.0), tried(SLOW, 9.0)]
    assert lab.choosing.choose(log, problem, SMALL).best == FAST
    log += [tried(SMALL, s, "final", turn) for turn, s in enumerate([2.0, 2.2, 9.0])]
    log += [tried(FAST, s, "final", turn) for turn, s in enumerate([2.3, 2.31, 2.0])]
    found = lab.choosing.choose(log, problem, SLOW)
    assert (found.best, found.best_s, found.shipped_s) == (SMALL, 2.2, None)
    assert found.far


def test_what_was_wrong_once_is_never_chosen(lab, problem, tried):
    log = [
        tried(FAST, 1.0),
        tried(SMALL, 2.0),
        tried(FAST, None, "final", trouble="dK is off by 3"),
    ]
    log += [tried(SMALL, 2.0, "final")]
    assert lab.choosing.choose(log, problem, FAST).best == SMALL
    assert lab.choosing.compromise(log, [problem]) == SMALL
    assert lab.choosing.choose(log[:1] + log[2:3], problem, FAST).best is None


def test_of_several_shapes_the_least_loss_over_all_is_taken(lab, problem, tried):
    short = replace(problem, setting=replace(problem.setting, sequence=4096))
    seconds = {
        problem: {FAST: 1.0, SMALL: 1.05, SLOW: 1.3},
        short: {FAST: 0.13, SMALL: 0.105, SLOW: 0.1},
    }
    log = [tried(one, s, of=of) for of, times in seconds.items() for one, s in times.items()]
    assert lab.choosing.compromise(log, [problem, short]) == SMALL
    assert lab.choosing.compromise(log, [problem]) == FAST
    only = [line for line in log if (line.problem, line.configuration) != (short, SMALL)]
    assert lab.choosing.compromise(only, [problem, short]) != SMALL
    assert lab.choosing.compromise([], [problem, short]) is None


def test_the_json_has_the_form_of_the_table_that_is_shipped(lab):
    best = {
        ("forward", 128): replace(FAST, descriptors=True),
        ("forward", 64): SMALL,
        ("d_keys", 64): SLOW,
    }
    text = lab.choosing.as_json("sm_90", best)
    raw = json.loads(text)
    assert {
        (kernel, int(size)): Configuration(**entry)
        for kernel, widths in raw["sm_90"].items()
        for size, entry in widths["16-bit"].items()
    } == best
    assert (
        '        "64": {"block_m": 64, "block_n": 64, "num_warps": 4, "num_stages": 2},\n' in text
    )
    assert list(raw["sm_90"]["forward"]["16-bit"]) == ["64", "128"]


# Words


def test_a_line_says_shipped_best_and_distance(lab, problem):
    far = lab.choosing.Choice(problem, replace(SMALL, descriptors=True), 1.5e-3, FAST, 1.4e-3)
    assert lab.wording.line(far) == (
        "forward d64 causal 1x16x16384: shipped 64×64 w4 s2 tma: 367 TFLOP/s, best 128×64 w8 s4: 393 TFLOP/s (+7.1 %)"
        "  <-- more than 5 % off"
    )
    assert lab.wording.line(replace(far, best_s=1.48e-3)).endswith("(+1.4 %)")
    assert lab.wording.line(replace(far, best=far.shipped, best_s=1.5e-3)).endswith(
        ": 367 TFLOP/s, the best"
    )
    assert lab.wording.line(replace(far, shipped_s=None)).endswith("TFLOP/s  <-- more than 5 % off")
    assert lab.wording.line(replace(far, best=None)).endswith("; no candidate has a sound time")


# The log


def test_a_log_gives_back_what_was_written(lab, begun, tried, problem):
    log = begun()
    lines = [
        tried(replace(FAST, descriptors=True), 1.5e-3, "final", 2),
        replace(tried(SMALL, trouble="µ: wrong"), labels=("noisy",)),
        lab.log.Peer(problem.setting, "forward", "sdpa_cudnn", None, "not here"),
    ]
    for line in lines:
        log.add(line)
    again = begun(resume=True)
    assert [*again.tried, *again.peers] == lines
    assert again.find(problem, SMALL, "sweep") == lines[1]
    assert again.find(problem, SMALL, "final") is None
    assert again.find_peer(problem.setting, "forward", "sdpa_cudnn") == lines[2]
    assert again.find_peer(problem.setting, "backward", "sdpa_cudnn") is None


def test_a_line_that_was_cut_is_taken_off(begun, tried):
    log = begun()
    log.add(tried(SMALL, 1.0))
    whole = log.path.read_bytes()
    log.path.write_bytes(whole + b'{"type": "tried", "prob')
    again = begun(resume=True)
    assert again.tried == [tried(SMALL, 1.0)]
    again.add(tried(FAST, 2.0))
    assert begun(resume=True).tried == [tried(SMALL, 1.0), tried(FAST, 2.0)]


# The sweep


@pytest.fixture
def sweep(lab):
    """Without a compiler: what is slow is left out."""
    return lab.sweeping.Sweep(judge=None, jobs=1, finals=1, turns=2)


@pytest.fixture
def tasks(lab, problem):
    """Three candidates, the shipped one first."""
    return [lab.compiling.Candidate("sm_90", problem, one) for one in (SMALL, FAST, SLOW)]


def heard(log, tasks, tried, left_out=()):
    for task in tasks:
        trouble = "too much" if task.configuration in left_out else ""
        log.add(tried(task.configuration, step="compile", trouble=trouble))


def test_the_fastest_and_the_shipped_are_timed_again_in_turn(lab, sweep, tasks, begun, tried):
    log, timer = begun(), FakeTimer(lab, {SMALL: 3.0, FAST: 1.0, SLOW: 2.0})
    heard(log, tasks, tried)
    sweep.time(log, tasks, timer)
    assert timer.asked == [
        (SMALL, "sweep", 0), (FAST, "sweep", 0), (SLOW, "sweep", 0),
        (FAST, "final", 0), (SMALL, "final", 0), (FAST, "final", 1), (SMALL, "final", 1),
    ]  # fmt: skip


def test_an_interrupted_sweep_goes_on_where_it_was(lab, sweep, tasks, begun, tried):
    log = begun()
    heard(log, tasks, tried)
    with pytest.raises(KeyboardInterrupt):
        sweep.time(log, tasks, FakeTimer(lab, {SMALL: 3.0, FAST: KeyboardInterrupt()}))
    timer = FakeTimer(lab, {FAST: 1.0})
    sweep.time(begun(resume=True), tasks, timer)
    assert timer.asked[:2] == [(FAST, "sweep", 0), (SLOW, "sweep", 0)]
    timer = FakeTimer(lab, {})
    sweep.time(begun(resume=True), tasks, timer)
    assert timer.asked == []


def test_what_ends_the_program_is_not_tried_again(lab, sweep, tasks, begun, tried):
    log = begun()
    heard(log, tasks, tried)
    with pytest.raises(RuntimeError, match="illegal address"):
        sweep.time(log, tasks, FakeTimer(lab, {FAST: RuntimeError("an illegal address")}))
    again = begun(resume=True)
    timer = FakeTimer(lab, {})
    sweep.time(again, tasks, timer)
    assert (FAST, "sweep", 0) not in timer.asked
    assert "ended the sweep with RuntimeError: an illegal address" in again.tried[4].trouble


# The whole


@pytest.fixture
def run(lab, begun, tried, capsys, tmp_path):
    """The program behind its options, with a scripted timer; every candidate is said to compile."""
    settings = lab.problems.settings([lab.problems.parse_shape("1x16x16384")], (64,), (True,))
    asked = list(lab.problems.problems(settings, ("forward",)))

    def call(timer, resume=False):
        log = begun(resume=resume)
        if not resume:
            heard(log, lab.main.tasks_of("sm_90", asked[0]), tried)
        sweep = lab.sweeping.Sweep(judge=None, jobs=1, finals=2, turns=1)
        options = argparse.Namespace(peers=False, json=tmp_path / "best.json")
        status = lab.main.run(
            log, "sm_90", asked, sweep, lambda _: SimpleNamespace(time=timer), options
        )
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call


def test_a_run_prints_the_distance_and_writes_the_best(lab, run, tmp_path):
    best = replace(FAST, descriptors=True)
    status, out, _ = run(
        FakeTimer(lab, {best: 1.0e-3, configuration("sm_90", "forward", 64, 2): 1.1e-3}, 2.0e-3)
    )
    assert status == 0
    assert out.count("best 128×64 w8 s4 tma: 550 TFLOP/s (+10.0 %)  <-- more than 5 % off") == 2
    assert "forward d64: over all shapes 128×64 w8 s4 tma, shipped 128×128 w8 s3 tma" in out
    written = json.loads((tmp_path / "best.json").read_text(encoding="utf-8"))
    assert Configuration(**written["sm_90"]["forward"]["16-bit"]["64"]) == best


def test_peers_are_ours_twice_and_every_back_end_each_once(
    lab, timing, problem, tried, begun, monkeypatch
):
    log, asked = begun(), []
    log.add(tried(FAST, 1.0))

    def time_peer(bench, passes, name, attention, configurations):
        asked.append((name, attention, passes, configurations))
        return lab.log.Peer(problem.setting, passes, name, 1.0)

    monkeypatch.setattr(timing, "time_peer", time_peer)
    for _ in range(2):
        lab.main.time_peers(log, [problem], lambda setting: None)
    forward = [
        (name, attention, chosen)
        for name, attention, passes, chosen in asked
        if passes == "forward"
    ]
    assert len(asked) == 2 * len(forward)
    assert forward == [
        ("triton, shipped", "triton", {}),
        ("triton, best", "triton", {"forward": FAST}),
        *((name, name, {}) for name in ("sdpa_flash", "sdpa_cudnn", "sdpa_efficient", "sdpa_math")),
    ]


# The bench, in Triton's interpreter


@pytest.fixture(scope="module")
def timing(program):
    """The module that launches."""
    pytest.importorskip("triton", reason="needs Triton, found none")
    return program("tuning.timing")


@pytest.fixture(scope="module")
def bench(lab, timing):
    """A tiny attention on the CPU; its times say nothing, and its results are checked as on a GPU."""
    from pytest_roofline.engine.devices import open_device

    with threadpool_limits(1):
        yield timing.Bench(
            open_device("cpu"), lab.problems.Setting(16, True, 1, 1, 48), budget_s=0.01
        )


@pytest.mark.parametrize("kernel", PASSES)
def test_a_kernel_is_timed_alone_under_the_configuration_and_held_against_the_reference(
    lab, bench, kernel
):
    problem = lab.problems.Problem(kernel, bench.setting)
    launch = bench.launch(kernel, Configuration(32, 16, 4, 1))
    assert (launch.arguments["BLOCK_M"], launch.arguments["BLOCK_N"]) == (32, 16)
    found = bench.time(problem, Configuration(32, 16, 4, 1), "sweep")
    assert found.seconds is not None
    assert (found.problem, found.configuration, found.step) == (
        problem,
        Configuration(32, 16, 4, 1),
        "sweep",
    )


@pytest.mark.parametrize("kernel", PASSES)
def test_a_kernel_that_writes_nothing_is_found_and_spoils_no_other(
    lab, timing, bench, kernel, monkeypatch
):
    problem = lab.problems.Problem(kernel, bench.setting)
    with monkeypatch.context() as patch:
        patch.setattr(timing.Bench, "launch", lambda *_: SimpleNamespace(run=lambda device: None))
        found = bench.time(problem, SMALL, "sweep")
    assert found.seconds is None
    assert "not finite" in found.trouble or "is off by nan" in found.trouble
    bench._check("backward")
