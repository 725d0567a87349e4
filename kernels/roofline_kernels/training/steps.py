"""The passes of a step, each as one function to time that does this pass and nothing else."""

import functools
from collections.abc import Callable

import torch

from ..transformer import Config, Transformer, loss_of, make_batch
from .precisions import Precision

# Forward without a graph; forward and backward; the full step with the optimizer; and apart, the backward pass of a
# graph that stays, and the optimizer on gradients that stay.
PASSES = ("forward", "forward_backward", "step", "backward", "optimizer")
# So small that thousands of steps on one batch, or on one gradient, move no parameter by more than some hundredths:
# the last step works on numbers like those of the first.
LEARNING_RATE = 1e-6
# Of the loss in float16: its gradients are below 1e-2 here, and float16 ends at 6.5e4.
SCALE = 2.0**12


class Training:
    """A model, its optimizer and one batch, with the passes of a step over them.

    The optimizer is `torch.optim.AdamW` as torch makes it when not asked for more: on CUDA and XPU it goes over many
    parameters with one kernel (foreach), on CPU and MPS over one parameter after the other; the fused kernel, which
    every device has, is only used where a program asks for it.

    In float16 under autocast losses are scaled (torch.amp.GradScaler), and in the full step the scaler looks for
    infinite gradients, for which the host waits for the device: so it is in training, and so it is timed.

    Args:
        config: the model's shape.
        batch: B, sequences.
        context: S, tokens in each.
        precision: of the passes; its `settings` are for the caller to enter.
        attention: one of `transformer.ATTENTIONS`.
        device: where all of it is.
        capturable: whether the optimizer keeps its count of steps and its rate on the device, as a CUDA graph needs it.
    """

    def __init__(
        self,
        config: Config,
        *,
        batch: int,
        context: int,
        precision: Precision,
        attention: str,
        device: torch.device,
        capturable: bool = False,
    ) -> None:
        self.config, self.precision, self.device = config, precision, device
        self.model = Transformer(
            config, context=context, attention=attention, device=device, dtype=precision.parameters
        )
        self.tokens, self.targets = make_batch(config, batch, context, device)
        self.parameters = list(self.model.parameters())
        # A graph would keep the number; a tensor it reads in every replay.
        rate = torch.tensor(LEARNING_RATE, device=device) if capturable else LEARNING_RATE
        self.optimizer = torch.optim.AdamW(self.parameters, lr=rate, capturable=capturable)
        self.scaler = (
            torch.amp.GradScaler(device.type, init_scale=SCALE) if precision.scaled else None
        )
        self.infer: Callable[[torch.Tensor], torch.Tensor] = self.model
        """Tokens to logits: the model, or what a compiler made of it."""
        # No method of its own: an object that holds itself is not freed when it is let go of.
        self.lose: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = functools.partial(
            _lose, self.model
        )
        """Tokens and targets to the loss, likewise."""
        self.logits: torch.Tensor | None = None
        """Of the last `forward`."""
        self.loss: torch.Tensor | None = None
        """Of the last pass with a backward pass, without its graph; not scaled."""
        self._graph: torch.Tensor | None = None

    def pass_of(self, name: str) -> Callable[[], object]:
        """The function to time, with everything made that it starts from.

        Raises:
            ValueError: there is no such pass.
        """
        if name not in PASSES:
            raise ValueError(f"passes is {name!r}; expected one of {', '.join(PASSES)}")
        self.model.train(name != "forward")
        if name == "backward":
            self._graph = self._scaled_loss()
        if name == "optimizer":
            self._invent_gradients()
        passes: dict[str, Callable[[], object]] = {
            "forward": self.forward,
            "forward_backward": self.forward_backward,
            "step": self.step,
            "backward": self.backward,
            "optimizer": self.optimizer.step,
        }
        return passes[name]

    def forward(self) -> None:
        """Inference: logits [B, S, V], nothing kept for a backward pass."""
        with torch.no_grad(), self.precision.casting(self.device):
            self.logits = self.infer(self.tokens)

    def forward_backward(self) -> None:
        """Loss and gradients; the gradients are dropped at the end, so that every call begins alike."""
        self.accumulate()
        self.drop()

    def accumulate(self) -> None:
        """Loss and gradients; the gradients are kept, and a second call would add to them."""
        self._scaled_loss().backward()

    def accumulate_anew(self) -> None:
        """The same, in place of the gradients that there are."""
        self.drop()
        self.accumulate()

    def step(self) -> None:
        """Loss, gradients and the optimizer; then the gradients are dropped."""
        self.accumulate()
        if self.scaler is None:
            self.optimizer.step()
        else:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        self.drop()

    def backward(self) -> tuple[torch.Tensor, ...]:
        """Every parameter's gradient, scaled; the graph stays, nothing adds up, and nothing is kept."""
        assert self._graph is not None
        return torch.autograd.grad(self._graph, self.parameters, retain_graph=True)

    def drop(self) -> None:
        """Give the gradients back."""
        self.optimizer.zero_grad(set_to_none=True)

    @property
    def scale(self) -> float:
        """By how much gradients are too large before the optimizer sees them."""
        return 1.0 if self.scaler is None else self.scaler.get_scale()

    def _scaled_loss(self) -> torch.Tensor:
        with self.precision.casting(self.device):
            loss = self.lose(self.tokens, self.targets)
        self.loss = loss.detach()
        return loss if self.scaler is None else self.scaler.scale(loss)

    def _invent_gradients(self) -> None:
        """Gradients as if the loss were half the sum of squares: how long AdamW takes does not depend on them."""
        for parameter in self.parameters:
            parameter.grad = parameter.detach().clone()


def _lose(model: Transformer, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return loss_of(model(tokens), targets)
