"""A tiny model with naive attention, its training step, and events as torch.profiler makes them of a GPU."""

import torch
from torch import nn
from torch._C._autograd import DeviceType
from torch.autograd.profiler_util import EventList, FunctionEvent

MAIN, BACKWARD = 1, 2


def event(name, begin, end, **facts):
    """An operator on the host; times in µs."""
    facts = {"thread": MAIN, "fwd_thread": 0, "use_device": "cuda"} | facts
    return FunctionEvent(facts.pop("id", 0), name, start_us=begin, end_us=end, **facts)


def annotation(name, begin, end, **facts):
    """A range on the host."""
    return event(name, begin, end, is_user_annotation=True, **facts)


def kernel(name, begin, end, operator=None, **facts):
    """A kernel on the device, tied to the operator that launched it."""
    if operator is not None:
        operator.append_kernel(name, 0, end - begin)
    return event(name, begin, end, device_type=DeviceType.CUDA, thread=7, **facts)


def events_of(*events):
    """As the profiler gives them: with parents and children."""
    found = EventList(list(events), use_device="cuda")
    found._build_tree()
    return found


def gpu_step(*more):
    """One call of 115 µs on a GPU: attention by parts, a norm, a backward product, a collective, the optimizer, and two
    kernels that nobody is known to have launched; and what more is given."""
    bmm = event("aten::bmm", 7, 13, sequence_nr=1, flops=512, input_shapes=[[2, 4, 8], [2, 8, 4]])
    softmax = event("aten::_softmax", 17, 23, sequence_nr=2, input_shapes=[[2, 4, 4], [], []])
    values = event(
        "aten::bmm", 26, 31, sequence_nr=3, flops=512, input_shapes=[[2, 4, 4], [2, 4, 8]]
    )
    power = event("aten::native_layer_norm", 35, 43, sequence_nr=4)
    linear = event("aten::addmm", 3.2, 3.8, sequence_nr=0, flops=128)
    gradient = event("aten::bmm", 48, 54, thread=BACKWARD, flops=256)
    reduce = annotation("nccl:all_reduce", 57, 59, thread=BACKWARD)
    update = event("aten::_foreach_add_", 62, 70)
    return events_of(
        annotation("roofline call", 0, 115),
        annotation("Model", 2, 45),
        annotation("blocks.0.attention", 3, 33),
        event("aten::linear", 3.1, 3.9, sequence_nr=0),
        linear,
        annotation("blocks.0.attention.core.scores", 5, 15),
        event("aten::matmul", 6, 14, sequence_nr=1),
        bmm,
        annotation("blocks.0.attention.core.softmax", 16, 24),
        event("aten::softmax", 16.5, 23.5, sequence_nr=2),
        softmax,
        annotation("blocks.0.attention.core.values", 25, 32),
        values,
        annotation("blocks.0.feed_forward_norm", 34, 44),
        power,
        event("BmmBackward0", 47, 55, thread=BACKWARD, fwd_thread=MAIN, sequence_nr=3, scope=1),
        gradient,
        reduce,
        annotation("Optimizer.step#AdamW.step", 60, 80),
        update,
        kernel("ampere_sgemm_32x32", 16, 17, linear),
        kernel("ampere_sgemm_128x64_tn", 20, 30, bmm),
        kernel("softmax_warp_forward<float>", 30, 34, softmax),
        kernel("ampere_sgemm_128x64_tn", 34, 44, values),
        kernel("vectorized_layer_norm_kernel", 46, 48, power),
        kernel("ampere_sgemm_128x64_nt", 50, 70, gradient),
        kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 60, 72, reduce),
        kernel("multi_tensor_apply_kernel<Adam>", 75, 85, update),
        kernel("Memcpy DtoH (Device -> Pageable)", 88, 89),
        kernel("mystery", 105, 110),
        # A range of the host as the device saw it is no work.
        kernel("Model", 20, 48, is_user_annotation=True),
        *more,
    )


class Scores(nn.Module):
    """The first product."""

    def forward(self, q, k):
        return q @ k.mT


class Values(nn.Module):
    """The second product."""

    def forward(self, weights, v):
        return weights @ v


class Core(nn.Module):
    """Naive attention."""

    def __init__(self):
        super().__init__()
        self.scores, self.softmax, self.values = Scores(), nn.Softmax(-1), Values()

    def forward(self, q, k, v):
        return self.values(self.softmax(self.scores(q, k)), v)


class Attention(nn.Module):
    """One head with one projection."""

    def __init__(self, width):
        super().__init__()
        self.query, self.core = nn.Linear(width, width, bias=False), Core()

    def forward(self, x):
        return self.core(self.query(x), x, x)


class Model(nn.Module):
    """Two blocks of a norm and attention behind an embedding."""

    def __init__(self, width=16):
        super().__init__()
        self.embedding = nn.Embedding(10, width)
        blocks = [
            {"attention_norm": nn.LayerNorm(width), "attention": Attention(width)} for _ in range(2)
        ]
        self.blocks = nn.ModuleList([nn.ModuleDict(block) for block in blocks])

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = x + block["attention"](block["attention_norm"](x))
        return x


def training_step(model, tokens):
    """A function without arguments: forward, loss, backward, AdamW."""
    optimizer = torch.optim.AdamW(model.parameters())

    def step():
        optimizer.zero_grad()
        logits = model(tokens).flatten(0, 1)
        nn.functional.cross_entropy(logits, tokens.flatten()).backward()
        optimizer.step()

    return step
