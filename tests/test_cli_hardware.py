"""`roofline hardware`: what is known, what to write down, and what cannot be."""

import json

import pytest
from click.testing import CliRunner

from pytest_roofline.cli import main
from pytest_roofline.judging.hardware import products
from pytest_roofline.judging.hardware.products import shipped
from pytest_roofline.judging.storage import to_plain


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


@pytest.mark.parametrize("name", ["h200-sxm", "h200-sxm 141gb", "NVIDIA H200"])
def test_a_product_is_shown_by_its_key_or_its_name_with_every_source(command, name):
    result = command("hardware", "show", name)
    assert result.exit_code == 0
    first, *lines = result.stdout.splitlines()
    assert first == "h200-sxm 141gb (SXM-141GB; sm_90, HBM3e, pcie-5, nvlink-4), family h200"
    assert "  memory_GBps 4800 (high): stas00/ml-engineering:compute/accelerator/README.md" in lines


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


def test_what_ships_has_nothing_wrong(command):
    result = command("hardware", "check")
    assert (result.exit_code, result.stdout) == (0, "nothing wrong in 23 products of what ships\n")


def test_a_users_file_is_read_from_baselines_and_from_every_folder_that_is_named(command, described, tmp_path):
    described("site")
    assert command("hardware", "show", "Prototype X").exit_code == 1
    assert command("--hardware", tmp_path / "site", "hardware", "show", "Prototype X").exit_code == 0
    (tmp_path / "site").rename(tmp_path / "baselines")
    assert "t40-pcie    16gb      320" in command("hardware", "list").stdout
    assert command("hardware", "check").stdout.splitlines()[-1] == (
        "nothing wrong in 24 products of baselines/hardware.json, what ships"
    )
    assert "Prototype X" not in products()


def test_a_file_with_what_cannot_be_lists_all_of_it(command, described):
    path = described("baselines", fp16_TFLOPS=130, memory_GBps=3200)
    for result in (command("hardware", "check"), command("hardware", "check", path)):
        assert result.exit_code == 1
        assert "t40-pcie 16gb peaks.fp16_TFLOPS is 130; expected 52.1 to 68.4" in result.stdout
        assert "2 wrong in" in result.stdout
    found = json.loads(command("hardware", "check", path, "--json").stdout)
    assert {row["where"] for row in found} == {"t40-pcie 16gb peaks.fp16_TFLOPS", "t40-pcie 16gb peaks.memory_GBps"}
    assert all(row["hint"] is False and row["file"] == str(path) for row in found)


def test_a_file_is_checked_over_those_that_it_is_used_over(command, tmp_path):
    chip = to_plain(shipped().catalogue.architecture("sm_75")) | {"name": "sm_75-own"}
    plain = to_plain(products()["Tesla T4"])
    plain |= {"product": "t40-pcie", "architecture": "sm_75-own", "names": [{"name": "Prototype X", "source": "torch"}]}
    for folder, more in (("a", {"products": [plain]}), ("b", {"architectures": [chip]})):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "hardware.json").write_text(json.dumps({"schema": 1, **more}), encoding="utf-8")
    use = ("--hardware", "a", "--hardware", "b", "hardware")
    assert command(*use, "list").exit_code == command(*use, "check").exit_code == 0
    assert command(*use, "check", tmp_path / "a" / "hardware.json").exit_code == 0
    result = command("hardware", "check", "a/hardware.json")
    assert (result.exit_code, "architecture is 'sm_75-own'" in result.stdout) == (1, True)


def test_a_slice_is_told_to_have_no_peaks(command):
    result = command("hardware", "show", "NVIDIA A100-SXM4-40GB MIG 1g.5gb")
    assert (result.exit_code, result.stdout.count("\n")) == (1, 1)
    assert "no datasheet tells the peaks of a part" in result.stdout


@pytest.mark.parametrize("arguments", [("hardware", "list"), ("hardware", "show", "Tesla T4"), ("compare", "a", "b")])
def test_no_command_uses_a_file_with_what_cannot_be(command, described, arguments):
    described("baselines", fp16_TFLOPS=130)
    result = command(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(
        "roofline: hardware baselines/hardware.json: t40-pcie 16gb peaks.fp16_TFLOPS is 130"
    )
    assert len(result.stderr.splitlines()) == 1


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
