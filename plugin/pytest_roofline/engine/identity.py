"""The state of the software that runs: code, packages, libraries, variables and compilers' caches.

Reading all of it takes a few milliseconds. An unknown fact (no git, no version) is left out.
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
# By the name of a library, its part in the name of NVIDIA's wheel: `nvidia-cudnn-cu12`.
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
    """Return an environment with the state of the software added.

    Args:
        environment: the facts of device, host and software.
        root: the folder of the tests.
        side: of `roofline ab`: the `checkout` that packages were installed from, and the `folder` whose code runs in
            its place; None outside of it.
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
    """Return the variables that steer libraries, sorted. Those that may hold a secret are left out."""
    return {
        name: setting
        for name, setting in sorted(environ.items())
        if name.startswith(_PREFIXES)
        and not _SECRET.search(name)
        and not _SECRET_VALUE.search(setting)
    }


def caches() -> dict[str, str]:
    """Return for each compiler's cache `cold` if it is empty, else `warm`."""
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
    """Return whether a folder holds anything; false if it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            return any(entries)
    except OSError:
        return False


def libraries() -> dict[str, str]:
    """Return the version of each loaded library that times may depend on, by its path.

    They are the libraries in `NAMES`, and those that LD_LIBRARY_PATH or LD_PRELOAD made the loader choose. A path in
    an environment is given from its packages on, so that it is the same in each copy of the environment.
    """
    lines = (read(Path("/proc/self/maps")) or "").splitlines()
    # The path is the sixth field of a line, and may hold blanks.
    mapped = sorted({line.split(maxsplit=5)[5] for line in lines if ".so" in line})
    chosen = _chosen_for_loader()

    def matters(path: str) -> bool:
        name, _ = split_file(path)
        folder, _, _ = path.rpartition("/")
        return name in NAMES or path in chosen or folder in chosen

    paths = [_in_packages(path) or path for path in mapped if matters(path)]
    versions = {}
    for path in paths:
        _, version_in_name = split_file(path)
        versions[path] = _version_of_wheel(path) or version_in_name or "unknown"
    return _linked_into_torch() | versions


def _version_of_wheel(path: str) -> str:
    """Return the version of a library's NVIDIA wheel.

    Empty for another library. The library's file name states only a part of the version. The wheel's name may end in
    the version of CUDA: `nvidia-cublas-cu12`, or `nvidia-cublas`.
    """
    name, _ = split_file(path)
    part = _WHEELS.get(name, "")
    if not part or not path.startswith("nvidia/"):
        return ""
    cuda = str(getattr(getattr(sys.modules.get("torch"), "version", None), "cuda", None))
    names = (f"nvidia-{part}-cu{cuda.partition('.')[0]}", f"nvidia-{part}")
    wheel = next(filter(None, map(_distribution, names)), None)
    return wheel.version if wheel is not None else ""


def _chosen_for_loader() -> frozenset[str]:
    """Return the files and folders that variables make the loader use first, with links resolved."""
    places = re.split(
        "[: ]", f"{os.environ.get('LD_PRELOAD', '')}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    )
    return frozenset(os.path.realpath(place) for place in places if place)


def _linked_into_torch() -> dict[str, str]:
    """Return the version of MKL inside torch.

    It has no file of its own there. Empty without MKL.
    """
    configuration = getattr(sys.modules.get("torch"), "__config__", None)
    text = str(configuration.show()) if configuration is not None else ""
    match = re.search(r"Math Kernel Library Version ([\w.]+)", text)
    return {"MKL": match[1]} if match else {}


def packages() -> dict[str, str]:
    """Return the version of each imported package, by its name.

    A package is found if its distribution has the name of its module. Else the module's own `__version__` counts, and
    without one the package is left out. A package that was installed from an archive has the beginning of the
    archive's hash behind `#`.
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
    """Return the `__version__` of a module in an environment's packages; empty for any other."""
    inside = _in_packages(str(getattr(module, "__file__", "")))
    return str(vars(module).get("__version__", "")) if inside else ""


def _in_packages(path: str) -> str:
    """Return the part of a path inside an environment's packages; empty for a path elsewhere."""
    match = _PACKAGES_FOLDER.fullmatch(path)
    return match[1] if match else ""


@functools.cache
def _distribution(name: str) -> metadata.Distribution | None:
    """Return the distribution with a name; None if there is none."""
    try:
        return metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return None


@functools.cache
def _name_and_version(distribution: metadata.Distribution) -> tuple[str, str]:
    """Return the normalized name and the version, with the hash of its archive behind `#`."""
    facts, digest = distribution.metadata, _origin(distribution).digest
    name, version = (facts.get_all(key, ["unknown"])[0] for key in ("Name", "Version"))
    return re.sub(r"[-_.]+", "-", name).lower(), f"{version}#{digest}" if digest else version


def copied_from(side: Mapping[str, str]) -> Iterator[str]:
    """Yield texts on imported distributions that are copies of a side's checkout.

    `pip install .` makes such copies. A measurement then runs the copy, not the side's own code. A distribution is left
    out if its code is the same in the checkout as in the side's folder.
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
        # git fails if there is a difference, and then gives no output.
        if git(checkout, ("diff", "--quiet", commit, "--", str(place))) == [None]:
            yield f"{' '.join(_name_and_version(distribution))}, installed from {place}"


def _is_imported(distribution: metadata.Distribution) -> bool:
    """Return whether any module of a distribution is imported."""
    files = distribution.files or ()
    return any(file.parts[0].removesuffix(".py") in sys.modules for file in files)


@dataclass(frozen=True, slots=True)
class _Origin:
    """The place that a distribution was installed from; all fields are empty for a package index.

    `commit` is that of a repository, `digest` the beginning of an archive's hash.
    """

    folder: Path | None = None
    editable: bool = False
    commit: str = ""
    digest: str = ""


def _origin(distribution: metadata.Distribution) -> _Origin:
    """Return the place in `direct_url.json`, which PEP 610 describes.

    It is empty if the file has another form.
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
    """Yield the state of packages that were installed from a repository or as editable folders.

    `side` is that of `roofline ab`, whose folder stands for its checkout; None outside of it.
    """
    origins: dict[str, _Origin] = {}
    for distribution in metadata.distributions():
        origin = _origin(distribution)
        if origin.commit or origin.editable:
            name, _ = _name_and_version(distribution)
            # Of two distributions with one name, Python imports the first on its path.
            origins.setdefault(name, origin)
    for name, origin in sorted(origins.items()):
        if origin.folder is None:
            yield Code(name, origin.commit)
        else:
            folder = _in_side(origin.folder, side)
            yield from (replace(code, name=name) for code in code_of(folder))


def _in_side(folder: Path, side: Mapping[str, str] | None) -> Path:
    """Return the same folder in the code of a side.

    It must lie in the checkout of that side of `roofline ab`. `side` is that of `identified`. Any other folder is
    returned as it is.
    """
    if side is None or not folder.is_relative_to(side["checkout"]):
        return folder
    return side["folder"] / folder.relative_to(side["checkout"])
