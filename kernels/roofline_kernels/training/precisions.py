"""The precisions of a step: the type of its parameters, autocast, and the multiplication of float32.

fp32 is IEEE throughout. With tf32, float32 matrix products round their inputs to 10 bits of mantissa. Under autocast
parameters stay float32 and torch decides by operation (torch.amp, "Autocast Op Reference"); without its cache a weight
that was cast is gone after its product, and cast anew where it is used again. bf16 has parameters,
gradients and the optimizer's state in bfloat16, without a float32 copy.
"""

import contextlib
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import torch

# TF32 drops the last bit of this number, so a product of such numbers shows whether float32 is multiplied exactly.
_BEYOND_TF32 = 1 + 2**-12
# Large enough for a library to choose the kernels that it would choose for a model.
_PROBE = 512


@dataclass(frozen=True, slots=True)
class Precision:
    """The types in which numbers are stored and multiplied.

    Args:
        name: as users call it.
        parameters: the type of parameters, gradients and optimizer state.
        autocast: the type in which matrix products are under autocast; None without.
        matmul: `torch.set_float32_matmul_precision`.
        metric: the rate's name, with the type whose peak it is compared with.
        scaled: whether the loss is scaled, so that small gradients do not vanish.
        cached: whether autocast keeps the weights that it has cast (`cache_enabled`).
    """

    name: str
    parameters: torch.dtype
    autocast: torch.dtype | None
    matmul: Literal["highest", "high"]
    metric: str
    scaled: bool = False
    cached: bool = True

    @property
    def products(self) -> torch.dtype:
        """The type in which matrix products take their inputs."""
        return self.autocast or self.parameters

    def casting(self, device: torch.device) -> contextlib.AbstractContextManager[object]:
        """Return the context of a forward pass. Every step must enter a new one, as in training."""
        if self.autocast is None:
            return contextlib.nullcontext()
        return torch.autocast(device.type, dtype=self.autocast, cache_enabled=self.cached)

    @contextlib.contextmanager
    def settings(self) -> Iterator[None]:
        """Set how float32 is multiplied (which is torch.backends.cuda.matmul.allow_tf32, too), and restore it."""
        try:
            before = torch.get_float32_matmul_precision()
        except RuntimeError:
            # Since 2.9 torch has settings by library. Once a program has used them, it refuses the old setting.
            with self._library_settings():
                yield
            return
        torch.set_float32_matmul_precision(self.matmul)
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)

    @contextlib.contextmanager
    def _library_settings(self) -> Iterator[None]:
        """Set how each library multiplies float32, and restore it."""
        libraries: list[Any] = [torch.backends.cuda.matmul, torch.backends.mkldnn.matmul]  # type: ignore[attr-defined]
        before = [library.fp32_precision for library in libraries]
        try:
            for library in libraries:
                library.fp32_precision = "ieee" if self.matmul == "highest" else "tf32"
            yield
        finally:
            for library, precision in zip(libraries, before, strict=True):
                library.fp32_precision = precision


_ALL = (
    Precision("fp32", torch.float32, None, "highest", "fp32_TFLOPS"),
    Precision("tf32", torch.float32, None, "high", "tf32_TFLOPS"),
    Precision("bf16_autocast", torch.float32, torch.bfloat16, "highest", "bf16_TFLOPS"),
    Precision(
        "bf16_autocast_uncached",
        torch.float32,
        torch.bfloat16,
        "highest",
        "bf16_TFLOPS",
        cached=False,
    ),
    Precision("fp16_autocast", torch.float32, torch.float16, "highest", "fp16_TFLOPS", scaled=True),
    Precision("bf16", torch.bfloat16, None, "highest", "bf16_TFLOPS"),
)
PRECISIONS: Mapping[str, Precision] = MappingProxyType(
    {precision.name: precision for precision in _ALL}
)


def precision_named(name: str) -> Precision:
    """Return one of `PRECISIONS` by its name.

    Raises:
        ValueError: there is no such precision.
    """
    if name not in PRECISIONS:
        raise ValueError(f"precision is {name!r}; expected one of {', '.join(PRECISIONS)}")
    return PRECISIONS[name]


def why_not(precision: Precision, device: torch.device) -> str:
    """Return why a device does not support a precision; empty if it does.

    The precision is tried, since the support depends on torch, the driver and the environment.
    """
    if precision.name == "tf32":
        return _why_not_tf32(precision, device)
    try:
        product_type = _product_type(precision, device)
        if precision.scaled:
            _scale_once(device)
    except (RuntimeError, TypeError) as error:
        return f"needs {precision.name} on {device.type}, found: {str(error).splitlines()[0]}"
    if product_type != precision.products:
        return (
            f"needs matrix products in {precision.products} on {device.type}, "
            f"found them in {product_type}"
        )
    return ""


def _why_not_tf32(precision: Precision, device: torch.device) -> str:
    """Return why a device does not multiply in TF32; empty if it does."""
    if device.type != "cuda":
        return f"needs TF32, which CUDA and ROCm devices have, found {device.type}"
    values = torch.full((_PROBE, _PROBE), _BEYOND_TF32, device=device)
    with precision.settings():
        product = float((values @ values)[0, 0])
    if product == _PROBE:
        return ""
    return f"needs TF32, found that {torch.cuda.get_device_name(device)} rounds no float32 to it when asked to"


def _product_type(precision: Precision, device: torch.device) -> torch.dtype:
    """Return the type of a matrix product in a precision."""
    # On a device without the type, autocast only warns.
    with warnings.catch_warnings(), precision.casting(device):
        warnings.simplefilter("ignore")
        values = torch.ones(2, 2, device=device, dtype=precision.parameters)
        return (values @ values).dtype


def _scale_once(device: torch.device) -> None:
    """Make one step with a scaled loss. An error shows that this torch cannot do so on the device."""
    parameter = torch.ones(2, device=device, requires_grad=True)
    optimizer, scaler = torch.optim.SGD([parameter], lr=0.1), torch.amp.GradScaler(device.type)
    scaler.scale(parameter.sum()).backward()
    scaler.step(optimizer)
    scaler.update()
