"""What the page is made with: templates, style, scripts, and the policy that lets a browser run these and no others."""

import base64
import hashlib
import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ..core.units import printable, slug
from .page_summary import family, shape

# Inside a script element nothing is escaped by HTML, so what could end it or begin a comment is written otherwise.
_IN_SCRIPT = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


@cache
def environment() -> Environment:
    """Templates that escape all that they show, and refuse a name that nobody gave them."""
    made = Environment(
        loader=PackageLoader(__package__, "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    made.filters |= {"shape": shape, "family": family, "slug": slug}
    return made


def _shown(value: Any) -> Any:
    """Text as it may stand in a page: without characters that are not seen, or that turn the reading round."""
    # What `isprintable` lets pass, `printable` leaves as it is; the first is the quick one of the two.
    if not isinstance(value, str) or isinstance(value, Markup) or value.isprintable():
        return value
    return printable(value)


@cache
def asset(name: str) -> str:
    """The text of a style sheet or script of ours."""
    return (files(__package__) / "assets" / name).read_text(encoding="utf-8")


@cache
def plotly_script() -> str:
    """Plotly's own JavaScript, without the two marks that a script element cannot hold."""
    from plotly.offline import get_plotlyjs

    text: str = get_plotlyjs()
    return text.replace("</script", "<\\/script").replace("<!--", "\\u003c!--").replace("\r\n", "\n")


def policy(scripts: Sequence[str]) -> str:
    """A Content-Security-Policy under which nothing is loaded, and only these scripts run."""
    hashes = " ".join(f"'sha256-{_digest(script)}'" for script in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


@cache
def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def json_for_script(value: Any) -> str:
    """JSON that can stand in a script element, whatever its texts hold."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).translate(_IN_SCRIPT)
