"""How many mutants of verdicts and timing the tests kill, before and after a change of the tests.

A mutant is the package with one operator, comparison, number or keyword of one function exchanged for another; it is
killed if a test fails. Places are drawn with a seed from the functions of `MODULES`, and at each place one of
cosmic-ray's exchanges that keep the types. Functions go by name and body, so both trees get the same mutants wherever a
function lies now; one whose body was changed drops out of both, and the next ones drawn take its place.

To compare the tests of this checkout with those of the commit that `docs/results/data/mutants.jsonl` names:

    pip install cosmic-ray
    python benchmarks/mutants.py after .

It prints the line of `docs/authors/design.md`, the counts of each module, and what survives. Results of the same
commit are not made again. Where mutants dropped out, `git worktree add ../before COMMIT` and `python
benchmarks/mutants.py before ../before` try those that take their place. The same without the file, and then the first
command, compare with another commit.

One process collects a tree's tests, runs each once and notes which functions it executes. For every mutant it forks,
puts the mutated code into the function, and runs the tests that execute it until one fails. A test that fails without a
mutant or starts a process has no say. Those of more than a second run last.
"""

import argparse
import ast
import contextlib
import functools
import hashlib
import json
import os
import random
import subprocess
import sys
import textwrap
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
from mutant_forks import Forks

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "docs/results/data/mutants.jsonl"
SEED, COUNT = 24, 300
SPARE = 300  # mutants drawn beyond COUNT, for functions that the change rewrites
MODULES = {
    # Of these, `policy` and `steady` are names of before.
    "verdicts": (
        "verdicts",
        "outlook",
        "breaches",
        "limits",
        "looks",
        "spread",
        "stats",
        "policy",
        "comparing",
        "shared",
    ),
    "timing": (
        "timing",
        "sizing",
        "plans",
        "warm_up",
        "graphs",
        "blocks",
        "taking",
        "stopwatch",
        "steady",
        "calibration",
        "shape",
        "log",
    ),
}
# Where those modules and their tests lie, or lay.
FOLDERS = ("judging", "measuring", "stats", "engine", "sizing", "blocks", "baselines")
TESTS = (*FOLDERS, "machine", "golden", "test_timing_rules.py")
# Exchanges across these end in a TypeError wherever they are executed, or change nothing (`is` for `==`).
FAMILIES = (
    {"Add", "Sub", "Mul", "Div", "FloorDiv", "Mod", "Pow"},
    {"BitOr", "BitAnd"},
    {"Eq", "NotEq", "Lt", "LtE", "Gt", "GtE"},
    {"Is", "IsNot"},
    {"Delete", "Not", "USub"},
)
LEFT_OUT = ("VariableReplacer", "VariableInserter", "RemoveDecorator")
KILLED = ("killed", "timeout")
LINE = (
    "* **Mutants**: of {count} small faults in verdicts and timing the tests of `{after}` find {after_found}, those of "
    "`{before}` {before_found}. Tests that start processes or time something real had no say. Made by "
    "`python benchmarks/mutants.py after .`."
)
REPORT = """{line}

| module | mutants | killed by the tests of `{before}` | killed by the tests of `{after}` |
|---|---:|---:|---:|
{table}

What survives. Some of these compute the same as the original: no test could kill them.

| module | function | the line | the mutant | before |
|---|---|---|---|---|
{survivors}
"""


@dataclass(frozen=True)
class Function:
    """A function or method of a tree: its name, where its body lies, and the body without its docstring."""

    name: str
    path: Path
    lines: slice
    indent: str
    body: str

    @property
    def digest(self):
        return hashlib.sha256(self.body.encode()).hexdigest()[:12]

    @property
    def place(self):
        return f"{self.path}:{self.name}"

    def compiled(self, body):
        """The code object of this function with another body."""
        lines = self.path.read_text(encoding="utf-8").split("\n")
        lines[self.lines] = textwrap.indent(body, self.indent).split("\n")
        codes = [compile("\n".join(lines), self.path, "exec")]
        for code in codes:
            if code.co_qualname == self.name:
                return code
            codes += [one for one in code.co_consts if isinstance(one, CodeType)]
        raise LookupError(self.place)

    @property
    def area(self):
        """The part of MODULES that it belongs to, or None."""
        stem, folder = self.path.stem, self.path.parent.name
        return next(
            (area for area, names in MODULES.items() if stem in names and folder in FOLDERS), None
        )


def functions(tree):
    """All functions and methods of a tree's package, by name."""
    found = defaultdict(list)
    for path in sorted((tree / "plugin/pytest_roofline").rglob("*.py")):
        nodes = [("", node) for node in ast.parse(path.read_text(encoding="utf-8")).body]
        for prefix, node in nodes:
            if isinstance(node, ast.ClassDef):
                nodes += [(f"{prefix}{node.name}.", inner) for inner in node.body]
            elif isinstance(node, ast.FunctionDef):
                first, name = node.body[0], prefix + node.name
                bare = ast.Module(node.body[ast.get_docstring(node) is not None :], [])
                lines = slice(first.lineno - 1, node.end_lineno)
                found[name].append(
                    Function(name, path, lines, " " * first.col_offset, ast.unparse(bare))
                )
    return found


def exchanges(function):
    """What may be exchanged in a body: lists of (operator, occurrence), one list for each place."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.operators.provider import OperatorProvider

    provider, found = OperatorProvider(), defaultdict(list)
    nodes = list(ast_nodes(get_ast(function.body)))
    for name in provider:
        ends = set(name.split("_")[-2:])
        if name not in LEFT_OUT and ("_" not in name or any(ends <= family for family in FAMILIES)):
            places = [
                place for node in nodes for place in provider[name]().mutation_positions(node)
            ]
            for occurrence, (start, _) in enumerate(places):
                found[start].append((name, occurrence))
    return [found[start] for start in sorted(found)]


def mutate(function, operator, occurrence):
    """The body with one exchange made, or None where that is no program, or compiles to the same one."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.operators.provider import OperatorProvider

    with contextlib.suppress(SyntaxError):
        body = ast.unparse(
            ast.parse(mutate_code(function.body, OperatorProvider()[operator](), occurrence))
        )
        codes = [
            compile(f"def _():\n{textwrap.indent(text, ' ')}", "", "exec")
            for text in (body, function.body)
        ]
        return body if codes[0] != codes[1] else None


def draw(tree):
    """Mutants in the order drawn: what each is, and the line that it changes."""
    named = [one for _, same in sorted(functions(tree).items()) for one in same if one.area]
    places = [(function, choices) for function in named for choices in exchanges(function)]
    chance, drawn = random.Random(SEED), []
    chance.shuffle(places)
    for function, choices in places:
        operator, occurrence = chance.choice(choices)
        if body := mutate(function, operator, occurrence):
            lines = zip(function.body.split("\n"), body.split("\n"), strict=False)
            was, now = next((was.strip(), now.strip()) for was, now in lines if was != now)
            mutant = {
                "area": function.area,
                "module": function.path.stem,
                "function": function.name,
            }
            exchange = {"operator": operator, "occurrence": occurrence, "was": was, "now": now}
            drawn.append(mutant | {"digest": function.digest} | exchange)
    return drawn[: COUNT + SPARE]


def present(tree, mutants):
    """The mutants whose function a tree has, each with that function; of equal ones nobody knows which is meant."""
    named = functions(tree)
    same = [
        [one for one in named[mutant["function"]] if one.digest == mutant["digest"]]
        for mutant in mutants
    ]
    return [
        (mutant, found[0]) for mutant, found in zip(mutants, same, strict=True) if len(found) == 1
    ]


def load():
    """The commits compared, and the mutants in the order drawn."""
    return [json.loads(line) for line in DATA.read_text(encoding="utf-8").splitlines()]


def save(header, mutants):
    DATA.write_text(
        "".join(json.dumps(line) + "\n" for line in (header, *mutants)), encoding="utf-8"
    )


def in_both(mutants: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the first `COUNT` mutants that were tried in both trees."""
    ends = {*KILLED, "survived"}
    return [mutant for mutant in mutants if {mutant.get("before"), mutant.get("after")} <= ends][
        :COUNT
    ]


def line(header: dict[str, Any], mutants: list[dict[str, Any]]) -> str:
    """Return the line of the design's results, as Markdown."""
    both = in_both(mutants)
    return LINE.format(
        count=len(both),
        before=header["before"],
        after=header["after"],
        before_found=killed(both, "before"),
        after_found=killed(both, "after"),
    )


def report(header: dict[str, Any], mutants: list[dict[str, Any]]) -> str:
    """Return what the program prints: the line, the counts of each module, and what survives."""
    both = in_both(mutants)
    rows = [("**all**", both)]
    for area, names in MODULES.items():
        rows.append((f"**{area}**", [one for one in both if one["area"] == area]))
        rows += [(name, [one for one in both if one["module"] == name]) for name in names]
    table = [
        f"| {title} | {len(some)} | {killed(some, 'before')} | {killed(some, 'after')} |"
        for title, some in rows
    ]
    alive = [one for one in both if one["after"] not in KILLED]
    cells = sorted(
        [one["module"], one["function"], one["was"], one["now"], one["before"]] for one in alive
    )
    lines = [
        "| {} | `{}` | `{}` | `{}` | {} |".format(*(cell.replace("|", "\\|") for cell in row))
        for row in cells
    ]
    return REPORT.format(
        **header,
        line=line(header, mutants),
        table="\n".join(table),
        survivors="\n".join(lines),
    )


def killed(mutants, side):
    """How many a tree's tests killed, and their share."""
    count = sum(one[side] in KILLED for one in mutants)
    return f"{count} ({count / max(1, len(mutants)):.0%})"


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("side", choices=("before", "after"))
    parser.add_argument("tree", type=Path, help="a checkout")
    side, tree = vars(parser.parse_args()).values()
    tree = tree.resolve()
    if not DATA.exists():
        save({"seed": SEED}, draw(tree))
    header, *mutants = load()
    commit = subprocess.check_output(
        ("git", "-C", tree, "rev-parse", "--short", "HEAD"), text=True
    ).strip()
    if header.get(side) != commit:
        header[side] = commit
        for mutant in mutants:
            mutant.pop(side, None)
    here = present(tree, mutants)
    for mutant in mutants:
        if all(mutant is not one for one, _ in here):
            mutant[side] = "gone"
    wanted = [one for one in here if "gone" not in one[0].values()][:COUNT]
    wanted = [
        (one, function, function.compiled(mutate(function, one["operator"], one["occurrence"])))
        for one, function in wanted
    ]
    os.chdir(tree)
    os.environ.update(OMP_NUM_THREADS="1", CI="true")
    sys.path[:1] = [str(tree), str(tree / "plugin"), str(tree / "kernels")]
    tests = [f"tests/{name}" for name in TESTS if (tree / "tests" / name).exists()]
    options = ["-q", "-p", "no:cacheprovider", "--capture=sys"]
    status = pytest.main(
        [*tests, *options], [Forks(side, wanted, functools.partial(save, header, mutants))]
    )
    if {"before", "after"} <= {*header}:
        print(report(header, mutants), end="")
    return status


if __name__ == "__main__":
    sys.exit(main())
