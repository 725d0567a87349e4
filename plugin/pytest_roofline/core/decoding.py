"""Plain data from JSON text, strictly, with the standard library alone.

Run and baseline files, of which there are thousands, take the second step in `core.storage`, by the same rules.
"""

import json
import math
from typing import Any

from .errors import BadFile


def decode_json(data: bytes | str, where: str) -> Any:
    """Plain data from JSON text.

    Raises:
        BadFile: not UTF-8, not JSON, a name twice in one object, half a surrogate pair, or a number that is none: NaN,
            infinities, and what is beyond every range.
    """
    try:
        text = data.decode() if isinstance(data, bytes) else data
        raw = json.loads(
            text, parse_constant=_refuse_number, parse_float=_finite, parse_int=_whole, object_pairs_hook=_unique_names
        )
        if "\\ud" in text.lower():
            json.dumps(raw, ensure_ascii=False).encode()
    except UnicodeDecodeError as error:
        raise BadFile(f"{where} is not UTF-8 text (byte {error.start}); expected JSON") from None
    except UnicodeEncodeError:
        raise BadFile(f"{where} holds half a character (a lone surrogate); expected whole ones") from None
    except json.JSONDecodeError as error:
        raise BadFile(f"{where} is not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise BadFile(f"{where} is nested too deeply to be one of ours") from None
    except _Refused as error:
        raise BadFile(f"{where} {error}") from None
    return raw


class _Refused(ValueError):
    """JSON that the standard library would take and we do not."""


def _refuse_number(name: str) -> float:
    raise _Refused(f"holds {name}, which is no number; expected finite values")


def _finite(digits: str) -> float:
    value = float(digits)
    return value if math.isfinite(value) else _refuse_number(digits)


def _whole(digits: str) -> int:
    count = len(digits.lstrip("-"))
    if count > 19:
        raise _Refused(f"holds a whole number of {count} digits; expected at most 64 bits")
    return int(digits)


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = dict(pairs)
    if len(names) != len(pairs):
        seen = [name for name, _ in pairs]
        twice = next(name for name in seen if seen.count(name) > 1)
        raise _Refused(f"gives {twice!r} twice in one object; expected it once")
    return names
