"""Traces written by hand, in the format in which torch.profiler writes them, and a tiny model with naive attention."""

import torch
from torch import nn

MAIN, BACKWARD = 11, 12
EVALUATE = "autograd::engine::evaluate_function: "


def operator(name, begin, end, *, sequence=None, forward=None, dims=None, thread=MAIN, external=None):
    """An operator on the host; times in µs."""
    args = {"Record function id": 0}
    args |= {"External id": external} if external is not None else {}
    args |= {"Sequence number": sequence, "Fwd thread id": forward or 0} if sequence is not None else {}
    args |= {"Input Dims": dims} if dims is not None else {}
    return complete("cpu_op", name, begin, end, thread, args)


def annotation(name, begin, end, thread=MAIN):
    """A range on the host."""
    return complete("user_annotation", name, begin, end, thread, {"Record function id": 0})


def launch(correlation, at, thread=MAIN, **args):
    """The host's call that puts a kernel on a stream."""
    return complete("cuda_runtime", "cudaLaunchKernel", at, at + 0.5, thread, {"correlation": correlation, **args})


def arrow(number, begin, end, *, source, target):
    """From a forward operator to its backward node: when, and on which threads, they began."""
    common = {"cat": "fwdbwd", "name": "fwdbwd", "id": number, "pid": 1}
    return {"ph": "s", "tid": source, "ts": begin, **common}, {"ph": "f", "bp": "e", "tid": target, "ts": end, **common}


def kernel(name, begin, end, correlation, *, stream=7, grid=(8, 1, 1), block=(128, 1, 1), **args):
    """A kernel on the device."""
    known = {"correlation": correlation, "device": 0, "stream": stream, "grid": list(grid), "block": list(block)}
    return complete("kernel", name, begin, end, stream, known | args)


def copy(begin, end, correlation, stream=7):
    """A copy on the device."""
    known = {"correlation": correlation, "device": 0, "stream": stream, "bytes": 4}
    return complete("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", begin, end, stream, known)


def complete(category, name, begin, end, thread, args):
    """A complete event of the Chrome format."""
    return {
        "ph": "X", "cat": category, "name": name, "pid": 1, "tid": thread, "ts": begin, "dur": end - begin, "args": args
    }  # fmt: skip


def gpu_step():
    """One call on a GPU: attention by parts, a norm, a backward product, a collective, the optimizer, two strangers.

    The call is on the host from 1000 to 1100 µs, its last kernel ends at 1115. Busy are 1020–1044, 1046–1048,
    1050–1072 (two streams, 10 µs of them together), 1075–1085, 1088–1089 and 1110–1115: 64 µs of 115.
    """
    return [
        {"ph": "M", "name": "process_name", "ts": 0, "pid": 1, "tid": 0, "args": {"name": "python"}},
        annotation("roofline call", 1000, 1100),
        annotation("Model", 1002, 1045),
        annotation("blocks.0.attention", 1004, 1033),
        annotation("blocks.0.attention.core.scores", 1005, 1015),
        operator("aten::matmul", 1006, 1014, sequence=1, dims=[[2, 4, 8], [2, 8, 4]]),
        operator("aten::bmm", 1007, 1013, sequence=1, dims=[[2, 4, 8], [2, 8, 4]]),
        launch(100, 1010),
        annotation("blocks.0.attention.core.softmax", 1016, 1024),
        operator("aten::softmax", 1016.5, 1023.5, sequence=2, dims=[[2, 4, 4], [], []]),
        operator("aten::_softmax", 1017, 1023, sequence=2, dims=[[2, 4, 4], [], []]),
        launch(101, 1018),
        annotation("blocks.0.attention.core.values", 1025, 1032),
        operator("aten::bmm", 1026, 1031, sequence=3, dims=[[2, 4, 4], [2, 4, 8]]),
        launch(102, 1027),
        annotation("blocks.0.feed_forward_norm", 1034, 1044),
        operator("aten::rms_norm", 1035, 1043, sequence=4, dims=[[2, 4, 8]]),
        operator("aten::pow", 1036, 1042, sequence=4, dims=[[2, 4, 8]]),
        launch(103, 1037),
        operator(EVALUATE + "BmmBackward0", 1046, 1056, sequence=3, forward=1, thread=BACKWARD),
        operator("BmmBackward0", 1047, 1055, sequence=3, forward=1, thread=BACKWARD),
        operator("aten::bmm", 1048, 1054, dims=[[2, 8, 4], [2, 4, 4]], thread=BACKWARD),
        launch(104, 1049, thread=BACKWARD),
        annotation("nccl:all_reduce", 1057, 1059, thread=BACKWARD),
        launch(106, 1058, thread=BACKWARD),
        annotation("Optimizer.step#AdamW.step", 1060, 1080),
        operator("aten::_foreach_add_", 1062, 1070),
        launch(105, 1064),
        launch(107, 1086),
        launch(108, 1095),
        kernel("ampere_sgemm_128x64_tn", 1020, 1030, 100, grid=(20, 40, 1), block=(256, 1, 1)),
        kernel("softmax_warp_forward<float>", 1030, 1034, 101),
        kernel("ampere_sgemm_128x64_tn", 1034, 1044, 102, grid=(10, 40, 1), block=(256, 1, 1)),
        kernel("vectorized_elementwise_kernel<4, PowFunctor>", 1046, 1048, 103),
        kernel("ampere_sgemm_128x64_nt", 1050, 1070, 104),
        kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 1060, 1072, 106, stream=20),
        kernel("multi_tensor_apply_kernel<Adam>", 1075, 1085, 105),
        copy(1088, 1089, 107),
        kernel("mystery", 1110, 1115, 108),
    ]  # fmt: skip


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
        blocks = [{"attention_norm": nn.LayerNorm(width), "attention": Attention(width)} for _ in range(2)]
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
