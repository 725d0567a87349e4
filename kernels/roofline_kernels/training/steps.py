"""The passes of a step, each as one function to time."""

import functools
from collections.abc import Callable

import torch

from ..transformer import Config, Transformer, loss_of, make_batch
from .precisions import Precision

# Forward without a graph; forward and backward; the full step with the optimizer; the backward pass alone, of a graph
# that is kept; and the optimizer alone, on gradients that are kept.
PASSES = ("forward", "forward_backward", "step", "backward", "optimizer")
# The rate is so small that thousands of steps on one batch move no parameter by more than some hundredths. So the last
# step works on numbers like those of the first.
LEARNING_RATE = 1e-6
# The factor of the loss in float16. Its gradients are below 1e-2 here, and the largest float16 is 6.5e4.
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
        # A CUDA graph would keep a number, but reads a tensor in every replay.
        rate = torch.tensor(LEARNING_RATE, device=device) if capturable else LEARNING_RATE
        self.optimizer = torch.optim.AdamW(self.parameters, lr=rate, capturable=capturable)
        self.scaler = (
            torch.amp.GradScaler(device.type, init_scale=SCALE) if precision.scaled else None
        )
        self.infer: Callable[[torch.Tensor], torch.Tensor] = self.model
        """Tokens to logits: the model, or what a compiler made of it."""
        # This is no method, since an object that refers to itself is not freed with its last user.
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
        """Return the function to time, after making the graph or the gradients that it starts from.

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
        """Compute logits [B, S, V] without a graph, as in inference."""
        with torch.no_grad(), self.precision.casting(self.device):
            self.logits = self.infer(self.tokens)

    def forward_backward(self) -> None:
        """Compute loss and gradients, then drop the gradients, so that all calls begin alike."""
        self.accumulate()
        self.drop()

    def accumulate(self) -> None:
        """Compute loss and gradients, and add these to the gradients that are there."""
        self._scaled_loss().backward()

    def accumulate_anew(self) -> None:
        """Compute loss and gradients, in place of the gradients that are there."""
        self.drop()
        self.accumulate()

    def step(self) -> None:
        """Compute loss and gradients, let the optimizer make a step, then drop the gradients."""
        self.accumulate()
        if self.scaler is None:
            self.optimizer.step()
        else:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        self.drop()

    def backward(self) -> tuple[torch.Tensor, ...]:
        """Return every parameter's scaled gradient. The graph is kept, the parameters' gradients unchanged."""
        assert self._graph is not None
        return torch.autograd.grad(self._graph, self.parameters, retain_graph=True)

    def drop(self) -> None:
        """Free the gradients."""
        self.optimizer.zero_grad(set_to_none=True)

    @property
    def scale(self) -> float:
        """The factor of the scaled loss, by which gradients are too large; 1 without scaling."""
        return 1.0 if self.scaler is None else self.scaler.get_scale()

    def _scaled_loss(self) -> torch.Tensor:
        """Compute the loss, store it unscaled in `loss`, and return it scaled with its graph."""
        with self.precision.casting(self.device):
            loss = self.lose(self.tokens, self.targets)
        self.loss = loss.detach()
        return loss if self.scaler is None else self.scaler.scale(loss)

    def _invent_gradients(self) -> None:
        """Set each gradient to its parameter's values. The time of AdamW does not depend on them."""
        for parameter in self.parameters:
            parameter.grad = parameter.detach().clone()


def _lose(model: Transformer, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return loss_of(model(tokens), targets)
