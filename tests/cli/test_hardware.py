"""`roofline hardware`: what is known, what to write down, and what cannot be."""

import json

import pytest
from click.testing import CliRunner

from pytest_roofline.cli.main import main
from pytest_roofline.core.storage import to_plain
from pytest_roofline.hardware import products
from pytest_roofline.hardware.lookup import shipped


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Runs the command in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        return CliRunner().invoke(main, [str(argument) for argument in arguments])

    return run


@pytest.fixture
def described(tmp_path):
    """Writes a T4 down under another name, as hardware.json of a folder, with some peaks changed."""

    def write(folder, **peaks):
        plain = to_plain(products()["Tesla T4"])
        plain |= {"family": "t40", "product": "t40-pcie", "names": [{"name": "Prototype X", "source": "nvidia-smi"}]}
        for name, value in peaks.items():
            plain["peaks"][name]["value"] = value
        path = tmp_path / folder / "hardware.json"
        path.parent.mkdir()
        path.write_text(json.dumps({"schema": 1, "products": [plain]}), encoding="utf-8")
        return path

    return write


def test_the_list_has_every_product_and_marks_what_bounds_nothing(command):
    result = command("hardware", "list")
    lines = result.stdout.splitlines()
    assert result.exit_code == 0
    assert len([line for line in lines if line.split() and line.split()[0] != "product"]) >= len(
        shipped().catalogue.products
    )
    (row,) = [line.split() for line in lines if line.startswith("h100-nvl")]
    assert row == ["h100-nvl", "94gb", "3900", "(63)", "(300)", "(835.5)", "(835.5)", "(417.5)", "(60)"]
    assert max(map(len, lines[:-1])) <= 80


def test_the_list_is_there_for_machines_too(command):
    rows = json.loads(command("hardware", "list", "--json").stdout)
    assert [row["product"] for row in rows] == sorted(row["product"] for row in rows)
    (row,) = [row for row in rows if row["product"] == "h200-sxm"]
    assert row["peaks"]["memory_GBps"]["bounds"] is True
    assert {"value", "source", "confidence", "bounds", "note"} == row["facts"]["units"].keys()


def test_what_bounds_nothing_says_why(command):
    text = command("hardware", "show", "AMD Instinct MI250X").stdout
    assert "pcie_GBps 31.5 (medium; bounds nothing; some hosts are reached over Infinity Fabric" in text
    assert 'printed as "AMD Instinct MI250X / MI250", where units agree' in text


def test_a_name_of_several_products_shows_each(command):
    text = command("hardware", "show", "AMD Radeon Graphics").stdout
    assert [line.split(" (")[0] for line in text.split("\n") if line and line[0] != " "] == [
        "mi250x-oam 64gb", "mi300x-oam 192gb", "mi325x-oam 256gb",
    ]  # fmt: skip


def test_an_unknown_name_prints_what_to_write_down(command):
    result = command("hardware", "show", "NVIDIA H20")
    assert result.exit_code == 1
    assert "'NVIDIA H20' is not known. Fill this in from its datasheet" in result.stdout
    assert "roofline hardware check baselines/hardware.json" in result.stdout
    assert json.loads(command("hardware", "show", "NVIDIA H20", "--json").stdout) == []


def test_without_a_file_of_ones_own_there_is_nothing_to_check(command):
    result = command("hardware", "check")
    assert result.exit_code == 0
    assert result.stdout == "nothing wrong in no file of hardware: what ships is tested with the package\n"


def test_a_users_file_is_read_from_baselines_and_from_every_folder_that_is_named(command, described, tmp_path):
    described("site")
    assert command("hardware", "show", "Prototype X").exit_code == 1
    assert command("--hardware", tmp_path / "site", "hardware", "show", "Prototype X").exit_code == 0
    (tmp_path / "site").rename(tmp_path / "baselines")
    assert "t40-pcie    16gb      320" in command("hardware", "list").stdout
    assert command("hardware", "check").stdout == "nothing wrong in baselines/hardware.json\n"
    assert "Prototype X" not in products()


def test_a_file_with_what_cannot_be_lists_all_of_it_and_is_used_by_no_command(command, described):
    path = described("baselines", fp16_TFLOPS=130e12, memory_GBps=3200e9)
    for result in (command("hardware", "check"), command("hardware", "check", path)):
        assert result.exit_code == 1
        assert "t40-pcie 16gb peaks.fp16_TFLOPS is 1.3e+14; expected 0.1 to 100000" in result.stdout
        assert "2 wrong in" in result.stdout
    found = json.loads(command("hardware", "check", path, "--json").stdout)
    assert {row["where"] for row in found} == {"t40-pcie 16gb peaks.fp16_TFLOPS", "t40-pcie 16gb peaks.memory_GBps"}
    assert all(row["file"] == str(path) for row in found)
    for arguments in (("hardware", "list"), ("hardware", "show", "Tesla T4"), ("compare", "a", "b")):
        result = command(*arguments)
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.startswith("roofline: hardware baselines/hardware.json: t40-pcie 16gb peaks.")
        assert len(result.stderr.splitlines()) == 1


def test_a_file_is_checked_beside_those_that_are_in_use(command, described):
    first, second = described("a"), described("b")
    text = second.read_text(encoding="utf-8").replace("t40-pcie", "t41-pcie")
    second.write_text(text, encoding="utf-8")
    assert command("hardware", "check", first).exit_code == 0
    result = command("--hardware", "a", "--hardware", "b", "hardware", "check", first)
    assert (result.exit_code, "name 'Prototype X' is that of t40-pcie" in result.stdout) == (1, True)


def test_a_slice_is_told_to_have_no_peaks(command):
    result = command("hardware", "show", "NVIDIA A100-SXM4-40GB MIG 1g.5gb")
    assert (result.exit_code, result.stdout.count("\n")) == (1, 1)
    assert "no datasheet tells the peaks of a part" in result.stdout


@pytest.mark.parametrize(("content", "said"), [("{", "is not JSON"), (None, "does not exist")])
def test_a_file_that_cannot_be_read_is_bad_input(command, tmp_path, content, said):
    path = tmp_path / "mine.json"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    result = command("hardware", "check", path)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr


def test_a_folder_of_baselines_may_hold_hardware(command, described):
    described("baselines")
    result = command("baseline", "check")
    assert (result.exit_code, result.stdout) == (0, "nothing wrong in 0 entries of 0 files\n")
