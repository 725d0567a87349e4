"""Whether the code of a block was executed: tests that passed, and functions that something calls."""

import ast
import re
from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree

SUMMARY = re.compile(r"^=+ (.*) in [\d.]+s.*=+$|^(\d+ \w+.*) in [\d.]+s", re.MULTILINE)
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def tests_of(tree: ast.Module) -> set[str]:
    """The names of the tests that a file defines, in classes too, whether or not pytest would find them."""
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return {function.name for function in functions if function.name.startswith("test")}


def not_passed(printed: str) -> set[str]:
    """What pytest says that it did with tests but to let them pass: `skipped`, `xfailed`, `deselected` …"""
    found = SUMMARY.findall(printed)
    assert found, f"pytest printed no summary:\n{printed}"
    said = "".join(found[-1])
    return set(re.findall(r"\d+ ([a-z]+)", said)) - {"passed", "warning", "warnings"}


def passed(report: Path) -> set[str]:
    """The tests that passed by pytest's report in XML, without their parameters."""
    cases = ElementTree.parse(report).iter("testcase")
    return {
        case.attrib["name"].partition("[")[0]
        for case in cases
        if not {each.tag for each in case} & {"failure", "error", "skipped"}
    }


def definitions(tree: ast.Module) -> set[str]:
    """The functions and classes that a program defines: what stands in them is not executed by that."""
    return {node.name for node in tree.body if isinstance(node, Definition)}


def used(tree: ast.Module) -> set[str]:
    """The names that a program uses, those within a definition of the same name aside."""
    return {name for node in tree.body for name in _loaded(ast.walk(node)) - {getattr(node, "name", "")}}


def _loaded(nodes: Iterable[ast.AST]) -> set[str]:
    return {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
