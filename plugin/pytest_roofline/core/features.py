"""Features that can be taken out.

Each is a folder of the package, a line of the table here, and its tests. All else works without them. Other code calls
`require(NAME)` before it imports from a feature's folder, or a module of `plugin/` that is loaded only with ranks. The
command line takes a feature's commands from its `cli.py`. `benchmarks/remove_features.py` takes each feature out of a
copy.
"""

from .errors import BadInput

# By folder, the commands in its `cli.py`.
FEATURES: dict[str, tuple[str, ...]] = {
    "ab": ("ab",),
    "bisect": ("bisect",),
    "many": ("fleet", "history", "rollout"),
    "exchange": ("export", "import_"),
    "observe": ("profiler",),
    "kernel_gate": (),
    "ranks": (),
}


def require(name: str) -> None:
    """Raise an error if a feature was taken out of this installation.

    Raises:
        BadInput: the table has no line of this feature.
    """
    if name not in FEATURES:
        raise BadInput(not_installed(f"the feature {name}"))


def not_installed(subject: str) -> str:
    """Return the message that a feature or a command is not installed."""
    return (
        f"{subject} is not installed; install the whole package again: "
        "pip install --force-reinstall --no-deps pytest-roofline"
    )
