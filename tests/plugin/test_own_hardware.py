"""Hardware that nobody described, and a user's own description of it, in a run and in its further rounds."""

import json

from pytest_roofline.hardware import products

from .conftest import ONE, write_sessions

NEW = "Prototype X"
TOLD = {"source": "the datasheet", "confidence": "high"}
# 2 GB in 1 ms are 2000 GB/s.
WIDE = {"memory_GBps": 2500, "memory_bus_bits": 5120, "memory_Gbps": 3.9}


def describe(desk, folder="baselines", **figures):
    """Write the new product down, in a folder of baselines."""
    figures = WIDE | figures
    product = {
        "family": "prototype-x", "product": "prototype-x-oam", "memory": "80gb", "variant": "OAM-80GB",
        "architecture": "sm_90", "memory_type": "HBM3", "names": [{"name": NEW, "source": "its driver"}],
        "facts": {name: {"value": figures[name], **TOLD} for name in ("memory_bus_bits", "memory_Gbps")},
        "peaks": {"memory_GBps": {"value": figures["memory_GBps"], **TOLD}},
    }  # fmt: skip
    path = desk.path / folder / "hardware.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"schema": 1, "products": [product]}), encoding="utf-8")
    return path


def test_unknown_hardware_is_measured_without_a_share_and_one_line_says_how_to_add_it(desk):
    desk.script(product=NEW)
    desk.suite()
    result = desk.run()
    text = result.stdout.str()
    assert result.ret == 0
    assert text.count("the peaks of ") == 1
    assert 'roof: the peaks of "Prototype X" are unknown, so no share of a peak is shown; ' in text
    assert "`roofline hardware 'Prototype X'` prints how to add them" in text
    assert [measured.ceiling for measured in desk.last_run().measurements] == [None, None]


def test_a_users_own_hardware_holds_in_a_run_and_its_rounds_and_no_longer(desk):
    describe(desk, "site")
    desk.script(product=NEW)
    desk.suite(ONE.format(marks=""))
    site = f"--roofline-baselines={desk.path / 'site'}"
    assert desk.run("--roofline-save=once", site).ret == 0
    options = write_sessions(desk.run_path("any").parent, desk.run_path("once").read_text())
    desk.run_path("once").unlink()
    # Neither surely slower nor surely not, so that a further round must look again.
    desk.script(product=NEW, slow=1.06)
    result = desk.run("--roofline-rounds=3", site, *options)
    told = desk.last_run().measurements
    assert {measured.round for measured in told} == {1, 2, 3}, result.stdout.str()
    assert {measured.key.hardware.product for measured in told} == {"prototype-x-oam"}
    assert {(measured.ceiling.value, measured.ceiling.origin) for measured in told} == {
        (2.5e12, "the datasheet")
    }
    assert "the peaks of " not in result.stdout.str()
    assert NEW not in products()


def test_what_the_rootdirs_baselines_describe_bounds_a_run(desk):
    describe(desk, memory_GBps=1600, memory_Gbps=3.2, memory_bus_bits=4096)
    desk.script(product=NEW)
    desk.one()
    desk.run()
    (told,) = desk.last_run().measurements
    assert told.invalid.startswith("125% of the datasheet's peak (1600 GB/s)")


def test_a_description_of_what_cannot_be_ends_the_run_in_one_sentence(desk, sentence):
    path = describe(desk, memory_GBps=2500e9, memory_Gbps=390)
    desk.script(product=NEW)
    desk.one()
    said = sentence(
        desk.run(), str(path), "prototype-x-oam 80gb peaks.memory_GBps is 2.5e+12; expected "
    )
    assert f"`roofline baseline check {path}` lists all errors" in said
