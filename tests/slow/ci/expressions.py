"""Expressions of GitHub Actions, as far as the workflow has them, evaluated rather than compared as texts."""

import re


class Context(dict):
    """A context whose missing parts are empty, as those of GitHub are."""

    def __getattr__(self, name):
        value = self.get(name, Context())
        return Context(value) if isinstance(value, dict) else value


def true(condition, *, failed=False, **contexts):
    """Whether a step or a job with this condition starts; without a function of status, none does after a failure."""
    condition = condition or "success()"
    if not re.search(r"\b(always|success|failure|cancelled)\(\)", condition):
        condition = f"success() && ({condition})"
    return bool(
        _value(condition, {"always": lambda: True, "success": lambda: not failed} | contexts)
    )


def filled(text, **contexts):
    """A text with its expressions replaced by their values."""
    return re.sub(r"\$\{\{ (.*?) }}", lambda found: str(_value(found[1], contexts)), str(text))


def _value(expression, contexts):
    python = expression.replace("&&", " and ").replace("||", " or ")
    known = {
        name: Context(value) if isinstance(value, dict) else value
        for name, value in contexts.items()
    }
    return eval(python, {"__builtins__": {}}, known)
