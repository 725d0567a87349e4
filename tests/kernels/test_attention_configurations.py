"""The tiles that attention ships: whole for every architecture, within what hardware has, chosen for a while."""

import threading
from dataclasses import fields, replace
from types import SimpleNamespace

import pytest
import torch

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
from roofline_kernels.attention.configurations import (
    PASSES,
    Configuration,
    chosen,
    configuration,
    shipped,
)

ASKED = {"sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "gfx90a", "gfx942", "gfx950"}
ODD = Configuration(block_m=32, block_n=16, num_warps=2, num_stages=5, waves_per_eu=3)
AMD_ONLY = ("waves_per_eu", "matrix_instr_nonkdim")


def may_ask_for(architecture):
    """The fields that mean something there: AMD has its own, and tensor descriptors came with Hopper."""
    everywhere = {"block_m", "block_n", "num_warps", "num_stages"}
    if architecture.startswith("gfx"):
        return {*everywhere, *AMD_ONLY}
    hopper = architecture.startswith("sm_") and int(architecture.removeprefix("sm_")) >= 90
    return {*everywhere, *(("descriptors", "warp_specialize") if hopper else ())}


def test_every_architecture_has_each_kernel_at_each_width_and_asks_for_nothing_that_it_lacks():
    assert set(architectures()) >= ASKED
    assert set(architectures()) == set(SHARED_BYTES) - set(LIKE) - set(REFUSED)
    for architecture in [*architectures(), "interpreter"]:
        assert set(shipped()[architecture]) == set(PASSES)
        for kernel, widths in shipped()[architecture].items():
            assert set(widths) == {"16-bit", "32-bit"}, (architecture, kernel)
            for entry in (entry for sizes in widths.values() for entry in sizes.values()):
                asked = {
                    field.name
                    for field in fields(entry)
                    if getattr(entry, field.name) not in (None, False)
                }
                assert asked <= may_ask_for(architecture), (architecture, kernel)
                named = {
                    name: getattr(entry, name) for name in ("num_warps", "num_stages", *AMD_ONLY)
                }
                told = {"enable_fp_fusion": True} | {
                    name: one for name, one in named.items() if one is not None
                }
                assert entry.options() == told, (architecture, kernel)


def test_a_head_dimension_between_entries_takes_the_next_one_up():
    for architecture in [*architectures(), "interpreter"]:
        for kernel, width, head_dim in [
            ("forward", 2, 1),
            ("d_keys", 4, 65),
            ("d_queries", 2, 256),
        ]:
            sizes = shipped()[architecture][kernel][f"{8 * width}-bit"]
            # Tiles are powers of two wide: an entry for another size would be one for the next power.
            assert sizes.keys() <= {16, 32, 64, 128, 256}
            expected = sizes[min(size for size in sizes if size >= head_dim)]
            assert configuration(architecture, kernel, head_dim, width) == expected, (
                architecture,
                kernel,
            )


def test_shared_memory_is_what_the_plugin_knows_and_what_is_like_another_takes_its_configurations():
    known = shared_limits()
    both = SHARED_BYTES.keys() & known.keys()
    assert {name: SHARED_BYTES[name] for name in both} == {name: known[name] for name in both}
    assert both >= ASKED
    for architecture, other in LIKE.items():
        found, expected = (
            [configuration(one, kernel, 64, 2) for kernel in PASSES]
            for one in (architecture, other)
        )
        assert found == expected, (architecture, other)


def test_an_architecture_that_is_refused_or_unknown_is_told_with_what_is_expected():
    for architecture in ["sm_70", "sm_75"]:
        told = f"flash_attention on {architecture}: Triton has had no matrix instructions .*expected sm_80 or newer"
        with pytest.raises(NoSuchArchitecture, match=told):
            configuration(architecture, "forward", 64, 2)
    for architecture in ["sm_60", "gfx1100", "SM_90", ""]:
        with pytest.raises(
            NoSuchArchitecture, match=f"flash_attention on {architecture}: no config"
        ) as refusal:
            configured_as(architecture)
        message = str(refusal.value)
        assert [name for name in [*architectures(), *LIKE] if name not in message] == [], (
            architecture
        )
        assert [name for name in REFUSED if name in message] == [], architecture


def test_a_gpu_is_named_as_compilers_name_it_and_a_cpu_interprets(monkeypatch):
    assert configured_as(architecture_of(torch.device("cpu"))) == "interpreter"
    for hip, properties, expected in [
        (None, {"major": 9, "minor": 0}, "sm_90"),
        (None, {"major": 10, "minor": 3}, "sm_103"),
        ("6.4", {"major": 9, "minor": 4, "gcnArchName": "gfx942:sramecc+:xnack-"}, "gfx942"),
        ("6.4", {"major": 9, "minor": 0, "gcnArchName": "gfx90a"}, "gfx90a"),
    ]:
        found = SimpleNamespace(**properties)
        monkeypatch.setattr(torch.version, "hip", hip)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device, found=found: found)
        assert architecture_of(torch.device("cuda", 1)) == expected


# Chosen in place of the entry's own


def all_found():
    return {kernel: configuration("sm_90", kernel, 64, 2) for kernel in PASSES}


def test_a_chosen_configuration_holds_for_its_kernel_everywhere_and_until_its_end():
    shipped_ones = {kernel: shipped()["sm_90"][kernel]["16-bit"][64] for kernel in PASSES}
    other, seen = replace(ODD, num_stages=6), []
    for kernel in PASSES:
        with chosen(**{kernel: ODD}):
            assert all_found() == shipped_ones | {kernel: ODD}
    with chosen(d_keys=ODD):
        for asked in [("sm_90", 256, 2, None), ("gfx942", 64, 4, None), ("interpreter", 64, 2, 16)]:
            architecture, head_dim, width, tile = asked
            assert configuration(architecture, "d_keys", head_dim, width, tile) == ODD, asked
        with chosen(d_keys=other):
            assert all_found()["d_keys"] == other
        # Autograd runs the backward pass of a GPU in a thread of its own.
        thread = threading.Thread(target=lambda: seen.append(all_found()["d_keys"]))
        thread.start()
        thread.join()
        assert seen == [ODD]
    with pytest.raises(RuntimeError, match="no luck"), chosen(forward=ODD):
        raise RuntimeError("no luck")
    assert all_found() == shipped_ones


def test_kernels_and_tiles_that_there_are_not_are_refused_with_those_that_there_are():
    for name in ["delta", "Forward"]:
        told = rf"configurations are chosen for {name}; expected some of forward, d_keys, d_queries"
        with pytest.raises(ValueError, match=told), chosen(**{name: ODD}):
            pass
    for tile in [0, 8, 48, 512, "64", True]:
        with pytest.raises(
            ValueError, match=rf"tile is {tile!r}; expected one of 16, 32, 64, 128, 256, or None"
        ):
            configuration("sm_90", "forward", 64, 2, tile)


def test_a_triton_that_is_too_old_is_refused_with_both_versions(monkeypatch):
    monkeypatch.setattr("triton.__version__", "3.5.1")
    tensor = torch.ones(1, 1, 2, 16)
    with pytest.raises(ImportError, match=r"needs Triton 3\.6 or newer, found 3\.5\.1") as refusal:
        package.flash_attention(tensor, tensor, tensor)
    assert refusal.value.name == "triton"
