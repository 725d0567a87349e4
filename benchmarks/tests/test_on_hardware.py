"""The program that asks a real card: all of it on a fake that behaves as one, and each way in which a card deviates."""

import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

from pytest_roofline.core.errors import BadFile

MIB = 2**20
# What only a device of torch's or a tool of NVIDIA's could answer.
NOT_ON_A_FAKE = {
    "memory ran", "precision ran", "profile ran", "profiles", "one rank ran", "memcheck ran", "tuning ran",
}  # fmt: skip


@pytest.fixture(scope="module")
def lab(program):
    """The program and the modules that it is made of."""
    names = (
        "attention",
        "facts",
        "faithful",
        "labs",
        "probe",
        "processes",
        "predictions",
        "page",
        "running",
        "stages",
        "two_calls",
        "devices_table",
    )
    return SimpleNamespace(
        main=program("on_hardware"), **{name: program(f"hardware.{name}") for name in names}
    )


@pytest.fixture
def header(lab):
    """On what the facts of a test are found."""
    own = {"type": "fake", "product": lab.faithful.PRODUCT}
    return {
        "device": "fake", "product": lab.faithful.PRODUCT, "planted": {}, "quick": False, "started": "2026-11-23",
        "environment": {"device": own, "software": {"torch": "2.13.0"}},
    }  # fmt: skip


@pytest.fixture
def probed(lab, header, tmp_path):
    """The rows of the probe on the fake, with what is planted in it."""

    def ask(**planted):
        facts = lab.facts.begin(tmp_path / "facts", header)
        device = lab.faithful.faithful(**planted)
        lab.probe.ask(lab.labs.FakeLab(device, lab.faithful.lab_facts(**planted)), facts)
        facts.end("probe", "finished", 1.0)
        return facts, [row for row in lab.page.rows(facts) if row.prediction.stage == "probe"]

    return ask


def named(rows, verdict):
    return {row.prediction.name for row in rows if row.verdict == verdict}


# The probe


def test_on_the_faithful_fake_every_row_of_the_probe_holds(lab, probed):
    facts, rows = probed()
    assert {row.prediction.name: row.verdict for row in rows} == {
        row.prediction.name: "holds" for row in rows
    }
    assert not [fact for fact in facts.all if fact.error or fact.lacking]


# By the switch of the fake, a value that no healthy card has, and the rows that say so.
DEVIATIONS = {
    "clock_ramp_s": (5.0, {"clock risen"}),
    "clock_hz": (1.2e9, {"full clock"}),
    "tick_s": (1e-6, {"tick"}),
    "pair_s": (4e-6, {"event pair"}),
    "launch_s": (50e-6, {"launch"}),
    "record_s": (10e-6, {"record"}),
    "latency_s": (50e-6, {"start"}),
    "queue_depth": (128, {"queue"}),
    "launch_gap_s": (4e-6, {"saved"}),
    "graph_upload_s": (0.0, {"upload"}),
    "capture_fails": (True, {"captured", "second capture"}),
    # Nothing was evicted, so reads and copies alike are too fast.
    "reported_cache_bytes": (8 * MIB, {"cold reads", "write-back"}),
    "dirty_share": (0.0, {"write-back"}),
    "power_cap_w": (350.0, {"power cap"}),
    "driver_bytes": (0, {"driver memory"}),
    "context_bytes": (2 * 2**30, {"context"}),
    "others_bytes": (2**30, {"others' memory"}),
    "others_busy": (0.5, {"others at work"}),
    "counters_s": (0.1, {"questions"}),
    "slab_check_s": (0.1, {"slabs", "most sets"}),
    "pinned_share": (2.0, {"pinned"}),
    "pinned_left": (2**30, {"unpinned"}),
}


@pytest.mark.parametrize("switch", DEVIATIONS)
def test_a_switch_that_deviates_is_disproved_and_nothing_else(probed, switch):
    value, rows = DEVIATIONS[switch]
    assert named(probed(**{switch: value})[1], "**disproved**") == rows


def test_a_probe_that_raises_leaves_its_error_and_the_others_are_asked(lab, probed, monkeypatch):
    def broken(_):
        yield "half", {"seconds": 1.0}
        raise ZeroDivisionError("by a clock of nothing")

    monkeypatch.setitem(lab.probe.PROBES, "stamps", broken)
    facts, rows = probed()
    (error,) = [fact for fact in facts.all if fact.error]
    assert (error.what, error.error.partition(" (")[0]) == (
        "stamps",
        "ZeroDivisionError: by a clock of nothing",
    )
    assert "stamps: half" in facts.asked("probe")
    assert named(rows, "not asked") == {"tick", "event pair"}
    assert named(rows, "**disproved**") == set()
    assert "ZeroDivisionError" in lab.page.page(facts)


def test_what_a_machine_lacks_is_said_and_not_disproved(lab, header, tmp_path):
    from pytest_roofline.engine.devices.cpu import CpuDevice

    facts = lab.facts.begin(tmp_path, header)
    lab.probe.ask(lab.labs.TorchLab(CpuDevice()), facts)
    assert [fact.error for fact in facts.all if fact.error] == []
    assert {fact.what for fact in facts.all if fact.lacking} == set(lab.probe.PROBES)
    assert [fact.lacking for fact in facts.find("probe", "graphs")] == [
        "needs a device with graphs; cpu has none"
    ]


# All of it


@pytest.fixture(scope="module")
def whole(lab, tmp_path_factory):
    """Everything on the faithful fake, once, with little time for every measurement."""
    folder = tmp_path_factory.mktemp("whole")
    # However long it takes on this machine.
    status = lab.main.main(
        ["--device", "fake", "--quick", "--out", str(folder), "--seconds-per-stage", "3600"]
    )
    return status, folder, lab.facts.read(folder)


def test_all_of_it_runs_to_its_end_on_the_faithful_fake_and_disproves_nothing(lab, whole):
    status, _, facts = whole
    rows = lab.page.rows(facts)
    assert (status, named(rows, "**disproved**"), named(rows, "not asked")) == (
        0,
        set(),
        NOT_ON_A_FAKE,
    )
    assert {stage: facts.outcome(stage) for stage in lab.main.ALL} == dict.fromkeys(
        lab.main.ALL, "finished"
    )


def test_facts_that_were_brought_back_make_the_same_page(lab, whole, tmp_path):
    _, folder, facts = whole
    shutil.copy(facts.path, tmp_path)
    assert lab.main.main(["--from", str(tmp_path)]) == 0
    assert (tmp_path / "page.md").read_text() == (folder / "page.md").read_text()


def test_the_self_test_of_a_fake_that_deviates_fails(lab, monkeypatch, capsys):
    faked = importlib.import_module("hardware.faked")
    monkeypatch.setenv(lab.faithful.PLANTED, json.dumps({"reported_cache_bytes": 8 * MIB}))
    monkeypatch.setattr(sys, "argv", ["roofline", "doctor", "--measure", "--json"])
    monkeypatch.setattr(faked.devices, "open_device", faked.devices.open_device)
    monkeypatch.setattr(faked.ceiling, "TorchWorkloads", faked.ceiling.TorchWorkloads)
    with pytest.raises(SystemExit):
        faked.main()
    told = {
        one["name"]: one["outcome"] for one in json.loads(capsys.readouterr().out)["properties"]
    }
    assert [name for name, outcome in told.items() if outcome == "FAILS"] == [
        "a flush evicts the cache"
    ]


# A quarter of an hour


@pytest.fixture
def paced(lab, header, tmp_path, monkeypatch):
    """Makes calls of the plan for a GPU, whose steps take a share of their time on a scripted clock."""
    clock = SimpleNamespace(now_s=1000.0)
    monkeypatch.setattr(lab.two_calls.time, "monotonic", lambda: clock.now_s)
    machine = lab.stages.Machine("cuda:0", tmp_path, {})
    path = lab.facts.begin(tmp_path, header).path
    steps = []

    def make_call(share, describing_s=0.0):
        """The steps that were asked in one call, and its seconds."""
        facts, began_s = lab.facts.read(path.parent), clock.now_s
        clock.now_s += describing_s
        asked = []

        def ask(stage, names, seconds):
            asked.append(f"{stage}: {names[0]}")
            steps.append((stage, seconds))
            clock.now_s += share * seconds
            for name in names:
                facts.add(lab.facts.Fact(stage, name))

        monkeypatch.setattr(
            lab.stages, "call_one", lambda _, __, stage, entry, s: ask(stage, [entry.name], s)
        )
        monkeypatch.setattr(
            lab.processes, "ask_probes", lambda _, __, names, s: ask("probe", names, s)
        )
        monkeypatch.setattr(
            lab.processes, "ask", lambda _, __, stage, names, s: ask(stage, names, s)
        )
        lab.two_calls.call(machine, facts, 15.0, began_s)
        return asked, clock.now_s - began_s

    return make_call


FIRST = [
    "probe: clock", "attention: attention: triton-forward-causal-s8192-d128", "copies: copies", "gemm: gemm",
    "trust: selftest 1", "trust: doctor", "driver: nvidia-smi",
]  # fmt: skip
SECOND = [
    "gate: baseline 1", "gate: baseline 2", "gate: baseline 3", "gate: propose", "gate: approve", "gate: gate",
    "gate: drill",
]  # fmt: skip


def test_steps_that_take_all_of_their_time_fill_two_calls_of_400_and_290_seconds(paced):
    assert paced(1.0, describing_s=20.0) == (FIRST[:5], 380.0)
    # What no longer fitted comes first in the next call, and what never fitted is left.
    assert paced(1.0, describing_s=5.0) == (FIRST[5:] + SECOND, 280.0)
    assert paced(1.0) == (["model: transformer"], 90.0)


def test_a_call_ends_in_its_time_however_long_its_steps_take_and_asks_none_twice(paced):
    for share, calls in [(0.1, 1), (0.5, 1), (0.7, 2), (0.9, 2), (1.0, 3)]:
        asked = []
        for limit_s in (400.0, 290.0, 290.0)[:calls]:
            names, seconds = paced(share, describing_s=5.0)
            assert seconds <= limit_s
            asked += names
        assert len(asked) == len(set(asked))


def test_its_facts_and_those_of_all_stages_do_not_join_and_it_takes_no_stages(
    lab, header, tmp_path, capsys
):
    lab.facts.begin(tmp_path, header | {"minutes": None})
    fake = ["--device", "fake", "--out", str(tmp_path), "--minutes", "15"]
    assert lab.main.main(fake) == 2
    assert "minutes None, here 15.0" in capsys.readouterr().err
    assert lab.main.main([*fake, "--stages", "gemm"]) == 2
    assert "expected neither --stages nor --again" in capsys.readouterr().err


def test_attention_that_is_lacking_wrong_or_fails_costs_no_other_case_its_rate(
    lab, header, tmp_path, monkeypatch
):
    labels = list(lab.attention.cases(fake=True))
    usual = lab.attention._foreseen

    def wrong():
        raise AssertionError("output is off by 1; accepted is 0.01")

    def some(fake, case):
        if case.name == "sdpa_cudnn":
            raise lab.labs.Lacking("a back end of PyTorch")
        if case.name == "sdpa_flash":
            raise RuntimeError("CUDA error: out of memory")
        call, _ = usual(fake, case)
        return call, wrong

    monkeypatch.setattr(lab.attention, "_foreseen", some)
    facts = lab.facts.begin(tmp_path, header)
    device = lab.faithful.faithful()
    lab.attention.ask(lab.labs.FakeLab(device, lab.faithful.lab_facts()), facts, labels)
    found = {fact.what.split("-")[0]: fact for fact in facts.find("attention", "*-d128")}
    assert found["attention: sdpa_cudnn"].lacking == "needs a back end of PyTorch"
    assert found["attention: sdpa_flash"].error == "RuntimeError: CUDA error: out of memory"
    ours = found["attention: triton"].values
    assert ours["invalid"] == "output is off by 1; accepted is 0.01"
    rate = lab.faithful.BACKWARD["triton"][128] * 1e12
    assert ours["flops_per_s"] == pytest.approx(rate, rel=0.01)
    assert {fact.what for fact in facts.all} == set(labels)
    # A rate of wrong results is no rate.
    assert list(lab.page._whole(facts).find("attention", "ours *")) == []


def test_the_attention_of_a_device_is_the_suites_with_its_own_check(lab, monkeypatch):
    from pytest_roofline.engine.devices.cpu import CpuDevice

    cpu = lab.labs.TorchLab(CpuDevice())
    flash, cudnn = (
        lab.attention.Case(name, "forward", 128, True, sequence=128)
        for name in ("sdpa_flash", "sdpa_cudnn")
    )
    with pytest.raises(lab.labs.Lacking, match="attention kernels of CUDA or ROCm; this is cpu"):
        lab.attention.of_the_suite(cpu, flash)
    # As if the kernels of this device were a GPU's.
    monkeypatch.setattr(cpu, "only_gpus", lambda what: None)
    call, check = lab.attention.of_the_suite(cpu, flash)
    call()
    assert check() is True
    with pytest.raises(lab.labs.Lacking, match="found"):
        lab.attention.of_the_suite(cpu, cudnn)
    assert {"triton", "sdpa_flash", "sdpa_cudnn"} < set(lab.attention.names(fake=False))


def test_a_question_whose_process_dies_or_hangs_is_marked_and_the_others_are_asked(
    lab, header, tmp_path, monkeypatch
):
    facts = lab.facts.begin(tmp_path, header)
    names = ["a", "b", "c", "d"]

    def run(command, said, limit_s, environment, folder):
        """The process dies in b and hangs in c."""
        said.parent.mkdir(exist_ok=True)
        said.write_text("")
        said.with_suffix(".err").write_text("illegal memory access")
        left = command[command.index("--ask") + 2 :]
        told = lab.facts.read(tmp_path)
        if left[0] in "ad":
            told.add(lab.facts.Fact("attention", left[0]))
        return lab.running.Ended({"c": None}.get(left[0], 1), 7.0, said)

    monkeypatch.setattr(lab.processes, "run", run)
    machine = lab.stages.Machine("fake", tmp_path, {})
    assert lab.processes.ask(machine, facts, "attention", names, 3600.0) is True
    found = {fact.what: fact.error for fact in lab.facts.read(tmp_path).all}
    died = (
        "the process ended with status 1 while it was asked; it ended with: illegal memory access"
    )
    hung = "its process was ended after 7 s, while it was asked"
    assert found == {"a": "", "b": died, "c": hung, "d": ""}


def test_a_proposal_finds_the_recordings_of_an_earlier_call(lab, tmp_path):
    machine = lab.stages.Machine("fake", tmp_path, {}, quick=True)
    for _ in range(2):
        commands = {command.name: command for command in lab.stages.gate(machine)}
        recorded = [commands[f"baseline {number}"] for number in (1, 2, 3)]
        paths = [each.runs / f"{each.name.replace(' ', '-')}.jsonl" for each in recorded]
        assert {str(path) for path in paths} <= set(commands["propose"].command)
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    assert paths == [
        tmp_path / f"runs/baseline-{number}/last/runs/baseline-{number}.jsonl"
        for number in (1, 2, 3)
    ]


def copied(lab, facts, *runs):
    """Facts of copies, a run each, as seconds and mode by label."""
    for number, tests in enumerate(runs, 1):
        for label, (seconds, mode, *labels) in tests.items():
            values = {
                "label": label,
                "median_s": seconds,
                "mode": mode,
                "labels": labels,
                "invalid": "",
            }
            facts.add(lab.facts.Fact("copies", f"memcpy {number}: {label}", values))
        facts.add(lab.facts.Fact("copies", f"memcpy {number}", {"status": 0, "seconds": 30.0}))
    facts.end("copies", "finished", 1.0)


@pytest.mark.parametrize(
    ("second", "disproved"),
    [
        ({"4KiB": (1.0e-6, "graph"), "4MiB": (5.2e-6, "graph")}, set()),
        ({"4KiB": (1.0e-6, "graph"), "4MiB": (5.3e-6, "graph")}, {"A/A"}),
        ({"4KiB": (1.0e-6, "events"), "4MiB": (5.0e-6, "graph")}, {"modes"}),
        ({"4KiB": (1.0e-6, "graph", "cache_resident"), "4MiB": (5.0e-6, "graph")}, {"resident"}),
        ({"4KiB": (1.0e-6, "graph", "graph_refused"), "4MiB": (5.0e-6, "graph")}, {"graphs"}),
    ],
)
def test_runs_of_the_same_that_differ_are_told_by_how(lab, header, tmp_path, second, disproved):
    facts = lab.facts.begin(tmp_path, header)
    copied(lab, facts, {"4KiB": (1.0e-6, "graph"), "4MiB": (5.0e-6, "graph")}, second)
    assert named(lab.page.rows(facts), "**disproved**") == disproved


# Cut, killed, called again


def test_a_program_that_was_killed_goes_on_where_it_was(lab, tmp_path):
    command = [
        sys.executable,
        str(lab.main.ROOT / "benchmarks/on_hardware.py"),
        "--device",
        "fake",
        "--quick",
    ]
    command += ["--out", str(tmp_path), "--stages"]
    process = subprocess.Popen(
        [*command, "gemm,attention"], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    while process.stdout.readline().strip() != "gemm: finished":
        pass
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    facts = lab.facts.read(tmp_path)
    found = list(facts.find("gemm", "*"))
    # As if it had been killed while it wrote.
    with facts.path.open("ab") as file:
        file.write(b'{"stage": "attention", "wh')
    assert lab.main.main([*command[2:], "gemm,memcheck"]) == 0
    again = lab.facts.read(tmp_path)
    assert [fact for fact in again.all if fact.stage == "gemm"] == found
    assert again.outcome("memcheck") == "finished"


def test_a_probe_that_was_cut_goes_on_with_what_is_left(lab, probed):
    facts, _ = probed()
    lines = facts.path.read_text().splitlines(keepends=True)
    facts.path.write_text(
        "".join(lines[: next(at for at, line in enumerate(lines) if '"droop' in line)])
    )
    again = lab.facts.read(facts.path.parent)
    before = len(again.all)
    device = lab.faithful.faithful()
    lab.probe.ask(lab.labs.FakeLab(device, lab.faithful.lab_facts()), again)
    assert [fact.what for fact in again.all[before:]] == [
        "droop: products", "droop", "failed capture: after", "failed capture",
    ]  # fmt: skip


# Its child holds the pipe open as long as it lives.
STUBBORN = """
import signal, subprocess, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
pipe = open("pipe", "wb")
subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], pass_fds=[pipe.fileno()])
print("began", flush=True)
signal.pause()
"""


def test_a_deadline_ends_a_command_with_its_children_and_keeps_what_it_printed(
    lab, tmp_path, monkeypatch
):
    os.mkfifo(tmp_path / "pipe")
    pipe = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    wait = lab.running._wait

    def from_its_beginning(process, limit_s):
        while not (tmp_path / "said.txt").read_text():
            assert process.poll() is None
        return wait(process, limit_s)

    monkeypatch.setattr(lab.running, "_wait", from_its_beginning)
    ended = lab.running.run(
        [sys.executable, "-c", STUBBORN], tmp_path / "said.txt", 0.5, {}, tmp_path
    )
    assert (ended.status, ended.said.read_text()) == (None, "began\n")
    os.set_blocking(pipe, True)
    # The end of the file: nobody is left who could write.
    assert os.read(pipe, 1) == b""
    os.close(pipe)


def test_a_stage_that_is_too_slow_is_cut_says_so_and_is_called_again(lab, tmp_path, monkeypatch):
    hangs = [sys.executable, "-c", "import signal; signal.pause()"]
    commands = {
        "gemm": lambda _: [lab.stages.Command("gemm", hangs), lab.stages.Command("next", hangs)]
    }
    monkeypatch.setattr(lab.stages, "STAGES", commands)
    asked = [
        "--device",
        "fake",
        "--stages",
        "gemm",
        "--out",
        str(tmp_path),
        "--seconds-per-stage",
        "0.5",
    ]
    assert lab.main.main(asked) == 3
    page = (tmp_path / "page.md").read_text()
    assert "The stage was cut at its deadline" in page
    assert "gemm: cut at its deadline, after" in page
    passes = [sys.executable, "-c", ""]
    commands["gemm"] = lambda _: [
        lab.stages.Command("gemm", passes),
        lab.stages.Command("next", passes),
    ]
    assert lab.main.main([*asked[:-1], "60"]) == 0
    assert named(lab.page.rows(lab.facts.read(tmp_path)), "holds") == {"gemm ran"}


# Where pages go


def test_a_page_of_a_fake_does_not_stand_among_results_of_hardware(lab, header, tmp_path):
    facts = lab.facts.begin(tmp_path, header)
    options = lab.main.parse(["--from", str(tmp_path)])
    assert lab.main.written_to(options, facts) == tmp_path / "page.md"
    facts.header |= {"device": "cuda"}
    assert (
        lab.main.written_to(options, facts)
        == lab.devices_table.RESULTS / "nvidia-h100-80gb-hbm3.md"
    )
    facts.header |= {"quick": True}
    assert lab.main.written_to(options, facts) == tmp_path / "page.md"
    assert lab.main.written_to(lab.main.parse(["--from", ".", "-o", "x.md"]), facts).name == "x.md"


def test_the_first_page_of_the_documentation_holds_the_table_that_the_program_makes(
    lab, tmp_path, monkeypatch
):
    text, table = lab.devices_table.PAGE.read_text(), lab.devices_table.part()
    monkeypatch.setattr(lab.devices_table, "PAGE", tmp_path / "index.md")
    lab.devices_table.PAGE.write_text(text.replace(table, "an older table"))
    lab.devices_table.write()
    assert text == lab.devices_table.PAGE.read_text()
    # In the first screen.
    assert text[: text.index(table)].count("\n") <= 24


def test_facts_of_a_card_make_its_line(lab, header, probed, tmp_path, monkeypatch):
    facts, _ = probed()
    facts.header |= {"device": "cuda"}
    monkeypatch.setattr(lab.devices_table, "RESULTS", tmp_path)
    lines = facts.path.read_text().splitlines(keepends=True)
    (tmp_path / "h100.jsonl").write_text(
        json.dumps({"header": facts.header}) + "\n" + "".join(lines[1:])
    )
    device, state, rests = next(line for line in lab.devices_table.lines() if "H100" in line[0])
    assert (device, state) == (lab.faithful.PRODUCT, "**ran**")
    assert "31 hold, 0 are disproved" in rests
    (tmp_path / "fake.jsonl").write_text("".join(lines))
    with pytest.raises(BadFile, match="only facts of hardware stand there"):
        lab.devices_table.lines()
