"""What mixed precision does to numbers: sums in few digits, and the types that autocast gives to the parts of a model.

Both are facts about a torch release and the device, not about speed.
"""

from collections.abc import Mapping
from contextlib import ExitStack

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.hooks import RemovableHandle

# The parts of a toy model whose types autocast decides, in the order in which they come to be.
PARTS = ("parameters", "fc1", "LayerNorm", "logits", "loss", "gradients")
LABELS = {
    torch.float32: "FP32",
    torch.float16: "FP16",
    torch.bfloat16: "BF16",
    torch.float64: "FP64",
}
# Rows, features, hidden features and classes: small, and no two alike.
ROWS, FEATURES, HIDDEN, CLASSES = 8, 20, 10, 5


class ToyModel(nn.Module):
    """A linear layer, ReLU, LayerNorm and another linear layer: [ROWS, FEATURES] to logits [ROWS, CLASSES]."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(FEATURES, HIDDEN, bias=False)
        self.relu = nn.ReLU()
        self.norm = nn.LayerNorm(HIDDEN)
        self.fc2 = nn.Linear(HIDDEN, CLASSES, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits [ROWS, CLASSES]."""
        logits: Tensor = self.fc2(self.norm(self.relu(self.fc1(x))))
        return logits


def accumulate(
    sum_dtype: torch.dtype,
    term_dtype: torch.dtype,
    *,
    converted: bool = False,
    device: torch.device | str = "cpu",
    terms: int = 1000,
    value: float = 0.01,
) -> Tensor:
    """Return a sum of equal terms, added in place one by one and rounded after each addition.

    Args:
        sum_dtype: of the sum.
        term_dtype: in which each term is stored.
        converted: whether each term is converted to the sum's type before it is added, instead of by the addition.
        device: where it is summed.
        terms: how many.
        value: of each, before it is rounded to its type.

    Returns:
        The sum: a tensor without dimensions, of `sum_dtype`.
    """
    total = torch.tensor(0, dtype=sum_dtype, device=device)
    for _ in range(terms):
        term = torch.tensor(value, dtype=term_dtype, device=device)
        total += term.to(sum_dtype) if converted else term
    return total


def autocast_dtypes(
    device: torch.device | str, dtype: torch.dtype, model: nn.Module | None = None
) -> dict[str, torch.dtype]:
    """Return the types of one training pass under autocast, by part.

    Args:
        device: where the pass runs.
        dtype: the type that autocast is asked for.
        model: has the submodules `fc1`, `norm` and `fc2` as `ToyModel` has, which is taken by default.

    Returns:
        The type of each of `PARTS`: parameters within autocast, outputs of the first layer and of LayerNorm, logits,
        cross entropy, and gradients after a backward pass outside autocast.

    Raises:
        ValueError: parameters differ among themselves in type, or gradients do.
    """
    device = torch.device(device)
    model = (ToyModel() if model is None else model).to(device)
    outputs: dict[str, torch.dtype] = {}
    with ExitStack() as hooks:
        for part, name in (("fc1", "fc1"), ("LayerNorm", "norm"), ("logits", "fc2")):
            hooks.enter_context(_noting(model.get_submodule(name), part, outputs))
        loss, parameters = _forward(model, device, dtype)
    loss.backward()
    gradients = _only(
        "gradients", [one.grad.dtype for one in model.parameters() if one.grad is not None]
    )
    return {"parameters": parameters, **outputs, "loss": loss.dtype, "gradients": gradients}


def dtype_table(
    found: Mapping[str, torch.dtype], expected: Mapping[str, torch.dtype] | None = None
) -> str:
    """Types by part as lines of text, beside those that were expected, where they are given."""
    lines = [f"{'part':<12}{'found':<8}{'expected' if expected else ''}".rstrip()]
    for part in found:
        told = LABELS[expected[part]] if expected else ""
        differs = " <- differs" if expected and expected[part] != found[part] else ""
        lines.append(f"{part:<12}{LABELS[found[part]]:<8}{told}{differs}".rstrip())
    return "\n".join(lines)


def _noting(module: nn.Module, part: str, outputs: dict[str, torch.dtype]) -> RemovableHandle:
    """Return a context that notes the type of a module's output in `outputs`."""

    def note(_: nn.Module, __: object, output: Tensor) -> None:
        outputs[part] = output.dtype

    return module.register_forward_hook(note)


def _forward(
    model: nn.Module, device: torch.device, dtype: torch.dtype
) -> tuple[Tensor, torch.dtype]:
    """Return the loss of one batch under autocast, and the type of the parameters there."""
    inputs = torch.randn(ROWS, FEATURES, device=device)
    targets = torch.randint(0, CLASSES, (ROWS,), device=device)
    with torch.autocast(device.type, dtype=dtype):
        parameters = _only("parameters", [one.dtype for one in model.parameters()])
        return functional.cross_entropy(model(inputs), targets), parameters


def _only(what: str, dtypes: list[torch.dtype]) -> torch.dtype:
    """Return the type that all have. Raise ValueError if they differ."""
    if len(set(dtypes)) != 1:
        told = ", ".join(sorted(LABELS.get(one, str(one)) for one in set(dtypes))) or "none"
        raise ValueError(f"the {what} have the types {told}; expected one type for all of them")
    return dtypes[0]
