"""Which problems of attention the tests try, the float64 answer to each, and how far a kernel may be from it.

Everything here is written without the kernels, so that a mistake in them is not repeated in what they are held against.
"""

import functools
import math
import zlib
from dataclasses import dataclass

import torch
from allpairspy import AllPairs

CHOICES = {
    "head_dim": (16, 32, 40, 59, 64, 80, 96, 111, 128, 160, 192, 224, 256),
    # Queries and keys.
    "lengths": (
        *((1, 1), (2, 2), (17, 17), (64, 64), (97, 97), (113, 203), (128, 217)),
        *((108, 256), (200, 200), (256, 128), (257, 257), (128, 1), (1, 128)),
    ),
    # What the kernel is told, and what lies in memory.
    "layout": ("BHSD", "BSHD", "HSD", "BS(HD)", "BHSD transposed", "BHSD sliced", "BHSD expanded"),
    "tile": (None, 16, 32, 64, 128),
    "dtype": ("float32", "float16", "bfloat16"),
    "causal": (None, "top-left", "bottom-right"),
    # Of queries and of keys.
    "heads": ((1, 1), (2, 2), (2, 1)),
    "upstream": ("dense", "transposed", "sum"),
    "lse": ("dropped", "returned", "differentiated"),
    "scale": (None, 0.3),
    "batch": (1, 2),
}
NAMES = ("output", "lse", "dq", "dk", "dv")


@dataclass(frozen=True, slots=True)
class Case:
    """One problem; `causal` names the alignment."""

    head_dim: int = 16
    lengths: tuple[int, int] = (17, 17)
    layout: str = "BHSD"
    tile: int | None = None
    dtype: str = "float32"
    causal: str | None = None
    heads: tuple[int, int] = (1, 1)
    upstream: str = "dense"
    lse: str = "dropped"
    scale: float | None = None
    batch: int = 1

    @property
    def torch_dtype(self):
        return getattr(torch, self.dtype)

    @property
    def factor(self):
        """What scores are multiplied by."""
        return 1 / math.sqrt(self.head_dim) if self.scale is None else self.scale

    def visible(self):
        """[S_q, S_k], true where a query sees a key."""
        queries, keys = (torch.arange(length) for length in self.lengths)
        ahead = {
            None: self.lengths[1],
            "top-left": 0,
            "bottom-right": self.lengths[1] - self.lengths[0],
        }[self.causal]
        return keys[None, :] <= queries[:, None] + ahead


def affordable(row):
    """Whether choices, perhaps not yet all, are ones to try: an interpreter's time goes with its programs."""
    chosen = dict(zip(CHOICES, row, strict=False))
    scores = math.prod(chosen.get("lengths", (1, 1)))
    # A batch of one cannot be expanded from something smaller.
    if chosen.get("layout") == "BHSD expanded" and chosen.get("batch") == 1:
        return False
    heads = chosen.get("batch", 1) * chosen.get("heads", (1, 1))[0]
    return (scores <= 17 * 17 or heads <= 2) and (
        scores <= 64 * 64 or chosen.get("tile") in (None, 64, 128)
    )


def pairwise_cover():
    """Cases in which every two choices meet that may, the same every time; and unseen keys in every dtype."""
    cover = [Case(*row) for row in AllPairs(list(CHOICES.values()), filter_func=affordable)]
    blind = Case(40, (64, 17), tile=32, causal="bottom-right", lse="returned")
    return cover + [Case(**{**_fields(blind), "dtype": dtype}) for dtype in CHOICES["dtype"]]


def _fields(case):
    return {name: getattr(case, name) for name in CHOICES}


@dataclass(frozen=True, slots=True)
class Problem:
    """Numbers of a case, all [B, H, S, D] in its dtype; `upstream_lse` [B, H_q, S_q], float32, is None where unused."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    upstream: torch.Tensor
    upstream_lse: torch.Tensor | None


@functools.lru_cache(maxsize=4)
def problem(case):
    """Seeded by the case, whatever else ran before."""
    seeded = torch.Generator().manual_seed(zlib.crc32(repr(case).encode()))

    def normal(*shape):
        return torch.randn(shape, generator=seeded, dtype=torch.float64).to(case.torch_dtype)

    (queries, keys), (heads_q, heads_k), batch = case.lengths, case.heads, case.batch
    q = normal(batch, heads_q, queries, case.head_dim)
    k, v = (normal(batch, heads_k, keys, case.head_dim) for _ in range(2))
    if case.layout == "BHSD expanded":
        k, v = (tensor[:1].expand(batch, -1, -1, -1) for tensor in (k, v))
    upstream = torch.ones_like(q) if case.upstream == "sum" else normal(*q.shape)
    upstream_lse = normal(*q.shape[:3]).float() if case.lse == "differentiated" else None
    return Problem(q, k, v, upstream, upstream_lse)


def plain_attention(q, k, v, visible, scale):
    """Output and log-sum-exp by a softmax written out, in the dtype of its inputs; 0 and −inf where nothing is seen."""
    k, v = each_query_head(q, k), each_query_head(q, v)
    weights, lse = softmax((q @ k.transpose(-1, -2) * scale).masked_fill(~visible, -math.inf))
    return weights @ v, lse


def each_query_head(q, tensor):
    """Keys or values of every query head, those of a group repeated."""
    return tensor.repeat_interleave(q.shape[1] // tensor.shape[1], dim=1)


def softmax(scores):
    """Weights and log-sum-exp of each row."""
    # Any number serves as the largest: it cancels. Its gradient does too, hence detach.
    highest = (
        scores.detach().amax(-1, keepdim=True)
        if scores.shape[-1]
        else scores.new_zeros(*scores.shape[:-1], 1)
    )
    highest = highest.where(highest.isfinite(), 0)
    weights = (scores - highest).exp()
    total = weights.sum(-1, keepdim=True)
    seen = total > 0
    total = total.where(seen, 1)
    return weights / total, (highest + total.log()).where(seen, -math.inf).squeeze(-1)


def gradients(outputs, upstreams, inputs):
    pairs = [
        (output, upstream)
        for output, upstream in zip(outputs, upstreams, strict=True)
        if upstream is not None
    ]
    return torch.autograd.grad(
        [output for output, _ in pairs], inputs, [upstream for _, upstream in pairs]
    )


def answer(case, dtype, attention=plain_attention):
    """Output, lse, dq, dk, dv of a case by an attention, computed in a dtype."""
    given = problem(case)
    leaves = [tensor.detach().to(dtype).requires_grad_() for tensor in (given.q, given.k, given.v)]
    outputs = attention(*leaves, case.visible(), case.factor)
    upstream_lse = None if given.upstream_lse is None else given.upstream_lse.to(dtype)
    found = gradients(outputs, (given.upstream.to(dtype), upstream_lse), leaves)
    return dict(zip(NAMES, (*(output.detach() for output in outputs), *found), strict=True))


@functools.lru_cache(maxsize=4)
def reference(case):
    """The answer in float64, to the very numbers that the kernel is given."""
    return answer(case, torch.float64)


@functools.lru_cache(maxsize=4)
def limits(case):
    """How far each result may be from the reference.

    err ≤ 2·err_pt + 2·max|ref + 0.3 − 0.3 − ref|: twice PyTorch's own error in the dtype, and what the dtype itself
    resolves; the rule of FlashAttention's tests, for gradients as for outputs. For float32 and a handful of numbers
    err_pt is a matter of luck, down to 0: so what the algorithm must round is allowed in any case. The log-sum-exp is
    float32 whatever the inputs are, and is held to float32.
    """
    exact, single, own = reference(case), answer(case, torch.float32), by_the_algorithm(case)
    theirs = answer(case, case.torch_dtype) | {"lse": single["lse"]}
    rounded = {name: finite(exact[name]).to(theirs[name].dtype) for name in NAMES}
    resolved = {name: largest(one + 0.3 - 0.3 - one) for name, one in rounded.items()}
    return {
        name: max(2 * distance(theirs[name], exact[name]) + 2 * resolved[name], own[name])
        for name in NAMES
    }


def by_the_algorithm(case):
    """What FlashAttention rounds and PyTorch's softmax does not, by result.

    * lse: it is kept in base 2, so that the number itself is rounded twice more, and made of scores whose D partial
      sums are rounded in another order.
    * the others: the shares of a row are made from its scores and its lse, whose error is a factor of them.
    * dq, dk: the softmax's backward pass takes Σ dO·O from dO·V, where PyTorch takes the same number from itself if a
      query sees but one key, and leaves no tolerance. O is rounded to the dtype, and D partial sums of both are rounded
      to float32. Roundings are even over half an epsilon and add up as the root of their squares; twice that.
    """
    given, exact, single = problem(case), reference(case), torch.finfo(torch.float32).eps
    of_partial_sums = single * math.sqrt(case.head_dim / 3)
    epsilon = torch.finfo(case.torch_dtype).eps + of_partial_sums
    q, k = given.q.double(), each_query_head(given.q, given.k).double()
    weights, _ = softmax(
        (q @ k.transpose(-1, -2) * case.factor).masked_fill(~case.visible(), -math.inf)
    )
    sums = (
        epsilon
        * abs(case.factor)
        * (given.upstream.double() * exact["output"]).norm(dim=-1, keepdim=True)
    )
    of_queries = (weights * sums).transpose(-1, -2)
    # Rows that are alike are rounded alike.
    alike, unlike = (of_queries @ q).abs(), (of_queries.square() @ q.square()).sqrt()
    terms = (q.square() @ k.square().transpose(-1, -2)).sqrt()
    lse = single * largest(finite(exact["lse"])) + of_partial_sums * abs(case.factor) * largest(
        terms
    )
    found = {name: lse * largest(exact[name]) for name in ("output", "dq", "dk", "dv")}
    found["dq"] += largest(sums * (weights @ k))
    found["dk"] += largest((alike + unlike).unflatten(1, (case.heads[1], -1)).sum(2))
    return found | {"lse": lse}


def largest(tensor):
    return float(tensor.abs().max()) if tensor.numel() else 0.0


def finite(tensor):
    """The −inf of rows that see nothing as 0; `distance` compares where they are."""
    return tensor.double().where(~tensor.isneginf(), 0)


def distance(found, expected):
    """The greatest difference; infinite where one is NaN, or −inf and the other is not."""
    if found.shape != expected.shape or not torch.equal(found.isneginf(), expected.isneginf()):
        return math.inf
    difference = largest(finite(found) - finite(expected))
    return math.inf if math.isnan(difference) else difference


def beyond(case, found):
    """Results that are further from the reference than they may be: {name: (distance, limit)}."""
    far = {
        name: (distance(found[name], reference(case)[name]), limits(case)[name]) for name in found
    }
    return {name: (is_, may_be) for name, (is_, may_be) in far.items() if not is_ <= may_be}


def lay_out(tensor, layout):
    """[B, H, S, D] as a leaf that lies in memory as the layout says."""
    kind, _, how = layout.partition(" ")
    if kind == "BSHD":
        laid = tensor.transpose(1, 2).contiguous()
    elif kind == "HSD":
        laid = tensor.flatten(0, 1).contiguous()
    elif kind == "BS(HD)":
        laid = tensor.transpose(1, 2).flatten(2).contiguous()
    elif how == "transposed":
        laid = tensor.transpose(1, 2).contiguous().transpose(1, 2)
    elif how == "sliced":
        laid = amid_nan(tensor)
    else:
        laid = tensor if how == "expanded" else tensor.contiguous()
    return laid.detach().requires_grad_()


def amid_nan(tensor):
    """The same numbers inside a larger tensor, with NaN before, behind and beside them: a stray read shows."""
    batch, heads, length, width = tensor.shape
    roomy = tensor.new_full((batch, heads, length + 5, width + 7), math.nan)
    inside = roomy[:, :, 2 : 2 + length, 3 : 3 + width]
    inside.copy_(tensor)
    return inside


def logical(tensor, case, heads):
    """What came in a case's layout as [B, H, S, D]."""
    kind = case.layout.partition(" ")[0]
    if kind == "BSHD":
        return tensor.transpose(1, 2)
    if kind == "HSD":
        return tensor.unflatten(0, (case.batch, heads))
    if kind == "BS(HD)":
        return tensor.unflatten(2, (heads, case.head_dim)).transpose(1, 2)
    return tensor


def leaves_of(case):
    """q, k and v of a case in its layout."""
    given = problem(case)
    return [lay_out(tensor, case.layout) for tensor in (given.q, given.k, given.v)]


def options(case):
    """The keywords of `flash_attention` for a case."""
    kind = case.layout.partition(" ")[0]
    chosen = {
        "causal": case.causal is not None,
        "alignment": case.causal,
        "scale": case.scale,
        "layout": kind,
    }
    chosen |= {"return_lse": case.lse != "dropped", "tile": case.tile}
    if kind == "BS(HD)":
        chosen["heads"] = case.heads[0] if case.heads[0] == case.heads[1] else case.heads
    return chosen


def upstream_of(case, output):
    """dO in the output's layout, with the strides that the case asks for."""
    if case.upstream == "sum":
        return output.new_ones(()).expand(output.shape)
    laid = lay_out(problem(case).upstream, case.layout.partition(" ")[0]).detach()
    if case.upstream == "dense":
        return laid
    backwards = tuple(reversed(range(laid.dim())))
    return laid.permute(backwards).contiguous().permute(backwards)


def results(case, attention):
    """Output, lse where asked for, dq, dk, dv of what has the signature of `flash_attention`, as [B, H, S, D]."""
    leaves, upstream_lse = leaves_of(case), problem(case).upstream_lse
    returned = attention(*leaves, **options(case))
    outputs = (returned,) if case.lse == "dropped" else returned
    upstreams = (upstream_of(case, outputs[0]),)
    if case.lse != "dropped":
        upstreams += (None if upstream_lse is None else upstream_lse.reshape(outputs[1].shape),)
    heads_q, heads_k = case.heads
    laid = zip(
        (outputs[0], *gradients(outputs, upstreams, leaves)),
        (heads_q, heads_q, heads_k, heads_k),
        strict=True,
    )
    plain = [logical(tensor.detach(), case, heads) for tensor, heads in laid]
    found = dict(zip(("output", "dq", "dk", "dv"), plain, strict=True))
    if case.lse != "dropped":
        found["lse"] = outputs[1].detach().reshape(case.batch, heads_q, case.lengths[0])
    return found


def shifted(by):
    """Attention of which a query sees so many keys more."""

    def attention(q, k, v, visible, scale):
        last = visible.sum(-1, keepdim=True) + by
        return plain_attention(q, k, v, torch.arange(k.shape[2])[None, :] < last, scale)

    return attention


def of_another_scale(q, k, v, visible, scale):
    return plain_attention(q, k, v, visible, 1.01 * scale)


def in_base_two(q, k, v, visible, scale):
    output, lse = plain_attention(q, k, v, visible, scale)
    return output, lse / math.log(2)


def without_backward_of_the_sum(q, k, v, visible, scale):
    """The softmax's gradient lacks the part that its divisor has."""
    k, v = each_query_head(q, k), each_query_head(q, v)
    scores = (q @ k.transpose(-1, -2) * scale).masked_fill(~visible, -math.inf)
    lse = softmax(scores)[1]
    shift = lse.detach().where(lse.isfinite(), 0)[..., None]
    return (scores - shift).exp() @ v, lse


def one_of_a_group(q, k, v, visible, scale):
    """Keys and values get the gradient of the group's last query head only."""
    rows = [each_query_head(q, tensor) for tensor in (k, v)]
    last = torch.arange(q.shape[1]) % (q.shape[1] // k.shape[1]) == q.shape[1] // k.shape[1] - 1
    rows = [row.where(last[:, None, None], row.detach()) for row in rows]
    return plain_attention(q, *rows, visible, scale)


def with_ten_bits(q, k, v, visible, scale):
    """Products of TF32."""
    cut = [
        x + ((x.detach().float().view(torch.int32) & -(2**13)).view(torch.float32) - x).detach()
        for x in (q, k, v)
    ]
    return plain_attention(*cut, visible, scale)


FAULTS = {
    "diagonal hidden": shifted(-1),
    "key too many": shifted(1),
    "scale": of_another_scale,
    "base 2": in_base_two,
    "softmax without backward": without_backward_of_the_sum,
    "last head of the group": one_of_a_group,
    "tf32": with_ten_bits,
}


def faulty(case, fault):
    """What a kernel with a fault would return, rounded to the case's dtype."""
    found = answer(case, torch.float64, FAULTS[fault])
    kept = NAMES if case.lse != "dropped" else ("output", "dq", "dk", "dv")
    return {
        name: found[name].to(torch.float32 if name == "lse" else case.torch_dtype) for name in kept
    }
