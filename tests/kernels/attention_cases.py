"""Which problems of attention the tests try, the float64 answer to each, and how far a kernel may be from it.

Everything here is written without the kernels, so that a mistake in them is not repeated in what they are held against.
"""

import functools
import itertools
import math
import zlib
from collections import Counter
from dataclasses import dataclass, fields

import torch
from allpairspy import AllPairs

LENGTHS = (
    (1, 1),
    (2, 2),
    (17, 17),
    (64, 64),
    (97, 97),
    (113, 203),
    (128, 217),
    (108, 256),
    (200, 200),
    (256, 128),
    (257, 257),
    (128, 1),
    (1, 128),
)
HEAD_DIMS = (16, 32, 40, 59, 64, 80, 96, 111, 128, 160, 192, 224, 256)
DTYPES = ("float32", "float16", "bfloat16")
CAUSAL = (None, "top-left", "bottom-right")
HEADS = ((1, 1), (2, 2), (2, 1))
# What the kernel is told, and what lies in memory.
LAYOUTS = ("BHSD", "BSHD", "HSD", "BS(HD)", "BHSD transposed", "BHSD sliced", "BHSD expanded")
SCALES = (None, 0.3)
TILES = (None, 16, 32, 64, 128)
UPSTREAMS = ("dense", "transposed", "sum")
LSE = ("dropped", "returned", "differentiated")
# An interpreter's time goes with its programs: more than two heads in all are tried where there are few queries and
# keys, and the smallest tiles not where there are many.
SHORT = 17 * 17
LONG = 64 * 64
TILES_OF_LONG = (None, 64, 128)
NAMES = ("output", "lse", "dq", "dk", "dv")
# In how many orders PyTorch adds the same numbers up, to show how far it may be from the truth.
ORDERS = 3


@dataclass(frozen=True, slots=True)
class Case:
    """One problem. `lengths` are (queries, keys), `heads` (of queries, of keys); `causal` names the alignment."""

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

    def __str__(self):
        return "-".join(
            (
                f"{self.lengths[0]}x{self.lengths[1]}",
                f"d{self.head_dim}",
                self.dtype,
                self.causal or "full",
                f"h{self.heads[0]}x{self.heads[1]}",
                f"b{self.batch}",
                self.layout.replace(" ", "_"),
                f"tile{self.tile}",
                f"scale{self.scale}",
                f"do_{self.upstream}",
                f"lse_{self.lse}",
            )
        )

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
        ahead = {None: self.lengths[1], "top-left": 0, "bottom-right": self.lengths[1] - self.lengths[0]}[self.causal]
        return keys[None, :] <= queries[:, None] + ahead


CHOICES = {
    "head_dim": HEAD_DIMS,
    "lengths": LENGTHS,
    "layout": LAYOUTS,
    "tile": TILES,
    "dtype": DTYPES,
    "causal": CAUSAL,
    "heads": HEADS,
    "upstream": UPSTREAMS,
    "lse": LSE,
    "scale": SCALES,
    "batch": (1, 2),
}
assert tuple(CHOICES) == tuple(field.name for field in fields(Case))


def affordable(chosen):
    """Whether choices by name, perhaps not yet all, are ones to try; see SHORT and LONG."""
    scores = math.prod(chosen.get("lengths", (1, 1)))
    # A batch of one cannot be expanded from something smaller.
    if chosen.get("layout") == "BHSD expanded" and chosen.get("batch") == 1:
        return False
    heads = chosen.get("batch", 1) * chosen.get("heads", (1, 1))[0]
    return (scores <= SHORT or heads <= 2) and (scores <= LONG or chosen.get("tile") in TILES_OF_LONG)


def pairwise_cover():
    """Cases in which every two choices meet that may: the same ones every time."""
    rows = AllPairs(list(CHOICES.values()), filter_func=lambda row: affordable(named(row)))
    return [Case(**named(row)) for row in spread_out([list(row) for row in rows])]


def named(row):
    """The choices of a row, perhaps unfinished, by name."""
    return dict(zip(CHOICES, row, strict=False))


def pairs(row):
    """Every two choices of a row, with their places."""
    return set(itertools.combinations(enumerate(row), 2))


def spread_out(rows):
    """The same cover with every choice about as often as its neighbours: what is free falls to the last ones."""
    met = Counter(pair for row in rows for pair in pairs(row))
    for place, choices in enumerate(CHOICES.values()):
        used = Counter(row[place] for row in rows)
        for row in rows:
            rarest = min(choices, key=used.__getitem__)
            changed = [*row[:place], rarest, *row[place + 1 :]]
            lost, won = pairs(row) - pairs(changed), pairs(changed) - pairs(row)
            if (
                used[rarest] + 1 < used[row[place]]
                and affordable(named(changed))
                and all(met[pair] > 1 for pair in lost)
            ):
                used.update({rarest: 1, row[place]: -1})
                met.subtract(lost)
                met.update(won)
                row[place] = rarest
    return rows


# Queries that see no key, in every dtype: of pairs, only two of the cover have them.
BLIND = [Case(40, (64, 17), tile=32, dtype=dtype, causal="bottom-right", lse="returned") for dtype in DTYPES]


@dataclass(frozen=True, slots=True)
class Problem:
    """Numbers of a case, all [B, H, S, D] in its dtype; `upstream_lse` [B, H_q, S_q], float32, is None where unused."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    upstream: torch.Tensor
    upstream_lse: torch.Tensor | None


@functools.cache
def problem(case):
    """Seeded by the case, whatever else ran before."""
    seeded = torch.Generator().manual_seed(zlib.crc32(str(case).encode()))

    def normal(*shape):
        return torch.randn(shape, generator=seeded, dtype=torch.float64).to(case.torch_dtype)

    (queries, keys), (heads_q, heads_k), batch = case.lengths, case.heads, case.batch
    q = normal(batch, heads_q, queries, case.head_dim)
    # Of an expanded tensor, all batches are the first.
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
    highest = scores.detach().amax(-1, keepdim=True) if scores.shape[-1] else scores.new_zeros(*scores.shape[:-1], 1)
    highest = highest.where(highest.isfinite(), 0)
    weights = (scores - highest).exp()
    total = weights.sum(-1, keepdim=True)
    seen = total > 0
    total = total.where(seen, 1)
    return weights / total, (highest + total.log()).where(seen, -math.inf).squeeze(-1)


def gradients(outputs, upstreams, inputs):
    pairs = [(output, upstream) for output, upstream in zip(outputs, upstreams, strict=True) if upstream is not None]
    return torch.autograd.grad([output for output, _ in pairs], inputs, [upstream for _, upstream in pairs])


@dataclass(frozen=True, slots=True)
class Order:
    """In which order queries, keys and elements of a head stand: indices."""

    queries: torch.Tensor
    keys: torch.Tensor
    elements: torch.Tensor

    @classmethod
    def shuffled(cls, case, seed):
        """Seed 0 leaves everything in its place."""
        seeded = torch.Generator().manual_seed(seed)
        counts = (*case.lengths, case.head_dim)
        return cls(*(torch.randperm(n, generator=seeded) if seed else torch.arange(n) for n in counts))

    def back(self):
        return Order(self.queries.argsort(), self.keys.argsort(), self.elements.argsort())

    def of_queries(self, tensor):
        return tensor[:, :, self.queries][..., self.elements]

    def of_keys(self, tensor):
        return tensor[:, :, self.keys][..., self.elements]


def forward(case, dtype, order):
    """Leaves q, k, v in an order and a dtype, and the plain output and log-sum-exp of them."""
    given = problem(case)
    inputs = (order.of_queries(given.q), order.of_keys(given.k), order.of_keys(given.v))
    leaves = [tensor.detach().to(dtype).requires_grad_() for tensor in inputs]
    return leaves, plain_attention(*leaves, case.visible()[order.queries][:, order.keys], case.factor)


def answer(case, dtype, seed=0):
    """Output, lse, dq, dk, dv of a case computed plainly in a dtype, the sums in the order that the seed says."""
    given, order = problem(case), Order.shuffled(case, seed)
    leaves, outputs = forward(case, dtype, order)
    upstream_lse = None if given.upstream_lse is None else given.upstream_lse[:, :, order.queries].to(dtype)
    found = gradients(outputs, (order.of_queries(given.upstream).to(dtype), upstream_lse), leaves)
    back = order.back()
    return {
        "output": back.of_queries(outputs[0].detach()),
        "lse": outputs[1].detach()[:, :, back.queries],
        "dq": back.of_queries(found[0]),
        "dk": back.of_keys(found[1]),
        "dv": back.of_keys(found[2]),
    }


def single_lse(case, seed):
    """The log-sum-exp in float32."""
    order = Order.shuffled(case, seed)
    with torch.no_grad():
        return forward(case, torch.float32, order)[1][1][:, :, order.back().queries]


@functools.cache
def reference(case):
    """The answer in float64, to the very numbers that the kernel is given."""
    return answer(case, torch.float64)


@functools.cache
def limits(case):
    """How far each result may be from the reference.

    err ≤ 2·err_pt + 2·max|ref + 0.3 − 0.3 − ref|: twice PyTorch's own error in the dtype, and what the dtype itself
    resolves; the rule of FlashAttention's tests, for gradients as for outputs. That rule is made for large tensors of
    halves, and stands alone there. For float32 and for a handful of numbers it is a matter of luck, down to an err_pt
    of 0: so err_pt is the worst of ORDERS orders of the same sums, and what the algorithm must round is allowed.
    The log-sum-exp is float32 whatever the inputs are, and is held to float32.
    """
    theirs, own = of_pytorch(case), by_the_algorithm(case)
    return {name: max(2 * theirs[name] + 2 * resolution(case, name), own[name]) for name in NAMES}


def of_pytorch(case):
    """PyTorch's own error in each result: the greatest over several orders."""
    worst = dict.fromkeys(NAMES, 0.0)
    for seed in range(ORDERS):
        found = answer(case, case.torch_dtype, seed) | {"lse": single_lse(case, seed)}
        worst = {name: max(worst[name], distance(found[name], reference(case)[name])) for name in NAMES}
    return worst


def resolution(case, name):
    """What rounding to its dtype costs a result, at the least of size 0.3."""
    rounded = finite(reference(case)[name]).to(torch.float32 if name == "lse" else case.torch_dtype)
    return largest(rounded + 0.3 - 0.3 - rounded)


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
    scores = (q @ k.transpose(-1, -2) * case.factor).masked_fill(~case.visible(), -math.inf)
    weights, _ = softmax(scores)
    sums = epsilon * abs(case.factor) * (given.upstream.double() * exact["output"]).norm(dim=-1, keepdim=True)
    of_queries = (weights * sums).transpose(-1, -2)
    # Rows that are alike are rounded alike.
    alike, apart = (of_queries @ q).abs(), (of_queries.square() @ q.square()).sqrt()
    terms = (q.square() @ k.square().transpose(-1, -2)).sqrt()
    lse = single * largest(finite(exact["lse"])) + of_partial_sums * abs(case.factor) * largest(terms)
    found = {name: lse * largest(exact[name]) for name in ("output", "dq", "dk", "dv")}
    found["dq"] += largest(sums * (weights @ k))
    found["dk"] += largest((alike + apart).unflatten(1, (case.heads[1], -1)).sum(2))
    return found | {"lse": lse}


def largest(tensor):
    return float(tensor.abs().max()) if tensor.numel() else 0.0


def finite(tensor):
    """The −inf of rows that see nothing as 0; whether they are where they should be is compared apart."""
    return tensor.double().where(~tensor.isneginf(), 0)


def distance(found, expected):
    """The greatest difference; infinite where one is NaN, or −inf and the other is not."""
    if found.shape != expected.shape or not torch.equal(found.isneginf(), expected.isneginf()):
        return math.inf
    difference = largest(finite(found) - finite(expected))
    return math.inf if math.isnan(difference) else difference


def beyond(case, found):
    """Results that are further from the reference than they may be: {name: (distance, limit)}."""
    far = {name: (distance(found[name], reference(case)[name]), limits(case)[name]) for name in found}
    return {name: (is_, may_be) for name, (is_, may_be) in far.items() if not is_ <= may_be}


def lay_out(tensor, layout):
    """[B, H, S, D] as a leaf that lies in memory as the layout says, and the layout's name for the kernel."""
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


def options(case):
    """The keywords of `flash_attention` for a case."""
    kind = case.layout.partition(" ")[0]
    chosen = {
        "causal": case.causal is not None,
        "alignment": case.causal,
        "scale": case.scale,
        "layout": kind,
        "return_lse": case.lse != "dropped",
        "tile": case.tile,
    }
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
    given = problem(case)
    leaves = [lay_out(tensor, case.layout) for tensor in (given.q, given.k, given.v)]
    returned = attention(*leaves, **options(case))
    outputs = (returned,) if case.lse == "dropped" else returned
    upstreams = (upstream_of(case, outputs[0]),)
    if case.lse != "dropped":
        upstreams += (None if given.upstream_lse is None else given.upstream_lse.reshape(outputs[1].shape),)
    found = gradients(outputs, upstreams, leaves)
    heads_q, heads_k = case.heads
    laid = {"output": outputs[0], "dq": found[0], "dk": found[1], "dv": found[2]}
    plain = {
        name: logical(tensor.detach(), case, heads_k if name in ("dk", "dv") else heads_q)
        for name, tensor in laid.items()
    }
    if case.lse != "dropped":
        plain["lse"] = outputs[1].detach().reshape(case.batch, heads_q, case.lengths[0])
    return plain


# How a tiled attention is plausibly broken, and the first thing one would see.
FAULTS = {
    "diagonal hidden": "a query does not see the key at its own place",
    "key too many": "a query sees one key after its own place",
    "other alignment": "top-left for bottom-right and the other way round",
    "tail seen": "the zeros behind the last key are taken for keys",
    "tail left out": "keys of the last, unfinished tile are not seen",
    "never rescaled": "the running sums keep the weight of an older maximum",
    "division forgotten": "the output is not divided by the sum",
    "lse in base 2": "the log-sum-exp is returned in the base in which it was computed",
    "masked rows NaN": "a query that sees no key gives 0/0",
    "scale missing in dq": "the chain rule stops at the scores",
    "scale missing in dk": "the chain rule stops at the scores",
    "scale twice in dq": "the scale is folded into the keys as well",
    "delta missing": "the softmax has no backward",
    "delta of the wrong row": "delta is read one row late",
    "lse gradient dropped": "nothing flows back through the log-sum-exp",
    "dv without the mask": "hidden keys' values have a gradient",
    "last head of the group": "a later query head overwrites its group's gradient",
    "mean over the group": "its group's gradients are averaged",
    "heads interleaved": "query head h reads key head h modulo H_k",
    "first batch for all": "the batch stride of the keys is left out",
    "upstream transposed": "dO is read with queries and batch confused",
    "tf32": "products of float32 have a mantissa of ten bits",
}


@dataclass(frozen=True, slots=True)
class Tiled:
    """FlashAttention-2 in a few lines, as far from rounding as the kernel, with at most one fault of FAULTS.

    float32 inside; shares and gradients of scores are rounded to the dtype before they are multiplied.
    """

    case: Case
    fault: str | None = None

    @property
    def tile(self):
        return self.case.tile or 64

    def has(self, fault):
        assert fault in FAULTS
        return self.fault == fault

    def inputs(self):
        """q, and keys and values of each query head, padded with zeros to whole tiles; float32."""
        given, (heads_q, heads_k) = problem(self.case), self.case.heads
        if self.has("heads interleaved"):
            head = torch.arange(heads_q) % heads_k
        else:
            head = torch.arange(heads_q) // (heads_q // heads_k)
        pad = (0, 0, 0, -self.case.lengths[1] % self.tile)
        q, k, v = (self.tf32(tensor.float()) for tensor in (given.q, given.k, given.v))
        padded = (torch.nn.functional.pad(tensor, pad)[:, head] for tensor in (k, v))
        if self.has("first batch for all"):
            padded = (tensor[:1].expand_as(tensor) for tensor in padded)
        return q, *padded

    def tf32(self, tensor):
        """The thirteen last bits of the mantissa cut off, where that is the fault."""
        return (tensor.view(torch.int32) & -(2**13)).view(torch.float32) if self.has("tf32") else tensor

    def visible(self, start):
        """[S_q, tile]: what each query sees of a tile of keys."""
        queries, keys = self.case.lengths
        rows, columns = torch.arange(queries)[:, None], start + torch.arange(self.tile)[None, :]
        end = keys // self.tile * self.tile if self.has("tail left out") else keys
        inside = columns < (math.inf if self.has("tail seen") else end)
        if self.case.causal is None:
            return inside.expand(queries, -1)
        bottom_right = (self.case.causal == "bottom-right") != self.has("other alignment")
        shift = (keys - queries if bottom_right else 0) - self.has("diagonal hidden") + self.has("key too many")
        return inside & (columns <= rows + shift)

    def tiles(self, keys):
        return range(0, keys.shape[2], self.tile)

    def scores(self, q, keys, start):
        scores = q @ keys[:, :, start : start + self.tile].transpose(-1, -2) * self.case.factor
        return scores.masked_fill(~self.visible(start), -math.inf)

    def rounded(self, tensor):
        return tensor.to(self.case.torch_dtype).float()

    def forward(self, q, keys, values):
        output, total = torch.zeros_like(q), q.new_zeros(*q.shape[:3], 1)
        most = q.new_full((*q.shape[:3], 1), -math.inf)
        for start in self.tiles(keys):
            scores = self.scores(q, keys, start)
            higher = torch.maximum(most, scores.amax(-1, keepdim=True))
            base = higher.where(higher.isfinite(), 0)
            keep = torch.ones_like(base) if self.has("never rescaled") else (most - base).exp()
            shares = (scores - base).exp()
            output = output * keep + self.rounded(shares) @ values[:, :, start : start + self.tile]
            total, most = total * keep + shares.sum(-1, keepdim=True), higher
        lse = (most + total.log()).squeeze(-1)
        divisor = total if self.has("masked rows NaN") else total.where(total > 0, 1)
        return output if self.has("division forgotten") else output / divisor, lse

    def delta(self, output, upstream):
        delta = (output * upstream).sum(-1, keepdim=True)
        if self.has("delta of the wrong row"):
            delta = delta.roll(1, dims=2)
        if self.has("delta missing"):
            delta = torch.zeros_like(delta)
        upstream_lse = problem(self.case).upstream_lse
        if upstream_lse is not None and not self.has("lse gradient dropped"):
            delta = delta - upstream_lse[..., None]
        return delta

    def backward(self, q, keys, values, output, lse, upstream):
        """dQ, dK, dV, those of keys for each query head and with the padding."""
        delta, base = self.delta(output, upstream), lse.where(lse.isfinite(), 0)[..., None]
        d_q, d_k, d_v = torch.zeros_like(q), torch.zeros_like(keys), torch.zeros_like(values)
        for start in self.tiles(keys):
            tile = slice(start, start + self.tile)
            shares = (self.scores(q, keys, start) - base).exp()
            d_scores = self.rounded(shares * (upstream @ values[:, :, tile].transpose(-1, -2) - delta))
            d_q += d_scores @ keys[:, :, tile]
            d_k[:, :, tile] = d_scores.transpose(-1, -2) @ q
            if self.has("dv without the mask"):
                shares = (q @ keys[:, :, tile].transpose(-1, -2) * self.case.factor - base).exp()
            d_v[:, :, tile] = self.rounded(shares).transpose(-1, -2) @ upstream
        factor = self.case.factor
        scale_q = 1 if self.has("scale missing in dq") else factor**2 if self.has("scale twice in dq") else factor
        return d_q * scale_q, d_k * (1 if self.has("scale missing in dk") else factor), d_v

    def of_group(self, gradient):
        """The gradient of a key head from those of its group's query heads, without the padding."""
        heads_k = self.case.heads[1]
        grouped = gradient[:, :, : self.case.lengths[1]].unflatten(1, (heads_k, -1))
        if self.has("last head of the group"):
            return grouped[:, :, -1]
        return grouped.mean(2) if self.has("mean over the group") else grouped.sum(2)

    def results(self):
        """What `results` gives, of this attention."""
        dtype, upstream = self.case.torch_dtype, problem(self.case).upstream.float()
        if self.has("upstream transposed"):
            upstream = upstream.flatten(1).flip(1).view_as(upstream)
        q, keys, values = self.inputs()
        output, lse = self.forward(q, keys, values)
        d_q, d_k, d_v = self.backward(q, keys, values, self.rounded(output), lse, upstream)
        found = (output, d_q, self.of_group(d_k), self.of_group(d_v))
        shown = lse / math.log(2) if self.has("lse in base 2") else lse
        return dict(zip(("output", "dq", "dk", "dv"), (tensor.to(dtype) for tensor in found), strict=True)) | {
            "lse": shown
        }
