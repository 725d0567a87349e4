"""The state of what runs: code, packages, libraries and variables. Also the caches of compilers.

All of it takes a few milliseconds. A fact that nothing states (no git, no version) is left out.
"""

import contextlib
import functools
import getpass
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urlsplit

from ..core.facts import Code, Environment
from ..core.libraries import NAMES, split_file
from .checkout import code_of, git, with_ci
from .host import read

# Beginnings of the names of variables that steer a library, or which of two copies of it is loaded.
_PREFIXES = (
    "NCCL_",
    "RCCL_",
    "TORCH",
    "PYTORCH_",
    "TRITON_",
    "CUDA_",
    "CUBLAS_",
    "HIP_",
    "HSA_",
    "OMP_",
    "MKL_",
    "UCX_",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
)
_SECRET = re.compile(
    r"TOKEN|SECRET|PASS|CREDENTIAL|AUTH|(?:API|ACCESS|PRIVATE)_?KEY|COOKIE", re.IGNORECASE
)
_SECRET_VALUE = re.compile(r"://[^/\s]*@|^(?:ghp_|sk-|xox|eyJ|AKIA|nvapi-|hf_)")
_CACHES = {"Triton": "TRITON_CACHE_DIR", "Inductor": "TORCHINDUCTOR_CACHE_DIR"}
# By the name of a library the part of its wheel's name.
_WHEELS = {
    "libcudart": "cuda-runtime",
    "libcudnn": "cudnn",
    "libcublas": "cublas",
    "libcublasLt": "cublas",
    "libnccl": "nccl",
}
_PACKAGES_FOLDER = re.compile(r".*/(?:site|dist)-packages/(.+)")


def identified(
    environment: Environment, root: Path, side: Mapping[str, str] | None = None
) -> Environment:
    """Return the environment with the state of everything that runs.

    Args:
        environment: of the device.
        root: the folder of the tests.
        side: the `checkout` that packages were installed from, and the `folder` whose code runs in its place.
    """
    tests = code_of(root)
    if side is None or side["checkout"] == side["folder"]:
        tests = tuple(map(with_ci, tests))
    return replace(
        environment,
        code=(*tests, *_installed_code(side)),
        packages=packages(),
        libraries=libraries(),
        variables=variables(os.environ),
        caches=caches(),
    )


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that steer libraries, without secrets. They are sorted."""
    return {
        name: setting
        for name, setting in sorted(environ.items())
        if name.startswith(_PREFIXES)
        and not _SECRET.search(name)
        and not _SECRET_VALUE.search(setting)
    }


def caches() -> dict[str, str]:
    """Return `cold` or `warm` of each compiler's cache."""
    places = {name: os.environ.get(variable) for name, variable in _CACHES.items()}
    # A container may run under a user that has neither name nor home.
    with contextlib.suppress(KeyError, OSError, RuntimeError):
        places["Triton"] = places["Triton"] or str(Path.home() / ".triton" / "cache")
        places["Inductor"] = (
            places["Inductor"] or f"{tempfile.gettempdir()}/torchinductor_{getpass.getuser()}"
        )
    return {
        name: "warm" if _has_entries(Path(place)) else "cold"
        for name, place in places.items()
        if place
    }


def _has_entries(folder: Path) -> bool:
    try:
        with os.scandir(folder) as entries:
            return any(entries)
    except OSError:
        return False


def libraries() -> dict[str, str]:
    """Return the version of each loaded library that times may depend on.

    These are the libraries of `NAMES`, and those that LD_LIBRARY_PATH or LD_PRELOAD put in place. A path inside the
    packages of an environment begins there, so that it is the same in each copy of the environment.
    """
    lines = (read(Path("/proc/self/maps")) or "").splitlines()
    mapped = sorted({line.split(maxsplit=5)[5] for line in lines if ".so" in line})
    chosen = _chosen_for_loader()
    paths = [
        _in_packages(path) or path
        for path in mapped
        if split_file(path)[0] in NAMES or {path, path.rpartition("/")[0]} & chosen
    ]
    versions = {path: _version_of_wheel(path) or split_file(path)[1] or "unknown" for path in paths}
    return _linked_into_torch() | versions


def _version_of_wheel(path: str) -> str:
    """Return the version of NVIDIA's wheel that brought a library. Empty for another library.

    The file's name has a part of the version. Wheels for CUDA 12 name it: `nvidia-cublas-cu12`, and `nvidia-cublas`.
    """
    part = _WHEELS.get(split_file(path)[0], "")
    if not part or not path.startswith("nvidia/"):
        return ""
    cuda = str(getattr(getattr(sys.modules.get("torch"), "version", None), "cuda", None))
    names = (f"nvidia-{part}-cu{cuda.partition('.')[0]}", f"nvidia-{part}")
    wheel = next(filter(None, map(_distribution, names)), None)
    return wheel.version if wheel is not None else ""


def _chosen_for_loader() -> frozenset[str]:
    """Return the places that variables make the loader search first. Links are resolved."""
    places = re.split(
        "[: ]", f"{os.environ.get('LD_PRELOAD', '')}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    )
    return frozenset(os.path.realpath(place) for place in places if place)


def _linked_into_torch() -> dict[str, str]:
    """Return the version of MKL that torch was linked with. No file of it is mapped."""
    configuration = getattr(sys.modules.get("torch"), "__config__", None)
    text = str(configuration.show()) if configuration is not None else ""
    match = re.search(r"Math Kernel Library Version ([\w.]+)", text)
    return {"MKL": match[1]} if match else {}


def packages() -> dict[str, str]:
    """Return the version of each installed package that is imported.

    Most distributions have the name of their module. A module of another name states its version itself, or is left
    out. Behind `#` stands the beginning of the hash of the archive that it was installed from, if it was no index.
    """
    versions = dict(
        _name_and_version(distribution)
        if (distribution := _distribution(name)) is not None
        else (name, _stated_version(module))
        for name, module in list(sys.modules.items())
        if not name.startswith("_") and "." not in name and name not in sys.stdlib_module_names
    )
    return {name: version for name, version in sorted(versions.items()) if version}


def _stated_version(module: ModuleType) -> str:
    """Return a module's own version, if an environment has it. Empty for another module."""
    inside = _in_packages(str(getattr(module, "__file__", "")))
    return str(vars(module).get("__version__", "")) if inside else ""


def _in_packages(path: str) -> str:
    """Return the path of a file inside an environment's packages. Empty for a path elsewhere."""
    match = _PACKAGES_FOLDER.fullmatch(path)
    return match[1] if match else ""


@functools.cache
def _distribution(name: str) -> metadata.Distribution | None:
    try:
        return metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return None


@functools.cache
def _name_and_version(distribution: metadata.Distribution) -> tuple[str, str]:
    facts, digest = distribution.metadata, _origin(distribution).digest
    name, version = (facts.get_all(key, ["unknown"])[0] for key in ("Name", "Version"))
    return re.sub(r"[-_.]+", "-", name).lower(), f"{version}#{digest}" if digest else version


def copied_from(side: Mapping[str, str]) -> Iterator[str]:
    """Yield the imported distributions that are copies of a side's checkout. `pip install .` makes
    such copies.

    A distribution is left out if its folder is the same in the checkout as in the folder that stands for the checkout.
    """
    checkout, folder = Path(side["checkout"]), Path(side["folder"])
    for distribution in metadata.distributions():
        origin = _origin(distribution)
        place = origin.folder
        if place is None or origin.editable:
            continue
        if not place.is_relative_to(checkout) or place.is_relative_to(folder):
            continue
        if not _is_imported(distribution):
            continue
        commit = next((code.commit for code in code_of(folder)), "HEAD")
        if git(checkout, ("diff", "--quiet", commit, "--", str(place))) == [None]:
            yield f"{' '.join(_name_and_version(distribution))}, installed from {place}"


def _is_imported(distribution: metadata.Distribution) -> bool:
    files = distribution.files or ()
    return any(file.parts[0].removesuffix(".py") in sys.modules for file in files)


@dataclass(frozen=True, slots=True)
class _Origin:
    """The place that a distribution was installed from. It is empty if it was an index."""

    folder: Path | None = None
    editable: bool = False
    commit: str = ""
    digest: str = ""


def _origin(distribution: metadata.Distribution) -> _Origin:
    """Return the content of `direct_url.json`, as PEP 610 describes it. A file that is odd states
    nothing.
    """
    with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
        facts = json.loads(distribution.read_text("direct_url.json") or "{}")
        if "vcs_info" in facts:
            return _Origin(commit=str(facts["vcs_info"]["commit_id"]))
        if "archive_info" in facts:
            hashes = facts["archive_info"].get("hashes", {})
            return _Origin(digest=str(next(iter(hashes.values()), ""))[:8])
        if "dir_info" in facts:
            folder = Path(unquote(urlsplit(str(facts["url"])).path)).resolve()
            return _Origin(folder, editable=bool(facts["dir_info"].get("editable")))
    return _Origin()


def _installed_code(side: Mapping[str, str] | None = None) -> Iterator[Code]:
    """Yield the code of packages from version control or editable folders."""
    origins: dict[str, _Origin] = {}
    for distribution in metadata.distributions():
        origin = _origin(distribution)
        if origin.commit or origin.editable:
            # The first on the path is what is imported.
            origins.setdefault(_name_and_version(distribution)[0], origin)
    for name, origin in sorted(origins.items()):
        if origin.folder is None:
            yield Code(name, origin.commit)
        else:
            folder = _in_side(origin.folder, side)
            yield from (replace(code, name=name) for code in code_of(folder))


def _in_side(folder: Path, side: Mapping[str, str] | None) -> Path:
    """Return the folder that stands for one of the checkout."""
    if side is None or not folder.is_relative_to(side["checkout"]):
        return folder
    return side["folder"] / folder.relative_to(side["checkout"])
