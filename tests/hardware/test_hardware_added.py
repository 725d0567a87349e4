"""A user's own hardware: read before what ships, checked, and gone with the run that used it."""

import json

import pytest

from pytest_roofline.core.errors import BadFile
from pytest_roofline.core.facts import HARDWARE_FILE, DeviceFacts
from pytest_roofline.core.storage import to_plain
from pytest_roofline.core.work import Work
from pytest_roofline.hardware import (
    above_peak,
    datasheet_ceiling,
    family_of,
    product_like,
    product_of,
    products,
    unknown_line,
    use_hardware,
)
from pytest_roofline.hardware.keys import how_to_add
from pytest_roofline.hardware.lookup import mistakes, read_hardware, shipped_hardware

PROTOTYPE = DeviceFacts("cuda", "Prototype X", memory_bytes=96 * 2**30)


def figure(value, source="the datasheet", confidence="high"):
    return {"value": value, "source": source, "confidence": confidence}


def described(**changes):
    """A prototype, as a user would write it down."""
    plain = {
        "family": "prototype-x",
        "product": "prototype-x-sxm",
        "memory": "96gb",
        "variant": "SXM-96GB",
        "architecture": "sm_90",
        "names": [{"name": "Prototype X", "source": "nvidia-smi"}],
        "facts": {"units": figure(78), "clock_MHz": figure(1980)},
        "peaks": {"memory_GBps": figure(4000), "bf16_TFLOPS": figure(592)},
    }
    return plain | changes


def write(folder, *rows, **more):
    folder.mkdir(exist_ok=True)
    path = folder / HARDWARE_FILE
    path.write_text(json.dumps({"schema": 1, "products": rows, **more}), encoding="utf-8")
    return path


@pytest.fixture
def use():
    """Uses the hardware of folders until the test ends."""
    restores = []
    yield lambda *folders: restores.append(use_hardware(folders))
    for restore in reversed(restores):
        restore()


def test_a_users_hardware_is_found_by_its_exact_name_and_the_first_folder_wins(tmp_path, use):
    write(tmp_path / "first", described())
    write(tmp_path / "second", described(peaks={"memory_GBps": figure(3900)}))
    use(tmp_path / "first", tmp_path / "nowhere", tmp_path / "second")
    assert product_of(PROTOTYPE).key == ("prototype-x-sxm", "96gb")
    assert family_of(PROTOTYPE) == "prototype-x"
    assert product_like("prototype-x-sxm", None).peaks["memory_GBps"].value == 4000
    assert product_of(DeviceFacts("cuda", "NVIDIA H200")).key == ("h200-sxm", "141gb")
    assert unknown_line(PROTOTYPE) == ""


def test_it_is_gone_with_the_run_that_used_it(tmp_path):
    write(tmp_path, described())
    restore = use_hardware([tmp_path])
    inner = use_hardware([])
    # A run inside another sees its own folders only.
    assert products() is shipped_hardware().by_name
    inner()
    assert "Prototype X" in products()
    restore()
    assert "Prototype X" not in products()


def test_a_product_described_anew_hides_the_one_that_ships_under_every_name(tmp_path, use):
    plain = to_plain(products()["A100-SXM4-40GB"])
    plain["peaks"]["memory_GBps"] = figure(1500)
    plain["names"] = plain["names"][:1]
    write(tmp_path, plain)
    use(tmp_path)
    assert products()["NVIDIA A100-SXM4-40GB"].peaks["memory_GBps"].value == 1500
    assert "A100-SXM4-40GB" not in products()


def test_an_architecture_of_ones_own_makes_no_sparse_rate_of_what_ships_believed(tmp_path, use):
    plain = to_plain(shipped_hardware().catalogue.architecture("sm_90"))
    plain["flops_per_clock"] = {
        dtype: 2 * flops for dtype, flops in plain["flops_per_clock"].items()
    }
    write(tmp_path, architectures=[plain])
    use(tmp_path)
    work = Work(flops=10**12)
    found = datasheet_ceiling(DeviceFacts("cuda", "NVIDIA H200"), work, "bf16_TFLOPS")
    assert above_peak(found, work, 1979 / 989, ()) != ""


def test_a_file_that_cannot_be_read_as_hardware_is_refused_in_one_sentence(tmp_path):
    def of(**peak):
        return json.dumps({"schema": 1, "products": [described(peaks={"memory_GBps": peak})]})

    path = tmp_path / HARDWARE_FILE
    for text, said in (
        ("{", "is not JSON"),
        ("[]", "is a list; expected an object"),
        ('{"schema": 2}', "has schema version 2; this pytest-roofline reads version 1"),
        ('{"schema": 1, "product": []}', "Object contains unknown field `product`"),
        ('{"schema": 1, "products": [{"memory": NaN}]}', "holds NaN (byte "),
        (
            of(source="a table", confidence="high"),
            "missing required field `value` - at `$.products[0].peaks",
        ),
        (of(**figure(0)), "value is 0; expected a finite number above zero"),
        (of(**figure(1, confidence="sure")), "Invalid enum value 'sure'"),
        (
            of(**figure(4e6)),
            "96gb peaks.memory_GBps is 4e+06; expected 1 to 100000; `roofline baseline check ",
        ),
    ):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(BadFile) as caught:
            use_hardware([tmp_path])
        assert str(path) in str(caught.value)
        assert said in str(caught.value)
        assert "Prototype X" not in products()


def test_a_product_must_be_named_and_described_by_fields_of_ours_in_their_ranges(tmp_path):
    for changes, said in (
        ({"family": "../h100"}, "family is '../h100'"),
        ({"product": ""}, "product is ''"),
        ({"memory": "80gib"}, "memory is '80gib'; expected a whole number of GB"),
        ({"variant": " "}, "variant is empty"),
        ({"architecture": ""}, "architecture is empty"),
        ({"names": []}, "names is empty"),
        (
            {"names": [{"name": "NVIDIA X ", "source": "nvidia-smi"}]},
            "expected a name exactly as printed",
        ),
        (
            {"names": [{"name": "NVIDIA\x1b[31m", "source": "nvidia-smi"}]},
            "expected a name exactly as printed",
        ),
        ({"names": [{"name": "NVIDIA X", "source": ""}]}, "source is empty"),
        ({"peaks": {"bf16_TFLOP": figure(989)}}, "an unknown field; expected one of memory_GBps"),
        ({"facts": {"sms": figure(132)}}, "an unknown field; expected one of units"),
        ({"peaks": {"bf16_TFLOPS": figure(989, "  ")}}, "bf16_TFLOPS source is empty"),
        ({"facts": {"clock_MHz": figure(1.98)}}, "clock_MHz is 1.98; expected 100 to 10000"),
    ):
        (flaw,) = mistakes(read_hardware(write(tmp_path, described(**changes))))
        assert said in f"{flaw.entry} is {flaw.observed}; expected {flaw.expected}"


def test_what_ships_can_be_written_down_and_read_again(tmp_path):
    path = tmp_path / HARDWARE_FILE
    path.write_text(json.dumps(to_plain(shipped_hardware().catalogue)), encoding="utf-8")
    assert read_hardware(path) == shipped_hardware().catalogue


def test_only_an_accelerator_that_is_unknown_or_a_part_needs_a_line():
    part = 'roof: this is a part of a "NVIDIA A100-SXM4-40GB"'
    for device, said in (
        (DeviceFacts("cuda", "NVIDIA H200", memory_bytes=150_754_820_096), ""),
        (DeviceFacts("cpu", "AMD EPYC"), ""),
        (
            DeviceFacts("cuda", "NVIDIA A100-SXM4-40GB MIG 1g.5gb"),
            f"{part}, and no datasheet gives the peaks of a part",
        ),
        (
            DeviceFacts("cuda", "NVIDIA A30 MIG 1c.2g.12gb+me"),
            'roof: this is a part of a "NVIDIA A30", and',
        ),
        (
            DeviceFacts("cuda", "NVIDIA A100-SXM4-40GB", units=98),
            f"{part} (98 of 108 units), and no datasheet",
        ),
        (
            DeviceFacts("cuda", "a\x1b[31m'b"),
            r"""roof: the peaks of "a\x1b[31m'b" are unknown, so no share of a peak is shown; `""",
        ),
    ):
        assert unknown_line(device).startswith(said)
        assert bool(unknown_line(device)) == bool(said)


def test_what_is_printed_to_fill_in_names_the_device_and_is_refused_until_it_is_filled_in(tmp_path):
    text = how_to_add("Prototype X")
    plain = json.loads(text[text.index("{") :])
    (row,) = plain["products"]
    assert row["names"][0]["name"] == "Prototype X"
    with pytest.raises(BadFile, match="Expected `float`, got `null`"):
        read_hardware(write(tmp_path, row))
    # Numbers alone are not enough.
    figures = {
        f"{part}.{name}": told for part in ("facts", "peaks") for name, told in row[part].items()
    }
    for told in figures.values():
        told["value"] = 192
        assert told["confidence"] == "recalled"
    wrong = {
        one.entry.removeprefix("prototype-x ").strip()
        for one in mistakes(read_hardware(write(tmp_path, row)))
    }
    assert wrong == {f"{name} source" for name in figures} | {"memory", "variant", "architecture"}
