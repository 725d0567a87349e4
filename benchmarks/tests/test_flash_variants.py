"""The page of other ways through the forward kernel on Hopper: what is read in machine code, whether it is current."""

from dataclasses import replace
from pathlib import Path

import pytest

from roofline_kernels.attention.configurations import shipped

PAGE = Path(__file__).parents[2] / "docs/results/flash-resources.md"
OWN = shipped()["sm_90"]["forward"]["16-bit"]


@pytest.fixture(scope="module")
def page(program):
    return program("flash_variants")


@pytest.fixture(scope="module")
def candidates(program):
    return program("tuning.candidates")


@pytest.fixture(scope="module")
def part(program, page):
    """The part of the page, as it stands."""
    return program("parts").part_of(PAGE.read_text(encoding="utf-8"), page.PROGRAM)


@pytest.fixture(scope="module")
def rows(part):
    """The rows of the part, each as its cells."""
    lines = part.splitlines()
    return [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("| ")
    ][1:]


def code(*instructions):
    return "\n".join(f"        /*0000*/                   {one} ;" for one in instructions)


HGMMA, EX2, WAIT = (
    "HGMMA.64x128x16.F32.BF16 R24, gdesc[UR16], R24",
    "MUFU.EX2 R1, R1",
    "WARPGROUP.DEPBAR.LE gsb0, 0x0",
)


@pytest.mark.parametrize(
    ("instructions", "count"),
    [
        ((HGMMA, WAIT, EX2, EX2), 0),
        ((HGMMA, EX2, HGMMA, EX2, WAIT, EX2), 2),
        # One of two is waited for.
        ((HGMMA, HGMMA, WAIT.replace("0x0", "0x1"), EX2, EX2, WAIT, EX2), 2),
        # What follows a branch need not run after what stands before it.
        ((HGMMA, EX2, "@!P0 BRA `(.L_x_4)", EX2, WAIT), 1),
    ],
)
def test_an_exponential_is_under_a_product_until_this_is_waited_for(page, instructions, count):
    assert page.exponentials_under(code(*instructions)) == count


def test_the_page_has_each_that_is_tried_and_none_that_spills(candidates, rows):
    expected = [
        [str(size), mask, candidates.name_of(one)]
        for size, own in OWN.items()
        for mask in ("full", "causal")
        for one in [
            own,
            replace(own, warp_specialize=True),
            *candidates.variants("sm_90", "forward", size, own),
        ]
    ]
    assert [row[:3] for row in rows] == expected
    assert {row[10] for row in rows} <= {"0", ""}
    overlapping = [row for row in rows if "overlap" in row[2]]
    assert overlapping
    assert all(int(row[6]) > 0 for row in overlapping)


def test_in_gluon_all_exponentials_but_those_of_the_first_tile_run_under_a_product(rows):
    gluon = [row for row in rows if "gluon" in row[2]]
    assert len(gluon) == 4
    # As many stand before the loop as in it, but for one a row to rescale, of which the first tile needs none: two rows
    # a thread.
    for row in gluon:
        under, everywhere = int(row[6]), int(row[7])
        assert under >= 0.95 * everywhere / 2, row


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("what", ["as shipped", "overlap", "ws", "gluon"])
def test_the_page_shows_what_the_compiler_makes(page, part, candidates, rows, what, causal):
    triton = pytest.importorskip("triton", reason="needs Triton, found none")
    if f"with Triton {triton.__version__}," not in " ".join(part.split()):
        pytest.skip(f"the page is of another Triton than {triton.__version__}")
    own = OWN[128]
    tried = [own, *candidates.variants("sm_90", "forward", 128, own)]
    tiles = next(
        one for one in tried if what == "as shipped" or what in candidates.name_of(one).split()
    )
    assert list(page._row(page.look(128, causal, tiles))) in rows


def test_the_first_sentence_counts_what_compiles_and_what_nothing_speaks_against(page, part, rows):
    kernels = [page.Found(64, False, None, (1,) * 8 if row[3] else (), row[11]) for row in rows]
    assert page.conclusion(kernels) == " ".join(part.split("\n\n")[1].split())
    assert page.conclusion([page.Found(64, False, None, (), "Triton: no")]) == (
        "Of 1 kernels, the shipped ones among them, 0 compile, and nothing in their machine code speaks against 0."
    )


def test_a_page_without_a_place_is_refused_before_anything_is_compiled(
    page, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(page, "found", lambda _: pytest.fail("something was compiled"))
    path = tmp_path / "page.md"
    path.write_text("# A page\n", encoding="utf-8")
    assert page.main(["-o", str(path)]) == 2
    assert "expected both, in this order, once each" in capsys.readouterr().err
