"""What the events of a profiler tell, held against answers worked out by hand, and on a real step of a tiny model."""

import pytest
import torch

from pytest_roofline.core.profiles import Profile
from pytest_roofline.engine.devices.cpu import CpuDevice
from pytest_roofline.observe.capture import Calls, take
from pytest_roofline.observe.classes import class_of, in_attention
from pytest_roofline.observe.shares import NO_ATTENTION, NO_MODEL, NO_RANGES, NOT_RUN, analyse

from .models import (
    BACKWARD,
    MAIN,
    Model,
    annotation,
    event,
    events_of,
    gpu_step,
    kernel,
    training_step,
)

US = 1e-6
EMPTY = Profile("t", "t", "p", "cuda:0", 1)


def found_in(*events, has_model=False):
    return analyse(
        EMPTY, events_of(annotation("roofline call", 0, 100), *events), has_model=has_model
    )


def totals(found):
    return {one.name: pytest.approx(one.total_s / US) for one in found.classes}


def parts(found):
    return {part.part: (part.forward_s / US, part.backward_s / US) for part in found.parts}


def test_every_kernel_of_a_gpu_is_in_the_class_and_the_part_that_its_range_its_operator_or_its_name_tells():
    found = analyse(EMPTY, gpu_step(), has_model=True)
    assert totals(found) == {
        "matrix product": 41, "attention softmax": 4, "reduction": 2, "communication": 12, "optimizer": 10, "copy": 1,
        "other": 5, "idle": 40,
    }  # fmt: skip
    assert (1, True) == (found.calls, found.on_device)
    assert [pytest.approx(value) for value in (115, 75)] == [found.span_s / US, found.busy_s / US]
    assert pytest.approx(1.0) == sum(one.share for one in found.classes)
    assert ("mystery",) == next(one.largest for one in found.classes if one.name == "other")
    assert any("the operators of" in sentence for sentence in found.missing)
    # Softmax and products of attention are compared in time and work, forward and backward.
    forward, backward = found.attention
    flops = forward.softmax_flops, forward.products_flops, forward.projections_flops
    assert (5 * 2 * 4 * 4, 2 * 512, 128) == flops
    times = forward.softmax_s, forward.products_s, forward.projections_s
    assert [pytest.approx(value) for value in (4, 20, 1)] == [value / US for value in times]
    assert (pytest.approx(20), 256) == (backward.products_s / US, backward.products_flops)
    assert (0, None) == (backward.softmax_s, backward.softmax_flops)
    # A backward kernel belongs to the part of its forward operator.
    assert (pytest.approx(10), pytest.approx(20)) == parts(found)["blocks.*.attention.core.values"]
    assert (pytest.approx(10), 0) == parts(found)["blocks.*.attention.core.scores"]
    rows = {row.name: row for row in found.kernels}
    row = rows["ampere_sgemm_128x64_tn"]
    assert (2, "matrix product") == (row.count, row.kind)
    assert (pytest.approx(20), pytest.approx(20 / 115)) == (row.total_s / US, row.share)
    assert "Model" not in rows


def test_the_table_of_operators_has_what_the_host_did_and_what_of_the_device_that_was():
    launches = [event("cudaLaunchKernel", 8, 9), event("cudaLaunchKernel", 63, 65)]
    waiting = event("cudaDeviceSynchronize", 90, 114)
    found = analyse(EMPTY, gpu_step(*launches, waiting), has_model=True)
    rows = {row.name: row for row in found.operators}
    assert (
        not {"roofline call", "Model", "blocks.0.attention.core.scores", "cudaDeviceSynchronize"}
        & rows.keys()
    )
    # The two products forward and one backward, without the launch inside: 6 - 1, 5 and 6 µs.
    bmm = rows["aten::bmm"]
    assert [3, *map(pytest.approx, (16, 17, 40, 40))] == [
        bmm.count, *(value / US for value in (bmm.self_cpu_s, bmm.cpu_s, bmm.self_device_s, bmm.device_s))
    ]  # fmt: skip
    # A function of autograd has its own time, and the kernels of what is inside it; so has the optimizer's step.
    backward, update = rows["BmmBackward0"], rows["Optimizer.step#AdamW.step"]
    assert list(map(pytest.approx, (2, 8, 0, 20))) == [
        value / US
        for value in (
            backward.self_cpu_s,
            backward.cpu_s,
            backward.self_device_s,
            backward.device_s,
        )
    ]
    assert list(map(pytest.approx, (12, 20, 10))) == [
        value / US for value in (update.self_cpu_s, update.cpu_s, update.device_s)
    ]
    launch = rows["cudaLaunchKernel"]
    assert (2, pytest.approx(3)) == (launch.count, launch.self_cpu_s / US)
    assert launch.share == pytest.approx(
        launch.self_cpu_s / sum(row.self_cpu_s for row in found.operators)
    )
    assert "aten::bmm" == found.operators[0].name
    # However short, launches stand there, and of autograd's functions those that take longest with what is inside them.
    many = [event(f"aten::op{number}", number, number + 0.9) for number in range(1, 90)]
    function = event("MmBackward0", 90, 94, scope=1), event("aten::mm", 90.01, 93.99)
    found = found_in(*many, *function, event("hipLaunchKernel", 95, 95.1))
    assert {"MmBackward0", "hipLaunchKernel"} <= {row.name for row in found.operators}


def test_time_is_of_the_calls_alone_and_of_an_operator_without_those_inside_it():
    found = analyse(
        EMPTY,
        events_of(
            event("aten::exp", -9, -3), annotation("roofline call", 0, 10), event("aten::add", 2, 5),
            event("aten::exp", 11, 14), annotation("roofline call", 20, 30), event("aten::add", 21, 26),
        ),
        has_model=False,
    )  # fmt: skip
    assert (2, {"elementwise": 8, "idle": 12}) == (found.calls, totals(found))
    assert [("aten::add", 2)] == [(row.name, row.count) for row in found.kernels]
    found = found_in(
        event("aten::linear", 10, 60), event("aten::addmm", 20, 40), event("aten::copy_", 45, 50)
    )
    own = {row.name: pytest.approx(row.total_s / US) for row in found.kernels}
    assert {"aten::linear": 25, "aten::addmm": 20, "aten::copy_": 5} == own
    assert {"matrix product": 45, "copy": 5, "idle": 50} == totals(found)


def test_a_softmax_written_out_is_one_by_its_range_and_counts_its_exponentials():
    found = found_in(
        annotation("attention.softmax", 1, 40), event("aten::amax", 2, 5), event("aten::sub", 6, 9),
        event("aten::exp", 10, 14, sequence_nr=1, input_shapes=[[3, 4]]), event("aten::sum", 15, 18),
        event("aten::div", 20, 24),
        event("ExpBackward0", 42, 48, sequence_nr=1, fwd_thread=MAIN, scope=1), event("aten::mul", 43, 47),
    )  # fmt: skip
    forward, backward = found.attention
    assert (pytest.approx(17), 5 * 12) == (forward.softmax_s / US, forward.softmax_flops)
    assert (pytest.approx(6), 4 * 12) == (backward.softmax_s / US, backward.softmax_flops)


def test_fused_attention_is_one_class_and_said_to_be():
    fused = event("aten::_scaled_dot_product_flash_attention", 3, 28)
    found = found_in(
        annotation("attention.core", 1, 30), event("aten::scaled_dot_product_attention", 2, 29), fused,
        kernel("pytorch_flash::flash_fwd_kernel<Traits>", 10, 40, fused),
    )  # fmt: skip
    assert {"attention fused": 30, "idle": 70} == totals(found)
    assert pytest.approx(30) == found.attention[0].fused_s / US
    assert any("one fused kernel" in sentence for sentence in found.missing)


def test_a_forward_pass_again_inside_the_backward_pass_keeps_its_own_ranges_and_threads_number_for_themselves():
    found = found_in(
        annotation("embedding", 1, 9), event("aten::mul", 2, 8, sequence_nr=1),
        event("CheckpointBackward", 20, 80, thread=BACKWARD, sequence_nr=4, fwd_thread=MAIN, scope=1),
        annotation("blocks.0", 30, 60, thread=BACKWARD),
        event("aten::mm", 40, 50, thread=BACKWARD, sequence_nr=1),
        event("MmBackward0", 70, 78, thread=BACKWARD, sequence_nr=1, fwd_thread=BACKWARD, scope=1),
        event("MulBackward0", 85, 90, thread=BACKWARD, sequence_nr=1, fwd_thread=MAIN, scope=1),
    )  # fmt: skip
    assert parts(found) == {
        "embedding": (pytest.approx(6), pytest.approx(5)),
        "blocks.*": (0, pytest.approx(18)),
        "": (0, pytest.approx(22)),
    }


def test_what_is_missing_is_said_by_its_cause():
    def missing(*around, **given):
        return found_in(*around, event("aten::add", 2, 5), **given).missing

    assert (NO_RANGES.format(why=NO_MODEL),) == missing()
    assert (NO_RANGES.format(why=NOT_RUN),) == missing(has_model=True)
    assert (NO_ATTENTION,) == missing(annotation("feed_forward", 1, 9))


KINDS = {
    "matrix product": "aten::mm aten::bmm aten::addmm_ aten::cudnn_convolution aten::linear",
    "elementwise": "aten::mul aten::_foreach_add_ aten::zero_ aten::silu_backward aten::masked_fill_",
    "reduction": "aten::sum aten::native_layer_norm_backward aten::cross_entropy_loss aten::_log_softmax",
    "embedding and gather": "aten::embedding_dense_backward aten::index_put_",
    "copy": "aten::_to_copy aten::cat aten::copy_",
    "optimizer": "aten::_fused_adamw_ Optimizer.step#AdamW.step",
    "communication": "c10d::allreduce_ nccl:all_reduce",
    "attention softmax": "aten::softmax aten::_softmax_backward_data SoftmaxBackward0",
    "attention fused": "aten::_efficient_attention_forward FlashAttentionBackward roofline_kernels::flash_forward "
    "flex_attention_backward",
    "other": "aten::view aten::sparse_thing aten::summary aten::addition",
}
KERNEL_KINDS = {
    "matrix product": "ampere_sgemm_32x32_nt nvjet_hsh_128x256_v Cijk_Ailk_Bljk_SB_MT64x16x16 triton_tem_fused_mm_3",
    "copy": "at::native::elementwise_kernel<direct_copy_kernel_cuda>",
    "elementwise": "at::native::vectorized_elementwise_kernel<4> triton_poi_fused_flex_attention_2",
    "reduction": "at::native::reduce_kernel<512> triton_red_fused_mean_pow_2 triton_red_fused__log_softmax_nll_loss_9 "
    "at::native::sbtopk::gatherTopK<float>",
    "attention softmax": "triton_per_fused__softmax_5 softmax_warp_forward<float>",
    "attention fused": "fmha_cutlassF_f16_aligned_64x64_rf_sm80 triton_tem_fused_flex_attention_0",
    "communication": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL",
    "embedding and gather": "indexSelectLargeIndex",
    "optimizer": "FusedAdamMathFunctor",
    "other": "forward_kernel delta_kernel mystery",
}


def test_operators_and_kernels_by_name():
    for kind, names in KINDS.items():
        assert {name: class_of((name,), ()) for name in names.split()} == dict.fromkeys(
            names.split(), kind
        )
    for kind, names in KERNEL_KINDS.items():
        assert {name: class_of((), (), name) for name in names.split()} == dict.fromkeys(
            names.split(), kind
        )


def test_what_is_around_decides():
    # The range of the optimizer, but for what communicates in it; a norm takes its products along, a product no copy.
    optimizer = "Optimizer.step#AdamW.step"
    assert "optimizer" == class_of((optimizer, "aten::mul"), ())
    assert "communication" == class_of((optimizer, "c10d::allgather_"), ())
    assert "communication" == class_of((optimizer,), (), "ncclDevKernel_ReduceScatter_RING_LL")
    assert "reduction" == class_of(("aten::rms_norm", "aten::pow"), ())
    assert "copy" == class_of(("aten::linear", "aten::copy_"), ())
    assert "matrix product" == class_of(("aten::linear", "aten::empty"), (), "mystery")
    # A softmax is attention's in attention, or where no range says otherwise.
    assert "attention softmax" == class_of(("aten::_softmax",), ("blocks.1.attention",))
    assert "reduction" == class_of(("aten::_softmax",), ("router",))


def test_what_is_attention_by_name():
    inside = (
        "blocks.3.attention.core",
        "layers.0.self_attn.q_proj",
        "attn1",
        "CausalSelfAttention",
    )
    outside = ("blocks.3.attention_norm", "attendance", "blocks.3.feed_forward")
    assert all(in_attention((name,)) for name in inside)
    assert not any(in_attention((name,)) for name in outside)


# Of a real profile of three training steps on a CPU.

BATCH, CONTEXT, WIDTH, LAYERS, CALLS = 2, 8, 16, 2, 3


@pytest.fixture(scope="module")
def step(tmp_path_factory):
    torch.manual_seed(0)
    model = Model(WIDTH)
    run = training_step(model, torch.randint(0, 10, (BATCH, CONTEXT)))
    run()
    trace = tmp_path_factory.mktemp("profile") / "step.trace.json.gz"
    found = take(CpuDevice(), "torch", Calls(run, [()], model, call_s=0.01), EMPTY, trace)
    assert trace.stat().st_size > 0
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    return found


def test_a_real_step_has_every_class_its_work_and_its_parts(step):
    assert (CALLS, False) == (step.calls, step.on_device)
    assert pytest.approx(1.0) == sum(one.share for one in step.classes)
    assert 0 < step.busy_s <= step.span_s
    assert step.host_s == pytest.approx(step.busy_s)
    kinds = {one.name for one in step.classes}
    expected = {
        "matrix product",
        "attention softmax",
        "elementwise",
        "reduction",
        "embedding and gather",
        "optimizer",
    }
    assert expected | {"idle"} <= kinds
    assert "attention fused" not in kinds
    rows = {row.name: row for row in step.kernels}
    # Two a layer forward, four backward.
    assert (CALLS * LAYERS * 6, "matrix product") == (
        rows["aten::bmm"].count,
        rows["aten::bmm"].kind,
    )
    # Beside it what the host did, in which an operator holds those inside it; nothing is launched.
    table = {row.name: row for row in step.operators}
    assert {"aten::bmm", "Optimizer.step#AdamW.step"} <= table.keys()
    # Which functions of autograd take longest depends on the machine.
    assert any(
        row.cpu_s > row.self_cpu_s > 0 for name, row in table.items() if name.endswith("Backward0")
    )
    assert not any(row.device_s or "Launch" in row.name for row in step.operators)
    # The work inside attention is what the shapes say.
    forward, backward = step.attention
    product, scores = 2 * BATCH * CONTEXT * CONTEXT * WIDTH, BATCH * CONTEXT * CONTEXT
    projection, each = 2 * BATCH * CONTEXT * WIDTH * WIDTH, CALLS * LAYERS
    assert (each * 2 * product, each * projection, each * 5 * scores) == (
        forward.products_flops, forward.projections_flops, forward.softmax_flops
    )  # fmt: skip
    # Each product has two gradients, here of activations with activations, or of a weight and of its input.
    assert (each * 4 * product, each * 2 * projection, each * 4 * scores) == (
        backward.products_flops, backward.projections_flops, backward.softmax_flops
    )  # fmt: skip
    assert 0 == forward.fused_s == backward.fused_s
    named = {part.part: part for part in step.parts}
    inside = {f"blocks.*.attention.core.{name}" for name in ("scores", "softmax", "values")}
    for name in inside | {"blocks.*.attention.query", "blocks.*.attention_norm", "embedding"}:
        assert min(named[name].forward_s, named[name].backward_s) > 0, name
