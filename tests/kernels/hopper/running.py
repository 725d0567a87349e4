"""A launch of a Gluon kernel, program after program, on a pretended multiprocessor."""

import types

import torch
import triton
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper

from .language import Descriptor, Pointer, language
from .machine import Machine


def run_kernel(kernel, programs, arguments, *, seed):
    """Run a kernel over a grid on CPU tensors, its events in the order of a seed.

    Args:
        kernel: a function decorated with `gluon.jit`.
        programs: of its flat grid.
        arguments: by name: descriptors, tensors for pointers, numbers and the values of constants.
        seed: another one makes copies and partitions come in another order.

    Raises:
        Fault: the kernel does what hardware does not forgive.
    """
    made = {name: _argument(value) for name, value in arguments.items()}
    for program in range(programs):
        machine = Machine(program, programs, seed * 1000 + program)
        _twin(kernel, _words(language(machine)), {})(**made)


def _argument(value):
    if hasattr(value, "block_shape"):
        return Descriptor(value.base.detach(), list(value.block_shape))
    return Pointer(value) if torch.is_tensor(value) else value


# The words of `tma` as the newest Triton has them, and as 3.6 has.
OLDER = {"async_load": "async_copy_global_to_shared", "async_store": "async_copy_shared_to_global"}


def _words(pretended):
    """What takes the place of each of Gluon's words, by the identity of the word."""
    words = {id(gl): pretended.gl}
    words |= {
        id(getattr(hopper, name)): word for name, word in vars(pretended).items() if name != "gl"
    }
    for name, older in OLDER.items():
        for spelled in (name, older):
            if hasattr(hopper.tma, spelled):
                words[id(getattr(hopper.tma, spelled))] = getattr(pretended.tma, name)
    return words


def _twin(kernel, words, twins):
    """A kernel as a function of Python, and those that it calls."""
    function = kernel.fn
    if function not in twins:
        scope = {}
        twins[function] = types.FunctionType(
            function.__code__, scope, function.__name__, function.__defaults__
        )
        for name, value in function.__globals__.items():
            called = isinstance(value, triton.JITFunction)
            scope[name] = _twin(value, words, twins) if called else words.get(id(value), value)
    return twins[function]
