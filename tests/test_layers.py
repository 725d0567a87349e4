"""Imports point downward: who may import whom, held against every import statement, also those inside functions."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import pytest_roofline
import roofline_kernels

PLUGIN = Path(pytest_roofline.__file__).parent
KERNELS = Path(roofline_kernels.__file__).parent
TOP = "pytest layer"

# A folder of the plugin and the folders that it may import; the pytest layer stands above all of them.
MAY_IMPORT = {
    "core": {"core"},
    "judging": {"judging", "core"},
    "measuring": {"measuring", "core"},
    "distributed": {"distributed", "measuring", "core"},
    "observe": {"observe", "measuring", "core"},
    "reporting": {"reporting", "observe", "judging", "core"},
    "exchange": {"exchange", "judging", "core"},
    TOP: {TOP, "reporting", "observe", "exchange", "distributed", "measuring", "judging", "core"},
}
TORCH_LIVES_IN = {"measuring", "distributed", "observe"}
# The fixtures hand torch's device on, and ask for it only when a test measures.
TORCH_GUESTS = {"fixture.py"}
PYTEST_LIVES_IN = {TOP}


def modules(package):
    """Every module of a package; the suite that an installed one carries for `roofline init` is no part of it."""
    return sorted(path for path in package.rglob("*.py") if not path.is_relative_to(PLUGIN / "starter"))


def imported(source, module):
    """Every absolute name that the source of a dotted `module` imports, relative ones resolved.

    `from .a import b` gives `a.b`, since b may be a module as well as a name in one.
    """
    parents = module.split(".")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = parents[: len(parents) - node.level] if node.level else []
            base = ".".join([*start, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def imports_of(path):
    root = PLUGIN if path.is_relative_to(PLUGIN) else KERNELS
    parts = path.relative_to(root.parent).with_suffix("").parts
    # A relative import of a package counts from itself, of a module from its package; either way from its last part.
    return set(imported(path.read_text(encoding="utf-8"), ".".join(parts)))


def layer(dotted):
    """The folder of the plugin that a dotted name of ours lives in."""
    parts = dotted.split(".")
    return parts[1] if len(parts) > 1 and (PLUGIN / parts[1]).is_dir() else TOP


def layer_of(path):
    parts = path.relative_to(PLUGIN).parts
    return parts[0] if len(parts) > 1 else TOP


def name_of(path):
    return str(path.relative_to(PLUGIN.parent if path.is_relative_to(PLUGIN) else KERNELS.parent))


@pytest.mark.parametrize(
    ("module", "source", "names"),
    [
        ("p.a.b", "import os.path", {"os.path"}),
        ("p.a.b", "def f():\n    from torch import cuda", {"torch.cuda"}),
        ("p.a.b", "from . import c", {"p.a.c"}),
        ("p.a.b", "from ..d.e import f", {"p.d.e.f"}),
        ("p.a.__init__", "from .c import d", {"p.a.c.d"}),
        ("p.a.b.__init__", "from ..c import d", {"p.a.c.d"}),
        ("p.a.b", "if TYPE_CHECKING:\n    import torch", {"torch"}),
        ("p.a.b", "try:\n    import x\nexcept ImportError:\n    import y as x", {"x", "y"}),
    ],
)
def test_an_import_is_found_wherever_it_stands(module, source, names):
    assert set(imported(source, module)) == names


def test_every_folder_of_the_plugin_has_its_row_in_the_table():
    folders = {path.parent.relative_to(PLUGIN).parts[0] for path in modules(PLUGIN) if path.parent != PLUGIN}
    assert folders <= set(MAY_IMPORT)


@pytest.mark.parametrize("path", modules(PLUGIN), ids=name_of)
def test_imports_point_downward(path):
    ours = {name for name in imports_of(path) if name.split(".")[0] == "pytest_roofline"}
    upward = {name for name in ours if layer(name) not in MAY_IMPORT[layer_of(path)]}
    # The version is a constant that everyone may name.
    assert {name for name in upward if not name.startswith("pytest_roofline.version.")} == set()


@pytest.mark.parametrize("path", modules(PLUGIN / "core"), ids=name_of)
def test_the_ground_floor_needs_the_standard_library_only(path):
    roots = {name.split(".")[0] for name in imports_of(path)}
    assert roots - set(sys.stdlib_module_names) - {"pytest_roofline"} == set()


@pytest.mark.parametrize("path", modules(PLUGIN), ids=name_of)
def test_torch_is_imported_where_the_machine_is_measured_and_nowhere_else(path):
    found = {name for name in imports_of(path) if name.split(".")[0] in ("torch", "triton")}
    allowed = layer_of(path) in TORCH_LIVES_IN or str(path.relative_to(PLUGIN)) in TORCH_GUESTS
    assert allowed or found == set()


@pytest.mark.parametrize("path", modules(PLUGIN), ids=name_of)
def test_only_the_pytest_layer_knows_pytest(path):
    found = {name for name in imports_of(path) if name.split(".")[0] in ("pytest", "_pytest", "pluggy")}
    assert layer_of(path) in PYTEST_LIVES_IN or found == set()


@pytest.mark.parametrize("path", modules(PLUGIN), ids=name_of)
def test_the_plugin_never_imports_the_kernels(path):
    assert {name for name in imports_of(path) if name.split(".")[0] == "roofline_kernels"} == set()


@pytest.mark.parametrize("path", modules(KERNELS), ids=name_of)
def test_the_kernels_never_import_the_plugin(path):
    assert {name for name in imports_of(path) if name.split(".")[0] == "pytest_roofline"} == set()


@pytest.mark.parametrize("path", modules(PLUGIN), ids=name_of)
def test_nothing_is_imported_by_a_name_made_at_run_time(path):
    calls = {
        ast.unparse(node.func)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
    }
    # The package's own `__init__` loads its public names when they are first used, from a table of its own.
    # Ranks load the functions that they are told of by file and name; that is what these are for.
    loads = (PLUGIN / "__init__.py", PLUGIN / "distributed" / "functions.py")
    allowed = {"importlib.import_module"} if path in loads else set()
    assert calls & {"__import__", "importlib.import_module", "import_module", "eval", "exec"} <= allowed


@pytest.mark.parametrize("path", [*modules(PLUGIN), *modules(KERNELS)], ids=name_of)
def test_files_are_data_so_nothing_unpickles(path):
    if path == PLUGIN / "distributed" / "wire.py":
        # No files: messages between processes that know each other's key, and reading them names plain types only.
        assert {name for name in imports_of(path) if name.split(".")[0] in ("marshal", "shelve", "dill")} == set()
        return
    assert {name for name in imports_of(path) if name.split(".")[0] in ("pickle", "marshal", "shelve", "dill")} == set()


def loaded_by(*names):
    """The top-level modules that a fresh interpreter holds after importing `names`."""
    program = (
        f"import sys, json, {', '.join(names)}; print(json.dumps(sorted({{m.split('.')[0] for m in sys.modules}})))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    return set(json.loads(done.stdout))


def test_loading_the_plugin_imports_nothing_heavy():
    heavy = {"torch", "numpy", "pandas", "scipy", "triton", "msgspec", "rich", "click"}
    assert loaded_by("pytest_roofline.plugin", "pytest_roofline.options") & heavy == set()


def test_comparing_and_reporting_never_import_torch():
    names = ("pytest_roofline.judging.comparing", "pytest_roofline.cli", "pytest_roofline.reporting.tables")
    assert loaded_by(*names) & {"torch", "triton"} == set()


def test_every_public_name_can_be_had():
    assert {name: getattr(pytest_roofline, name) is not None for name in pytest_roofline.__all__} == dict.fromkeys(
        pytest_roofline.__all__, True
    )


def test_a_name_that_is_not_public_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = pytest_roofline.nonsense
