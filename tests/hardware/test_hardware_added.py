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
from pytest_roofline.hardware.lookup import merged, mistakes_in, read_hardware, shipped

PROTOTYPE = DeviceFacts("cuda", "Prototype X", memory_bytes=96 * 2**30)
DATASHEET = {"source": "the datasheet", "confidence": "high"}


def described(**changes):
    """A prototype, as a user would write it down."""
    plain = {
        "family": "prototype-x",
        "product": "prototype-x-sxm",
        "memory": "96gb",
        "variant": "SXM-96GB",
        "architecture": "sm_90",
        "memory_type": "HBM3",
        "names": [{"name": "Prototype X", "source": "nvidia-smi"}],
        "facts": {name: {"value": value, **DATASHEET} for name, value in
                  {"units": 78, "clock_MHz": 1980, "memory_bus_bits": 6144}.items()},
        "peaks": {"memory_GBps": {"value": 4000, **DATASHEET}, "bf16_TFLOPS": {"value": 592, **DATASHEET}},
    }  # fmt: skip
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


def test_a_users_hardware_is_found_by_its_exact_name(tmp_path, use):
    write(tmp_path, described())
    use(tmp_path)
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
    assert "Prototype X" not in products()
    inner()
    assert "Prototype X" in products()
    restore()
    assert "Prototype X" not in products()


def test_a_users_own_figures_hide_those_that_ship_under_every_name(tmp_path, use):
    plain = to_plain(products()["A100-SXM4-40GB"])
    plain["peaks"]["memory_GBps"] = {"value": 1500, **DATASHEET}
    plain["names"] = plain["names"][:1]
    write(tmp_path, plain)
    use(tmp_path)
    # A product that is described anew is known by the names that the new description has.
    assert products()["NVIDIA A100-SXM4-40GB"].peaks["memory_GBps"].value == 1500
    assert "A100-SXM4-40GB" not in products()


def test_the_first_folder_wins(tmp_path, use):
    for name, gbps in (("first", 4000), ("second", 3900)):
        write(tmp_path / name, described(peaks={"memory_GBps": {"value": gbps, **DATASHEET}}))
    use(tmp_path / "first", tmp_path / "nowhere", tmp_path / "second")
    assert product_of(PROTOTYPE).peaks["memory_GBps"].value == 4000


def test_files_of_earlier_versions_with_memories_and_links_of_their_own_are_still_read(tmp_path, use):
    chip = {"name": "sm_120", "flops_per_clock": {"bf16": 1024}, "most_units": 192, "most_l2_MiB": 128, **DATASHEET}
    memory = {"name": "GDDR7", "most_Gbps": 32, "part_bits": 32, "least_GB": 2, "most_GB": 4, **DATASHEET}
    link = {"name": "pcie-6", "GBps": 7.56, **DATASHEET}
    write(tmp_path, described(architecture="sm_120"), architectures=[chip], memory_types=[memory], links=[link])
    use(tmp_path)
    assert product_of(PROTOTYPE).architecture == "sm_120"


def test_a_file_that_is_none_is_refused_in_one_sentence(tmp_path):
    path = tmp_path / HARDWARE_FILE

    def of(**peak):
        return json.dumps({"schema": 1, "products": [described(peaks={"memory_GBps": {**DATASHEET, **peak}})]})

    for text, said in (
        ("", "is empty; expected JSON"),
        ("{", "is not JSON"),
        ("[]", "is a list; expected an object"),
        ('{"schema": 2}', "has schema version 2; this pytest-roofline reads version 1"),
        ('{"schema": 1, "product": []}', "Object contains unknown field `product`"),
        ('{"schema": 1, "products": [{}]}', "Object missing required field"),
        (json.dumps({"schema": 1, "products": [described(speed=1)]}), "unknown field `speed`"),
        (of(), "missing required field `value` - at `$.products[0].peaks"),
        (of(value=True), "Expected `float`, got `bool`"),
        (of(value=0), "value is 0.0; expected a finite number above zero"),
        (of(value=1, confidence="sure"), "Invalid enum value 'sure'"),
        ('{"schema": 1, "products": [{"memory": NaN}]}', "holds NaN, which is no number"),
        (of(value=4e6), "peaks.memory_GBps is 4e+06; expected 1 to 100000"),
    ):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(BadFile) as caught:
            use_hardware([tmp_path])
        assert str(path) in str(caught.value)
        assert said in str(caught.value)
        assert "Prototype X" not in products()


def figure(value, source="a table"):
    return {"value": value, "source": source, "confidence": "high"}


def test_a_product_must_be_named_and_described_by_fields_of_ours_in_their_ranges(tmp_path):
    for changes, said in (
        ({"family": "../h100"}, "family is '../h100'"),
        ({"product": ""}, "product is ''"),
        ({"memory": "80gib"}, "memory is '80gib'; expected a whole number of GB"),
        ({"variant": " "}, "variant is empty"),
        ({"architecture": ""}, "architecture is empty"),
        ({"names": []}, "names is empty"),
        ({"names": [{"name": "NVIDIA X ", "source": "nvidia-smi"}]}, "expected a name exactly as printed"),
        ({"names": [{"name": "NVIDIA\x1b[31m", "source": "nvidia-smi"}]}, "expected a name exactly as printed"),
        ({"names": [{"name": "NVIDIA X", "source": ""}]}, "source is empty"),
        ({"peaks": {"bf16_TFLOP": figure(989)}}, "no field of ours; expected one of memory_GBps"),
        ({"facts": {"sms": figure(132)}}, "no field of ours; expected one of units"),
        ({"peaks": {"bf16_TFLOPS": figure(989, "  ")}}, "bf16_TFLOPS source is empty"),
        ({"facts": {"units": figure(131.5)}}, "131.5; expected a whole number"),
        ({"peaks": {"bf16_TFLOPS": figure(989e12)}}, "bf16_TFLOPS is 9.89e+14; expected 0.1 to 100000"),
        ({"facts": {"clock_MHz": figure(1.98)}}, "clock_MHz is 1.98; expected 100 to 10000"),
    ):
        path = write(tmp_path, described(**changes))
        assert any(said in str(mistake) for mistake in mistakes_in(path, [])), said
    path = write(
        tmp_path, described(), described(), architectures=[{"name": "x", "flops_per_clock": {"a": 0}, **DATASHEET}]
    )
    found = [str(mistake) for mistake in mistakes_in(path, [path])]
    assert "product prototype-x-sxm 96gb is there 2 times; expected each product and memory once" in found
    assert "architectures x a is 0; expected a number above zero" in found[-1].replace("0.0", "0")


def test_a_file_with_what_cannot_be_is_refused_and_says_what_lists_the_rest(tmp_path):
    path = write(tmp_path, described(peaks={"bf16_TFLOPS": figure(592e3), "memory_GBps": figure(4e6)}))
    with pytest.raises(BadFile) as caught:
        use_hardware([tmp_path])
    assert str(caught.value).startswith(f"hardware {path}: prototype-x-sxm 96gb peaks.bf16_TFLOPS is 592000; expected ")
    assert str(caught.value).endswith(f"(and 1 more: `roofline hardware check {path}` lists them)")


def test_an_architecture_of_ones_own_makes_no_sparse_rate_of_what_ships_believed(tmp_path, use):
    plain = to_plain(shipped().catalogue.architecture("sm_90"))
    plain["flops_per_clock"] = {dtype: 2 * flops for dtype, flops in plain["flops_per_clock"].items()}
    write(tmp_path, architectures=[plain])
    use(tmp_path)
    work = Work(flops=10**12)
    found = datasheet_ceiling(DeviceFacts("cuda", "NVIDIA H200"), work, "bf16_TFLOPS")
    assert above_peak(found, work, 1979 / 989, ()) != ""


def test_a_users_product_may_not_take_the_name_of_another(tmp_path):
    name = {"source": "nvidia-smi"}
    for taken in (
        {"name": "NVIDIA H200"},
        {"name": "AMD Radeon Graphics"},
        {"name": "NVIDIA H200", "needs": ["units"]},
    ):
        write(tmp_path, described(names=[name | taken]))
        with pytest.raises(BadFile, match=f"name '{taken['name']}' is that of prototype-x-sxm 96gb and of "):
            use_hardware([tmp_path])
    # Whoever describes that product anew has its name for themselves.
    plain = to_plain(products()["NVIDIA H200"])
    write(tmp_path, plain)
    use_hardware([tmp_path])()


def test_a_product_of_one_folder_may_not_take_the_name_of_one_of_another(tmp_path):
    write(tmp_path / "first", described())
    write(tmp_path / "second", described(product="prototype-x-pcie"))
    with pytest.raises(BadFile, match="prototype-x-sxm 96gb and of prototype-x-pcie 96gb"):
        use_hardware([tmp_path / "first", tmp_path / "second"])


def test_without_a_file_nothing_but_what_ships_is_read(tmp_path):
    assert merged([]) is shipped()
    restore = use_hardware([tmp_path])
    assert products() is shipped().by_name
    restore()


def test_what_ships_can_be_written_down_and_read_again(tmp_path):
    catalogue = shipped().catalogue
    path = tmp_path / HARDWARE_FILE
    path.write_text(json.dumps(to_plain(catalogue)), encoding="utf-8")
    assert read_hardware(path) == catalogue


def test_unknown_hardware_says_in_one_line_how_to_add_it():
    assert unknown_line(PROTOTYPE) == (
        'roof: no peaks are known of "Prototype X", so nothing is shown as a share of them; '
        "`roofline hardware show 'Prototype X'` prints how to add it"
    )


def test_only_an_accelerator_that_is_unknown_or_a_part_needs_a_line():
    for device, said in (
        (DeviceFacts("cuda", "NVIDIA H200", memory_bytes=150_754_820_096), ""),
        (DeviceFacts("cpu", "AMD EPYC"), ""),
        (
            DeviceFacts("cuda", "AMD Instinct MI300X", memory_bytes=25_752_502_272),
            'roof: this is a part of a "AMD Instinct MI300X", and no datasheet tells the peaks of a part',
        ),
        (
            DeviceFacts("cuda", "NVIDIA A100-SXM4-40GB MIG 1g.5gb"),
            'roof: this is a part of a "NVIDIA A100-SXM4-40GB", and no datasheet tells the peaks of a part',
        ),
        (DeviceFacts("cuda", "NVIDIA A30 MIG 1c.2g.12gb+me"), 'roof: this is a part of a "NVIDIA A30", and'),
        (
            DeviceFacts("cuda", "NVIDIA A100-SXM4-40GB", units=98),
            'roof: this is a part of a "NVIDIA A100-SXM4-40GB" (98 of 108 units), and no datasheet',
        ),
        (DeviceFacts("cuda", "a\x1b[31m'b"), r"""roof: no peaks are known of "a\x1b[31m'b", so nothing"""),
    ):
        assert unknown_line(device).startswith(said)
        assert bool(unknown_line(device)) == bool(said)
        assert "\n" not in unknown_line(device)


def test_what_is_printed_to_fill_in_names_the_device_and_is_refused_until_it_is_filled_in(tmp_path):
    text = how_to_add("Prototype X")
    plain = json.loads(text[text.index("{") :])
    (row,) = plain["products"]
    assert row["names"][0]["name"] == "Prototype X"
    path = tmp_path / HARDWARE_FILE
    path.write_text(json.dumps(plain), encoding="utf-8")
    with pytest.raises(BadFile, match="Expected `float`, got `null`"):
        use_hardware([tmp_path])
    # Numbers alone are not enough.
    for part in ("facts", "peaks"):
        for told in row[part].values():
            told["value"] = 192
            assert told["confidence"] == "recalled"
    path.write_text(json.dumps(plain), encoding="utf-8")
    figures = {f"{part}.{name} source" for part in ("facts", "peaks") for name in row[part]}
    wrong = {found.where.removeprefix("prototype-x ").strip() for found in mistakes_in(path, [])}
    assert wrong == figures | {"memory", "variant", "architecture"}
