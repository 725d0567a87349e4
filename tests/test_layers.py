"""Imports point downward: who may import whom, held against every import statement, also those inside functions."""

import ast
import importlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import pytest_roofline
import roofline_kernels
from pytest_roofline.core.features import FEATURES

from .features import ALL, BUILT_ON, TAKEN_OUT

PLUGIN = Path(pytest_roofline.__file__).parent
KERNELS = Path(roofline_kernels.__file__).parent

# A folder of the plugin and the folders beside itself that it may import, from the lowest up.
MAY_IMPORT = {
    "core": set(),
    "engine": {"core"},
    "hardware": {"core"},
    "stats": {"hardware", "core"},
    "baselines": {"stats", "hardware", "core"},
    "kernel_gate": {"core"},
    "figures": {"core"},
    "processes": {"core"},
    "ranks": {"processes", "engine", "core"},
    "observe": {"engine", "report", "baselines", "core"},
    "machine": {"engine", "stats", "hardware", "core"},
    "report": {"baselines", "stats", "hardware", "core"},
    "settings": {"report", "baselines", "stats", "hardware", "engine", "core"},
    "ab": {
        *("processes", "figures", "report", "plugin", "settings", "exchange", "baselines"),
        *("engine", "hardware", "stats", "core"),
    },
    "bisect": {"ab", "report", "settings", "baselines", "processes", "hardware", "stats", "core"},
    "many": {"exchange", "figures", "report", "baselines", "stats", "hardware", "core"},
    "exchange": {"figures", "report", "baselines", "stats", "hardware", "core"},
}
TORCH_LIVES_IN = {"engine", "ranks", "observe", "kernel_gate", "machine"}
# The fixtures hand torch's device on, and ask for it only when a test measures; a round is forked from what has torch.
TORCH_GUESTS = {"plugin/fixture.py", "plugin/findings.py", "plugin/round_server.py"}
PYTEST_LIVES_IN = {"plugin", "settings"}
# These stand above all others.
MAY_IMPORT["cli"] = {*MAY_IMPORT, "plugin"}
MAY_IMPORT["plugin"] = {*MAY_IMPORT} - {"cli", "ab", "bisect", "many"}


def modules(package):
    """Every module of a package; the suite that an installed one carries for `roofline init` is no part of it."""
    return sorted(
        path for path in package.rglob("*.py") if not path.is_relative_to(PLUGIN / "starter")
    )


def imported(code, module):
    """Every absolute name that the code of a dotted `module` imports, relative ones resolved.

    `from .a import b` gives `a.b`, since b may be a module as well as a name in one.
    """
    parents = module.split(".")
    for node in ast.walk(code):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = parents[: len(parents) - node.level] if node.level else []
            base = ".".join([*start, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


PLUGIN_FILES, KERNEL_FILES = modules(PLUGIN), modules(KERNELS)
FILES = [*PLUGIN_FILES, *KERNEL_FILES]


def dotted(path):
    root = PLUGIN if path.is_relative_to(PLUGIN) else KERNELS
    return ".".join(path.relative_to(root.parent).with_suffix("").parts)


# A relative import of a package counts from itself, of a module from its package; either way from its last part.
SOURCES = {path: path.read_text(encoding="utf-8") for path in FILES}


@cache
def code_of(path):
    """A file's code; parsing all takes a second, which a process that only collects tests does not spend."""
    return ast.parse(SOURCES[path])


@cache
def imports_by_file():
    """What each file imports."""
    return {path: set(imported(code_of(path), dotted(path))) for path in FILES}


def layer(name):
    """The folder of the plugin that a dotted name of ours lives in; none for what stands at its root."""
    parts = name.split(".")
    is_folder = len(parts) > 1 and ((PLUGIN / parts[1]).is_dir() or parts[1] in TAKEN_OUT)
    return parts[1] if is_folder else None


def roots(path):
    return {name.split(".")[0] for name in imports_by_file()[path]}


def test_an_import_is_found_wherever_it_stands():
    cases = [
        ("p.a.b", "import os.path", {"os.path"}),
        ("p.a.b", "def f():\n    from torch import cuda", {"torch.cuda"}),
        ("p.a.b", "from . import c", {"p.a.c"}),
        ("p.a.b", "from ..d.e import f", {"p.d.e.f"}),
        ("p.a.__init__", "from .c import d", {"p.a.c.d"}),
        ("p.a.b.__init__", "from ..c import d", {"p.a.c.d"}),
        ("p.a.b", "if TYPE_CHECKING:\n    import torch", {"torch"}),
        ("p.a.b", "try:\n    import x\nexcept ImportError:\n    import y as x", {"x", "y"}),
    ]
    assert [set(imported(ast.parse(source), module)) for module, source, _ in cases] == [
        names for _, _, names in cases
    ]


def test_imports_point_downward():
    assert {path.name for path in PLUGIN.iterdir() if path.is_file()} == {
        "__init__.py",
        "version.py",
        "py.typed",
    }
    folders = {layer(dotted(path)) for path in PLUGIN_FILES} - {None}
    assert folders == set(MAY_IMPORT) - TAKEN_OUT, "a folder of the plugin and its row in the table"
    assert [
        f"{dotted(path)} imports {name}"
        for path in PLUGIN_FILES
        for name in sorted(imports_by_file()[path])
        # The version is a constant that everyone may name; what commands share needs click alone.
        if name.startswith("pytest_roofline.")
        and not name.startswith(("pytest_roofline.version.", "pytest_roofline.cli.options."))
        if (folder := layer(dotted(path))) and layer(name) not in {folder, *MAY_IMPORT[folder]}
    ] == []


def test_a_library_is_imported_only_where_it_belongs():
    """Torch where the machine is measured, pytest in its layer, nothing foreign in core, no package in the other."""

    def strangers(path):
        if path in KERNEL_FILES:
            return roots(path) & {"pytest_roofline"}
        found, folder = {"roofline_kernels"}, layer(dotted(path))
        if folder not in TORCH_LIVES_IN and str(path.relative_to(PLUGIN)) not in TORCH_GUESTS:
            found |= {"torch", "triton"}
        if folder not in PYTEST_LIVES_IN:
            found |= {"pytest", "_pytest", "pluggy"}
        if folder == "core":
            # Reading and writing files, and the ranges of what they hold; nothing else needs a package.
            files = {"amounts.py", "storage.py", "writing.py"}
            packages = {"msgspec", "filelock"} if path.name in files else set()
            found |= roots(path) - set(sys.stdlib_module_names) - packages - {"pytest_roofline"}
        return roots(path) & found

    assert {dotted(path): strangers(path) for path in FILES if strangers(path)} == {}


def test_what_judges_makes_no_sentence_of_a_report():
    """A verdict holds facts, and a door makes its sentences when it prints them."""
    files = [PLUGIN / "plugin" / name for name in ("judging.py", "timed.py")]
    imports = set().union(*(imports_by_file()[path] for path in files))
    assert [name for name in sorted(imports) if layer(name) == "report"] == []


def test_nothing_is_imported_by_a_name_made_at_run_time_and_nothing_unpickled():
    # The package's own `__init__` loads its public names when they are first used, from a table of its own; so does the
    # command `roofline` with its commands.
    # Ranks load the functions that they are told of by file and name, and the server of forks its module; that is what
    # these are for.
    ranks = PLUGIN / "ranks"
    loads = {PLUGIN / "__init__.py", PLUGIN / "cli" / "options.py"}
    loads |= {ranks / "tasks.py", PLUGIN / "processes" / "fork_server.py"}
    # No files: messages between processes that know each other's key, and reading them names plain types only.
    unpickles = {ranks / "tasks.py"}

    def flaws(path):
        calls = {
            ast.unparse(node.func) for node in ast.walk(code_of(path)) if isinstance(node, ast.Call)
        }
        made = {"__import__", "import_module", "eval", "exec"}
        made |= set() if path in loads else {"importlib.import_module"}
        stored = {"marshal", "shelve", "dill"} | (set() if path in unpickles else {"pickle"})
        return (calls & made) | (roots(path) & stored)

    assert {dotted(path): flaws(path) for path in FILES if flaws(path)} == {}


def test_a_class_name_is_defined_once_in_the_package():
    defined = Counter(
        node.name
        for path in PLUGIN_FILES
        for node in ast.walk(code_of(path))
        if isinstance(node, ast.ClassDef)
    )
    assert {name for name, count in defined.items() if count > 1} == set()


def arrows(paths, imports):
    """By dotted name of a file, the files among `paths` that it imports."""
    files = {dotted(path).removesuffix(".__init__"): path for path in paths}
    return {
        name: {
            next(filter(files.__contains__, (found, found.rpartition(".")[0])), name)
            for found in imports[path]
        }
        - {name}
        for name, path in files.items()
    }


def test_no_file_imports_another_that_imports_it():
    """By whatever way round, imports inside functions included."""
    try:
        tuple(TopologicalSorter(arrows(FILES, imports_by_file())).static_order())
    except CycleError as error:
        pytest.fail(" → ".join(error.args[1]))


class WithoutTypes(ast.NodeTransformer):
    """Source without the imports that only a type checker reads."""

    def visit_If(self, node):
        return None if ast.unparse(node.test) == "TYPE_CHECKING" else self.generic_visit(node)


def test_the_plugin_stands_on_at_most_six_floors():
    """A file stands one floor above the highest that it imports, also inside functions."""
    paths = [path for path in PLUGIN_FILES if path.parent == PLUGIN / "plugin"]
    needed = {
        # Parsed anew, since what the others look at keeps its imports.
        path: set(imported(WithoutTypes().visit(ast.parse(SOURCES[path])), dotted(path)))
        for path in paths
    }
    graph, floors = arrows(paths, needed), {}
    for name in TopologicalSorter(graph).static_order():
        floors[name] = 1 + max(map(floors.__getitem__, graph[name]), default=0)
    assert {name: floor for name, floor in floors.items() if floor > 6} == {}


def loaded_by(*names):
    """The top-level modules that a fresh interpreter holds after importing `names`."""
    program = (
        f"import sys, json, {', '.join(names)}; "
        "print(json.dumps(sorted({m.split('.')[0] for m in sys.modules})))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120
    )
    return set(json.loads(done.stdout))


def test_loading_imports_nothing_heavy():
    heavy = {"torch", "numpy", "pandas", "scipy", "triton", "msgspec", "rich", "click"}
    assert loaded_by("pytest_roofline.plugin", "pytest_roofline.settings.options") & heavy == set()
    names = (
        "pytest_roofline.baselines.comparing",
        "pytest_roofline.cli.main",
        "pytest_roofline.report.tables",
    )
    assert loaded_by(*names) & {"torch", "triton"} == set()


# pytest's side of a feature: modules of the plugin that import the feature at their top, and are only loaded with it.
SIDES = {"ranks": {"distributed", "launcher", "leading", "over_ranks"}}


def feature(name):
    """The feature that a dotted name belongs to: that of its folder, or the one whose side it is."""
    package, _, name_inside = name.partition(".")
    folder, _, inside = name_inside.partition(".")
    if package != "pytest_roofline":
        # The standard library has a `bisect` as well.
        return None
    if folder == "plugin":
        return next((it for it, sides in SIDES.items() if inside.partition(".")[0] in sides), None)
    return folder if folder in ALL else None


def reaching(path):
    """Each import from a feature outside of its folder, with the features that its function requires ahead.

    Those that it is built on are left out.
    """
    inside = {feature(dotted(path)), *BUILT_ON.get(feature(dotted(path)), ())}

    def look(node, required):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            return
        if isinstance(node, ast.FunctionDef):
            checks = {
                ast.unparse(part).removeprefix("features.")
                for part in ast.walk(node)
                if isinstance(part, ast.Call | ast.Compare)
            }
            required = {
                name
                for name in ALL
                if not checks.isdisjoint(
                    (
                        f"require('{name}')",
                        f"'{name}' in FEATURES",
                        f"'{name}' in features.FEATURES",
                    )
                )
            }
        if isinstance(node, ast.Import | ast.ImportFrom):
            for name in imported(node, dotted(path)):
                if (needed := feature(name)) and needed not in inside:
                    yield needed, required
        for part in ast.iter_child_nodes(node):
            yield from look(part, required)

    yield from look(code_of(path), set())


def test_an_import_from_a_feature_stands_in_a_function_behind_its_requirement():
    assert [
        f"{dotted(path)} imports {needed}"
        for path in PLUGIN_FILES
        for needed, required in reaching(path)
        if needed not in required
    ] == []


def test_the_features_that_tests_name_are_those_of_the_package():
    assert {name: ALL[name] for name in ALL if name not in TAKEN_OUT} == FEATURES


def test_without_the_features_every_module_is_imported_and_a_missing_command_is_named(tmp_path):
    """`benchmarks/remove_features.py` takes out one at a time, and runs the tests of all else."""
    skipped = shutil.ignore_patterns(*ALL, "starter", "__pycache__")
    package = shutil.copytree(PLUGIN, tmp_path / "pytest_roofline", ignore=skipped)
    table = package / "core" / "features.py"
    lines = table.read_text(encoding="utf-8").splitlines(keepends=True)
    left = [line for line in lines if not re.match(r'    "\w+": \(', line)]
    assert len(lines) - len(FEATURES) == len(left)
    table.write_text("".join(left), encoding="utf-8")
    names = [
        ".".join(path.relative_to(tmp_path).with_suffix("").parts) for path in package.rglob("*.py")
    ]
    modules = [
        name.removesuffix(".__init__")
        for name in names
        if not name.endswith("__main__") and feature(name) is None
    ]
    program = (
        f"import importlib, pytest_roofline; [importlib.import_module(name) for name in {modules!r}]\n"
        "for name in ('Rank', 'Distributed'):\n"
        "    try:\n        getattr(pytest_roofline, name)\n"
        "    except ImportError as error:\n        print(error)\n"
        "from pytest_roofline.cli.main import main; main(['fleet', 'runs'])"
    )
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
    )
    remedy = (
        "install the whole package again: pip install --force-reinstall --no-deps pytest-roofline"
    )
    assert (
        2,
        "".join(
            f"pytest_roofline.{name} is not installed; {remedy}\n"
            for name in ("Rank", "Distributed")
        ),
        f"roofline: the command fleet is not installed; {remedy}\n",
    ) == (done.returncode, done.stdout, done.stderr)


# Features across folders, and the file that names the others.
BEGINNINGS = {
    "peak memory": "plugin/peaks.py",
    "siblings": "stats/siblings.py",
    "canaries": "engine/ceiling.py",
    "a gate that only watches": "plugin/results.py",
    "drill": "cli/drill.py",
}


def test_a_feature_across_folders_is_found_from_one_file_that_the_page_on_the_design_names():
    page = (Path(__file__).parents[1] / "docs" / "authors" / "design.md").read_text(
        encoding="utf-8"
    )
    rows = dict(re.findall(r"^\| ([a-z ]+) \| `(\w+/\w+\.py)` \|$", page, re.MULTILINE))
    assert BEGINNINGS == rows
    for file in BEGINNINGS.values():
        places = re.findall(r"`((?:\w+/)+\w+\.py)`", ast.get_docstring(code_of(PLUGIN / file)))
        assert len(places) >= 4, file
        assert [place for place in places if not (PLUGIN / place).exists()] == [], file


@pytest.mark.feature
def test_the_developers_programs_import_what_is_there():
    """Their own tests run only where they change, and a renamed module breaks them from here."""
    root, missing = Path(__file__).parents[1], []
    for path in [*(root / "benchmarks").rglob("*.py"), *(root / "baselines").rglob("*.py")]:
        for name in imported(ast.parse(path.read_text(encoding="utf-8")), "program"):
            module, _, member = name.rpartition(".")
            if module.startswith(("pytest_roofline", "roofline_kernels")):
                found = importlib.util.find_spec(name) if _is_package(module) else None
                if found is None and not hasattr(importlib.import_module(module), member):
                    missing.append(f"{path.relative_to(root)}: {name}")
    assert missing == []


def _is_package(module):
    return hasattr(importlib.import_module(module), "__path__")


@pytest.mark.feature("ranks")
def test_every_public_name_can_be_had_and_no_other():
    assert [
        name for name in pytest_roofline.__all__ if getattr(pytest_roofline, name) is None
    ] == []
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = pytest_roofline.nonsense
