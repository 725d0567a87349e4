"""What is foreseen of attention on an H100: the arithmetic of a tile, and predictions that it allows."""

from pathlib import Path

import pytest

from pytest_roofline.baselines.files import read_baseline
from pytest_roofline.hardware.lookup import shipped_hardware
from roofline_kernels.attention.configurations import shipped as configurations

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def model(program):
    return program("attention_model")


@pytest.fixture(scope="module")
def product(model):
    return next(
        one for one in shipped_hardware().catalogue.products if one.product == model.PRODUCT
    )


def test_a_tile_takes_as_many_clocks_as_arithmetic_says(model):
    one = model.tile(128, 128, 128)
    # 4 · 128³ FLOPs at 4,096 a clock; 128² exponentials at 16; 3 · 128² + 128 · 128 instructions at 128.
    assert (one.products, one.exponentials, one.float32) == (2048, 1024, 512)
    assert one.in_turn == 2048 / 3584
    assert one.pipes_at_once == 2048 / 3072
    # QKᵀ, 1024 clocks, is hidden under a softmax of 1536.
    assert one.overlapped == 2048 / (1024 + 1536)


def test_the_rates_of_a_clock_are_those_of_the_datasheet(model, product):
    hz = 1.83e9
    units = product.facts["units"].value
    assert units * hz * model.MATRIX_FLOPS == pytest.approx(
        product.peaks["bf16_TFLOPS"].value * 1e12, rel=1e-3
    )
    full_hz = product.facts["clock_MHz"].value * 1e6
    assert units * full_hz * model.FLOAT32 * 2 == pytest.approx(
        product.peaks["fp32_TFLOPS"].value * 1e12, rel=5e-3
    )


@pytest.mark.parametrize("head_dim", [64, 128])
def test_a_compiled_tile_has_one_exponential_a_score_and_one_a_row_to_rescale(model, head_dim):
    case = {
        "architecture": model.ARCHITECTURE,
        "kernel": "forward",
        "dtype": "bf16",
        "variant": "full",
    }
    (entry,) = (
        one
        for one in read_baseline(ROOT / "baselines/resources.json").exact
        if one.parameters == case | {"head_dim": head_dim}
    )
    own = configurations()[model.ARCHITECTURE]["forward"]["16-bit"][head_dim]
    threads = 32 * own.num_warps
    # Four threads share a row of what wgmma leaves in registers, and each has its rows' rescaling to do.
    rows = own.block_m * 4 // threads
    assert entry.figures["MUFU.EX2"] == own.block_m * own.block_n // threads + rows


def test_measured_kernels_reach_about_four_fifths_of_the_model(model):
    # 2048 of 3584 clocks, and 2048 of 2560, of 989.4 TFLOP/s: 470.7 of 565, 614.2 of 792.
    assert [round(one.reached, 2) for one in model.MEASURED] == [0.83, 0.78]


def test_a_forward_pass_is_foreseen_at_the_share_of_the_model_that_measured_kernels_reach(
    model, product
):
    peak = product.peaks["bf16_TFLOPS"].value * 1e12
    rates = {
        (one.kernel, one.head_dim): (one.least, one.most)
        for one in model.predictions()
        if (one.passes, one.unit) == ("forward", "FLOP/s")
    }
    allowed = {
        ("triton", 64): model.tile(64, 128, 128).in_turn,
        ("triton", 128): model.tile(128, 128, 128).in_turn,
        ("gluon", 64): model.tile(64, 128, 128).overlapped,
        ("gluon", 128): model.tile(128, 128, 128).overlapped,
    }
    shares = [one.reached for one in model.MEASURED]
    expected = {
        which: (min(shares) * share * peak, max(shares) * share * peak)
        for which, share in allowed.items()
    }
    assert rates.keys() == expected.keys()
    for which, range_ in rates.items():
        assert range_ == pytest.approx(expected[which]), which


def test_the_part_of_the_page_is_what_the_program_makes(model, program, tmp_path):
    page, path = (
        (ROOT / "docs/results/flash-resources.md").read_text(encoding="utf-8"),
        tmp_path / "page.md",
    )
    path.write_text(program("parts").with_part(page, model.PROGRAM, "old"), encoding="utf-8")
    assert model.main(["-o", str(path)]) == 0
    assert path.read_text(encoding="utf-8") == page


def test_a_page_without_a_place_for_the_part_is_refused(model, tmp_path, capsys):
    path = tmp_path / "page.md"
    path.write_text("# A page\n", encoding="utf-8")
    assert model.main(["-o", str(path)]) == 2
    assert "expected both, in this order, once each" in capsys.readouterr().err
