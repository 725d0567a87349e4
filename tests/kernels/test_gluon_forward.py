"""The forward pass in Gluon: right on a pretended multiprocessor, its launch, and where it is refused."""

import pytest
import torch

from roofline_kernels.attention import launches
from roofline_kernels.attention.ahead import Shape, launch_ahead
from roofline_kernels.attention.architectures import NoSuchArchitecture
from roofline_kernels.attention.configurations import GLUON, chosen, shipped
from roofline_kernels.attention.implementations import Unavailable, implementation, make_case, once

from .attention_cases import Case, beyond
from .gluon_cases import Run, launch_of, results, runs

pytest.importorskip("triton.experimental.gluon", reason="needs Triton with Gluon, found none")
pytestmark = pytest.mark.usefixtures("one_thread")
CPU = torch.device("cpu")


# Against float64


@pytest.mark.parametrize("run", runs(20, seed=1), ids=lambda run: f"{run.case.lengths}")
def test_results_are_as_near_to_float64_as_pytorch_is(run):
    assert beyond(run.case, results(run)) == {}


@pytest.mark.parametrize("causal", ["top-left", "bottom-right"])
@pytest.mark.parametrize("lengths", [(300, 40), (300, 172), (40, 300), (257, 129), (129, 257)])
def test_each_alignment_hides_what_it_says_where_lengths_differ(causal, lengths):
    run = Run(Case(64, lengths, dtype="bfloat16", causal=causal, lse="returned"), 2, seed=3)
    assert beyond(run.case, results(run)) == {}


def test_the_order_of_events_makes_no_difference():
    case = Case(64, (200, 200), dtype="bfloat16", causal="top-left", heads=(2, 1), lse="returned")
    outputs = [results(Run(case, 3, seed))["output"] for seed in range(8)]
    assert all(torch.equal(outputs[0], other) for other in outputs[1:])


# The launch


def test_every_tile_is_masked_only_where_a_diagonal_begins_within_one():
    tensors = torch.empty(1, 1, 300, 64, dtype=torch.bfloat16), torch.empty(1, 1, 300)
    for causal, lengths, shifted in (
        (None, (300, 300), False),
        ("top-left", (300, 200), False),
        ("bottom-right", (300, 300), False),
        ("bottom-right", (300, 428), False),
        ("bottom-right", (300, 299), True),
    ):
        case = Case(64, lengths, dtype="bfloat16", causal=causal)
        assert launch_of(case, *tensors).arguments["SHIFTED"] is shifted, (causal, lengths)


def test_there_are_no_more_programs_than_multiprocessors():
    with chosen(forward=GLUON[64]):
        many, few = (
            launch_ahead("sm_90", "forward", Shape(64, seq_q=seq, heads=2)) for seq in (16_384, 128)
        )
    assert (many.programs, few.programs) == (4, 2)


def test_it_is_nobodys_default():
    defaults = [
        tiles
        for kernels in shipped().values()
        for widths in kernels.values()
        for sizes in widths.values()
        for tiles in sizes.values()
    ]
    assert [tiles for tiles in defaults if tiles.gluon] == []


# Where it is refused


@pytest.mark.parametrize("architecture", ["sm_80", "sm_100", "gfx942", "interpreter"])
def test_it_is_for_hopper_only(architecture):
    with (
        chosen(forward=GLUON[64]),
        pytest.raises(NoSuchArchitecture, match=f"in Gluon on {architecture}: .* of sm_90"),
    ):
        launch_ahead(architecture, "forward", Shape(64))


@pytest.mark.parametrize(
    ("head_dim", "dtype", "columns"),
    [(32, torch.bfloat16, 32), (64, torch.float32, 64), (64, torch.bfloat16, 65)],
    ids=["head dimension", "four bytes", "rows of 130 bytes"],
)
def test_tensors_that_it_is_not_made_for_are_refused_in_words(head_dim, dtype, columns):
    q = torch.empty(1, 1, 128, columns, dtype=dtype, device="meta")[..., :head_dim]
    problem = launches.Problem("sm_90", 0, False, 0.125)
    with (
        chosen(forward=GLUON[64]),
        pytest.raises(ValueError, match="expected two-byte types, a head"),
    ):
        launches.forward(problem, q, q, q, q, q[..., 0])


@pytest.mark.parametrize(
    ("head_dim", "dtype", "reason"),
    [
        (64, torch.bfloat16, "Gluon on interpreter"),
        (
            32,
            torch.bfloat16,
            "needs a two-byte type and a head dimension of 64 or 128, found torch.bfloat16 and 32",
        ),
        (64, torch.float32, "found torch.float32 and 64"),
    ],
)
def test_as_an_implementation_it_says_why_it_cannot(head_dim, dtype, reason):
    case = make_case(1, 1, 32, head_dim, dtype, CPU, causal=True)
    with pytest.raises(Unavailable, match=reason):
        once(implementation("gluon"), case, "forward")
