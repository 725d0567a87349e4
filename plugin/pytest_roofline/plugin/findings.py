"""The results of a test besides times: figures, compiled kernels, and the memory of a call by category."""

import contextlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ..baselines.exact import check_slack
from ..core.errors import BadInput, DoesNotFit, short_repr
from ..core.features import require
from ..core.memory import MemoryUse
from ..core.profiles import UNITS, Figure, Unit
from ..core.resources import ResourceKey, Resources, with_target
from ..core.units import encodable
from ..engine.request import Timed
from .observing import MemoryPhase, notice
from .recording import CurrentTest
from .selection import marks_of

if TYPE_CHECKING:
    import torch

    from ..kernel_gate.compile import KernelBinary
    from ..observe.memory_use import FollowedCall


class Findings:
    """The methods of the fixture `roofline` that time nothing."""

    _test: CurrentTest

    def resources(
        self,
        kernel: object,
        *,
        target: str | None = None,
        arguments: Mapping[str, object] | None = None,
        options: Mapping[str, object] | None = None,
        name: str | None = None,
        slack: Mapping[str, int] | None = None,
    ) -> Resources:
        """Compile a Triton kernel for a target, and judge its resources.

        The target need not be here. Nothing is launched and nothing is timed. The figures are read from the binary:
        registers, shared memory, spills, matrix instructions. They are the same every time, so any that is worse turns
        the test red.

        Args:
            kernel: a function under `@triton.jit` or `@gluon.jit`; or a kernel that was compiled already, as `warmup`
                or a launch returns it, and then nothing but `name` and `slack` beside it.
            target: `sm_90`, `sm_100`, `gfx942`, ….
            arguments: what the kernel is called with, by parameter: a type as Triton writes it (`*bf16:16`, `i32:16`),
                a tensor (on the meta device too), its descriptor, a torch dtype, a number, a bool, None; and the
                constants' values.
            options: of Triton's compiler: num_warps, num_stages, enable_fp_fusion, ….
            name: tells several kernels of one test apart that are compiled for one target.
            slack: by figure, how much worse it may be before that is red: `{"registers": 8}`.

        Returns:
            What was found, so that the test can also say `assert found.spills == 0`.

        Raises:
            BadInput: an argument or option cannot be used as given.
            CompileFailed: the compiler refuses, or its result cannot be read.
            DoesNotFit: it needs more shared memory than the target has.
        """
        self._test.require_open()
        require("kernel_gate")
        from ..kernel_gate.targets import above_limit, shared_limits

        test, allowed = self._test, check_slack(slack)
        compiled = _compile(kernel, target, arguments, options)
        kernel_name = test.unique_name(f"{compiled.target} kernel", name)
        plan, limit_error = test.planned, above_limit(compiled.target, compiled.figures)
        resources = Resources(
            key=ResourceKey(plan.benchmark, plan.parameters, compiled.target, kernel_name),  # type: ignore[arg-type]
            test_id=test.test_id,
            label=with_target(test.label(kernel_name), compiled.target),
            process=test.session.process,
            figures=compiled.figures,
            options=compiled.options,
            arguments=compiled.arguments,
            compiler=compiled.compiler,
            slack=allowed,
            shared_limit_bytes=shared_limits().get(compiled.target),
            unread=compiled.unread,
            warning=compiled.warning,
            invalid=limit_error,
            tier=test.marks.tier,
            marks=marks_of(test.item),
        )
        test.session.record(resources)
        if limit_error:
            raise DoesNotFit(
                f"{resources.label}: {limit_error}; the compiler accepts the kernel, but every launch of it would fail"
            )
        return resources

    def figure(self, name: str, value: float, unit: Unit) -> Figure:
        """Write down a figure that is shown, and never judged.

        It is written into the run file at once, and into no baseline. In a further round of the same test the record
        is written again, and nothing more is shown.

        Args:
            name: what it is, once a test: `efficiency`.
            value: a finite number in `unit`.
            unit: `B`, `s`, `share` (of 1), `count`, `FLOP`, `B/s`, `tokens/s` or `x` (a factor).

        Raises:
            BadInput: another unit, no finite number, or a name that the test gave before.
        """
        self._test.require_open()
        test = self._test
        if not (isinstance(name, str) and name):
            raise BadInput(f"the name of a figure is {name!r}; expected text")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise BadInput(
                f"the figure {name!r} is {short_repr(value)}; expected a number, in a unit of {', '.join(UNITS)}"
            )
        # The record itself refuses an unknown unit, and a value that is not finite.
        figure = Figure(
            test_id=test.test_id,
            label=test.label(""),
            process=test.session.process,
            name=encodable(name),
            value=float(value),
            unit=unit,
        )
        test.unique_name("figure", figure.name)
        test.session.note(figure)
        return figure

    def memory(
        self,
        fn: Callable[..., object],
        *args: object,
        make_args: Callable[[], object] | None = None,
        model: "torch.nn.Module | None" = None,
        optimizer: "torch.optim.Optimizer | None" = None,
        name: str | None = None,
    ) -> MemoryUse:
        """Call `fn` once, untimed, and return its peak memory by category.

        Every operator is followed, so the call is slow, and compiled code runs operator by operator. The record stands
        in the run file at once and is shown after the results; it is never judged. A first step also makes what later
        ones find: to see a steady one, call it after `measure`.

        Args:
            fn: called as `fn(*args)`; its result is kept until the call has been looked at.
            args: its arguments.
            make_args: makes one set of arguments.
            model: whose parameters, buffers and gradients were there before the call; its forward pass shows them too.
            optimizer: whose state was there before the call; a step inside the call is seen without.
            name: tells several calls of one test apart.

        Returns:
            The peak with what it is made of, in bytes, so that the test can assert on it.

        Raises:
            BadInput: an argument cannot be used as given, or nothing of the call lies on the device.
            Exception: whatever `fn` raises, out of memory included; nothing stays hooked into the model.
        """
        self._test.require_open()
        require("observe")
        from ..observe.memory_use import FollowedCall

        test = self._test
        if not callable(fn):
            raise BadInput(f"roofline.memory got {fn!r}; expected a function")
        timed = Timed(fn, make_args=make_args, args=args or None)
        use_name = test.unique_name("memory use", name)
        device = test.session.under_test.device
        arguments: list[object] = []
        call = FollowedCall(fn, arguments, model, optimizer)
        empty = MemoryUse(
            test_id=test.test_id,
            label=test.label(use_name),
            process=test.session.process,
            device=device.name,
            name=use_name,
            peak_bytes=0,
        )
        use = _follow_call(MemoryPhase(device, use_name, "memory"), call, arguments, timed, empty)
        test.session.note(use)
        return use


def _follow_call(
    place: MemoryPhase,
    call: "FollowedCall",
    arguments: list[object],
    timed: Timed,
    empty: MemoryUse,
) -> MemoryUse:
    """Return the memory use of a call.

    It is `empty` with figures. Its arguments are made here, into the list `arguments` that the call reads. They are
    freed in any case, and so are the caches of the device.
    """
    require("observe")
    from ..observe.memory_use import follow

    try:
        arguments.extend(timed.arguments())
        return follow(place.device, call, empty)
    except BaseException as error:
        # The state of the memory is kept with the error, so it is read before anything is released.
        notice(error, place)
        raise
    finally:
        # The traceback of a failure keeps the call alive, and with it the list, so the list is emptied.
        arguments.clear()
        # A device that cannot release memory has failed before, and that failure is the one to report.
        with contextlib.suppress(Exception):
            place.device.release()


def _compile(
    kernel: object,
    target: str | None,
    arguments: Mapping[str, object] | None,
    options: Mapping[str, object] | None,
) -> "KernelBinary":
    """Compile a kernel for a target, or read a compiled one."""
    require("kernel_gate")
    from ..kernel_gate.compile import compile_for, is_compiled, read

    if is_compiled(kernel):
        compile_arguments = {"target": target, "arguments": arguments, "options": options}
        names = [argument for argument, value in compile_arguments.items() if value is not None]
        if names:
            raise BadInput(
                f"{' and '.join(names)} given together with a compiled kernel. Pass only the compiled kernel"
            )
        return read(kernel)
    if target is None:
        raise BadInput(
            "no target is given; expected the GPU architecture to compile for, such as target='sm_90' or "
            "target='gfx942'"
        )
    _refuse_no_mapping("arguments", arguments or {})
    _refuse_no_mapping("options", options or {})
    return compile_for(kernel, target, arguments or {}, options)


def _refuse_no_mapping(argument: str, value: object) -> None:
    """Raise if the value of an argument is no mapping."""
    if not isinstance(value, Mapping):
        raise BadInput(
            f"{argument} is {value!r}; expected a mapping from names to values, such as {{'BLOCK': 128}}"
        )
