"""What the benchmarks share: the device under test, and the shape of the transformer that was asked for."""

import argparse
import os

import pytest

from roofline_kernels.decoder.config import name_of_shape, size_named

DEFAULT_D_MODEL, DEFAULT_LAYERS = 768, 12
# Each also in an ini file, `transformer_d_model`, and in the environment, `ROOFLINE_TRANSFORMER_D_MODEL`.
SHAPE = {
    "d-model": f"width of a transformer to measure in place of the five sizes (default {DEFAULT_D_MODEL})",
    "layers": f"number of the model's blocks (default {DEFAULT_LAYERS})",
    "heads": "number of the model's attention heads (default: each 64 wide)",
    "d-ff": "width inside the model's feed-forward part (default: four times d-model)",
}
OPTIONS = SHAPE | {
    "context": "tokens of a sequence, in place of all contexts",
    "batch": "number of sequences (default 4)",
}


@pytest.fixture
def device(roofline):
    """The torch device that is measured."""
    return roofline.device


def pytest_addoption(parser):
    """The shape of a transformer, by options and ini values."""
    group = parser.getgroup("transformer", "perf_tests/test_transformer*.py: a model of any shape")
    for name, text in OPTIONS.items():
        group.addoption(f"--{name}", type=_positive, metavar="N", help=text)
        parser.addini(f"transformer_{name.replace('-', '_')}", text)


def _positive(text):
    if not (text.isascii() and text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r}; expected a whole number above zero")
    return int(text)


def pytest_configure(config):
    """Settle what was asked for, in `transformer_size`, `context` and `batch` of `config.option`: None is no wish."""
    asked = {name: _asked(config, name.replace("-", "_")) for name in OPTIONS}
    config.option.context, config.option.batch = asked["context"], asked["batch"]
    config.option.transformer_size = None
    if any(asked[name] for name in SHAPE):
        try:
            config.option.transformer_size = name_of_shape(
                asked["d-model"] or DEFAULT_D_MODEL,
                asked["d-ff"],
                asked["layers"] or DEFAULT_LAYERS,
                asked["heads"],
            )
        except ValueError as error:
            raise pytest.UsageError(f"{error}; choose others by --d-model and --heads") from None


def _asked(config, name):
    """By the command line, else the environment, else the ini file; None where by none."""
    variable = f"ROOFLINE_TRANSFORMER_{name.upper()}"
    given = config.getoption(name, None)
    if given is not None:
        return given
    for where, text in (
        (variable, os.environ.get(variable)),
        (f"transformer_{name}", _ini(config, name)),
    ):
        if text:
            try:
                return _positive(text)
            except argparse.ArgumentTypeError as error:
                raise pytest.UsageError(f"{where} is {error}") from None
    return None


def _ini(config, name):
    try:
        return config.getini(f"transformer_{name}")
    except ValueError:
        # Where pytest came here by `pytest .` the ini file was read before this one.
        return None


def pytest_report_header(config):
    """The model that was asked for, with its exact number of parameters."""
    if size := config.option.transformer_size:
        shape = size_named(size)
        return (
            f"transformer {size}: d_model {shape.d_model}, d_ff {shape.d_ff}, {shape.layers} layers, {shape.heads} "
            f"heads, vocabulary {shape.vocab:,}: {shape.parameters:,} parameters"
        )
    return None
