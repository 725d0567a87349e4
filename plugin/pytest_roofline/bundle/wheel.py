"""This very package as a wheel again, from its files as they are installed: whoever has the archive needs no index."""

import base64
import hashlib
import importlib.util
from importlib.metadata import distribution
from pathlib import Path

from .archive import zipped

NAME = "pytest-roofline"
PACKAGES = ("pytest_roofline", "roofline_kernels")
_WHEEL = "Wheel-Version: 1.0\nGenerator: roofline bundle\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def wheel() -> tuple[str, bytes]:
    """Its file name, and what is in it (PEP 427)."""
    installed = distribution(NAME)
    stem = f"{NAME.replace('-', '_')}-{installed.version}"
    files = {name: data for package in PACKAGES for name, data in _files(package).items()}
    for name in ("METADATA", "entry_points.txt"):
        files[f"{stem}.dist-info/{name}"] = (installed.read_text(name) or "").encode()
    files[f"{stem}.dist-info/WHEEL"] = _WHEEL.encode()
    record = f"{stem}.dist-info/RECORD"
    lines = [f"{name},sha256={_digest(data)},{len(data)}\n" for name, data in sorted(files.items())]
    files[record] = "".join([*lines, f"{record},,\n"]).encode()
    return f"{stem}-py3-none-any.whl", zipped(files, top="")


def _files(package: str) -> dict[str, bytes]:
    spec = importlib.util.find_spec(package)
    found = {}
    for folder in map(Path, (spec.submodule_search_locations or ()) if spec is not None else ()):
        for path in folder.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                found[f"{package}/{path.relative_to(folder).as_posix()}"] = path.read_bytes()
    return found


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
