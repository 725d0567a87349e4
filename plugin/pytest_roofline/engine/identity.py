"""What exactly runs: the state of the code, packages, loaded libraries, variables and the caches of compilers.

All of it is asked for in a few milliseconds; what cannot be told (no git, no version) is left out.
"""

import contextlib
import functools
import getpass
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ..core.facts import Code, Environment
from .host import read

# Of a variable's name, what begins those that steer a library, and what those have that hold a secret.
_PREFIXES = (
    *(
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
    ),
)
_SECRET = re.compile(
    r"TOKEN|SECRET|PASS|CREDENTIAL|AUTH|(?:API|ACCESS|PRIVATE)_?KEY|COOKIE", re.IGNORECASE
)
_SECRET_VALUE = re.compile(r"://[^/\s]*@|^(?:ghp_|sk-|xox|eyJ|AKIA|nvapi-|hf_)")
# By the name of its file what a library is called.
_LIBRARIES = {
    "cudart": "CUDA runtime",
    "cudnn": "cuDNN",
    "cublas": "cuBLAS",
    "cublasLt": "cuBLASLt",
    "nccl": "NCCL",
    "rccl": "RCCL",
    "amdhip64": "HIP runtime",
    "hipblaslt": "hipBLASLt",
    "rocblas": "rocBLAS",
    "MIOpen": "MIOpen",
    "mkl_core": "MKL",
    "gomp": "OpenMP",
    "iomp5": "Intel OpenMP",
    "mpi": "MPI",
}
_MAPPED = re.compile(rf"/lib({'|'.join(_LIBRARIES)})(?:-[^/]*)?\.so([.\d]*)$")
_CACHES = {"Triton": "TRITON_CACHE_DIR", "Inductor": "TORCHINDUCTOR_CACHE_DIR"}
# Without what git would read or write beside the answer, and without variables that name another repository in a hook.
_GIT = ("git", "--no-optional-locks", "-c", "core.fsmonitor=false")
_OTHERS = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")
# Of files that git does not know, so many are read, each up to so many bytes; of a larger one its size has to do.
_FILES, _FILE_BYTES = 200, 1 << 20
# What CI says of the commit that it checked out: GitHub, GitLab, Jenkins.
_BRANCH = (
    "GITHUB_HEAD_REF",
    "GITHUB_REF_NAME",
    "CI_COMMIT_REF_NAME",
    "CHANGE_BRANCH",
    "BRANCH_NAME",
)
_REQUEST = ("CI_MERGE_REQUEST_IID", "CHANGE_ID")
_TARGET = ("GITHUB_BASE_REF", "CI_MERGE_REQUEST_TARGET_BRANCH_NAME", "CHANGE_TARGET")
# All answers of git together may take so long; in a huge repository what takes longer is unknown.
GIT_S = 1.0


def identified(
    environment: Environment, root: Path, side: Mapping[str, str] | None = None
) -> Environment:
    """The environment with everything that tells what exactly runs.

    Args:
        environment: of the device.
        root: the folder of the tests.
        side: the `checkout` that packages were installed from, and the `folder` whose code runs in its place.
    """
    own = _code_of(root)
    if side is None or side["checkout"] == side["folder"]:
        own = tuple(map(_of_ci, own))
    return replace(
        environment,
        code=(*own, *_installed_code(side)),
        packages=packages(),
        libraries=libraries(),
        variables=variables(os.environ),
        caches=caches(),
    )


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that steer libraries of the GPU, sorted, without those that look like a secret."""
    return {
        name: value
        for name, value in sorted(environ.items())
        if name.startswith(_PREFIXES)
        and not _SECRET.search(name)
        and not _SECRET_VALUE.search(value)
    }


def caches() -> dict[str, str]:
    """`cold` or `warm` of Triton's and Inductor's caches of what they compiled."""
    places = {name: os.environ.get(variable) for name, variable in _CACHES.items()}
    # A container may run under a user that has neither name nor home.
    with contextlib.suppress(KeyError, OSError, RuntimeError):
        places["Triton"] = places["Triton"] or str(Path.home() / ".triton" / "cache")
        places["Inductor"] = (
            places["Inductor"] or f"{tempfile.gettempdir()}/torchinductor_{getpass.getuser()}"
        )
    return {
        name: "warm" if _filled(Path(place)) else "cold" for name, place in places.items() if place
    }


def _filled(folder: Path) -> bool:
    try:
        with os.scandir(folder) as found:
            return any(found)
    except OSError:
        return False


def libraries() -> dict[str, str]:
    """Versions of the libraries that this process has mapped, as far as their files or packages tell."""
    found: dict[str, str] = {}
    lines = (read(Path("/proc/self/maps")) or "").splitlines()
    for path in sorted({line.split()[-1] for line in lines if ".so" in line}):
        if named := _MAPPED.search(path):
            mapped = _MAPPED.search(os.path.realpath(path)) or named
            found[_LIBRARIES[mapped[1]]] = (
                _version_of_wheel(Path(path)) or mapped[2].strip(".") or "unknown"
            )
    torch = sys.modules.get("torch")
    if torch is not None and "cuDNN" in found:
        found["cuDNN"] = str(torch.backends.cudnn.version())
    # What torch was linked with no mapped file tells.
    built = getattr(torch, "__config__", None)
    linked = (
        re.search(r"Math Kernel Library Version ([\w.]+)", str(built.show()))
        if built is not None
        else None
    )
    return ({"MKL": linked[1]} if linked else {}) | found


def _version_of_wheel(path: Path) -> str:
    """The version of a library that came as a wheel of its own: `site-packages/nvidia/cublas/lib/libcublas.so.12`."""
    folder, _, inside = str(path).partition("/nvidia/")
    start = f"nvidia_{inside.partition('/')[0]}_"
    names = [one for one in _names_of(folder) if inside and one.startswith(start)]
    return names[0].removesuffix(".dist-info").split("-")[1] if names else ""


@functools.cache
def _names_of(folder: str) -> tuple[str, ...]:
    """What a folder of packages has metadata of: `numpy-2.1.0.dist-info`."""
    try:
        return tuple(
            sorted(one.name for one in os.scandir(folder or ".") if one.name.endswith(".dist-info"))
        )
    except OSError:
        return ()


def packages() -> dict[str, str]:
    """Version by name of each distribution of which a module is imported; of those with binaries with a hash."""
    found = {
        info.name.partition("-")[0].replace("_", "-"): _version(info)
        for info in sorted(_imported())
    }
    # A list of thousands of files is read once, for its owner and for its hash, and not kept.
    _record.cache_clear()
    return found


def copied_from(side: Mapping[str, str]) -> Iterator[str]:
    """Imported distributions of which a copy was installed from a side's checkout, as `pip install .` does.

    What is the same in the checkout as in the folder that stands for it is left out.
    """
    for info in sorted(_imported()):
        with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
            origin = json.loads(_origin(info) or "{}")
            place = Path(unquote(urlsplit(str(origin["url"])).path)).resolve()
            own = place.is_relative_to(side["checkout"]) and not place.is_relative_to(
                side["folder"]
            )
            if own and not origin["dir_info"].get("editable"):
                commit = next((one.commit for one in _code_of(Path(side["folder"]))), "HEAD")
                if _git(Path(side["checkout"]), ("diff", "--quiet", commit, "--", str(place))) == [
                    None
                ]:
                    yield str(info)


def _imported() -> frozenset[Path]:
    """The distributions of which a module is imported."""
    modules = [(name, module) for name, module in list(sys.modules.items()) if "." not in name]
    imported = {_plain(name): str(getattr(module, "__file__", "")) for name, module in modules}
    known = dict(_distributions(tuple(sys.path)))
    # A distribution may be called otherwise than what is imported of it; what lies nowhere beside one is of none.
    places = tuple({f"{info.parent}{os.sep}" for info in known.values()})
    # Every interpreter that has setuptools runs its hook.
    unknown = {
        name: file
        for name, file in imported.items()
        if name not in known and name != "_distutils_hack"
    }
    others = frozenset(file for file in unknown.values() if file.startswith(places))
    found = frozenset(known.pop(name) for name in sorted(imported) if name in known)
    return found | _owners(others, found, frozenset(known.values()))


def _plain(name: str) -> str:
    plain = name.lower().replace("-", "_").replace(".", "_")
    return re.sub("__+", "_", plain) if "__" in plain else plain


@functools.cache
def _distributions(path: Sequence[str]) -> Mapping[str, Path]:
    """Of each name the first on the path, which is what is imported where one environment lies over another."""
    places = reversed(dict.fromkeys(path))
    return {
        _plain(name.partition("-")[0]): Path(folder) / name
        for folder in places
        for name in _names_of(folder)
    }


@functools.cache
def _owners(
    files: frozenset[str], found: frozenset[Path], others: frozenset[Path]
) -> frozenset[Path]:
    """The distributions that some modules are of: those called alike first, then those found, a short RECORD first."""
    sought, owners = set(files), set()
    places = {f"{info.parent}{os.sep}" for info in found | others}
    tops = [
        file[len(place) :].partition(os.sep)[0]
        for file in files
        for place in places
        if file.startswith(place)
    ]
    stems = [_plain(top.partition(".")[0]).strip("_") for top in tops]
    names = {info: _plain(info.name.partition("-")[0]) for info in found | others}
    alike = frozenset(
        info for info, name in names.items() if any(stem in name or name in stem for stem in stems)
    )
    for group in (alike, found - alike, others - alike):
        for info in sorted(group, key=_size) if sought else ():
            record, start = _record(info), len(f"{info.parent}{os.sep}")
            if owned := {
                file
                for file in sought
                if f"\n{file[start:].replace(os.sep, '/')},".encode() in record
            }:
                sought -= owned
                owners.add(info)
            if not sought:
                break
    return frozenset(owners)


def _size(info: Path) -> int:
    try:
        return (info / "RECORD").stat().st_size
    except OSError:
        return 0


@functools.cache
def _record(info: Path) -> bytes:
    """The list of a distribution's files, each behind a line break; from its top names where Debian keeps no list."""
    try:
        return b"\n" + (info / "RECORD").read_bytes()
    except OSError:
        names = (read(info / "top_level.txt") or "").split()
        return "".join(f"\n{name}.py,\n{name}/__init__.py," for name in names).encode()


@functools.cache
def _version(info: Path) -> str:
    record = _record(info)
    binary = b".so," in record or b".pyd," in record
    return info.name.removesuffix(".dist-info").partition("-")[2] + (
        f"#{_hash(record[1:])}" if binary else ""
    )


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:8]


def _installed_code(side: Mapping[str, str] | None = None) -> Iterator[Code]:
    """The code of packages that were installed from a folder, as editable ones are, or from version control."""
    for info in _distributions(tuple(sys.path)).values():
        told = _origin(info)
        if told is None:
            continue
        name = info.name.partition("-")[0].replace("_", "-")
        try:
            origin = json.loads(told)
            if "vcs_info" in origin:
                yield Code(name, str(origin["vcs_info"]["commit_id"]))
            elif origin.get("dir_info", {}).get("editable"):
                place = Path(unquote(urlsplit(str(origin["url"])).path)).resolve()
                if side is not None and place.is_relative_to(side["checkout"]):
                    place = side["folder"] / place.relative_to(side["checkout"])
                yield from (replace(one, name=name) for one in _code_of(place))
        except (ValueError, KeyError, TypeError, AttributeError):
            continue


@functools.cache
def _origin(info: Path) -> str | None:
    return read(info / "direct_url.json")


def _code_of(folder: Path) -> tuple[Code, ...]:
    """The state of the repository that a folder is in; empty where git is not there, or knows of none."""
    own = folder.resolve()
    tops = (place for place in (own, *own.parents) if (place / ".git").exists())
    return next(map(_code_at, tops), ())


@functools.cache
def _code_at(top: Path) -> tuple[Code, ...]:
    head, state, base = _git(
        top,
        ("rev-parse", "HEAD", "--abbrev-ref", "HEAD"),
        ("status", "--porcelain", "-z", "--untracked-files=all"),
        ("merge-base", "HEAD", f"origin/{_first(_TARGET) or 'HEAD'}"),
    )
    if not head:
        return ()
    commit, _, branch = head.decode(errors="replace").strip().partition("\n")
    return (
        Code(
            ".",
            commit=commit,
            changes="unknown" if state is None else _changes(top, state),
            branch=branch if branch != "HEAD" else "",
            merge_base=(base or b"").decode().strip(),
        ),
    )


def _changes(top: Path, state: bytes) -> str:
    """A hash of what differs from the commit; empty where nothing does."""
    if not state:
        return ""
    (difference,) = _git(
        top, ("diff", "HEAD", "--submodule=diff", "--no-ext-diff", "--no-textconv")
    )
    new = [entry[3:] for entry in state.split(b"\0") if entry.startswith(b"?? ")]
    return _hash(state + (difference or b"") + _contents(top, new))


def _contents(top: Path, names: Sequence[bytes]) -> bytes:
    """What stands in files that git does not know."""
    told = []
    for path in [top / os.fsdecode(name) for name in names[:_FILES]]:
        with contextlib.suppress(OSError):
            size = path.stat().st_size
            told.append(
                path.read_bytes() if path.is_file() and size <= _FILE_BYTES else b"%d" % size
            )
    return b"\0".join(told)


def _of_ci(code: Code) -> Code:
    """CI checks out a commit, and says what it is of; of a side of two, or of another repository, it says nothing."""
    number = re.fullmatch(r"refs/pull/(\d+)/.*", os.environ.get("GITHUB_REF", ""))
    return replace(
        code,
        branch=code.branch or _first(_BRANCH),
        merge_base=code.merge_base or _first(("CI_MERGE_REQUEST_DIFF_BASE_SHA",)),
        pull_request=number[1] if number else _first(_REQUEST),
    )


def _first(names: Sequence[str]) -> str:
    """The first of some variables that is set."""
    return next((value for name in names if (value := os.environ.get(name))), "")


def _git(root: Path, *commands: Sequence[str]) -> list[bytes | None]:
    """What git says to each, begun at once since each takes milliseconds; None where it fails or takes too long."""
    environ = {name: value for name, value in os.environ.items() if name not in _OTHERS}
    end_s = time.monotonic() + GIT_S
    try:
        running = [
            subprocess.Popen(
                [*_GIT, "-C", str(root), *command],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environ,
            )
            for command in commands
        ]
    except OSError:
        return [None] * len(commands)
    return [_said(one, end_s) for one in running]


def _said(process: "subprocess.Popen[bytes]", end_s: float) -> bytes | None:
    with process:
        try:
            out, _ = process.communicate(timeout=max(0.0, end_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            return None
    return out if process.returncode == 0 else None
