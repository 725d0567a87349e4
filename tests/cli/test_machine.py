"""`roofline selftest` and `roofline doctor`: tables, JSON and exit status."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from importlib import metadata
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from pytest_roofline.cli.main import main
from pytest_roofline.core.facts import Gpu, HostFacts, Machine
from pytest_roofline.core.units import printable
from pytest_roofline.engine import devices, host, inventory
from pytest_roofline.engine.devices.fake import FakeDevice
from pytest_roofline.machine import selftest
from pytest_roofline.machine.expectation import expectation_of, read_expectation, write_expectation

MIB, GIB = 2**20, 2**30
H100_BYTES_PER_S = 3.35e12
OUTCOMES = {"holds", "FAILS", "does not apply"}

HOST = HostFacts("node", "AMD EPYC", 64, 64, 512 * GIB, 512 * GIB, kernel="6.8", governor="performance")
GPU = Gpu(
    0, "NVIDIA H100 80GB HBM3", memory_bytes=80 * GIB, driver="570.86", power_limit_w=700.0, power_default_w=700.0,
    pcie_generation=5, pcie_width=16, pcie_width_rated=16, links=18, ecc=True, others_bytes=0, throttle_known=True,
)  # fmt: skip
NODE = Machine(HOST, gpus=(GPU,), torch_devices=1, libraries=("NVML",))
NARROW = replace(NODE, gpus=(replace(GPU, pcie_width=8),))


def run(*arguments):
    """The command's result."""
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def refused(result):
    """The one sentence of a command that could not use its input."""
    assert result.exit_code == 2
    assert result.stderr.startswith("roofline: ")
    assert result.stderr.count("\n") == 1
    return result.stderr.removeprefix("roofline: ").rstrip("\n")


@pytest.fixture(scope="module")
def on_this_cpu(tmp_path_factory):
    """The self test as run once on this CPU, with small buffers and budgets; its result and its JSON."""
    path = tmp_path_factory.mktemp("selftest") / "figures" / "selftest.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host, "last_level_cache_bytes", lambda: 4 * MIB)
        patch.setattr(selftest, "BEYOND_BYTES", 8 * MIB)
        patch.setattr(selftest, "BUDGET_S", 0.05)
        result = run("selftest", "--device=cpu", "-o", path)
    return SimpleNamespace(result=result, json=json.loads(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("command", ["doctor", "selftest"])
def test_without_torch_a_command_says_so_in_a_sentence(command):
    code = "import sys; sys.modules['torch'] = None; from pytest_roofline.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", code, command], text=True, capture_output=True, check=False)
    asked = next(line for line in metadata.requires("pytest-roofline") if line.startswith("torch"))
    said = f"roofline: torch is not installed; expected {asked}: pip install '{asked}'\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", said)


def outcome_of(line):
    """The outcome that a line begins with; empty for any other line."""
    return next((outcome for outcome in OUTCOMES if line.startswith(outcome)), "")


def test_the_status_of_the_self_test_tells_whether_a_property_failed(on_this_cpu):
    outcomes = [outcome_of(line) for line in on_this_cpu.result.stdout.splitlines()]
    assert on_this_cpu.result.exit_code == int("FAILS" in outcomes)


def test_the_self_test_prints_and_writes_the_same_outcomes(on_this_cpu):
    printed = [outcome_of(line) for line in on_this_cpu.result.stdout.splitlines()]
    assert [found["outcome"] for found in on_this_cpu.json["properties"]] == [word for word in printed if word]


def test_every_property_of_the_json_has_a_name_and_what_was_seen(on_this_cpu):
    properties = on_this_cpu.json["properties"]
    assert len(properties) == len({found["name"] for found in properties}) == 10
    assert all(found["observed"] for found in properties)


def test_the_json_of_the_self_test_says_where_it_ran_and_what_stamps_cost(on_this_cpu):
    assert {"environment", "calibration", "properties"} == set(on_this_cpu.json)
    assert on_this_cpu.json["environment"]["device"]["type"] == "cpu"
    assert on_this_cpu.json["calibration"]["tick_s"] > 0


def test_a_cpu_neither_spins_nor_has_graphs_nor_a_power_cap(on_this_cpu):
    lacking = [found["name"] for found in on_this_cpu.json["properties"] if found["outcome"] == "does not apply"]
    told = " ".join(lacking)
    assert all(word in told for word in ("spinning", "cycles", "graph", "matrix products"))


class FakeWorkloads:
    """Copies that take as long as they do at a rate."""

    def __init__(self, device):
        self.device = device

    def copy(self, size_bytes):
        """From memory, or three times as fast from the cache."""
        seconds, buffer = 2 * size_bytes / self.device.bytes_per_s, object()
        return lambda: self.device.work(seconds, touch=buffer, size_bytes=2 * size_bytes, cached=0.3)

    def read(self, size_bytes):
        """Half of what a copy takes."""
        seconds, buffer = size_bytes / self.device.bytes_per_s, object()
        return lambda: self.device.work(seconds, touch=buffer, size_bytes=size_bytes, cached=0.3)

    def matmul(self):
        """A product of a millisecond."""
        return lambda: self.device.work(1e-3)


@pytest.fixture
def accelerator(monkeypatch):
    """Puts a fake H100 with this much bandwidth in the place of the best device."""

    def install(bytes_per_s, product="NVIDIA H100 80GB HBM3"):
        device = FakeDevice(product, cache_bytes=256 * MIB)
        device.bytes_per_s = bytes_per_s
        monkeypatch.setattr(devices, "open_device", lambda name, option: device)
        monkeypatch.setattr(selftest, "TorchWorkloads", FakeWorkloads)
        return device

    return install


def test_a_sound_device_can_be_trusted(accelerator):
    accelerator(0.9 * H100_BYTES_PER_S)
    result = run("selftest")
    assert (0, "timing can be trusted here") == (result.exit_code, result.stdout.splitlines()[-1])


def test_a_failed_property_is_status_1_and_counted(accelerator):
    accelerator(1.5 * H100_BYTES_PER_S)
    result = run("selftest")
    lines = result.stdout.splitlines()
    assert (1, "1 of 10 properties fail") == (result.exit_code, lines[-1])
    assert next(line for line in lines if line.startswith("FAILS")).startswith("FAILS          a copy stays below")


def test_json_is_all_that_the_self_test_prints_when_asked_for(accelerator):
    accelerator(0.9 * H100_BYTES_PER_S)
    printed = json.loads(run("selftest", "--json").stdout)
    assert {"calibration", "environment", "properties"} == printed.keys()


def test_a_failed_self_test_still_writes_its_figures(accelerator, tmp_path):
    accelerator(1.5 * H100_BYTES_PER_S)
    run("selftest", "-o", tmp_path / "figures.json")
    (failed,) = [
        found
        for found in json.loads((tmp_path / "figures.json").read_text())["properties"]
        if found["outcome"] == "FAILS"
    ]
    assert failed["figures"]["share"] == pytest.approx(1.5, rel=0.01)


@pytest.mark.parametrize(
    ("name", "told"),
    [("pipe", "cannot be written; expected a file in a folder"), ("run.jsonl", "has the name of a run file")],
)
def test_what_is_no_place_for_figures_is_refused_before_anything_is_measured(tmp_path, monkeypatch, name, told):
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setattr(selftest, "selftest", None)
    done = run("selftest", "--device=cpu", "-o", tmp_path / name)
    assert (2, "", True) == (done.exit_code, done.stdout, told in done.stderr), done.output
    assert [tmp_path / "pipe"] == list(tmp_path.iterdir())
    assert (tmp_path / "pipe").is_fifo()


def test_a_product_without_a_datasheet_is_not_held_against_one(accelerator):
    accelerator(1.5 * H100_BYTES_PER_S, "A card that nobody knows")
    assert run("selftest").exit_code == 0


def test_the_name_of_a_product_cannot_steer_the_terminal(accelerator):
    accelerator(0.9 * H100_BYTES_PER_S, "evil\n\x1b[31mFAILS")
    lines = run("selftest").stdout.splitlines()
    assert [printable(line) for line in lines] == lines
    assert lines[0].startswith("fake (evil")


def test_a_device_that_vanishes_is_one_sentence(accelerator):
    accelerator(0.9 * H100_BYTES_PER_S)._vanish_after = 0
    assert "fake stopped answering" in refused(run("selftest"))


@pytest.mark.parametrize("name", ["gpu", "cuda:x", "cpu:0", ""])
def test_a_device_that_is_none_is_one_sentence(name):
    result = run("selftest", f"--device={name}x")
    assert f"{name}x" in refused(result)
    assert result.stdout == ""


def test_a_device_that_is_not_there_is_one_sentence():
    assert "cuda:99" in refused(run("selftest", "--device=cuda:99"))


def test_the_option_that_is_wrong_is_named_as_it_was_given():
    assert refused(run("selftest", "--device=gpu")).startswith("--device ")


@pytest.fixture
def machine(monkeypatch):
    """Puts a machine in the place of this one."""

    def install(found):
        monkeypatch.setattr(inventory, "take_stock", lambda: found)

    install(NODE)
    return install


@pytest.fixture
def expected(tmp_path):
    """The file that a good node wrote."""
    write_expectation(tmp_path / "node.json", expectation_of(NODE))
    return tmp_path / "node.json"


def test_the_doctor_lists_the_machine_and_its_findings(machine):
    machine(NARROW)
    lines = run("doctor").stdout.splitlines()
    assert [lines[0].split(":")[0], lines[1].split(":")[0], lines[2]] == [
        "host node",
        "GPU 0 (NVIDIA H100 80GB HBM3)",
        "1 GPU seen; torch uses 1",
    ]
    assert any(line.startswith("LIMIT   GPU 0") and "PCIe width 8 of 16" in line for line in lines)


def test_a_finding_is_no_failure(machine):
    machine(NARROW)
    assert run("doctor").exit_code == 0


def test_a_machine_as_expected_is_status_0_and_says_so(machine, expected):
    result = run("doctor", "--expect", expected)
    assert (0, f"as expected by {expected}") == (result.exit_code, result.stdout.splitlines()[-1])


def test_a_machine_that_differs_is_status_1_with_each_difference(machine, expected):
    machine(replace(NARROW, host=replace(HOST, cpu_model="Intel Xeon")))
    result = run("doctor", "--expect", expected)
    assert (1, [
        "GPU 0 (NVIDIA H100 80GB HBM3): pcie_width expected 16, found 8",
        "host: cpu_model expected AMD EPYC, found Intel Xeon",
        f"2 differences from {expected}",
    ]) == (result.exit_code, [line.partition("; mend: ")[0] for line in result.stdout.splitlines()[-3:]])  # fmt: skip


def test_json_holds_the_machine_its_findings_and_the_differences(machine, expected):
    machine(NARROW)
    result = run("doctor", "--json", "--expect", expected)
    told = json.loads(result.stdout)
    assert (1, {"machine", "findings", "differences"}) == (result.exit_code, set(told))
    assert told["machine"]["gpus"][0]["pcie_width"] == 8
    assert [
        {"subject": GPU.label, "fact": "pcie_width", "expected": "16", "observed": "8"}
    ] == told["differences"]  # fmt: skip
    assert all(
        {"kind", "subject", "observed", "effect", "remedy"} == set(finding) for finding in told["findings"]
    )  # fmt: skip


@pytest.mark.parametrize("arguments", [(), ("--expect",)])
def test_json_names_no_differences_where_there_are_none(machine, expected, arguments):
    result = run("doctor", "--json", *arguments, *([expected] if arguments else []))
    assert (0, []) == (result.exit_code, json.loads(result.stdout)["differences"])


def test_this_very_machine_can_be_looked_at():
    result = run("doctor", "--json")
    assert (0, host.host_facts().cpu_model) == (
        result.exit_code,
        json.loads(result.stdout)["machine"]["host"]["cpu_model"],
    )


def test_a_good_node_writes_what_it_has(machine, tmp_path):
    result = run("doctor", "--write-expect", tmp_path / "node.json")
    assert (0, expectation_of(NODE)) == (result.exit_code, read_expectation(tmp_path / "node.json"))
    assert str(tmp_path / "node.json") in result.stdout


def test_what_a_node_wrote_holds_on_it(tmp_path):
    assert run("doctor", "--write-expect", tmp_path / "node.json").exit_code == 0
    assert run("doctor", "--expect", tmp_path / "node.json").exit_code == 0


def test_writing_an_expectation_leaves_the_json_alone(machine, tmp_path):
    result = run("doctor", "--json", "--write-expect", tmp_path / "node.json")
    assert "machine" in json.loads(result.stdout)
    assert "node.json" in result.stderr


def test_an_existing_file_is_not_overwritten(machine, tmp_path):
    (tmp_path / "node.json").write_text("mine")
    result = run("doctor", "--write-expect", tmp_path / "node.json")
    assert ("mine", "") == ((tmp_path / "node.json").read_text(), result.stdout)
    assert "exists already" in refused(result)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "does not exist"),
        ("", "is empty"),
        ("{", "is not JSON"),
        ('{"schema": 2, "gpus": []}', "schema version 2"),
        ('{"schema": 1, "gpus": [], "gpu": 8}', "gpu"),
        ('{"schema": 1, "gpus": [{"product": "A", "count": 1}, {"product": "A", "count": 1}]}', "twice"),
        ('{"schema": 1, "gpus": [{"product": "A", "count": -1}]}', "count is -1"),
        ('{"schema": 1, "gpus": [], "memory_bytes": 0}', "memory_bytes"),
        ('{"schema": 1, "gpus": [{"product": "A\\nB", "count": -1}], "\\n": 1}', "node.json"),
    ],
)
def test_an_expectation_that_cannot_be_used_is_one_sentence_before_the_machine_is_looked_at(
    monkeypatch, tmp_path, text, sentence
):
    asked = []
    monkeypatch.setattr(inventory, "take_stock", lambda: asked.append(1) or NODE)
    if text is not None:
        (tmp_path / "node.json").write_text(text)
    assert sentence in refused(run("doctor", "--expect", tmp_path / "node.json"))
    assert asked == []


def test_a_file_where_none_can_be_written_is_one_sentence(machine, tmp_path):
    (tmp_path / "file").write_text("")
    assert "cannot be written" in refused(run("doctor", "--write-expect", tmp_path / "file" / "node.json"))


@pytest.mark.parametrize("name", ["evil\nLIMIT fake", "\x1b[31mred", "a\rb", "a\u2028b", "\u202egpu"])
def test_hostile_names_neither_break_lines_nor_steer_the_terminal(machine, tmp_path, name):
    gpu = replace(GPU, product=name, driver=name, partition=name, others_bytes=None)
    machine(replace(NODE, host=replace(HOST, name=name, cpu_model=name, kernel=name, governor=name), gpus=(gpu,)))
    write_expectation(tmp_path / "node.json", expectation_of(NODE))
    lines = run("doctor", "--expect", tmp_path / "node.json").stdout.split("\n")
    assert [printable(line) for line in lines] == lines


def test_hostile_names_come_through_json_unchanged(machine):
    machine(replace(NODE, gpus=(replace(GPU, product="evil\n\x1b[31m"),)))
    assert json.loads(run("doctor", "--json").stdout)["machine"]["gpus"][0]["product"] == "evil\n\x1b[31m"
