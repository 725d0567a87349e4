"""The published limits that gate on day one, by recorded product and test, as their sources print them.

AMD's acceptance guides ask for BabelStream's best of 50.
"""

H2D, D2H = "test_memcpy_h2d[512MiB-pinned]", "test_memcpy_d2h[512MiB-pinned]"
SCALE, ADD, TRIAD = (f"test_stream_large[{operation}]" for operation in ("scale", "add", "triad"))
_MI300X = {SCALE: 4067.069, ADD: 3920.853, TRIAD: 3885.301}
# In GB/s; every other product has none.
LIMITS: dict[str, dict[str, float]] = {
    "mi210-64gb": {SCALE: 1225, ADD: 1115, TRIAD: 1115},
    "mi250-64gb": {SCALE: 1200, ADD: 1100, TRIAD: 1100},
    "mi250x-64gb": {SCALE: 1200, ADD: 1100, TRIAD: 1100},
    "mi300x-192gb": _MI300X,
    # Microsoft's machines with MI300X are virtual ones.
    "mi300x-vf-192gb": _MI300X,
}
FILES = {"memcpy": "test_memcpy.py", "stream": "test_stream.py"}


def file_of(test: str) -> str:
    """The file of a test among the benchmarks."""
    return FILES[test.split("_")[1]]
