"""What the parts of a model are called, whoever wrapped it: compiled, data parallel, checkpointed or sharded."""

from collections.abc import Callable

from torch import nn

# No author of a model gives a part one of these names.
WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
# Data parallel modules have it alone, and nothing beside it.
PARALLEL = "module"


def part_names(model: nn.Module) -> Callable[[str], str]:
    """How a path of `named_modules` or `named_parameters` is turned into what the model's author calls it.

    The model itself has an empty name: `module.blocks.3.attention` becomes `blocks.3.attention`, `module` nothing.
    """
    _, wrapped = _unwrapped(model)

    def plain(path: str) -> str:
        return ".".join(part for part in path.split(".")[wrapped:] if part not in WRAPPERS)

    return plain


def class_name(model: nn.Module) -> str:
    """The class of a model inside its wrappers."""
    return type(_unwrapped(model)[0]).__name__


def _unwrapped(model: nn.Module) -> tuple[nn.Module, int]:
    """What is in the wrappers around a model, and how many those are."""
    children = dict(model.named_children())
    if len(children) != 1 or not children.keys() <= {PARALLEL, *WRAPPERS}:
        return model, 0
    inner, wrapped = _unwrapped(*children.values())
    return inner, wrapped + 1
