"""One compiled kernel of a test: from the call of `roofline.resources` to the record in the run file."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..core.errors import BadInput, DoesNotFit
from ..core.resources import ResourceKey, Resources, with_target
from ..kernel_gate.judging import check_slack
from ..kernel_gate.targets import above_limit, shared_limits
from .current_test import CurrentTest

if TYPE_CHECKING:
    from ..kernel_gate.compile import Compiled


def take(
    test: CurrentTest,
    kernel: object,
    *,
    target: str | None,
    arguments: Mapping[str, object] | None,
    options: Mapping[str, object] | None,
    name: str | None,
    slack: Mapping[str, int] | None,
) -> Resources:
    """Compile a kernel for one test, read its binary, and write down what it asks for.

    Raises:
        BadInput: an argument cannot be used as given.
        CompileFailed: the compiler refuses, or its result cannot be read.
        DoesNotFit: it needs more shared or tensor memory than the target has.
    """
    __tracebackhide__ = True
    allowed = check_slack(slack)
    compiled = _compile(kernel, target, arguments, options)
    called = test.fresh_name(name, compiled.target)
    plan, session = test.planned, test.session
    key = ResourceKey(plan.benchmark, plan.parameters, compiled.target, called)  # type: ignore[arg-type]
    too_much = above_limit(compiled.target, compiled.figures)
    resources = Resources(
        key=key,
        test_id=test.test_id,
        label=with_target(test.label(called), compiled.target),
        process=session.process,
        figures=compiled.figures,
        options=compiled.options,
        arguments=compiled.arguments,
        compiler=compiled.compiler,
        slack=allowed,
        shared_limit_bytes=shared_limits().get(compiled.target),
        unread=compiled.unread,
        invalid=too_much,
    )
    session.record_resources(resources)
    if too_much:
        raise DoesNotFit(f"{resources.label}: {too_much}; the compiler does not say so, a launch would")
    return resources


def _compile(
    kernel: object,
    target: str | None,
    arguments: Mapping[str, object] | None,
    options: Mapping[str, object] | None,
) -> "Compiled":
    __tracebackhide__ = True
    from ..kernel_gate.compile import compile_for, is_compiled, read

    if is_compiled(kernel):
        given = {"target": target, "arguments": arguments, "options": options}
        named = [what for what, value in given.items() if value is not None]
        if named:
            raise BadInput(f"{' and '.join(named)} given for a kernel that is compiled already; expected it alone")
        return read(kernel)
    if target is None:
        raise BadInput("no target is given; expected what to compile for, such as target='sm_90' or target='gfx942'")
    _refuse_no_mapping("arguments", arguments or {})
    _refuse_no_mapping("options", options or {})
    return compile_for(kernel, target, arguments or {}, options)


def _refuse_no_mapping(what: str, value: object) -> None:
    if not isinstance(value, Mapping):
        raise BadInput(f"{what} is {value!r}; expected a mapping by name: {{'BLOCK': 128}}")
