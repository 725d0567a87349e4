"""Launches of single kernels and whole attentions, timed by the plugin's engine and held against the reference."""

from collections.abc import Callable
from dataclasses import replace

import torch
from triton.compiler.errors import CompilationError
from triton.runtime.errors import OutOfResources

from pytest_roofline.core.memory import out_of_memory
from pytest_roofline.core.samples import Samples
from pytest_roofline.engine.devices import Device
from pytest_roofline.engine.timing import Engine, Plan
from roofline_kernels.attention import launches
from roofline_kernels.attention.architectures import architecture_of
from roofline_kernels.attention.checking import right
from roofline_kernels.attention.configurations import Configuration, chosen
from roofline_kernels.attention.implementations import (
    Case,
    Unavailable,
    implementation,
    make_case,
    pass_of,
)
from roofline_kernels.attention.launching import Launch, TileTooLarge
from tuning.log import Peer, Step, Tried
from tuning.problems import Problem, Setting

# What says that one candidate is no good; everything else may have spoiled the device, and ends the sweep.
REFUSED = (TileTooLarge, OutOfResources, CompilationError, AssertionError)


class Bench:
    """The tensors of one setting, on a device, with everything in place that its three kernels read.

    Args:
        device: of the plugin.
        setting: the shape.
        budget_s: what one timing may take, in seconds.
    """

    def __init__(self, device: Device, setting: Setting, budget_s: float) -> None:
        self.device, self.setting, self.budget_s = device, setting, budget_s
        self.torch_device = torch.device(device.name)
        self.case = _case(setting, self.torch_device)
        self._q, self._k, self._v = (tensor.detach() for tensor in self.case.inputs)
        self._out, *self._gradients = (torch.empty_like(self._q) for _ in range(4))
        self._lse = torch.empty(self._q.shape[:3], dtype=torch.float32, device=self.torch_device)
        self._sums = torch.empty_like(self._lse)
        architecture = architecture_of(self.torch_device)
        self._asked = launches.Problem(architecture, 0, setting.causal, setting.head_dim**-0.5)
        self._written = {
            "forward": (self._out, self._lse),
            "d_queries": (self._gradients[0],),
            "d_keys": tuple(self._gradients[1:]),
        }
        self._prepare()

    def _prepare(self) -> None:
        """All results by the shipped configurations, so that each kernel reads what it would read in a whole pass."""
        self.launch("forward").run(self.torch_device)
        launches.delta(self._out, self.case.d_out, None, self._sums, None).run(self.torch_device)
        for kernel in ("d_keys", "d_queries"):
            self.launch(kernel).run(self.torch_device)

    def launch(self, kernel: str, configuration: Configuration | None = None) -> Launch:
        """The launch of a kernel on these tensors, as attention itself would make it."""
        with chosen(**({} if configuration is None else {kernel: configuration})):
            if kernel == "forward":
                return launches.forward(
                    self._asked, self._q, self._k, self._v, self._out, self._lse
                )
            saved = launches.Saved(
                self._q, self._k, self._v, self.case.d_out, self._lse, self._sums
            )
            if kernel == "d_keys":
                return launches.d_keys(self._asked, saved, *self._gradients[1:])
            return launches.d_queries(self._asked, saved, self._gradients[0])

    def time(
        self, problem: Problem, configuration: Configuration, step: Step, turn: int = 0
    ) -> Tried:
        """Seconds of a launch whose results are right, or why there are none.

        Raises:
            Exception: what may have spoiled the device for every later launch.
        """
        tried = Tried(problem, configuration, step, turn)
        written = self._written[problem.kernel]
        kept = [tensor.clone() for tensor in written]
        for tensor in written:
            # What a launch leaves out is no number, and so it is found.
            tensor.fill_(float("nan"))
        try:
            launch = self.launch(problem.kernel, configuration)
            samples = self.samples(lambda: launch.run(self.torch_device))
            self._check("forward" if problem.kernel == "forward" else "backward")
            return replace(
                tried, seconds=samples.median_s, trouble=samples.trouble, labels=samples.labels
            )
        except REFUSED as error:
            return replace(tried, trouble=_sentence(error))
        finally:
            # The kernels after this one read what is right.
            for tensor, before in zip(written, kept, strict=True):
                tensor.copy_(before)

    def _check(self, passes: str) -> None:
        # Of whole self-attention every query sees a key.
        assert torch.isfinite(self._lse).all(), "the log-sum-exp is not finite"
        self.case.out, self.case.gradients = self._out, tuple(self._gradients)
        right(self.case, passes=passes)

    def samples(self, call: Callable[[], object]) -> Samples:
        """What the engine takes of a call."""
        engine = Engine(self.device, Plan(call, sets=[()], budget_s=self.budget_s))
        engine.run()
        engine.watch.wait_until_done()
        samples = engine.samples()
        assert samples is not None
        return samples


def time_peer(
    bench: Bench,
    passes: str,
    name: str,
    attention: str,
    configurations: dict[str, Configuration] | None = None,
) -> Peer:
    """Seconds of a pass of a whole attention, or why there are none.

    Args:
        bench: whose setting, device and budget it has.
        passes: `forward` or `backward`.
        name: what it is called.
        attention: one of `implementations.IMPLEMENTATIONS`.
        configurations: of our kernels, in place of the shipped ones.
    """
    peer = Peer(bench.setting, passes, name)
    try:
        with chosen(**(configurations or {})):
            case = _case(bench.setting, bench.torch_device)
            call = pass_of(passes, implementation(attention), case)
            samples = bench.samples(lambda: call(case))
            right(case, passes=passes)
    except (Unavailable, *REFUSED) as error:
        return replace(peer, trouble=_sentence(error))
    except Exception as error:
        if out_of_memory(error) is None:
            raise
        return replace(peer, trouble="out of memory")
    finally:
        bench.device.release()
    return replace(peer, seconds=samples.median_s, trouble=samples.trouble, labels=samples.labels)


def _case(setting: Setting, device: torch.device) -> Case:
    return make_case(
        setting.batch,
        setting.heads,
        setting.sequence,
        setting.head_dim,
        torch.bfloat16,
        device,
        causal=setting.causal,
    )


def _sentence(error: Exception) -> str:
    return " ".join(str(error).split())[:500] or type(error).__name__
