"""A model so small that a step takes milliseconds, and trainings of it."""

import torch

from roofline_kernels.training.precisions import precision_named
from roofline_kernels.training.steps import Training
from roofline_kernels.transformer import Config

CPU = torch.device("cpu")
TINY = Config(d_model=64, d_ff=128, layers=2, heads=2, vocab=100)


def make_training(precision="fp32", attention="sdpa", config=TINY, batch=2, context=16):
    return Training(
        config,
        batch=batch,
        context=context,
        precision=precision_named(precision),
        attention=attention,
        device=CPU,
    )
