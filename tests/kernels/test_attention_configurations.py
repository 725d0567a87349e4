"""The tiles that attention ships: whole for every architecture, within what the hardware has, and nothing unread."""

import json
import threading
from dataclasses import fields, replace
from importlib import resources
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pytest_roofline.kernel_gate.targets import shared_limits
from roofline_kernels import attention as package
from roofline_kernels.attention.ahead import architectures
from roofline_kernels.attention.architectures import (
    LIKE,
    REFUSED,
    SHARED_BYTES,
    NoSuchArchitecture,
    architecture_of,
    configured_as,
)
from roofline_kernels.attention.configurations import PASSES, TILES, Configuration, chosen, configuration, shipped

ASKED = {"sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "gfx90a", "gfx942", "gfx950"}
WIDTHS = {"16-bit": 2, "32-bit": 4}
MOST_HEAD_DIM = 256
ODD = Configuration(block_m=32, block_n=16, num_warps=2, num_stages=5, waves_per_eu=3)
OTHER = replace(ODD, num_stages=6)
AMD_ONLY = ("waves_per_eu", "matrix_instr_nonkdim")
EVERYWHERE = ("block_m", "block_n", "num_warps", "num_stages")

kernels = st.sampled_from(PASSES)
widths = st.sampled_from(sorted(WIDTHS.values()))
head_dims = st.integers(1, MOST_HEAD_DIM)
tiles = st.sampled_from(TILES)


def entries():
    """Every configuration that is shipped, with where it stands."""
    return [
        ((architecture, kernel, width, size), entry)
        for architecture, kernels in shipped().items()
        for kernel, widths in kernels.items()
        for width, sizes in widths.items()
        for size, entry in sizes.items()
    ]


def wrong(right):
    """The entries of which something is not so."""
    return {where: entry for where, entry in entries() if not right(where, entry)}


def text_of_the_file():
    return resources.files(package).joinpath("configurations.json").read_text(encoding="utf-8")


# What is there


def test_every_architecture_that_was_asked_for_has_configurations_of_its_own():
    assert set(architectures()) >= ASKED


def test_no_configuration_is_of_an_architecture_that_nobody_can_have():
    assert set(architectures()) == set(SHARED_BYTES) - set(LIKE) - set(REFUSED)


def test_an_architecture_has_each_kernel_at_each_width_and_nothing_else():
    for architecture in [*architectures(), "interpreter"]:
        assert {kernel: set(widths) for kernel, widths in shipped()[architecture].items()} == {
            kernel: set(WIDTHS) for kernel in PASSES
        }


@given(
    architecture=st.sampled_from([*architectures(), "interpreter"]), kernel=kernels, width=widths, head_dim=head_dims
)
def test_a_head_dimension_between_entries_takes_the_next_one_up(architecture, kernel, width, head_dim):
    sizes = shipped()[architecture][kernel][f"{8 * width}-bit"]
    above = [size for size in sizes if size >= head_dim]
    assert configuration(architecture, kernel, head_dim, width) == sizes[min(above)]


def test_no_entry_lies_beyond_the_largest_head_dimension_or_between_two_that_any_could_ask_for():
    # Tiles are powers of two wide, so that an entry for another size would be one for the next power.
    sizes = {size for (*_, size), _ in entries()}
    assert sizes <= {16, 32, 64, 128, MOST_HEAD_DIM}


def test_tiles_are_the_powers_of_two_from_16_to_256():
    assert TILES == (16, 32, 64, 128, 256)


# Nothing that nobody reads


def test_no_key_of_the_file_stands_there_twice():
    twice = []

    def noticing(pairs):
        names = [name for name, _ in pairs]
        twice.extend(name for name in names if names.count(name) > 1)
        return dict(pairs)

    json.loads(text_of_the_file(), object_pairs_hook=noticing)
    assert twice == []


def told(entry):
    """What the compiler is to be told of an entry."""
    named = {name: getattr(entry, name) for name in ("num_warps", "num_stages", *AMD_ONLY)}
    return {"enable_fp_fusion": True} | {name: value for name, value in named.items() if value is not None}


def test_the_compiler_is_told_what_an_entry_says():
    assert {} == wrong(lambda where, entry: entry.options() == told(entry))


def may_ask_for(architecture):
    """The fields that mean something there: AMD has its own, and tensor descriptors came with Hopper."""
    if architecture.startswith("gfx"):
        return {*EVERYWHERE, *AMD_ONLY}
    hopper = architecture.startswith("sm_") and int(architecture.removeprefix("sm_")) >= 90
    return {*EVERYWHERE, *(("descriptors", "warp_specialize") if hopper else ())}


def test_no_entry_asks_for_what_its_architecture_does_not_have():
    def asked(entry):
        return {field.name for field in fields(entry) if getattr(entry, field.name) not in (None, False)}

    assert {} == wrong(lambda where, entry: asked(entry) <= may_ask_for(where[0]))


# Architectures


def test_shared_memory_is_what_the_plugin_knows_of_each_target():
    known = shared_limits()
    both = SHARED_BYTES.keys() & known.keys()
    assert {name: SHARED_BYTES[name] for name in both} == {name: known[name] for name in both}
    assert both >= ASKED


def test_what_is_like_another_takes_its_configurations():
    for architecture, other in LIKE.items():
        assert other in architectures(), (architecture, other)
        found = [configuration(architecture, kernel, 64, 2) for kernel in PASSES]
        assert found == [configuration(other, kernel, 64, 2) for kernel in PASSES], (architecture, other)


def test_an_architecture_without_matrix_instructions_is_refused_with_the_reason():
    for architecture in ["sm_70", "sm_75"]:
        sentence = (
            rf"flash_attention on {architecture}: Triton has had no matrix instructions .*expected sm_80 or newer"
        )
        for kernel in PASSES:
            with pytest.raises(NoSuchArchitecture, match=sentence):
                configuration(architecture, kernel, 64, 2)


def test_an_unknown_architecture_is_refused_with_those_that_are_known():
    for architecture in ["sm_60", "gfx1100", "sm90", "SM_90", ""]:
        with pytest.raises(NoSuchArchitecture, match=f"flash_attention on {architecture}: no configuration") as refusal:
            configured_as(architecture)
        message = str(refusal.value)
        assert [name for name in [*architectures(), *LIKE] if name not in message] == [], architecture
        assert [name for name in REFUSED if name in message] == [], architecture


def test_a_cpu_is_for_checking_only():
    assert configured_as(architecture_of(torch.device("cpu"))) == "interpreter"


@pytest.mark.parametrize(
    ("hip", "properties", "expected"),
    [
        (None, {"major": 9, "minor": 0}, "sm_90"),
        (None, {"major": 10, "minor": 3}, "sm_103"),
        ("6.4", {"major": 9, "minor": 4, "gcnArchName": "gfx942:sramecc+:xnack-"}, "gfx942"),
        ("6.4", {"major": 9, "minor": 0, "gcnArchName": "gfx90a"}, "gfx90a"),
    ],
)
def test_a_gpu_is_named_as_compilers_name_it(monkeypatch, hip, properties, expected):
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(**properties))
    assert architecture_of(torch.device("cuda", 1)) == expected


# A tile in place of the entry's own


def test_other_tiles_are_refused_with_those_that_there_are():
    for tile in [0, 1, 8, 24, 48, 512, -16, "64", True]:
        with pytest.raises(ValueError, match=rf"tile is {tile!r}; expected one of 16, 32, 64, 128, 256, or None"):
            configuration("sm_90", "forward", 64, 2, tile)


# Configurations that are chosen for a while


def found(kernel="forward", **changes):
    return configuration(**{"architecture": "sm_90", "kernel": kernel, "head_dim": 64, "element_bytes": 2} | changes)


def shipped_ones():
    return {kernel: shipped()["sm_90"][kernel]["16-bit"][64] for kernel in PASSES}


def all_found():
    return {kernel: found(kernel) for kernel in PASSES}


def test_a_chosen_configuration_is_taken_for_its_kernel_alone():
    for kernel in PASSES:
        with chosen(**{kernel: ODD}):
            assert all_found() == shipped_ones() | {kernel: ODD}, kernel
        assert all_found() == shipped_ones(), kernel


def test_a_chosen_configuration_is_taken_whatever_is_asked_for():
    for changes in [
        {"head_dim": 256},
        {"element_bytes": 4},
        {"architecture": "gfx942"},
        {"architecture": "interpreter"},
        {"tile": 16},
    ]:
        with chosen(forward=ODD):
            assert found(**changes) == ODD, changes


def test_the_inner_of_two_choices_holds_while_it_lasts():
    with chosen(forward=ODD):
        with chosen(forward=OTHER):
            assert found() == OTHER
        assert found() == ODD


def test_an_exception_ends_a_choice():
    with pytest.raises(RuntimeError, match="no luck"), chosen(forward=ODD):
        raise RuntimeError("no luck")
    assert all_found() == shipped_ones()


def test_a_choice_holds_in_every_thread():
    """Autograd runs the backward pass of a GPU in a thread of its own."""
    seen = []
    with chosen(d_keys=ODD):
        thread = threading.Thread(target=lambda: seen.append(found("d_keys")))
        thread.start()
        thread.join()
    assert seen == [ODD]


def test_a_kernel_that_there_is_not_cannot_be_chosen_for():
    for name in ["delta", "backward", "Forward"]:
        expected = rf"configurations are chosen for {name}; expected some of forward, d_keys, d_queries"
        with pytest.raises(ValueError, match=expected), chosen(**{name: ODD}):
            pass
        assert all_found() == shipped_ones(), name


def test_a_triton_that_is_too_old_is_refused_with_both_versions(monkeypatch):
    monkeypatch.setattr("triton.__version__", "3.5.1")
    tensor = torch.ones(1, 1, 2, 16)
    with pytest.raises(ImportError, match=r"needs Triton 3\.6 or newer, found 3\.5\.1") as refusal:
        package.flash_attention(tensor, tensor, tensor)
    assert refusal.value.name == "triton"
