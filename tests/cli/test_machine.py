"""`roofline doctor` and `hardware`: tables, JSON and exit status."""

import json
from dataclasses import replace

import pytest

from pytest_roofline.core.facts import Gpu, HostFacts, Machine
from pytest_roofline.core.storage import to_plain
from pytest_roofline.core.units import printable
from pytest_roofline.engine import ceiling, devices, host, inventory, quiet
from pytest_roofline.engine.devices.fake import FakeDevice
from pytest_roofline.hardware import products
from pytest_roofline.hardware.lookup import shipped_hardware
from pytest_roofline.machine import selftest
from pytest_roofline.machine.expectation import expectation_of, read_expectation, write_expectation

MIB, GIB = 2**20, 2**30
H100_BYTES_PER_S = 3.35e12
OUTCOMES = {"holds", "FAILS", "does not apply"}

HOST = HostFacts(
    "node", "AMD EPYC", 64, 64, 512 * GIB, 512 * GIB, kernel="6.8", governor="performance"
)
GPU = Gpu(
    0, "NVIDIA H100 80GB HBM3", memory_bytes=80 * GIB, driver="570.86", power_limit_w=700.0, power_default_w=700.0,
    pcie_generation=5, pcie_width=16, pcie_width_rated=16, links=18, ecc=True, others_bytes=0, throttle_known=True,
)  # fmt: skip
NODE = Machine(HOST, gpus=(GPU,), torch_devices=1, libraries=("NVML",))
NARROW = replace(NODE, gpus=(replace(GPU, pcie_width=8),))


@pytest.fixture
def machine(monkeypatch):
    """Puts a machine in the place of this one."""

    def install(found):
        monkeypatch.setattr(inventory, "take_stock", lambda watch_s: found)

    install(NODE)
    return install


def test_timing_is_checked_on_this_cpu_with_the_same_outcomes_in_words_and_json(
    command, machine, monkeypatch
):
    # Small buffers and budgets.
    monkeypatch.setattr(host, "last_level_cache_bytes", lambda: 4 * MIB)
    monkeypatch.setattr(selftest, "BEYOND_BYTES", 8 * MIB)
    monkeypatch.setattr(selftest, "BUDGET_S", 0.05)
    result = command("doctor", "--measure", "--device=cpu", "--json")
    written = json.loads(result.stdout)
    printed = [
        outcome
        for line in result.stderr.splitlines()
        for outcome in OUTCOMES
        if line.startswith(outcome)
    ]
    assert [found["outcome"] for found in written["properties"]] == printed
    assert (result.exit_code, len(printed)) == (int("FAILS" in printed), 11)
    assert {
        "machine", "findings", "differences", "environment", "calibration", "properties",
    } == set(written)  # fmt: skip
    lacking = " ".join(
        found["name"] for found in written["properties"] if found["outcome"] == "does not apply"
    )
    assert all(word in lacking for word in ("spinning", "cycles", "graph", "matrix products"))


class FakeWorkloads:
    """Copies that take as long as they do at a rate."""

    def __init__(self, device):
        self.device = device

    def copy(self, size_bytes):
        """From memory, or three times as fast from the cache."""
        seconds, buffer = 2 * size_bytes / self.device.bytes_per_s, object()
        return lambda: self.device.work(
            seconds, touch=buffer, size_bytes=2 * size_bytes, cached=0.3
        )

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
        monkeypatch.setattr(ceiling, "TorchWorkloads", FakeWorkloads)
        return device

    return install


MEASURE = ("doctor", "--measure")


def test_a_sound_device_can_be_trusted_and_a_failed_property_is_status_1(
    command, accelerator, machine
):
    accelerator(0.9 * H100_BYTES_PER_S)
    result = command(*MEASURE)
    lines = result.stdout.splitlines()
    assert (0, "the timing on this machine is correct") == (result.exit_code, lines[-1])
    # Behind what the machine has.
    assert lines[0].startswith("host node")
    accelerator(1.5 * H100_BYTES_PER_S)
    result = command(*MEASURE)
    lines = result.stdout.splitlines()
    assert (1, "1 of 10 properties fail") == (result.exit_code, lines[-1])
    assert next(line for line in lines if line.startswith("FAILS")).startswith(
        "FAILS          a copy stays below"
    )
    accelerator(1.5 * H100_BYTES_PER_S)
    written = json.loads(command(*MEASURE, "--json").stdout)
    (failed,) = [found for found in written["properties"] if found["outcome"] == "FAILS"]
    assert failed["figures"]["share"] == pytest.approx(1.5, rel=0.01)
    # A product without a datasheet is not held against one, and its name cannot steer the terminal.
    accelerator(1.5 * H100_BYTES_PER_S, "evil\n\x1b[31mFAILS")
    result = command(*MEASURE)
    lines = result.stdout.splitlines()
    assert (result.exit_code, [printable(line) for line in lines]) == (0, lines)
    assert any(line.startswith("fake (evil") for line in lines)


def test_a_device_that_cannot_be_measured_is_one_sentence(command, refused, accelerator, machine):
    for name in ("gpux", "cuda:xx", "cpu:0x", "x", "cuda:99"):
        sentence = refused(*MEASURE, f"--device={name}")
        assert (sentence.startswith("--device "), name in sentence) == (True, True), name
    assert refused("doctor", "--device=cpu") == ("--device needs --measure; give both, or neither")
    accelerator(0.9 * H100_BYTES_PER_S)._vanish_after = 0
    result = command(*MEASURE)
    assert (result.exit_code, "fake stopped answering" in result.stderr) == (2, True)


@pytest.fixture
def expected(tmp_path):
    """The file that a good node wrote."""
    write_expectation(tmp_path / "node.json", expectation_of(NODE))
    return tmp_path / "node.json"


def test_the_doctor_lists_the_machine_its_findings_and_what_differs(command, machine, expected):
    result = command("doctor", "--expect", expected)
    assert (0, f"no difference from {expected}") == (
        result.exit_code,
        result.stdout.splitlines()[-1],
    )
    machine(NARROW)
    result = command("doctor")
    lines = result.stdout.splitlines()
    # A finding is no failure.
    assert (result.exit_code, [line.split(":")[0] for line in lines[:3]]) == (
        0, ["host node", "GPU 0 (NVIDIA H100 80GB HBM3)", "1 GPU seen; torch uses 1"],
    )  # fmt: skip
    assert any(line.startswith("LIMIT   GPU 0") and "PCIe width 8 of 16" in line for line in lines)
    machine(replace(NARROW, host=replace(HOST, cpu_model="Intel Xeon")))
    result = command("doctor", "--expect", expected)
    assert (1, [
        "GPU 0 (NVIDIA H100 80GB HBM3): pcie_width is 8, expected 16",
        "host: cpu_model is Intel Xeon, expected AMD EPYC",
        f"2 differences from {expected}",
    ]) == (result.exit_code, [line.partition("; remedy: ")[0] for line in result.stdout.splitlines()[-3:]])  # fmt: skip


class Rests:
    """A clock that moves only while the doctor waits."""

    def __init__(self):
        self.passed_s = 0.0

    def monotonic(self):
        return self.passed_s

    def sleep(self, seconds):
        self.passed_s += seconds


@pytest.mark.parametrize(("quiet_after_s", "status"), [(0.0, 0), (30.0, 0), (1e9, 1)])
def test_the_doctor_waits_for_a_quiet_machine_and_says_who_keeps_it_busy(
    command, machine, monkeypatch, quiet_after_s, status
):
    clock, busy = Rests(), "other processes keep 1.6 of 2 cores busy (cc1 (7) 1.0)"
    monkeypatch.setattr(quiet, "time", clock)
    monkeypatch.setattr(quiet, "busy_at", lambda _: busy if clock.passed_s < quiet_after_s else "")
    result = command("doctor", "--wait", "90s")
    lines = result.stdout.splitlines()
    assert (result.exit_code, clock.passed_s) == (status, min(quiet_after_s, 90.0))
    waits = f"waiting for a quiet machine, for at most 90 s: {busy}"
    assert (waits in lines) == (quiet_after_s > 0)
    assert (f"this machine is too busy to be measured: {busy}; " in lines[-1]) == (status == 1)


def test_a_wait_that_is_no_duration_is_one_sentence(refused, machine):
    assert "--wait is 'soon'; expected a duration" in refused("doctor", "--wait", "soon")


def test_the_doctor_says_that_a_machine_is_too_busy_where_its_cpu_is_all_there_is_to_measure(
    command, machine, expected
):
    busy = replace(
        NODE, gpus=(), torch_devices=0, cores_taken=60.5, taken_by=("cc1 (7) 1.0", "ld (8) 0.9")
    )
    machine(busy)
    result = command("doctor")
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (
        1, "this machine is too busy to be measured: other processes keep 60.5 of 64 cores busy (cc1 (7) 1.0, ld (8) "
        "0.9); end the busy processes, or wait until they end",
    )  # fmt: skip
    machine(replace(busy, taken_by=()))
    assert (
        "60.5 of 64 cores busy (the names of these processes cannot be read here)"
        in command("doctor").stdout.splitlines()[-1]
    )
    for other in (
        replace(busy, torch_devices=1),
        replace(busy, cores_taken=0.2),
        replace(busy, cores_taken=None),
    ):
        machine(other)
        assert command("doctor").exit_code == 0


def test_a_good_node_writes_what_it_has_and_that_holds_on_it(command, refused, machine, tmp_path):
    result = command("doctor", "--write-expect", "node.json")
    assert (0, expectation_of(NODE)) == (result.exit_code, read_expectation(tmp_path / "node.json"))
    assert "node.json" in result.stdout
    assert "exists already" in refused("doctor", "--write-expect", "node.json")
    (tmp_path / "file").write_text("")
    result = command("doctor", "--write-expect", "file/node.json")
    assert (result.exit_code, "cannot be written" in result.stderr) == (2, True)
    result = command("doctor", "--json", "--write-expect", "other.json")
    assert ("machine" in json.loads(result.stdout), "other.json" in result.stderr) == (True, True)


def test_an_expectation_that_cannot_be_used_is_one_sentence_before_the_machine_is_looked_at(
    refused, tmp_path, monkeypatch
):
    monkeypatch.setattr(inventory, "take_stock", None)
    assert "does not exist" in refused("doctor", "--expect", "node.json")
    (tmp_path / "node.json").write_text(
        '{"schema": 1, "gpus": [{"product": "A\\nB", "count": -1}], "\\n": 1}'
    )
    assert "node.json" in refused("doctor", "--expect", "node.json")


def test_hostile_names_neither_break_lines_nor_steer_the_terminal(command, machine, tmp_path):
    write_expectation(tmp_path / "node.json", expectation_of(NODE))
    for name in ("evil\nLIMIT fake", "\x1b[31mred", "a\rb", "a\u2028b", "\u202egpu"):
        gpu = replace(GPU, product=name, driver=name, partition=name, others_bytes=None)
        machine(
            replace(
                NODE,
                host=replace(HOST, name=name, cpu_model=name, kernel=name, governor=name),
                gpus=(gpu,),
            )
        )
        lines = command("doctor", "--expect", "node.json").stdout.split("\n")
        assert [printable(line) for line in lines] == lines


@pytest.fixture
def described(tmp_path):
    """Writes a T4 down under another name, as hardware.json of a folder, with some peaks changed."""

    def write(folder, **peaks):
        plain = to_plain(products()["Tesla T4"])
        plain |= {
            "family": "t40",
            "product": "t40-pcie",
            "names": [{"name": "Prototype X", "source": "nvidia-smi"}],
        }
        for name, value in peaks.items():
            plain["peaks"][name]["value"] = value
        path = tmp_path / folder / "hardware.json"
        path.parent.mkdir()
        path.write_text(json.dumps({"schema": 1, "products": [plain]}), encoding="utf-8")
        return path

    return write


def test_the_list_has_every_product_and_marks_what_bounds_nothing(command):
    result = command("hardware")
    lines = result.stdout.splitlines()
    assert result.exit_code == 0
    rows = [line for line in lines if line.split() and line.split()[0] != "product"]
    assert len(rows) >= len(shipped_hardware().catalogue.products)
    (row,) = [line.split() for line in lines if line.startswith("h100-nvl")]
    assert row == [
        "h100-nvl",
        "94gb",
        "3900",
        "(63)",
        "(300)",
        "(835.5)",
        "(835.5)",
        "(417.5)",
        "(60)",
    ]
    assert max(map(len, lines[:-1])) <= 80
    rows = json.loads(command("hardware", "--json").stdout)
    assert [row["product"] for row in rows] == sorted(row["product"] for row in rows)
    (row,) = [row for row in rows if row["product"] == "h200-sxm"]
    assert row["peaks"]["memory_GBps"]["bounds"] is True
    assert {"value", "source", "confidence", "bounds", "note"} == row["facts"]["units"].keys()


def test_a_product_is_shown_with_what_bounds_nothing_and_an_unknown_one_with_what_to_write_down(
    command,
):
    text = command("hardware", "AMD Instinct MI250X").stdout
    assert (
        "pcie_GBps 31.5 (medium; bounds nothing; some hosts are reached over Infinity Fabric"
        in text
    )
    assert 'printed as "AMD Instinct MI250X / MI250", where units agree' in text
    text = command("hardware", "AMD Radeon Graphics").stdout
    assert [line.split(" (")[0] for line in text.split("\n") if line and line[0] != " "] == [
        "mi250x-oam 64gb", "mi300x-oam 192gb", "mi325x-oam 256gb",
    ]  # fmt: skip
    result = command("hardware", "H100")
    assert (result.exit_code, result.stdout) == (
        1,
        "'H100' fits 3 products: h100-nvl, h100-pcie, h100-sxm5; name one product, for example: roofline hardware "
        "h100-nvl\n",
    )
    result = command("hardware", "NVIDIA H20")
    assert result.exit_code == 1
    assert "'NVIDIA H20' is not known. Fill in this form from the datasheet" in result.stdout
    assert "roofline baseline check baselines/hardware.json" in result.stdout
    assert json.loads(command("hardware", "NVIDIA H20", "--json").stdout) == []
    result = command("hardware", "NVIDIA A100-SXM4-40GB MIG 1g.5gb")
    assert (result.exit_code, result.stdout.count("\n")) == (1, 1)
    assert "no datasheet gives the peaks of a part" in result.stdout


def test_a_users_file_is_read_from_baselines_and_from_every_folder_that_is_named(
    command, described, tmp_path
):
    described("site")
    assert command("hardware", "Prototype X").exit_code == 1
    site = ("--hardware", tmp_path / "site")
    assert command(*site, "hardware", "Prototype X").exit_code == 0
    (tmp_path / "baselines").mkdir()
    result = command(*site, "baseline", "check")
    assert "nothing wrong in 0 entries of 1 file\n" == result.stdout
    (tmp_path / "baselines").rmdir()
    (tmp_path / "site").rename(tmp_path / "baselines")
    result = command(*site, "hardware")
    text = "site, a folder without hardware.json; expected a folder that holds this file"
    assert (2, True) == (result.exit_code, text in result.stderr)
    assert "t40-pcie    16gb      320" in command("hardware").stdout
    for files in ((), ("baselines/hardware.json",)):
        result = command("baseline", "check", *files)
        assert "nothing wrong in 0 entries of 1 file\n" == result.stdout
    assert "Prototype X" not in products()


def test_a_file_with_what_cannot_be_lists_all_of_it_and_is_used_by_no_command(
    command, refused, described
):
    path = described("baselines", fp16_TFLOPS=130e12, memory_GBps=3200e9)
    for result in (command("baseline", "check"), command("baseline", "check", path)):
        assert result.exit_code == 1
        flaw = "t40-pcie 16gb peaks.fp16_TFLOPS: 1.3e+14; expected 0.1 to 100000; correct the file"
        assert flaw in result.stdout
        assert "2 wrong in" in result.stdout
    found = json.loads(command("baseline", "check", path, "--json").stdout)
    assert {row["entry"] for row in found} == {
        "t40-pcie 16gb peaks.fp16_TFLOPS",
        "t40-pcie 16gb peaks.memory_GBps",
    }
    assert all(row["file"] == str(path) for row in found)
    for folder, said in (("cut", "is not JSON"), ("gone", "does not exist")):
        (path.parents[1] / "cut").mkdir(exist_ok=True)
        (path.parents[1] / "cut" / "hardware.json").write_text("{", encoding="utf-8")
        assert said in refused("baseline", "check", f"{folder}/hardware.json")
    for arguments in (
        ("hardware",),
        ("hardware", "Tesla T4"),
        ("baseline", "show"),
        ("compare", "a", "b"),
    ):
        assert refused(*arguments).startswith(
            "hardware baselines/hardware.json: t40-pcie 16gb peaks."
        )
