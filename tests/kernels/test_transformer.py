"""The transformer against a plain one, in every precision and compiled, and what it promises otherwise."""

import math

import pytest
import torch

from roofline_kernels.transformer import ATTENTIONS, SIZES, Config, Transformer, loss_of, make_batch

from ..tools import require_tools
from .plain_transformer import plain_results

pytestmark = pytest.mark.usefixtures("one_thread")
# Heads that are no power of two, a sequence that is none and is shorter than the context.
TINY = Config(d_model=24, d_ff=40, layers=2, heads=3, vocab=50)
BATCH, SEQUENCE, CONTEXT = 2, 11, 16
# The largest error over the largest value, of logits and of each gradient. A half keeps 8 or 11 bits, and errors of
# some twenty roundings add up.
CLOSE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 6e-2}
HALVES = (torch.bfloat16, torch.float16)


def tiny(attention="sdpa", dtype=torch.float32, config=TINY, **options):
    """A model whose norms have gains that a mistake would not leave as they are."""
    model = Transformer(
        config, **({"context": CONTEXT, "attention": attention, "dtype": dtype} | options)
    )
    for index, parameter in enumerate(p for p in model.parameters() if p.dim() == 1):
        parameter.data += torch.linspace(-0.5, 0.5, len(parameter)).roll(index).to(dtype)
    return model


def batch(config=TINY, sequence=SEQUENCE):
    return make_batch(config, BATCH, sequence, "cpu", seed=5)


def results(model, run=None, autocast=None):
    """Logits, loss and gradients by name, of the model as it is or of what `run` makes of it."""
    tokens, targets = batch()
    with torch.autocast("cpu", autocast or torch.bfloat16, enabled=autocast is not None):
        logits = (model if run is None else run)(tokens)
        loss = loss_of(logits, targets)
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    names = [name for name, _ in model.named_parameters()]
    return {"logits": logits.detach(), "loss": loss.detach()} | dict(
        zip(names, gradients, strict=True)
    )


def assert_close(found, expected, tolerance, what):
    """No largest error over the largest value, of logits, loss and every gradient, is beyond the tolerance."""
    assert found.keys() == expected.keys()
    errors = {
        name: float((found[name].double() - one.double()).abs().max() / one.double().abs().max())
        for name, one in expected.items()
    }
    assert {name: error for name, error in errors.items() if not error <= tolerance} == {}, what


# Against the plain one


def test_outputs_and_all_gradients_are_those_of_the_plain_model_under_autocast_too():
    for attention in ATTENTIONS:
        for dtype in CLOSE:
            # Triton has no float64.
            if (attention, dtype) != ("triton", torch.float64):
                model = tiny(attention, dtype)
                expected = plain_results(
                    model.state_dict(), *batch(), layers=TINY.layers, heads=TINY.heads
                )
                assert_close(results(model), expected, CLOSE[dtype], (attention, dtype))
        model = tiny(attention)
        expected = plain_results(model.state_dict(), *batch(), layers=TINY.layers, heads=TINY.heads)
        for dtype in HALVES:
            assert_close(
                results(model, autocast=dtype),
                expected,
                CLOSE[dtype],
                (attention, dtype, "autocast"),
            )


def test_compiled_gives_what_eager_gives():
    require_tools("g++")
    model = tiny(config=Config(24, 40, 1, 3, vocab=50))
    try:
        compiled = torch.compile(model, fullgraph=True, dynamic=False, backend="inductor")
        assert_close(results(model, compiled), results(model), CLOSE[torch.float32], "compiled")
    finally:
        torch.compiler.reset()


def test_logits_depend_on_their_own_and_all_earlier_tokens_and_on_no_other():
    for attention in ATTENTIONS:
        model, (tokens, _) = tiny(attention), batch()
        changed = tokens.clone()
        changed[:, 6] = (changed[:, 6] + 1) % TINY.vocab
        with torch.no_grad():
            moved = (model(tokens) - model(changed)).abs().amax(dim=-1)
            torch.testing.assert_close(model(tokens)[1:], model(tokens[1:]))
        assert (float(moved[:, :6].max()), bool((moved[:, 6:] > 1e-6).all())) == (0.0, True), (
            attention
        )
        embedded = []
        model.embedding.register_forward_hook(
            lambda _module, _inputs, output, told=embedded: told.append(output)
        )
        (gradient,) = torch.autograd.grad(model(tokens)[:, 6].square().sum(), embedded)
        reached = gradient.abs().amax(dim=-1)
        assert (bool((reached[:, :7] > 0).all()), float(reached[:, 7:].max())) == (True, 0.0), (
            attention
        )


# Precision


def test_a_half_model_is_the_float32_model_rounded_except_for_its_rotary_tables():
    for dtype in HALVES:
        model, whole = (
            Transformer(TINY, context=CONTEXT, dtype=kind) for kind in (dtype, torch.float32)
        )
        assert {p.dtype for p in model.parameters()} == {dtype}, dtype
        assert {b.dtype for b in model.buffers()} == {torch.float32}, dtype
        expected = {name: value.to(dtype) for name, value in whole.state_dict().items()}
        assert all(
            torch.equal(value, expected[name]) for name, value in model.state_dict().items()
        ), dtype


def test_autocast_has_halves_in_products_and_float32_in_stream_norms_and_loss():
    halves, whole = (
        ("blocks.0.attention.rotary", "blocks.0.attention"),
        ("blocks.0.attention_norm", "blocks.1"),
    )
    for attention in ATTENTIONS:
        model, (tokens, targets), seen = tiny(attention), batch(), {}
        for name in ("embedding", *halves, *whole):
            keep = lambda _module, _inputs, output, name=name, seen=seen: seen.update(  # noqa: E731
                {name: output.dtype}
            )
            model.get_submodule(name).register_forward_hook(keep)
        with torch.autocast("cpu", torch.bfloat16):
            seen["logits"] = (logits := model(tokens)).dtype
            seen["loss"] = loss_of(logits, targets).dtype
        expected = dict.fromkeys((*halves, "logits"), torch.bfloat16)
        assert seen == expected | dict.fromkeys(("embedding", *whole, "loss"), torch.float32), (
            attention
        )


def test_the_loss_of_halves_is_worked_out_in_float32():
    for dtype, computed in [(torch.bfloat16, torch.float32), (torch.float64, torch.float64)]:
        logits = torch.randn(2, 3, 50, generator=torch.Generator().manual_seed(1)).to(dtype)
        targets = batch(sequence=3)[1]
        expected = -logits.double().log_softmax(dim=-1).gather(-1, targets[..., None]).mean()
        loss = loss_of(logits, targets)
        assert loss.dtype == computed, dtype
        torch.testing.assert_close(loss.double(), expected, rtol=1e-6, atol=0)


# Parameters and batches


def test_the_sizes_are_the_seeds_and_have_their_parameters():
    shapes = {
        name: (c.d_model, c.d_ff, c.layers, c.heads, c.vocab, c.parameters)
        for name, c in SIZES.items()
    }
    assert shapes == {
        "small": (768, 3072, 12, 12, 10_000, 120_945_408),
        "medium": (1024, 4096, 24, 16, 10_000, 412_943_360),
        "large": (1280, 5120, 36, 20, 10_000, 956_611_840),
        "xl": (1600, 6400, 48, 25, 10_000, 1_982_235_200),
        "2.7B": (2560, 10240, 32, 32, 10_000, 3_381_209_600),
    }


def test_the_same_seed_gives_the_same_model_and_batch_and_another_seed_another():
    one, again, other = (
        Transformer(TINY, context=CONTEXT, seed=seed).state_dict() for seed in (1, 1, 2)
    )
    assert all(torch.equal(one[name], again[name]) for name in one)
    assert not any(
        torch.equal(value, other[name]) for name, value in one.items() if value.dim() == 2
    )
    one, again, other = (make_batch(TINY, 2, 20, "cpu", seed)[0] for seed in (1, 1, 2))
    assert (torch.equal(one, again), torch.equal(one, other)) == (True, False)


def test_a_new_model_bets_on_no_token_and_its_stream_is_about_one_however_many_its_layers():
    config = Config(64, 128, 4, 4)
    tokens, targets = make_batch(config, 4, 64, "cpu")
    with torch.no_grad():
        loss = loss_of(Transformer(config, context=64)(tokens), targets)
    assert float(loss) == pytest.approx(math.log(10_000), abs=0.05)
    for layers in [2, 24]:
        config, left = Config(64, 256, layers, 2), []
        model = Transformer(config, context=32)
        model.blocks[-1].register_forward_hook(
            lambda _module, _inputs, output, left=left: left.append(output)
        )
        with torch.no_grad():
            model(make_batch(config, 2, 32, "cpu")[0])
        assert 0.3 < float(left[0].square().mean().sqrt()) < 1.5, layers


def test_parts_have_the_names_that_profiles_show_and_all_layers_share_their_rotary_tables():
    for attention in ATTENTIONS:
        names = {
            name for name, _ in tiny(attention).named_modules() if not name.startswith("blocks.1")
        }
        inner = ("scores", "softmax", "values") if attention == "naive" else ()
        parts = {
            f"attention.{part}" for part in ("query", "key", "value", "rotary", "core", "output")
        }
        parts |= {f"attention.core.{part}" for part in inner}
        parts |= {f"feed_forward.{part}" for part in ("gate", "up", "activation", "down")}
        parts |= {"attention_norm", "attention", "feed_forward_norm", "feed_forward"}
        assert names == {"", "embedding", "blocks", "blocks.0", "norm"} | {
            f"blocks.0.{part}" for part in parts
        }
    assert (
        len({buffer.data_ptr() for _, buffer in tiny().named_buffers(remove_duplicate=False)}) == 2
    )


def test_a_model_without_memory_has_logits_without_memory():
    for attention in ATTENTIONS:
        model = Transformer(TINY, context=CONTEXT, attention=attention, device="meta")
        found = model(make_batch(TINY, BATCH, SEQUENCE, "meta")[0])
        assert (found.shape, found.device.type) == ((BATCH, SEQUENCE, TINY.vocab), "meta"), (
            attention
        )


def test_targets_are_the_tokens_that_come_next():
    tokens, targets = make_batch(TINY, 3, 20, "cpu")
    assert (tokens.shape, targets.shape, tokens.dtype) == ((3, 20), (3, 20), torch.int64)
    assert torch.equal(tokens[:, 1:], targets[:, :-1])
    assert (tokens.is_contiguous(), targets.is_contiguous()) == (True, True)


def test_what_is_no_shape_no_context_and_no_tokens_is_refused():
    for changes, told in [
        ({"heads": 5}, "d_model 24 with 5 heads; expected heads that divide it"),
        ({"heads": 8}, "d_model 24 with 8 heads has heads of width 3; expected an even one"),
        ({"layers": 0, "vocab": -1}, "layers 0, vocab -1; expected 1 or more"),
    ]:
        with pytest.raises(ValueError, match=told):
            Config(**({"d_model": 24, "d_ff": 40, "layers": 2, "heads": 3} | changes))
    with pytest.raises(ValueError, match="context is 0; expected 1 or more"):
        tiny(context=0)
    beyond = r"a sequence has 17 tokens; expected 1 … 16, .*; make the model with a longer"
    for tokens, told in [
        (torch.zeros(1, 0, dtype=torch.int64), "a sequence has 0 tokens; expected 1 … 16"),
        (torch.zeros(1, 17, dtype=torch.int64), beyond),
        (
            torch.zeros(1, 4),
            r"tokens are \[1, 4\], torch.float32; expected \[batch, sequence\], torch.int64",
        ),
        (torch.zeros(1, 4, dtype=torch.int32), r"tokens are \[1, 4\], torch.int32"),
        (torch.zeros(4, dtype=torch.int64), r"tokens are \[4\], torch.int64"),
    ]:
        with pytest.raises(ValueError, match=told):
            tiny()(tokens)
