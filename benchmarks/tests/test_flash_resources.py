"""The page of what compiled FlashAttention kernels ask for: what it shows, what it marks, and whether it is current."""

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_roofline.baselines.files import write_baseline
from pytest_roofline.core.entries import Baseline, ExactEntry

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/results/flash-resources.md"

FORWARD = ExactEntry(
    benchmark="flash_resources",
    target="sm_90",
    figures={
        "HGMMA": 24, "serialized_wgmma": 24, "exposed_exponentials": 66, "narrow_lds": 0, "MUFU.EX2": 132,
        "instructions": 2056, "matrix_instructions": 24, "registers": 163,
        "shared_bytes": 116224, "spill_loads": 0, "spill_stores": 0, "stack_bytes": 0,
    },
    parameters={"architecture": "sm_90", "kernel": "forward", "dtype": "bf16", "head_dim": 64, "variant": "causal"},
    options={"num_warps": 8, "num_stages": 3},
    arguments={"BLOCK_M": "128", "BLOCK_N": "64", "DESCRIPTORS": "True", "WARP_SPECIALIZE": "False"},
    compiler={"triton": "3.9.0", "ptxas": "13.4.59"},
)  # fmt: skip
LARGE = replace(
    FORWARD,
    figures=FORWARD.figures | {"spill_stores": 1000, "spill_loads": 234, "stack_bytes": 720},
    parameters=FORWARD.parameters | {"head_dim": 256, "kernel": "d_queries"},
)
AMD = replace(
    FORWARD,
    target="gfx942",
    figures={
        "matrix_instructions": 96,
        "shared_bytes": 32768,
        "narrow_lds": 128,
        "v_mfma": 96,
        "vgpr_spills": 0,
        "vgprs": 224,
    },
    parameters=FORWARD.parameters | {"architecture": "gfx942", "head_dim": 128},
    options={"num_warps": 4, "num_stages": 1, "waves_per_eu": 2, "matrix_instr_nonkdim": 16},
    arguments=FORWARD.arguments | {"DESCRIPTORS": "False"},
    compiler={"triton": "3.9.0", "llvm": "6bc4"},
)
GLUON = replace(
    FORWARD,
    parameters=FORWARD.parameters | {"kernel": "gluon"},
    arguments={"ROWS": "64", "WARPGROUPS": "2", "BLOCK_N": "128", "STAGES": "4"},
)
OTHER = replace(FORWARD, benchmark="another", target="sm_80")


@pytest.fixture(scope="module")
def resources(program):
    return program("flash_resources")


@pytest.fixture
def made(resources, tmp_path, capsys):
    """Makes the page of a baseline with these entries: exit status and what was printed."""

    def make(*entries, options=()):
        path = tmp_path / "resources.json"
        write_baseline(path, Baseline("resources", (), exact=entries))
        status = resources.main(["--baseline", str(path), *map(str, options)])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return make


def test_a_row_says_what_was_compiled_and_what_it_asks_for(made, rows_of):
    status, text, _ = made(FORWARD, AMD, OTHER)
    assert status == 0
    assert rows_of(text, "sm_90") == [
        ["forward", "bf16", "64", "causal", "128 × 64", "8", "3", "descriptors", "116,224 (50%)", "163", "0",
         "24 HGMMA", "24 serialized, 66 exposed"],
    ]  # fmt: skip
    assert rows_of(text, "gfx942") == [
        ["forward", "bf16", "128", "causal", "128 × 64", "4", "1", "waves_per_eu 2, matrix_instr_nonkdim 16",
         "32,768 (50%)", "224", "0", "96 v_mfma", "128 narrow"],
    ]  # fmt: skip
    assert "sm_80" not in text


def test_a_tile_of_a_kernel_in_gluon_is_that_of_all_its_warpgroups(made, rows_of):
    text = made(GLUON, FORWARD)[1]
    kernels_and_tiles = [(row[0], row[4]) for row in rows_of(text, "sm_90")]
    assert [("forward", "128 × 64"), ("gluon", "128 × 128")] == kernels_and_tiles


def test_what_spills_is_marked_and_comes_first(made, rows_of):
    text = made(FORWARD, LARGE)[1]
    assert rows_of(text, "What stands out") == [
        ["sm_90", "d_queries", "bf16", "256", "causal", "**1,234**", "720", "yes"]
    ]
    assert [(row[0], row[10]) for row in rows_of(text, "sm_90")] == [
        ("d_queries", "**1,234**"),
        ("forward", "0"),
    ]
    assert "none is against the rule" in text
    assert text.index("## What stands out") < text.index("## sm_90")


@pytest.mark.parametrize(
    ("figures", "parameters", "why"),
    [
        ({"spill_loads": 1}, {}, "spills"),
        ({"matrix_instructions": 0, "HGMMA": 0}, {}, "no matrix instruction"),
        ({"spill_loads": 1}, {"dtype": "fp16", "head_dim": 128, "variant": "full"}, "spills"),
        ({"spill_loads": 1}, {"head_dim": 256}, ""),
        ({"spill_loads": 1}, {"variant": "general"}, ""),
        ({"matrix_instructions": 0}, {"dtype": "fp32"}, ""),
        ({}, {}, ""),
    ],
)
def test_the_rule_holds_for_16_bit_types_to_128_columns_in_whole_tiles(
    resources, figures, parameters, why
):
    entry = replace(
        FORWARD, figures=FORWARD.figures | figures, parameters=FORWARD.parameters | parameters
    )
    assert resources.breach(entry) == why


def test_without_entries_or_a_baseline_it_says_what_to_do(made, resources, tmp_path, capsys):
    status, out, err = made(OTHER)
    assert (status, out) == (2, "")
    assert "record them with `pytest perf_tests -k flash_resources`" in err
    assert resources.main(["--baseline", str(tmp_path / "none.json")]) == 2
    assert "does not exist" in capsys.readouterr().err


def test_the_committed_page_is_that_of_the_committed_baseline_and_keeps_the_parts_of_others(
    resources, tmp_path
):
    """After `roofline baseline approve` the page must be made anew."""
    page, path = PAGE.read_text(encoding="utf-8"), tmp_path / "page.md"
    path.write_text(page, encoding="utf-8")
    assert resources.main(["-o", str(path)]) == 0
    assert path.read_text(encoding="utf-8") == page


def test_a_page_without_a_place_for_the_parts_of_others_is_refused(resources, tmp_path, capsys):
    path = tmp_path / "page.md"
    path.write_text("# A page\n", encoding="utf-8")
    assert resources.main(["-o", str(path)]) == 2
    assert "expected both, in this order, once each" in capsys.readouterr().err
    assert path.read_text(encoding="utf-8") == "# A page\n"
