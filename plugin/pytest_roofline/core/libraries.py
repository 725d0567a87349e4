"""Names, versions and folders of loaded shared libraries.

A run file keeps the version of each by its path: `/usr/lib/x86_64-linux-gnu/libcublas.so.12.4.5`, or
`nvidia/cublas/lib/libcublas.so.12` inside the packages of an environment. A library that is linked into another one
has no file, and stands there by its name.
"""

import re
from collections.abc import Iterable, Mapping

# By the file's name without its version.
NAMES = {
    "libcudart": "CUDA runtime",
    "libcudnn": "cuDNN",
    "libcublas": "cuBLAS",
    "libcublasLt": "cuBLASLt",
    "libnccl": "NCCL",
    "librccl": "RCCL",
    "libamdhip64": "HIP runtime",
    "libhipblaslt": "hipBLASLt",
    "librocblas": "rocBLAS",
    "libMIOpen": "MIOpen",
    "libmkl_core": "MKL",
    "libgomp": "OpenMP",
    "libiomp5": "Intel OpenMP",
    "libmpi": "MPI",
}
# Wheels put a hash behind the name of a library that they bring along: `libgomp-24e2ab19.so.1.0.0`.
_FILE = re.compile(r"(?:.*/)?([^/]+?)(?:-[^/]*)?\.so\.?([.\d]*)")


def split_file(path: str) -> tuple[str, str]:
    """Return name and version of a library's file: `libcublas` and `12.4.5`.

    Both are empty where the path is not of a shared library; the version is empty where the file's name has none.
    """
    match = _FILE.fullmatch(path)
    if match is None:
        return "", ""
    name, version = match.groups()
    return name, version


def versions(libraries: Mapping[str, str]) -> dict[str, str]:
    """Return versions by name: `cuBLAS`: `12.4.5`.

    If a library is loaded twice, the text has both versions.
    """
    return _joined((_name(path), version) for path, version in libraries.items())


def folders(libraries: Mapping[str, str]) -> dict[str, str]:
    """Return the folder by name: `folder of cuBLAS`: `/usr/lib/x86_64-linux-gnu`."""
    return _joined(
        (f"folder of {_name(path)}", path.rpartition("/")[0]) for path in libraries if "/" in path
    )


def _name(path: str) -> str:
    """Return the name of a library.

    It is that in `NAMES`, else its file's without version, else the path.
    """
    stem, _ = split_file(path)
    return NAMES.get(stem, stem) or path


def _joined(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the texts by name. Several different texts of one name are joined by `and`."""
    texts: dict[str, list[str]] = {}
    for name, text in sorted(pairs):
        texts.setdefault(name, []).append(text)
    return {name: " and ".join(dict.fromkeys(values)) for name, values in texts.items()}
