"""Regressions planted in attention's forward pass in Gluon: the compile gate sees each of them."""

import importlib.util
import sys
from pathlib import Path

import pytest

from pytest_roofline.kernel_gate.compile import compile_for
from roofline_kernels.attention.ahead import Shape, launch_ahead
from roofline_kernels.attention.configurations import GLUON, chosen

from ..kernel_gate.test_planted import worse

pytest.importorskip("triton.experimental.gluon", reason="needs Triton with Gluon, found none")


@pytest.fixture(scope="module")
def compiled_gluon(tmp_path_factory):
    """Compile that forward pass as a Hopper GPU would get it, with text and arguments in place of others."""
    with chosen(forward=GLUON[64]):
        launch = launch_ahead("sm_90", "forward", Shape(64))
    text = Path(sys.modules[launch.kernel.fn.__module__].__file__).read_text(encoding="utf-8")
    folder = tmp_path_factory.mktemp("planted")

    def compile_planted(before="", after="", **arguments):
        assert before == "" or 1 == text.count(before)
        file = folder / f"planted_{len(list(folder.glob('*.py')))}.py"
        file.write_text(text.replace(before, after) if before else text, encoding="utf-8")
        spec = importlib.util.spec_from_file_location(file.stem, file)
        module = importlib.util.module_from_spec(spec)
        patch.setitem(sys.modules, file.stem, module)
        spec.loader.exec_module(module)
        arguments = launch.arguments | arguments
        return compile_for(module.gluon_forward_kernel, "sm_90", arguments, launch.tiles.options())

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(folder / "triton"))
        yield compile_planted


@pytest.fixture(scope="module")
def sound_gluon(compiled_gluon):
    """That forward pass without a fault."""
    return compiled_gluon()


def test_a_wait_for_all_products_ahead_of_the_softmax_exposes_its_exponentials(
    sound_gluon, compiled_gluon
):
    wait = "warpgroup_mma_wait({}, deps=[product])"
    verdict, figures = worse(sound_gluon, compiled_gluon(wait.format(1), wait.format(0)))
    assert ("REGRESSED", {"exposed_exponentials"}) == (verdict, figures.keys())


def test_an_output_that_is_scaled_under_its_own_product_makes_products_wait(
    sound_gluon, compiled_gluon
):
    wait = "warpgroup_mma_wait({}, deps=[under_way, weights])"
    waiting = compiled_gluon(wait.format(0), wait.format(1))
    verdict, figures = worse(sound_gluon, waiting)
    assert "REGRESSED" == verdict
    assert 0 == figures["serialized_wgmma"][0] < figures["serialized_wgmma"][1]
    assert "serialized due to" in waiting.warning


def test_too_few_registers_for_the_warpgroups_show_as_spills(sound_gluon, compiled_gluon):
    verdict, figures = worse(sound_gluon, compiled_gluon(REGISTERS=128), ("spill_stores",))
    assert "REGRESSED" == verdict
    assert 0 == figures["spill_stores"][0] < figures["spill_stores"][1]
