"""What a trace tells, held against answers worked out by hand."""

import gzip
import json
import time

import pytest

from pytest_roofline.core.errors import BadFile
from pytest_roofline.measuring.profiling.activities import busy_s
from pytest_roofline.measuring.profiling.analysis import NO_ATTENTION, NO_MODEL, NO_RANGES, NOT_RUN, analyse
from pytest_roofline.measuring.profiling.classes import in_attention
from pytest_roofline.measuring.profiling.nesting import Nest
from pytest_roofline.measuring.profiling.rules import KERNELS, OPERATORS, first_rule
from pytest_roofline.measuring.profiling.trace import load_trace, read_events

from .profiles import BACKWARD, annotation, arrow, copy, gpu_step, kernel, launch, operator

US = 1e-6


def found_in(*events):
    return analyse(read_events(events))


def totals(found):
    return {one.name: pytest.approx(one.total_s / US) for one in found.classes}


def test_the_span_begins_with_the_call_and_ends_with_its_last_kernel():
    found = found_in(*gpu_step())
    assert (1, True, 2) == (found.calls, found.on_device, found.streams)
    assert [pytest.approx(value) for value in (115, 64, 10)] == [
        found.span_s / US, found.busy_s / US, found.overlap_s / US
    ]  # fmt: skip


def test_every_kernel_is_in_the_class_that_its_range_its_operator_or_its_name_tells():
    expected = {
        "matrix product": 40, "attention softmax": 4, "reduction": 2, "communication": 12, "optimizer": 10, "copy": 1,
        "other": 5, "idle": 51,
    }  # fmt: skip
    assert expected == totals(found_in(*gpu_step()))


def test_the_classes_of_one_stream_add_up_to_the_span():
    one_stream = [event for event in gpu_step() if "nccl" not in event["name"]]
    found = found_in(*one_stream)
    assert pytest.approx(1.0) == sum(one.share for one in found.classes)
    assert 0.0 == found.overlap_s


def test_classes_of_overlapping_streams_hold_more_than_the_span_by_what_overlaps():
    found = found_in(*gpu_step())
    assert pytest.approx(1 + 10 / 115) == sum(one.share for one in found.classes)


def test_what_no_rule_knows_is_listed_as_other():
    other = next(one for one in found_in(*gpu_step()).classes if one.name == "other")
    assert ("mystery",) == other.largest


def test_a_backward_kernel_belongs_to_the_part_of_its_forward_operator():
    parts = {part.part: (part.forward_s / US, part.backward_s / US) for part in found_in(*gpu_step()).parts}
    assert (pytest.approx(10), pytest.approx(20)) == parts["blocks.*.attention.core.values"]
    assert (pytest.approx(10), 0) == parts["blocks.*.attention.core.scores"]


def test_softmax_and_products_of_attention_are_compared_in_time_and_work():
    forward, backward = found_in(*gpu_step()).attention
    assert (5 * 2 * 4 * 4, 2 * (2 * 2 * 4 * 8 * 4)) == (forward.softmax_flops, forward.products_flops)
    assert (pytest.approx(4), pytest.approx(20)) == (forward.softmax_s / US, forward.products_s / US)
    assert (pytest.approx(20), 2 * 2 * 8 * 4 * 4) == (backward.products_s / US, backward.products_flops)
    assert (0, None) == (backward.softmax_s, backward.softmax_flops)


def test_a_row_of_the_table_has_what_the_launches_of_a_name_share():
    rows = {row.name: row for row in found_in(*gpu_step()).kernels}
    row = rows["ampere_sgemm_128x64_tn"]
    assert (2, "matrix product", 2, 1) == (row.count, row.kind, row.grids, row.blocks)
    assert [pytest.approx(value) for value in (20, 10, 10, 10, 10, 0)] == [
        value / US for value in (row.total_s, row.mean_s, row.median_s, row.min_s, row.max_s, row.deviation_s)
    ]
    # The operators that launched them, of 6 and 5 µs.
    assert pytest.approx(11) == row.cpu_s / US
    assert (256, 1, 1) == row.block


def test_rows_are_sorted_and_their_spread_is_that_of_all_launches():
    events = [annotation("roofline call", 0, 100), operator("aten::mul", 1, 50)]
    for index, length in enumerate((1, 3, 8)):
        events += [launch(index, 2 + index), kernel("m", 10 + 20 * index, 10 + 20 * index + length, index)]
    events += [launch(9, 8), kernel("longer", 80, 95, 9, grid=(1, 1, 1))]
    found = found_in(*events)
    assert ["longer", "m"] == [row.name for row in found.kernels]
    row = found.kernels[1]
    assert [pytest.approx(value) for value in (12, 4, 3, 1, 8, (26 / 3) ** 0.5)] == [
        value / US for value in (row.total_s, row.mean_s, row.median_s, row.min_s, row.max_s, row.deviation_s)
    ]
    # One operator launched all three.
    assert pytest.approx(49) == row.cpu_s / US


def test_what_came_before_the_first_call_does_not_count():
    early = [launch(1, 2), kernel("warm-up", 3, 9, 1)]
    events = [*early, annotation("roofline call", 10, 20), launch(2, 11), kernel("m", 12, 15, 2)]
    assert ["m"] == [row.name for row in found_in(*events).kernels]


def test_what_the_host_does_between_two_calls_does_not_count():
    events = [
        annotation("roofline call", 0, 10), operator("aten::add", 2, 5),
        operator("aten::exp", 11, 14),
        annotation("roofline call", 20, 30), operator("aten::add", 21, 26),
    ]  # fmt: skip
    found = found_in(*events)
    assert (2, {"elementwise": 8, "idle": 12}) == (found.calls, totals(found))
    assert [("aten::add", 2)] == [(row.name, row.count) for row in found.kernels]


def test_an_operators_own_time_is_without_those_inside_it():
    events = [
        annotation("roofline call", 0, 100),
        operator("aten::linear", 10, 60, dims=[[4, 8], [16, 8]]),
        annotation("inner", 15, 45),
        operator("aten::addmm", 20, 40, dims=[[16], [4, 8], [8, 16]]),
        operator("aten::copy_", 45, 50),
    ]
    found = found_in(*events)
    rows = {row.name: (row.total_s / US, row.cpu_s / US) for row in found.kernels}
    assert {"aten::linear": (25, 50), "aten::addmm": (20, 20), "aten::copy_": (5, 5)} == {
        name: tuple(pytest.approx(value) for value in values) for name, values in rows.items()
    }
    assert {"matrix product": 45, "copy": 5, "idle": 50} == totals(found)
    # The linear layer's product is the one inside it.
    assert 2 * 4 * 8 * 16 == next(one for one in found.classes if one.name == "matrix product").flops


def test_a_product_without_another_inside_is_counted_by_its_own_shapes():
    linear = operator("aten::linear", 1, 5, dims=[[2, 4, 8], [16, 8], []])
    assert 2 * 2 * 4 * 8 * 16 == found_in(annotation("roofline call", 0, 9), linear).classes[0].flops


@pytest.mark.parametrize("dims", [None, [[2, 4, 8]], [[2, 4, 8], [2, 5, 4]], [[], []], [["x"], [2]]])
def test_shapes_that_do_not_fit_give_no_flops(dims):
    product = operator("aten::bmm", 1, 5, dims=dims)
    assert found_in(annotation("roofline call", 0, 9), product).classes[0].flops is None


def test_a_softmax_outside_of_attention_is_a_reduction_where_ranges_are_known():
    def kind(*around):
        softmax = operator("aten::_softmax", 2, 5, dims=[[4, 4]])
        return found_in(annotation("roofline call", 0, 9), *around, softmax).classes[0].name

    assert "attention softmax" == kind(annotation("blocks.1.attention", 1, 8))
    assert "reduction" == kind(annotation("router", 1, 8))
    assert "attention softmax" == kind()


def test_a_softmax_written_out_is_one_by_its_range_and_counts_its_exponentials():
    events = [
        annotation("roofline call", 0, 50), annotation("attention.softmax", 1, 40),
        operator("aten::amax", 2, 5, dims=[[3, 4]]), operator("aten::sub", 6, 9, dims=[[3, 4], [3, 1]]),
        operator("aten::exp", 10, 14, sequence=1, dims=[[3, 4]]), operator("aten::sum", 15, 18, dims=[[3, 4]]),
        operator("aten::div", 20, 24, dims=[[3, 4], [3, 1]]),
        operator("ExpBackward0", 42, 48, sequence=1, forward=1), operator("aten::mul", 43, 47, dims=[[3, 4], [3, 4]]),
    ]  # fmt: skip
    forward, backward = found_in(*events).attention
    assert (pytest.approx(17), 5 * 12) == (forward.softmax_s / US, forward.softmax_flops)
    assert (pytest.approx(6), 4 * 12) == (backward.softmax_s / US, backward.softmax_flops)


def test_fused_attention_is_one_class_and_said_to_be():
    events = [
        annotation("roofline call", 0, 60), annotation("attention.core", 1, 30),
        operator("aten::scaled_dot_product_attention", 2, 29),
        operator("aten::_scaled_dot_product_flash_attention", 3, 28), operator("aten::empty", 4, 5), launch(1, 6),
        kernel("pytorch_flash::flash_fwd_kernel<Traits>", 10, 40, 1),
    ]  # fmt: skip
    found = found_in(*events)
    assert {"attention fused": 30, "idle": 30} == totals(found)
    assert pytest.approx(30) == found.attention[0].fused_s / US
    assert any("cannot be told apart" in sentence for sentence in found.missing)


def test_attention_of_products_and_softmax_is_not_called_fused():
    assert all("fused" not in sentence for sentence in found_in(*gpu_step()).missing)
    math = operator("aten::_scaled_dot_product_attention_math", 2, 5)
    assert "attention fused" not in totals(found_in(annotation("roofline call", 0, 9), math))


def test_the_gradient_of_a_part_of_a_norm_is_the_norms():
    events = [
        annotation("roofline call", 0, 40), operator("aten::rms_norm", 1, 9, sequence=5),
        operator("aten::pow", 2, 8, sequence=5),
        operator("autograd::engine::evaluate_function: PowBackward0", 10, 30, sequence=5, forward=1),
        operator("aten::mul", 12, 20),
    ]  # fmt: skip
    assert {"reduction": 28, "idle": 12} == totals(found_in(*events))


def test_the_last_operator_with_a_number_is_the_one_that_made_the_node():
    events = [
        annotation("roofline call", 0, 90), annotation("first", 1, 10), operator("aten::detach", 2, 4, sequence=7),
        annotation("second", 11, 20), operator("aten::mul", 12, 15, sequence=7),
        operator("MulBackward0", 30, 40, sequence=7, forward=1, thread=BACKWARD),
    ]  # fmt: skip
    parts = {part.part: part.backward_s / US for part in found_in(*events).parts}
    assert {"first": 0, "second": pytest.approx(10)} == parts


def test_a_forward_pass_again_inside_the_backward_pass_keeps_its_own_ranges():
    events = [
        annotation("roofline call", 0, 90), operator("CheckpointBackward", 30, 60, sequence=1, forward=1),
        annotation("blocks.0", 32, 50), operator("aten::mul", 33, 43),
    ]  # fmt: skip
    (part, rest) = found_in(*events).parts
    assert ("", pytest.approx(20)) == (part.part, part.backward_s / US)
    assert ("blocks.*", pytest.approx(10)) == (rest.part, rest.backward_s / US)


def test_an_optimizer_that_communicates_communicates():
    events = [
        annotation("roofline call", 0, 90), annotation("Optimizer.step#AdamW.step", 1, 50),
        operator("c10d::allgather_", 2, 10), launch(1, 3), kernel("ncclDevKernel_AllGather_RING_LL", 20, 30, 1),
        operator("aten::mul", 12, 20), launch(2, 13), kernel("vectorized_elementwise_kernel", 30, 34, 2),
    ]  # fmt: skip
    assert {"communication": 10, "optimizer": 4, "idle": 76} == totals(found_in(*events))
    # Nothing but the kernel's name may tell.
    bare = [launch(3, 25), kernel("ncclDevKernel_ReduceScatter_RING_LL", 40, 50, 3)]
    assert {"communication": 20, "optimizer": 4, "idle": 66} == totals(found_in(*events, *bare))


def within(*inside):
    """What a call finds of products inside attention, forward."""
    events = [annotation("roofline call", 0, 99), annotation("attention", 1, 90), *inside]
    found = found_in(*events).attention[0]
    return found.products_flops, found.projections_flops


@pytest.mark.parametrize("part", ["attention.values", "attention.core", "attention.out"])
def test_a_product_with_weights_is_one_whatever_its_part_is_called(part):
    linear = operator("aten::linear", 3, 20, dims=[[2, 4, 8], [16, 8], []])
    inner = operator("aten::addmm", 4, 19, dims=[[16], [8, 8], [8, 16]])
    assert (None, 2 * 8 * 8 * 16) == within(annotation(part, 2, 30), linear, inner)
    # A linear layer may be computed by a batched product too.
    batched = operator("aten::bmm", 4, 19, dims=[[2, 4, 8], [2, 8, 16]])
    assert (None, 2 * 8 * 8 * 16) == within(annotation(part, 2, 30), linear, batched)


@pytest.mark.parametrize("part", ["attention.self", "attention.values"])
def test_a_batched_product_in_attention_is_one_of_activations(part):
    bmm = operator("aten::bmm", 4, 19, dims=[[2, 4, 8], [2, 8, 4]])
    matmul = operator("aten::matmul", 3, 20, dims=[[2, 4, 8], [2, 8, 4]])
    assert (2 * 2 * 4 * 8 * 4, None) == within(annotation(part, 2, 30), matmul, bmm)
    # What a matmul takes around its product is the product's.
    call, attention = annotation("roofline call", 0, 99), annotation("attention", 1, 90)
    (found,) = found_in(call, attention, annotation(part, 2, 30), matmul, bmm).attention
    assert (pytest.approx(17), 0) == (found.products_s / US, found.projections_s)


def test_the_name_decides_where_einsum_hides_whether_there_are_weights():
    einsum = operator("aten::einsum", 3, 20)
    bmm = operator("aten::bmm", 4, 19, dims=[[1, 4, 8], [1, 8, 4]])
    work = 2 * 4 * 8 * 4
    assert (work, None) == within(annotation("attention.scores", 2, 30), einsum, bmm)
    assert (None, work) == within(annotation("attention.query", 2, 30), einsum, bmm)


def test_products_of_the_optimizer_are_no_work_of_the_class_of_products():
    def mm(begin, end):
        return operator("aten::mm", begin, end, dims=[[4, 8], [8, 2]])

    events = [annotation("roofline call", 0, 99), mm(1, 5), annotation("Optimizer.step#Muon.step", 10, 50), mm(12, 40)]
    (product,) = (one for one in found_in(*events).classes if one.name == "matrix product")
    assert (pytest.approx(4), 2 * 4 * 8 * 2) == (product.total_s / US, product.flops)


def test_one_product_without_a_formula_leaves_the_work_of_all_unknown():
    mm = operator("aten::mm", 1, 5, dims=[[4, 8], [8, 2]])
    convolution = operator("aten::cudnn_convolution", 6, 9, dims=[[1, 3, 8, 8], [4, 3, 3, 3]])
    assert found_in(annotation("roofline call", 0, 9), mm, convolution).classes[0].flops is None
    # A compiled product has an operator that is named as its kernel is.
    template = operator("triton_tem_fused_mm_0", 6, 9)
    kernels = [launch(1, 2), launch(2, 7), kernel("gemm", 20, 30, 1), kernel("triton_tem_fused_mm_0", 30, 90, 2)]
    (product, _) = found_in(annotation("roofline call", 0, 95), mm, template, *kernels).classes
    assert (pytest.approx(70), None) == (product.total_s / US, product.flops)


def recomputed():
    """Reentrant checkpointing on a GPU: a forward pass in the backward thread, whose numbers begin anew, and its own
    backward there. Both threads have an operator of number 1; the arrows tell whose gradient a node computes."""
    return [
        annotation("roofline call", 0, 200),
        annotation("embedding", 1, 9), operator("aten::mul", 2, 8, sequence=1),
        operator("CheckpointBackward", 20, 180, sequence=4, forward=1, thread=BACKWARD),
        annotation("blocks.0", 30, 60, thread=BACKWARD),
        operator("aten::mm", 40, 50, sequence=1, thread=BACKWARD),
        operator("MmBackward0", 70, 100, sequence=1, forward=2, thread=BACKWARD),
        operator("MulBackward0", 185, 195, sequence=1, forward=1, thread=BACKWARD),
        *arrow(1, 2, 185, source=11, target=BACKWARD), *arrow(2, 40, 70, source=BACKWARD, target=BACKWARD),
    ]  # fmt: skip


def test_the_backward_of_what_was_recomputed_belongs_to_the_part_that_was():
    parts = {part.part: (part.forward_s / US, part.backward_s / US) for part in found_in(*recomputed()).parts}
    assert (pytest.approx(6), pytest.approx(10)) == parts["embedding"]
    assert pytest.approx(10 + 30) == parts["blocks.*"][1]


def test_a_backward_node_of_a_thread_that_nobody_knows_is_given_to_no_part():
    without = [event for event in recomputed() if event.get("id") != 2]
    parts = {part.part: part.backward_s / US for part in found_in(*without).parts}
    assert [pytest.approx(value) for value in (10, 10)] == [parts["embedding"], parts["blocks.*"]]
    # MmBackward0 inherits what is around it, which is nothing.
    assert pytest.approx(160 - 10) == parts[""]


def test_without_arrows_a_second_thread_of_forward_operators_leaves_backward_without_a_part():
    without = [event for event in recomputed() if event.get("cat") != "fwdbwd"]
    parts = {part.part: part.backward_s / US for part in found_in(*without).parts}
    assert {"embedding": 0, "blocks.*": pytest.approx(10)} == {name: parts[name] for name in ("embedding", "blocks.*")}


def test_kernels_of_a_graph_are_known_by_name_and_said_to_be():
    # The graph's launch is a call of the library inside of ours, by no operator.
    events = [annotation("roofline call", 0, 50), launch(77, 2)]
    events += [
        kernel(name, 10 * n, 10 * n + 5, 77) for n, name in enumerate(("void gemm_fast(int)", "triton_poi_a"), 1)
    ]
    found = found_in(*events)
    assert {"matrix product": 5, "elementwise": 5, "idle": 40} == totals(found)
    assert any("100%" in sentence and "by name alone" in sentence for sentence in found.missing)


def test_an_operator_is_found_by_its_number_where_no_launch_is_recorded():
    mul = operator("aten::mm", 1, 5, external=3)
    named = kernel("k", 10, 20, 50, **{"External id": 3})
    # In older traces that number is the correlation's again, and means nothing of an operator.
    repeated = kernel("k", 20, 30, 3, **{"External id": 3})
    assert {"matrix product": 10, "other": 10, "idle": 20} == totals(
        found_in(annotation("roofline call", 0, 40), mul, named, repeated)
    )


def test_a_launch_under_rocm_tells_the_grid():
    events = [annotation("roofline call", 0, 40), launch(1, 2, grid=[3, 1, 1], block=[64, 1, 1])]
    bare = kernel("k", 5, 9, 1)
    del bare["args"]["grid"], bare["args"]["block"]
    row = found_in(*events, bare).kernels[0]
    assert ((3, 1, 1), (64, 1, 1)) == (row.grid, row.block)


def test_without_ranges_or_attention_the_profile_says_so():
    call, mul = annotation("roofline call", 0, 40), operator("aten::mul", 1, 5)
    assert (NO_RANGES.format(why=NO_MODEL),) == found_in(call, mul).missing
    # Backward alone has no forward pass, whose parts could be ranges.
    assert (NO_RANGES.format(why=NOT_RUN),) == analyse(read_events([call, mul]), has_model=True).missing
    assert (NO_ATTENTION,) == found_in(call, annotation("blocks.0", 0.5, 8), mul).missing


def test_a_trace_without_a_call_of_ours_is_looked_at_as_a_whole():
    found = found_in(operator("aten::mul", 10, 15), operator("aten::exp", 20, 30))
    assert (1, pytest.approx(20), pytest.approx(15)) == (found.calls, found.span_s / US, found.busy_s / US)


def test_events_that_touch_are_no_parent_and_child():
    nest = Nest(read_events([operator("aten::mul", 0, 10), operator("aten::exp", 10, 20)]))
    assert [None, None] == [node.parent for node in nest.nodes]


def test_a_child_that_outlasts_its_parent_by_rounding_takes_no_more_than_the_parent_has():
    nest = Nest(read_events([operator("aten::linear", 0, 10), operator("aten::mm", 2, 10.4)]))
    assert [pytest.approx(2), pytest.approx(8.4)] == [node.self_s / US for node in nest.nodes]


def test_busy_is_a_union():
    spans = [annotation("roofline call", 0, 99), kernel("a", 0, 10, 1), kernel("b", 2, 5, 2), kernel("c", 8, 12, 3)]
    found = found_in(*spans, copy(20, 30, 4, stream=8))
    assert (pytest.approx(22), pytest.approx(5)) == (found.busy_s / US, found.overlap_s / US)
    assert 0.0 == busy_s([])


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("aten::mm", "matrix product"), ("aten::_scaled_mm", "matrix product"), ("aten::convolution", "matrix product"),
        ("aten::add_", "elementwise"), ("aten::_foreach_addcdiv_", "elementwise"),
        ("aten::silu_backward", "elementwise"),
        ("aten::masked_fill_", "elementwise"), ("aten::zero_", "elementwise"), ("aten::sum", "reduction"),
        ("aten::native_layer_norm_backward", "reduction"), ("aten::cross_entropy_loss", "reduction"),
        ("aten::_log_softmax", "reduction"), ("aten::embedding_dense_backward", "embedding and gather"),
        ("aten::index_put_", "embedding and gather"), ("aten::_to_copy", "copy"), ("aten::cat", "copy"),
        ("aten::_fused_adamw_", "optimizer"), ("c10d::allreduce_", "communication"), ("aten::softmax", "softmax"),
        ("aten::_efficient_attention_forward", "attention fused"), ("FlashAttentionBackward", "attention fused"),
        ("roofline_kernels::flash_forward", "attention fused"), ("aten::view", None), ("aten::sparse_thing", None),
        ("aten::summary", None), ("aten::addition", None),
        ("flex_attention_backward", "attention fused"), ("triton_poi_fused_flex_attention_2", None),
    ],
)  # fmt: skip
def test_operators_by_name(name, kind):
    rule = first_rule(OPERATORS, name)
    assert kind == (rule.kind if rule is not None else None)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ampere_sgemm_32x32_sliced1x4_nt", "matrix product"), ("nvjet_hsh_128x256_64x4_2x1_v", "matrix product"),
        ("Cijk_Ailk_Bljk_SB_MT64x16x16", "matrix product"), ("triton_tem_fused_mm_3", "matrix product"),
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_128x64_8x5_nt_align1>(T1::Params)", "matrix product"),
        ("void at::native::elementwise_kernel<128, 2, direct_copy_kernel_cuda>", "copy"),
        ("void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add<float>>", "elementwise"),
        ("void at::native::reduce_kernel<512, 1, ReduceOp<float, MaxOps>>", "reduction"),
        ("triton_poi_fused_add_cos_sin_0", "elementwise"), ("triton_red_fused_mean_pow_2", "reduction"),
        ("triton_per_fused__softmax_5", "softmax"), ("triton_red_fused__log_softmax_nll_loss_9", "reduction"),
        ("fmha_cutlassF_f16_aligned_64x64_rf_sm80", "attention fused"),
        ("triton_tem_fused_flex_attention_0", "attention fused"),
        ("triton_poi_fused__scaled_dot_product_flash_attention_clone_3", "elementwise"),
        ("triton_poi_fused__to_copy_add_native_layer_norm_backward_2", "elementwise"),
        ("triton_poi_fused_silu_transpose_view_1", "elementwise"),
        ("triton_per_fused_cat_embedding_rms_norm_0", "reduction"),
        ("void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>", "reduction"),
        # Anybody's kernel may be called so.
        ("forward_kernel", None), ("delta_kernel", None),
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "communication"),
        ("indexSelectLargeIndex", "embedding and gather"),
        ("FusedAdamMathFunctor", "optimizer"), ("mystery", None),
    ],
)  # fmt: skip
def test_kernels_by_name(name, kind):
    rule = first_rule(KERNELS, name)
    assert kind == (rule.kind if rule is not None else None)


@pytest.mark.parametrize("rules", [OPERATORS, KERNELS])
def test_every_rule_has_its_reason(rules):
    assert all(rule.why for rule in rules)


@pytest.mark.parametrize(
    ("name", "inside"),
    [
        ("blocks.3.attention.core", True), ("layers.0.self_attn.q_proj", True), ("attn1", True), ("Attention", True),
        ("CausalSelfAttention", True), ("scaled dot product attention", True), ("blocks.3.attention_norm", False),
        ("attendance", False), ("blocks.3.feed_forward", False),
    ],
)  # fmt: skip
def test_what_is_attention_by_name(name, inside):
    assert inside == in_attention((name,))


def test_a_trace_is_read_compressed_or_not_and_anything_may_stand_in_a_name(tmp_path):
    text = json.dumps({"traceEvents": gpu_step(), "other": float("nan")}).replace("mystery", "my\tstery\x01")
    data = text.encode() + b" "
    (tmp_path / "a.json").write_bytes(data.replace(b"sgemm", b"sg\xffemm"))
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(data))
    assert 10 == len(load_trace(tmp_path / "a.json").device) + 1
    assert "my\tstery\x01" in {event.name for event in load_trace(tmp_path / "a.json.gz").device}


@pytest.mark.parametrize("data", [b"", b"{", b"[1", b'{"traceEvents": 3}', b'"text"'])
def test_what_is_no_trace_is_a_sentence(tmp_path, data):
    path = tmp_path / "bad.json"
    path.write_bytes(data)
    with pytest.raises(BadFile, match=r"trace .*bad\.json"):
        load_trace(path)


def test_a_trace_that_was_cut_is_a_sentence(tmp_path):
    path = tmp_path / "cut.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": gpu_step()}).encode())[:-20])
    with pytest.raises(BadFile, match=r"cut\.json\.gz cannot be read"):
        load_trace(path)


def test_incomplete_events_are_passed_over():
    strange = [
        {"ph": "X"},
        {"ph": "X", "ts": 5, "cat": "kernel"},
        {"ph": "s", "ts": 1},
        {"ts": 2},
        {"ph": "X", "ts": 3},
    ]
    assert 1 == len(read_events(strange).device)


def long_trace(launches):
    """As many launches, each of an operator in an operator in a range, and their kernels."""
    events = [annotation("roofline call", 0, 20 * launches)]
    for index in range(launches):
        at = 20 * index
        events += [
            annotation(f"blocks.{index % 32}.attention", at + 1, at + 19),
            operator("aten::linear", at + 2, at + 18, sequence=index, dims=[[4, 8], [8, 8]]),
            operator("aten::mm", at + 3, at + 17, sequence=index, dims=[[4, 8], [8, 8]]),
            launch(index, at + 4),
            kernel("gemm", at + 6, at + 16, index),
        ]
    return events


def test_the_time_of_the_analysis_grows_with_the_events_and_not_with_their_square():
    def seconds(launches):
        trace = read_events(long_trace(launches))
        began_s = time.process_time()
        analyse(trace)
        return time.process_time() - began_s

    seconds(50)
    # Sixteen times the events: a quadratic one takes 256 times as long.
    assert seconds(8000) < 80 * max(seconds(500), 1e-3)
