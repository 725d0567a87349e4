"""Matrix products in the types of tensor cores: operands, the call to time, and the check of its result.

Operands have the layout of a linear layer: `left` [m, k] and `weight` [n, k]; the product is left · weightᵀ [m, n].
They hold normal random numbers. Zeros would need less power, so that the device would be faster than with real data.
"""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch

from .stream import has_double
from .training.precisions import precision_named
from .training.precisions import why_not as why_not_precision
from .work import gemm_work

SEED = 20_261_123
CUBES = (4096, 8192, 16384)
# Small enough to be checked whole, and for a processor that has to emulate bfloat16.
CPU_CUBE = 512
TOKENS = (1, 64, 4096)
# Output and input features of each projection; query, key and value, and gate and up, are one product each, as
# inference has them. Source: config.json of meta-llama/Meta-Llama-3-8B and -70B: hidden_size 4096 and 8192,
# intermediate_size 14336 and 28672, 32 and 64 query heads, 8 key and value heads, of 128 each.
PROJECTIONS: Mapping[str, tuple[int, int]] = MappingProxyType(
    {
        "8b-qkv": (6144, 4096),
        "8b-o": (4096, 4096),
        "8b-gate_up": (28672, 4096),
        "8b-down": (4096, 14336),
        "70b-qkv": (10240, 8192),
        "70b-o": (8192, 8192),
        "70b-gate_up": (57344, 8192),
        "70b-down": (8192, 28672),
    }
)

# An element of a product of k terms, summed in float32 in any order, is off by gamma_k |A||B| at most, gamma_k = ku /
# (1 - ku), and then rounded (Higham, "Accuracy and Stability of Numerical Algorithms", section 3.5). u is that of
# float32: tensor cores truncate, which is twice as much, but add four products or more at a time (Fasi, Higham,
# Mikaitis and Pranesh, "Numerical behavior of NVIDIA tensor cores", 2021).
_UNIT = 2.0**-24
# Hopper adds products of fp8 with some 14 bits, a few times in a row before float32 takes over (DeepSeek-V3 Technical
# Report, section 3.3.2): eight such additions.
_FP8_SUM = 8 * 2.0**-13
# TF32 keeps ten bits after the first, by rounding or by cutting off: 2^-10 at most, of either operand.
_TF32_OPERAND = 2.0**-10
# The largest number of an fp8 type is so many standard deviations of the random numbers: one in 10^10 is beyond.
_DEVIATIONS = 6.5
# If the operands have no more elements than this, every element of the product is checked.
_WHOLE_ELEMENTS = 2**21
# In a larger product so many rows and columns are checked, a random one in each of equal stretches. With fewer rows,
# more columns are checked, at most the second number.
_STRETCHES, _MOST_STRETCHES = 128, 512
_CHUNK_ELEMENTS = 2**26


@dataclass(frozen=True, slots=True)
class Kind:
    """A type of matrix product.

    Args:
        name: as its tests are called.
        metric: the rate, with the type whose peak it is compared with.
        operand: the type of the operands.
        result: the type of the product.
        least_ridge: FLOP per byte below which a shape is bound by memory on every product whose datasheet is known.
        scales: None, or `tensorwise` or `rowwise`.
    """

    name: str
    metric: str
    operand: torch.dtype
    result: torch.dtype
    least_ridge: float
    scales: str | None = None


def _fp8(scales: str) -> Kind:
    """Return the kind of fp8 with `tensorwise` or `rowwise` scales."""
    # RTX 4090: 330 TFLOP/s, 1008 GB/s.
    return Kind(f"fp8_{scales}", "fp8_TFLOPS", torch.float8_e4m3fn, torch.bfloat16, 327, scales)


KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        kind.name: kind
        for kind in (
            # RTX 3090: 71, 71 and 35.6 TFLOP/s, 936 GB/s; B200: 75 TFLOP/s in fp32, 8000 GB/s.
            Kind("bf16", "bf16_TFLOPS", torch.bfloat16, torch.bfloat16, 75),
            Kind("fp16", "fp16_TFLOPS", torch.float16, torch.float16, 75),
            Kind("tf32", "tf32_TFLOPS", torch.float32, torch.float32, 37),
            Kind("fp32", "fp32_TFLOPS", torch.float32, torch.float32, 9.3),
            _fp8("tensorwise"),
            _fp8("rowwise"),
        )
    }
)


@dataclass(frozen=True, slots=True)
class Shape:
    """A product [m, k] · [k, n]."""

    m: int
    n: int
    k: int

    def operand_elements(self) -> int:
        """Elements of both operands."""
        return (self.m + self.n) * self.k


def work_of(kind: Kind, shape: Shape) -> dict[str, int]:
    """Return the work of one product, in FLOPs and bytes."""
    return gemm_work(shape.m, shape.n, shape.k, kind.operand.itemsize, kind.result.itemsize)


def is_memory_bound(kind: Kind, shape: Shape) -> bool:
    """Return whether memory bounds a product on every device with a known datasheet."""
    work = work_of(kind, shape)
    return work["flops"] < kind.least_ridge * (work["read_bytes"] + work["write_bytes"])


def fp8_type(device: torch.device) -> torch.dtype:
    """Return the e4m3 type of a device. CDNA 3 has one of its own, without negative zero."""
    if device.type == "cuda" and torch.version.hip is not None:
        architecture = str(torch.cuda.get_device_properties(device).gcnArchName)
        if architecture.startswith("gfx94"):
            return torch.float8_e4m3fnuz
    return torch.float8_e4m3fn


def normal(
    rows: int, columns: int, dtype: torch.dtype, device: torch.device, seed: int
) -> torch.Tensor:
    """Return normal random numbers: [rows, columns].

    In an fp8 type they are scaled, so that 6.5 standard deviations are its largest number.
    """
    generator = torch.Generator(device).manual_seed(seed)
    matrix = torch.empty(rows, columns, dtype=dtype, device=device)
    if dtype.itemsize > 1:
        return matrix.normal_(generator=generator)
    for part in matrix.split(max(1, _CHUNK_ELEMENTS // columns)):
        wide = torch.empty(part.shape, dtype=torch.float32, device=device)
        most = torch.finfo(dtype).max
        # A number beyond the largest would become NaN.
        part.copy_(wide.normal_(0.0, fp8_deviation(dtype), generator=generator).clamp_(-most, most))
    return matrix


def fp8_deviation(dtype: torch.dtype) -> float:
    """Return the standard deviation of the numbers of `normal` in an fp8 type."""
    return torch.finfo(dtype).max / _DEVIATIONS


@dataclass(frozen=True, slots=True)
class Operands:
    """The operands of one product.

    Args:
        left: [m, k].
        weight: [n, k].
        scales: of left, [1] or [m, 1], and of weight, [1] or [1, n], float32; None but for fp8.
    """

    left: torch.Tensor
    weight: torch.Tensor
    scales: tuple[torch.Tensor, torch.Tensor] | None


Arguments = tuple[Operands, torch.Tensor]


class Gemm:
    """A matrix product of one shape and type: makes operands, multiplies them, checks results.

    Args:
        kind: one of `KINDS`.
        shape: of the product.
        device: where.
    """

    def __init__(self, kind: Kind, shape: Shape, device: torch.device) -> None:
        self.kind, self.shape = kind, shape
        self._device = device
        self._operand = fp8_type(device) if kind.scales else kind.operand
        self._made = 0

    @property
    def memory_needed(self) -> int:
        """The bytes of operands and result, and of the working memory to make and check them."""
        shape, kind = self.shape, self.kind
        buffer_bytes = (
            shape.operand_elements() * self._operand.itemsize
            + shape.m * shape.n * kind.result.itemsize
        )
        making_bytes = 4 * min(_CHUNK_ELEMENTS, shape.operand_elements()) if kind.scales else 0
        rows, columns = self._checked_places()
        # The check has rows of the operands as float64, and their absolute values.
        checking_bytes = 2 * 8 * (len(rows) + len(columns)) * shape.k
        return buffer_bytes + max(making_bytes, checking_bytes)

    def make(self) -> Arguments:
        """Return new operands, with other numbers at each call, and a result full of NaN."""
        shape, device = self.shape, self._device
        self._made += 1
        seed = SEED + 2 * self._made
        left = normal(shape.m, shape.k, self._operand, device, seed)
        weight = normal(shape.n, shape.k, self._operand, device, seed + 1)
        out = torch.full((shape.m, shape.n), torch.nan, dtype=self.kind.result, device=device)
        return Operands(left, weight, self._scales(seed)), out

    def _scales(self, seed: int) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Return random scales of both operands; None for a type without scales.

        Scaled operands have a standard deviation of 0.5 to 2; with `rowwise` scales each row has its own.
        """
        if self.kind.scales is None:
            return None
        rowwise = self.kind.scales == "rowwise"
        generator = torch.Generator().manual_seed(seed)
        unit = 1 / fp8_deviation(self._operand)
        sizes = ((self.shape.m, 1), (1, self.shape.n)) if rowwise else ((), ())
        left, right = (
            unit * 2 ** (2 * torch.rand(size, generator=generator) - 1) for size in sizes
        )
        return left.to(self._device), right.to(self._device)

    def multiply(self, operands: Operands, out: torch.Tensor) -> None:
        """Multiply the operands into `out`. This is the call to time."""
        if operands.scales is None:
            torch.mm(operands.left, operands.weight.t(), out=out)
        else:
            _scaled(operands, out)

    def check(self, operands: Operands, out: torch.Tensor) -> bool:
        """Return whether a result is the product of its operands, within the bound of rounding.

        A small product is checked whole. Of a large one, a random row and column of each of 128 equal stretches are
        checked, so that a wrong tile as large as a stretch is always found. The expected product is computed in float64
        if the device has it, else in float32; for fp8, from the operands as they are in fp8, and their scales.
        """
        rows, columns = (
            torch.tensor(places, device=self._device) for places in self._checked_places()
        )
        left, right = _exact_rows(operands.left, rows), _exact_rows(operands.weight, columns)
        if operands.scales is not None:
            left_scale, right_scale = operands.scales
            left = left * (left_scale if left_scale.dim() == 0 else left_scale[rows])
            right = right * (right_scale if right_scale.dim() == 0 else right_scale.t()[columns])
        with arithmetic(KINDS["fp32"], self._device):
            expected, magnitude = left @ right.t(), left.abs() @ right.abs().t()
        actual = out[rows[:, None], columns].to(expected.dtype)
        # NaN fails this comparison too.
        return bool(((actual - expected).abs() <= self._bound(expected, magnitude)).all())

    def _bound(self, expected: torch.Tensor, magnitude: torch.Tensor) -> torch.Tensor:
        """Return the largest error of each element: that of the sum and that of the result's rounding.

        `magnitude` is |A||B|, to which the error of a sum is proportional.
        """
        sums = self.shape.k * _UNIT / (1 - self.shape.k * _UNIT)
        if expected.dtype == torch.float32:
            sums *= 2
        if self.kind.scales:
            sums += _FP8_SUM
        if self.kind.name == "tf32":
            sums += 2 * _TF32_OPERAND + _TF32_OPERAND**2
        # Rounding costs half a unit in the last place, of a sum that has its own error. A scale that is applied last
        # costs as much again.
        rounding = torch.finfo(self.kind.result).eps
        return sums * magnitude + rounding * (expected.abs() + sums * magnitude)

    def _checked_places(self) -> tuple[list[int], list[int]]:
        """Return the rows and the columns of the product to check."""
        m, n = self.shape.m, self.shape.n
        if self.shape.operand_elements() <= _WHOLE_ELEMENTS:
            return list(range(m)), list(range(n))
        rows = min(m, _STRETCHES)
        columns = min(n, _MOST_STRETCHES, _STRETCHES**2 // rows)
        return _random_places(m, rows, SEED), _random_places(n, columns, SEED + 1)


def _random_places(size: int, stretches: int, seed: int) -> list[int]:
    """Return a random index in each of so many equal stretches of `size`."""
    generator = torch.Generator().manual_seed(seed)
    within = torch.rand(stretches, generator=generator, dtype=torch.float64)
    places = (torch.arange(stretches, dtype=torch.float64) + within) * size / stretches
    return [min(int(place), size - 1) for place in places]


def _exact_rows(matrix: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Return rows of a matrix in float64, or in float32 on a device without it.

    Rows of fp8 are selected as bytes, since not every torch can index fp8.
    """
    exact = torch.float64 if has_double(matrix.device) else torch.float32
    if matrix.itemsize > 1:
        return matrix.index_select(0, rows).to(exact)
    return (
        matrix.view(torch.uint8)
        .index_select(0, rows)
        .view(matrix.dtype)
        .to(torch.float32)
        .to(exact)
    )


def _scaled(operands: Operands, out: torch.Tensor) -> None:
    """Multiply scaled fp8 operands into `out`."""
    assert operands.scales is not None
    left, right = operands.scales
    torch._scaled_mm(
        operands.left,
        operands.weight.t(),
        scale_a=left,
        scale_b=right,
        out_dtype=out.dtype,
        out=out,
    )


@contextlib.contextmanager
def arithmetic(kind: Kind, device: torch.device) -> Iterator[None]:
    """Set the arithmetic of products of a kind, and restore it afterwards.

    Float32 is multiplied exactly, or in TF32 for that kind. 16-bit types are summed in float32.
    """
    with (
        precision_named("tf32" if kind.name == "tf32" else "fp32").settings(),
        _summing_in_float32(device),
    ):
        yield


@contextlib.contextmanager
def _summing_in_float32(device: torch.device) -> Iterator[None]:
    """Keep cuBLAS from adding parts of a sum in the type of the result. Restore the settings."""
    if device.type != "cuda":
        yield
        return
    matmul: Any = torch.backends.cuda.matmul
    names = [f"allow_{name}_reduced_precision_reduction" for name in ("bf16", "fp16")]
    before = [_reduction(matmul, name) for name in names]
    try:
        for name in names:
            setattr(matmul, name, False)
        yield
    finally:
        for name, value in zip(names, before, strict=True):
            setattr(matmul, name, value)


def _reduction(matmul: Any, name: str) -> bool | tuple[bool, bool]:
    """Return a setting, to restore it later.

    A newer torch also has the setting that allows to split sums. Setting a plain value would turn that on, so both are
    returned.
    """
    reduced = bool(getattr(matmul, name))
    split = getattr(matmul, f"{name}_split_k", None)
    return reduced if split is None else (reduced, bool(split))


def why_not(kind: Kind, device: torch.device) -> str:
    """Try a small product, and return why a device does not multiply a type; empty if it does."""
    if kind.name == "tf32":
        return why_not_precision(precision_named("tf32"), device)
    if kind.name == "bf16" and device.type == "cuda" and torch.version.hip is None:
        major, minor = torch.cuda.get_device_capability(device)
        if major < 8:
            return (
                f"needs bf16 in tensor cores, from compute capability 8.0 on, found {major}.{minor}"
            )
    gemm = Gemm(kind, Shape(64, 64, 64), device)
    try:
        arguments = gemm.make()
        with arithmetic(kind, device):
            gemm.multiply(*arguments)
        is_right = gemm.check(*arguments)
    except (RuntimeError, TypeError, ValueError, NotImplementedError) as error:
        return f"needs {kind.name} on {device.type}, found: {str(error).splitlines()[0]}"
    return (
        "" if is_right else f"needs {kind.name} on {device.type}, found that its products are wrong"
    )
