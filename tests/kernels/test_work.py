"""Bytes and FLOPs of what is measured, against numbers worked out by hand."""

import itertools
from fractions import Fraction

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from pytest_roofline import Work
from roofline_kernels.transformer import SIZES, Config, Transformer, loss_of, make_batch
from roofline_kernels.work import (
    COLLECTIVES,
    adamw_bytes,
    attention_flops,
    bus_factor,
    collective_bytes,
    copy_bytes,
    gemm_work,
    link_copy_bytes,
    stream_work,
    transformer_flops,
)


def test_copies_read_and_write_every_byte_and_products_move_each_matrix_once():
    assert copy_bytes(7) == {"read_bytes": 7, "write_bytes": 7, "payload_bytes": 7}
    assert link_copy_bytes(7) == {"payload_bytes": 7, "wire_bytes": 7}
    # [2, 5] · [5, 3] in bfloat16 into float32: 6 sums of 5 terms; 10 + 15 elements read, 6 written.
    assert gemm_work(2, 3, 5, operand_bytes=2, result_bytes=4) == {
        "flops": 60,
        "read_bytes": 50,
        "write_bytes": 24,
    }


def test_traffic_is_that_of_babelstream():
    # At its default size, 2^25 doubles: 2 arrays of 268,435,456 bytes for copy, mul and dot, 3 for add and triad.
    for operation, moved_bytes, flops in [
        ("copy", 536_870_912, 0),
        ("scale", 536_870_912, 2**25),
        ("add", 805_306_368, 2**25),
        ("triad", 805_306_368, 2**26),
        ("dot", 536_870_912, 2**26),
    ]:
        work = Work(**stream_work(operation, 2**25, 8))
        assert (work.traffic_bytes, work.flops) == (moved_bytes, flops), operation
    with pytest.raises(KeyError):
        stream_work("nop", 100, 8)


def test_bus_bandwidth_is_that_of_the_nccl_tests():
    # As printed on eight A100, 8 GiB, out of place: algbw and busbw in GB/s (superbenchmark's test data).
    for operation, algbw, busbw in [
        ("all_reduce", 134.44, 235.26),
        ("all_gather", 255.31, 223.39),
        ("reduce_scatter", 264.60, 231.52),
        ("all_to_all", 256.36, 224.31),
        ("broadcast", 232.81, 232.81),
        ("reduce", 228.38, 228.38),
    ]:
        size_bytes = 8 * 2**30
        work = Work(**collective_bytes(operation, size_bytes, 8))
        seconds = size_bytes / (algbw * 1e9)
        assert work.amount("busbw_GBps") / seconds / 1e9 == pytest.approx(busbw, abs=0.02)


def test_the_factor_of_every_operation_at_1_2_4_and_8_ranks():
    shares, whole = (0, "1/2", "3/4", "7/8"), (1, 1, 1, 1)
    expected = {"all_reduce": (0, 1, "3/2", "7/4")} | dict.fromkeys(
        ("broadcast", "reduce", "send_recv"), whole
    )
    for operation in COLLECTIVES:
        factors = [Fraction(factor) for factor in expected.get(operation, shares)]
        assert factors == [bus_factor(operation, ranks) for ranks in (1, 2, 4, 8)], operation
        # Among one rank nothing fails, and an empty bus is flagged by the metric.
        alone = Work(**collective_bytes(operation, 1024, 1))
        assert alone.metric == ("busbw_GBps" if factors[0] else "algbw_GBps"), operation
    # 1000 · 2 · 5 / 6 is 1666 and two thirds.
    assert collective_bytes("all_reduce", 1000, 6) == {"algbw_bytes": 1000, "busbw_bytes": 1667}
    with pytest.raises(ValueError, match="a group has 0 ranks; expected one or more"):
        bus_factor("all_reduce", 0)
    with pytest.raises(KeyError):
        collective_bytes("allreduce", 1024, 2)


def test_attention_is_four_flops_for_each_pair_and_dimension_less_half_a_key_for_each_query_on_the_diagonal():
    assert attention_flops(2, 3, 5, 7, 11) == {"flops": 4 * 2 * 3 * 5 * 7 * 11}
    for alignment, seq_k, seq_q in itertools.product(
        ["top-left", "bottom-right"], [0, 1, 8, 13, 64], [0, 1, 3, 8, 50]
    ):
        shift = seq_k - seq_q if alignment == "bottom-right" else 0
        pairs = sum(key <= query + shift for query in range(seq_q) for key in range(seq_k))
        flops = attention_flops(1, 1, seq_q, seq_k, 1, causal=True, alignment=alignment)["flops"]
        assert flops == 4 * pairs - 2 * min(seq_q, seq_k), (alignment, seq_k, seq_q)


def test_counts_of_attention_are_the_leaderboards_and_flash_attention_3s():
    flops = attention_flops(1, 16, 16384, 16384, 64, causal=True, passes="both")["flops"]
    assert f"{flops / 1e12:.3f}" == "1.924"
    for seq_q, seq_k in [(1, 1024), (512, 1024), (1024, 1024)]:
        mean_keys = (max(0, seq_k - seq_q) + seq_k) / 2
        flops = attention_flops(2, 4, seq_q, seq_k, 64, causal=True, alignment="bottom-right")[
            "flops"
        ]
        assert flops == 2 * 4 * 2 * seq_q * mean_keys * (64 + 64), (seq_q, seq_k)


def test_what_is_no_attention_and_no_transformer_has_no_flops():
    sizes = {"batch": 1, "heads": 1, "seq_q": 8, "seq_k": 8, "head_dim": 64}
    shape = {"d_model": 12, "d_ff": 20, "layers": 3, "vocab": 34, "batch": 5, "context": 7}
    passes = "forward, backward, forward_backward, step"
    for count, changes, told in [
        (
            attention_flops,
            sizes | {"passes": "fwd"},
            "passes is 'fwd'; expected one of forward, backward, both",
        ),
        (attention_flops, sizes | {"heads": -1}, "expected zero or more"),
        (
            attention_flops,
            sizes | {"seq_k": 9, "causal": True},
            "no alignment; expected alignment='top-left'",
        ),
        (
            attention_flops,
            sizes | {"alignment": "left"},
            "alignment 'left'; expected 'top-left' or 'bottom-right'",
        ),
        (
            transformer_flops,
            shape | {"passes": "optimizer"},
            f"passes is 'optimizer'; expected one of {passes}",
        ),
        (
            transformer_flops,
            shape | {"context": -1},
            r"context are \(12, 20, 3, 34, 5, -1\); expected zero or more",
        ),
    ]:
        with pytest.raises(ValueError, match=told):
            count(**changes)


# Small enough to count by hand, and of such sizes that no two of them can be taken for each other.
TINY = Config(d_model=12, d_ff=20, layers=3, heads=2, vocab=34)


def flops_of(config, batch, context, passes="forward"):
    shape = (config.d_model, config.d_ff, config.layers, config.vocab)
    return transformer_flops(*shape, batch, context, passes=passes)["flops"]


def counted(config, batch, context, *, attention="naive", device="cpu", passes="forward_backward"):
    """What torch counts while the model runs."""
    model = Transformer(config, context=context, attention=attention, device=device)
    tokens, targets = make_batch(config, batch, context, device)
    with FlopCounterMode(display=False) as counter:
        loss = loss_of(model(tokens), targets)
        if passes == "forward_backward":
            loss.backward()
    return counter.get_total_flops()


def test_a_transformers_flops_are_its_matrix_products_and_backward_twice_as_many():
    token = 2 * (3 * (4 * 12 * 12 + 3 * 12 * 20) + 34 * 12)
    scores_and_values = 3 * 2 * (2 * 7 * 7 * 12)
    forward = 5 * (7 * token + scores_and_values)
    for passes, forwards in [("forward", 1), ("backward", 2), ("forward_backward", 3), ("step", 3)]:
        assert flops_of(TINY, 5, 7, passes) == forwards * forward, passes


def test_naive_attention_has_exactly_the_flops_that_torch_counts():
    for passes, device, (config, batch, context) in [
        ("forward", "cpu", (TINY, 5, 7)),
        ("forward_backward", "cpu", (TINY, 1, 1)),
        ("forward_backward", "meta", (Config(64, 128, 2, 4, vocab=96), 2, 32)),
        ("forward", "meta", (SIZES["small"], 4, 1024)),
        ("forward_backward", "meta", (SIZES["small"], 4, 128)),
    ]:
        assert counted(config, batch, context, device=device, passes=passes) == flops_of(
            config, batch, context, passes
        )


def test_torch_leaves_out_the_fused_attention_of_cpus():
    without = flops_of(TINY, 5, 7) - 3 * attention_flops(5, 2, 7, 7, 6)["flops"]
    # Not by design: it would be right to count all of it.
    assert counted(TINY, 5, 7, attention="sdpa", passes="forward") in (
        without,
        flops_of(TINY, 5, 7),
    )


def test_the_count_is_palms_over_the_parameters_of_products():
    # PaLM counts 6 for each parameter: here it is those of products, all but the gains of the norms.
    small = SIZES["small"]
    products = small.parameters - (2 * small.layers + 1) * small.d_model
    token = 6 * products + 12 * small.layers * small.heads * small.head_dim * 2048
    assert flops_of(small, 4, 2048, "step") == 4 * 2048 * token


def test_adamw_reads_four_arrays_that_it_has_and_writes_three():
    assert adamw_bytes(10) == {"read_bytes": 160, "write_bytes": 120}
    for dtype, element_bytes in [(torch.float32, 4), (torch.bfloat16, 2)]:
        parameter = torch.nn.Parameter(torch.zeros(1000, dtype=dtype))
        parameter.grad = torch.ones_like(parameter)
        optimizer = torch.optim.AdamW([parameter])
        optimizer.step()
        moments = [
            value for value in optimizer.state[parameter].values() if value.shape == parameter.shape
        ]
        used = sum(value.nbytes for value in (parameter.data, parameter.grad, *moments))
        assert adamw_bytes(1000, element_bytes)["read_bytes"] == used, dtype
