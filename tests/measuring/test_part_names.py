"""Parts of a model have one name, in profiles as in uses of memory, whoever wrapped them."""

import pytest
import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

from pytest_roofline.measuring.memory_use.places import Places
from pytest_roofline.measuring.part_names import class_name, part_names


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("blocks.3._orig_mod.core", "blocks.3.core"),
        ("_checkpoint_wrapped_module", ""),
        ("", ""),
        ("a.module", "a.module"),
    ],
)
def test_a_part_is_named_without_its_wrappers(path, name):
    assert name == part_names(nn.Linear(1, 1))(path)


def test_a_wrapped_model_is_named_after_what_is_in_it():
    inside = nn.Sequential(nn.Linear(1, 1))
    wrapped = torch.compile(nn.DataParallel(inside))
    assert "Sequential" == class_name(wrapped) == class_name(inside)
    assert "0.weight" == part_names(wrapped)("_orig_mod.module.0.weight")
    assert "" == part_names(wrapped)("_orig_mod.module")


def test_a_part_that_its_author_calls_module_keeps_its_name():
    model = nn.ModuleDict({"module": nn.Linear(1, 1), "head": nn.Linear(1, 1)})
    assert "module.weight" == part_names(model)("module.weight")


def test_places_of_memory_are_named_without_wrappers_too():
    model = nn.DataParallel(nn.Sequential(checkpoint_wrapper(nn.Sequential(nn.Linear(1, 1)))))
    places = Places(model, {"0.0": 4})
    assert {"", "0", "0.0"} == places.names
    assert "0.0.weight" == places.parameter(next(model.parameters()))
    with places.followed():
        model.module(torch.ones(3, 1))
    assert {"0.0": 12} == places.outputs
