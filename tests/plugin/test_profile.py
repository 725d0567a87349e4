"""`--roofline-profile`: an untimed pass behind the measurement, which is recorded, shown, and never judged."""

import json
import shutil
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

# pytester forgets what an inner run imported first; these belong to the process.
from pytest_roofline.core.profiles import Profile
from pytest_roofline.engine.devices.cpu import CpuDevice
from pytest_roofline.observe import capture
from pytest_roofline.observe.capture import tool_for
from pytest_roofline.plugin.observing import (
    FLUSHED,
    GRAPH,
    NO_EXTERNAL_PROFILE,
    NO_PROFILES,
    REPLACED,
    not_as_measured,
    take_profile,
    warn_of_ranks,
)

SUITE = """
import torch
from torch import nn
from pytest_roofline import Work

MODEL = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
X = torch.ones(2, 4)
HOOKED = []

def test_step(roofline, busy):
    def step():
        busy(1e-3)
        HOOKED.append(bool(MODEL[0]._forward_hooks))
        MODEL(X)

    roofline.measure(step, work=Work(flops=10**9), model=MODEL)
    print("with hooks", sum(HOOKED), "and none since", not MODEL[0]._forward_hooks)
"""
TWO = """
import torch
from pytest_roofline import Work

def measure(roofline, busy):
    def step():
        busy(1e-3)
        torch.ones(2).sum()

    roofline.measure(step, work=Work(flops=10**9))

def test_first(roofline, busy):
    measure(roofline, busy)

def test_second(roofline, busy):
    measure(roofline, busy)
"""
FAILING = """
from pytest_roofline import Work
import torch

CALLS = []

def test_step(roofline, busy):
    def step():
        busy(1e-3)
        if torch._C._autograd._profiler_enabled():
            raise RuntimeError("too much\\x1b[31m for a profiler")

    roofline.measure(step, work=Work(flops=10**9))
"""


@pytest.fixture(scope="module", autouse=True)
def loaded(tmp_path_factory):
    """torch's profiler loads Triton when it is first used, which cannot be loaded twice into one process."""
    calls = capture.Calls(torch.nn.Linear(1, 1), [(torch.ones(1),)], None, 1.0)
    empty = Profile("t", "t", "p", "cpu", 1)
    capture.take(
        CpuDevice(), "torch", calls, empty, tmp_path_factory.mktemp("first") / "trace.json"
    )


def test_a_profile_is_taken_behind_the_measurement_shown_below_the_table_and_recorded(desk):
    desk.suite(SUITE)
    # Nobody asks by default.
    desk.run()
    assert () == desk.last_run().profiles
    assert not (desk.path / ".roofline" / "profiles").exists()
    desk.ini("roofline_profile = torch")
    result = desk.run("-s", "--roofline-save=mine")
    assert result.ret == 0
    # One call warms the profiler up, three are looked at; no timed call paid for a hook.
    result.stdout.fnmatch_lines(["*with hooks 4 and none since True*"])
    result.stdout.fnmatch_lines([
        "profile of step on fake, 3 calls; never judged, in no baseline",
        "  a call: 1.00 ms measured, * under the profiler",
        "*idle*of the span", "*operator*self CPU*share*CPU total*calls*", "*aten::addmm*",
        "  trace: *step.trace.json.gz*",
    ])  # fmt: skip
    lines = [json.loads(line)["type"] for line in desk.run_path("mine").read_text().splitlines()]
    assert lines.index("measurement") < lines.index("profile") < lines.index("outcome")
    (profile,) = desk.saved("mine").profiles
    folder = desk.path / ".roofline" / "profiles" / "mine"
    assert str(folder / "step.trace.json.gz") == profile.trace
    assert (folder / "step.trace.json.gz").stat().st_size > 0
    assert "*\n" == (folder.parent / ".gitignore").read_text()
    # Both layers together; the container's own work is none.
    assert "*" in {part.part for part in profile.parts}
    assert ("torch", 3, "fake") == (profile.tool, profile.calls, profile.device)
    assert profile.measured_s == pytest.approx(1e-3)


def test_what_cannot_be_profiled_is_told_and_the_measurement_stands(desk, sentence):
    path = desk.suite(SUITE)
    words = ("'test_suite.py'", "torch, external", "--roofline-profile=torch")
    sentence(desk.run("--roofline-profile", path.name), *words)
    desk.suite(SUITE.replace("model=MODEL", "model=[MODEL]"))
    result = desk.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*model is a list; expected a torch.nn.Module*"])
    desk.suite(FAILING)
    result = desk.run("--roofline-profile")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["WARNING: no profile of step: RuntimeError: too much*for a profiler"]
    )
    assert "\x1b[31m for" not in result.stdout.str()
    run = desk.last_run()
    assert (1, "", ()) == (len(run.measurements), run.measurements[0].invalid, run.profiles)
    desk.suite(TWO)
    result = desk.run("--roofline-profile=external")
    result.assert_outcomes(passed=2)
    said = [line for line in result.outlines if "no profile" in line]
    assert [f"WARNING: {NO_EXTERNAL_PROFILE.format(device='fake')}"] == said


def labels(run):
    return {
        measurement.label: "profiled" in measurement.samples.labels
        for measurement in run.measurements
    }


def test_what_is_measured_under_or_behind_a_profiler_is_neither_judged_nor_proposed(
    desk, monkeypatch
):
    desk.suite(TWO)
    # A profile on the host leaves nothing attached, one of the device does.
    desk.run("--roofline-profile", "--roofline-save=host")
    assert {"first": False, "second": False} == labels(desk.saved("host"))
    with monkeypatch.context() as patch:
        patch.setattr(capture, "watches", lambda device: True)
        result = desk.run("--roofline-profile", "--roofline-save=device")
        assert {"first": False, "second": True} == labels(desk.saved("device"))
        result.stdout.fnmatch_lines(["first *NO BASELINE*", "second *PROFILED*"])
    monkeypatch.setenv("NSYS_PROFILING_SESSION_ID", "1")
    result = desk.run("--roofline-save=it")
    result.assert_outcomes(passed=2)
    assert {"first": True, "second": True} == labels(desk.saved("it"))
    result.stdout.fnmatch_lines(
        [
            "first *PROFILED*",
            "measured with a profiler attached*never becomes a baseline: first, second",
        ]
    )
    result.stdout.fnmatch_lines(["GREY: nothing was compared (2 PROFILED)"])
    assert "baseline propose" not in result.stdout.str()
    proposed = desk.cli("baseline", "propose", str(desk.run_path("it")), "-o", "proposal.json")
    assert proposed.exit_code != 0
    assert "a profiler was attached" in proposed.output


def test_a_trace_goes_where_the_run_goes_under_a_name_of_its_own(desk):
    marks = '@pytest.mark.parametrize("name", ["a-b", "a+b"])\n'
    desk.suite("import pytest\n" + SUITE.replace("def test_step(", marks + "def test_step(name, "))
    desk.run("--roofline-profile", "--roofline-save=mine")
    assert 2 == len({profile.trace for profile in desk.saved("mine").profiles})
    # Without a place for its trace a profile is kept, and says so.
    shutil.rmtree(desk.path / ".roofline" / "profiles")
    (desk.path / ".roofline" / "profiles").write_text("a file")
    desk.suite(SUITE)
    result = desk.run("--roofline-profile")
    result.stdout.fnmatch_lines(
        ["profile of step *", "  not in this profile: a trace, since its file failed: *"]
    )
    (profile,) = desk.last_run().profiles
    assert ("", True) == (profile.trace, bool(profile.kernels))


def test_the_profile_says_what_sets_it_apart_from_the_measurement(desk):
    desk.suite(SUITE.replace("model=MODEL)", 'model=MODEL, cache="flush")'))
    desk.run("--roofline-profile", "--roofline-drill=10%", "--roofline-save=it")
    run = desk.saved("it")
    assert (FLUSHED, REPLACED) == run.profiles[0].missing[:2]
    measured = run.measurements[0]
    plain = replace(
        measured,
        key=replace(measured.key, cache="warm"),
        samples=replace(measured.samples, labels=()),
    )
    assert [] == not_as_measured(plain)
    assert [GRAPH] == not_as_measured(replace(plain, samples=replace(plain.samples, mode="graph")))


def run_of(profile="torch", in_round=None):
    """As much of a session as a profile looks at."""
    warnings = []
    return SimpleNamespace(
        options=SimpleNamespace(profile=profile), round=in_round,
        run_notes=SimpleNamespace(warn=warnings.append),
        warnings=warnings,
    )  # fmt: skip


def test_a_further_round_takes_no_profile_and_ranks_are_not_profiled():
    def never():
        raise AssertionError

    # Anything that it did would fail, with neither a device nor a measurement.
    asked, other, repeated = run_of(), run_of(profile=None), run_of(in_round=object())
    assert take_profile(repeated, None, None, never, [()], None) is None
    for session in (asked, other, repeated):
        warn_of_ranks(session)
    assert ([NO_PROFILES], [], []) == (asked.warnings, other.warnings, repeated.warnings)


def test_an_attached_profiler_takes_the_place_of_torchs_on_a_gpu():
    for wanted, environment, device, tool in (
        ("torch", {}, "cuda:0", "torch"),
        ("torch", {"NSYS_PROFILING_SESSION_ID": "1"}, "cuda:0", "external"),
        ("torch", {"CUDA_INJECTION64_PATH": "/x.so"}, "cuda:1", "external"),
        ("torch", {"ROCP_TOOL_LIB": "/x.so"}, "cuda:0", "external"),
        ("torch", {"NSYS_PROFILING_SESSION_ID": "1"}, "cpu", "torch"),
        ("external", {}, "cuda:0", "external"),
    ):
        found, word = tool_for(wanted, environment, device)
        assert (tool, wanted != tool) == (found, bool(word))
        assert all(name in word for name in environment if word)
