"""Which data-parallel steps are measured in which tier, and what is said of ranks whose models have come apart."""

from types import SimpleNamespace

import pytest
import torch

from .benchmarks import Roofline, load


@pytest.fixture(scope="module")
def suite():
    """The module of the benchmarks, freshly imported."""
    return load("transformer_ranks")


def test_shares_are_means_over_ranks(suite):
    roofline = Roofline()
    suite._tell_communication(roofline, [(0.2, 0.1, [7]), (0.4, 0.3, [7])])
    assert roofline.figures == {
        "communicating": (pytest.approx(0.3), "share"),
        "exposed": (pytest.approx(0.2), "share"),
    }


def test_a_profile_without_collectives_tells_no_shares(suite):
    roofline = Roofline()
    with pytest.warns(
        UserWarning, match="the profile of a rank shows no collective; expected those of NCCL"
    ):
        suite._tell_communication(roofline, [(0.2, 0.1, [7]), (0.0, 0.0, [7])])
    assert roofline.figures == {}


def test_ranks_whose_models_have_come_apart_fail_by_their_numbers(suite):
    with pytest.raises(
        AssertionError,
        match=r"the models of rank 0 and of ranks 1, 3 differ; expected the same bits",
    ):
        suite._tell_communication(Roofline(), [(0.2, 0.1, [value]) for value in (7, 8, 7, 9)])


def world(free_bytes):
    """The fixture `distributed`, where every world can be had."""
    return SimpleNamespace(available=lambda ranks: "", free_bytes=lambda ranks: free_bytes)


def test_fewer_cores_than_ranks_are_a_skip(suite, monkeypatch):
    monkeypatch.setattr(suite, "usable_cores", lambda: 2)
    with pytest.raises(pytest.skip.Exception, match="needs 4 cores, found 2"):
        suite._require(Roofline(), world(10**12), "ddp", 4, "small", 1, 128, "fp32")


def test_too_little_memory_is_a_skip_with_need_and_found(suite, monkeypatch):
    monkeypatch.setattr(suite, "usable_cores", lambda: 2)
    # Parameters, gradients, two moments and DDP's buckets, each of 120,945,408 elements, on two ranks.
    need = 2 * 5 * 4 * 120_945_408
    suite._require(Roofline(), world(need), "ddp", 2, "small", 1, 128, "fp32")
    with pytest.raises(
        pytest.skip.Exception, match=r"needs 4\.84 GB for 2 ranks of one memory, found 4\.84 GB"
    ):
        suite._require(Roofline(), world(need - 1), "ddp", 2, "small", 1, 128, "fp32")
    # Of 16 times the batch at 8 times the context the activations are the more.
    with pytest.raises(
        pytest.skip.Exception, match=r"needs 36\.0 GB for 2 ranks of one memory, found 4\.84 GB"
    ):
        suite._require(Roofline(), world(need), "ddp", 2, "small", 16, 1024, "fp32")


def test_work_is_that_of_one_rank(suite):
    work = suite._work("small", 2, 128, "fp32")
    assert work.tokens == 256
    # 6 for each of the parameters that a product multiplies by, the 25 norms' left out, and attention's products.
    matrices = 120_945_408 - 25 * 768
    assert work.flops == 256 * (6 * matrices + 12 * 12 * 128 * 768)


def timed(threads=2, invalid="", size=2):
    return SimpleNamespace(
        label="step", invalid=invalid, ranks=SimpleNamespace(threads=threads, size=size)
    )


def test_no_figure_is_made_of_invalid_times(suite):
    with pytest.warns(UserWarning, match="no figure 'efficiency': step is INVALID: too noisy"):
        assert not suite._valid("efficiency", timed(), timed(invalid="too noisy"))
    assert suite._valid("efficiency", timed(), timed())


def test_invalid_times_leave_only_the_figures_that_need_none(suite, monkeypatch):
    roofline, found = Roofline(), (0.2, 0.1, [7])
    times = iter([1.0, 2.0, 1.5])

    def measure_ranks(*_, name, **__):
        one = timed(invalid="too noisy" if name == "together" else "")
        one.median_s = next(times)
        return one

    roofline.measure_ranks = measure_ranks
    monkeypatch.setattr(suite, "_require", lambda *_: None)
    distributed = SimpleNamespace(run=lambda *_, **__: [found, found])
    with pytest.warns(UserWarning, match="no figure") as warned:
        suite.test_transformer_ranks(roofline, distributed, "ddp", "tiny", 2, 1, 128, "fp32")
    assert set(roofline.figures) == {"communicating", "exposed"}
    assert len(warned) == 3


@pytest.mark.parametrize(("alone", "together"), [(4, 2), (None, None)])
def test_a_rank_alone_with_other_threads_is_no_comparison(suite, alone, together):
    cpu = torch.device("cpu")
    with pytest.raises(
        AssertionError,
        match=f"alone computes with {alone} threads, each of 2 ranks with {together}",
    ):
        suite._check_threads(cpu, timed(alone, size=1), timed(together))
    suite._check_threads(cpu, timed(2, size=1), timed(2))
    suite._check_threads(torch.device("cuda"), timed(alone, size=1), timed(together))
