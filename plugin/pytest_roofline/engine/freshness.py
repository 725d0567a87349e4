"""The check that every call does its work. What a call writes to is spoiled before it, and what it
reads gets other values.

A function that remembers its results, works in every tenth call only, or leaves its work to another thread is fast and
wrong. Values are changed in place and behind autograd's version counter, so that neither address nor version tells.
"""

import contextlib
import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

from ..core.errors import BadInput, NoRoom
from ..core.units import format_amount
from .calls import dense_tensors, tensors_of

# Of a large tensor, how much is given new values; and how many values of one are looked at beside its sum.
MOST_CHANGED, LEAST_SHARE = 1 << 22, 1 / 64
MOST_SAMPLED = 4096
# Two in a row, since what works in every second call passes one.
ROUNDS = 2
# Of what is far above the largest value there. Nothing that is honest leaves all of them: `relu_` and a running maximum
# leave large ones, a running minimum negative ones, and a sum in bfloat16 those that are too large for it.
LEVELS = 1.0, -1.0, 0.0
# While the values of one set are made, so many times their width of 32 bits or more, beside what is kept of every set.
COPIES = 3
STALE = (
    "a call left its output unwritten, so its result was cached, skipped, or left to another thread; "
    "expected every call to do its work (refill=False turns this check off)"
)
REMEMBERED = (
    "a call returned its earlier result after the values of its arguments had changed, so "
    "results are cached by object or address; expected every call to do its work (refill=False "
    "turns this check off)"
)
# A power of two: sums and products scale without rounding in every format, signs and order stay, and what ends when it
# has converged still does.
OTHER_FACTOR = 0.5


class Refill:
    """New values for the floating-point tensors of one argument set. They differ each time.

    Values are moved by a few places and made somewhat smaller, so that what was positive, a probability or normal stays
    so. A constant becomes a ramp below it.
    """

    def __init__(self, arguments: tuple[object, ...]) -> None:
        self._parts = _parts_to_change(arguments)
        self._templates = [_vary(part.clone()) for part in self._parts]
        self._times = 0

    def __bool__(self) -> bool:
        """Return whether there is anything to change."""
        return bool(self._parts)

    def __call__(self) -> None:
        """Change them."""
        self._times += 1
        factor = 1 - (self._times % 7 + 1) / 16
        for index, (part, like) in enumerate(zip(self._parts, self._templates, strict=True)):
            # Each by another distance: a copy of its neighbour would else find the neighbour's values there already.
            places = self._times * (index + 1) + index
            _write(part, like.roll(places % like.numel()) * factor)


def refill_of(
    fn: Callable[..., object], sets: Sequence[tuple[object, ...]], free_bytes: int
) -> Callable[[int], None]:
    """Return a function that gives a set, by its index, other values. The tensors that a function
    holds itself get them too.
    """
    wide_bytes = sum(
        part.numel() * max(4, part.element_size())
        for part in _parts_to_change((sets[0], tensors_of(fn)))
    )
    needed = (len(sets) + COPIES) * wide_bytes
    if needed > free_bytes:
        raise NoRoom(
            f"needs {format_amount(needed)} of free memory to change all arguments, found "
            f"{format_amount(free_bytes)}; end other processes on the device, or leave refill out"
        )
    refills = [Refill((arguments, tensors_of(fn))) for arguments in sets]
    if not all(refills):
        raise BadInput(
            "refill=True found no floating-point tensor among the arguments or in the closure "
            "of the function; pass the tensors that it reads by args or make_args"
        )
    return lambda index: refills[index]()


def _parts_to_change(arguments: tuple[object, ...]) -> list[Any]:
    """Return the parts that get new values, of every changeable tensor."""
    tensors = _one_per_storage(
        [tensor for tensor in dense_tensors(arguments) if _is_changeable(tensor)]
    )
    return [
        _flat(tensor)[: max(MOST_CHANGED, int(LEAST_SHARE * tensor.numel()))] for tensor in tensors
    ]


class FreshnessCheck:
    """A look at whether calls with the first argument set do their work. It also looks at tensors
    that the function holds.

    What is noted `before` the first call tells later whether calls write into it.
    """

    def __init__(
        self, fn: Callable[..., object], sets: Sequence[tuple[object, ...]], *, before: bool
    ) -> None:
        self._fn = fn
        # Not the set itself: whoever replaces it frees its buffers.
        self._sets = sets
        tensors = self._tensors if before else []
        noted_tensors = tensors if any(map(_is_changeable, tensors)) else []
        self._before = {_storage(tensor): _fingerprint(tensor) for tensor in noted_tensors}

    def why_stale(
        self, fn: Callable[..., object], settle: Callable[[], object], free_bytes: Callable[[], int]
    ) -> str:
        """Return why calls are not believed. Empty if they are, or if nothing can be seen.

        The function is called a few times more; what was spoiled holds afterwards what it held before.
        """
        originals: list[tuple[Any, Any]] = []
        try:
            settle()
            written_tensors = self._written_tensors()
            spots = self._spots(fn, written_tensors)
            if 2 * sum(spot.nbytes for spot in spots) <= free_bytes():
                originals += [(spot, spot.clone()) for spot in spots]
            if originals and all(self._leaves_unwritten(fn, originals, level) for level in LEVELS):
                return STALE
            _put_back(originals)
            parts = _parts_to_change(self._sets[0])
            if not parts or 2 * sum(part.nbytes for part in parts) > free_bytes():
                return ""
            originals += [(part, part.clone()) for part in parts]
            return REMEMBERED if self._remembers(fn, parts, written_tensors, free_bytes) else ""
        except Exception:
            # Of what a function accepts nothing is known: other values may be none of it.
            return ""
        finally:
            # A device that cannot do this any more tells whoever asks it next.
            with contextlib.suppress(Exception):
                settle()
                _put_back(originals)
                settle()

    def _spots(self, fn: Callable[..., object], written_tensors: list[Any]) -> list[Any]:
        """Return what every call writes to, if it works. These are arguments, and results in memory
        that was not allocated for them.

        None where a result has memory of its own, and where not everything that is written to can be spoiled.
        """
        # What is only read must be there too: what a tensor is clamped to, it is also when clamped once more.
        if not any(
            _is_changeable(tensor)
            and all(tensor is not written_to for written_to in written_tensors)
            for tensor in self._tensors
        ):
            return []
        own_storages = {
            _storage(tensor) for tensor in dense_tensors(self._sets[0]) if _is_plain(tensor)
        }
        # The first is held, or the second would be given its memory.
        outputs = [fn(*self._sets[0]) for _ in range(2)]
        first, second = (
            [
                tensor
                for tensor in dense_tensors(output)
                if not _is_plain(tensor) or _storage(tensor) not in own_storages
            ]
            for output in outputs
        )
        spots = _one_per_storage([*written_tensors, *second])
        if [_storage(tensor) for tensor in first] != [
            _storage(tensor) for tensor in second
        ] or not all(map(_is_changeable, spots)):
            return []
        return [_flat(tensor) for tensor in spots]

    @property
    def _tensors(self) -> list[Any]:
        """Return the tensors of arguments and function that can be seen."""
        return [
            tensor
            for tensor in dense_tensors((self._sets[0], tensors_of(self._fn)))
            if _is_plain(tensor)
        ]

    def _written_tensors(self) -> list[Any]:
        """Return the tensors that calls have changed since the first."""
        return [
            tensor
            for tensor in self._tensors
            if (before := self._before.get(_storage(tensor))) and before != _fingerprint(tensor)
        ]

    def _remembers(
        self,
        fn: Callable[..., object],
        parts: list[Any],
        written_tensors: list[Any],
        free_bytes: Callable[[], int],
    ) -> bool:
        """Return whether results follow the arguments' addresses, not their content."""
        arguments = self._sets[0]
        tensors = list(dense_tensors(arguments))
        first = _outcome(fn(*arguments), written_tensors)
        for part in parts:
            _write(part, OTHER_FACTOR * _wide(part))
        # With most functions it is done here: what they give is another.
        if first is None or first != _outcome(fn(*arguments), written_tensors):
            return False
        needed = 2 * sum(
            {_storage(tensor): tensor.untyped_storage().nbytes() for tensor in tensors}.values()
        )
        if needed > free_bytes():
            return False
        # Both are held, or the second would be given the memory of the first.
        copies = [
            dict(zip(map(id, tensors), copy.deepcopy(tensors), strict=True)) for _ in range(2)
        ]
        # In place, a call changed them once more; now they hold what the copies hold.
        if first != _outcome(fn(*arguments), written_tensors):
            return False
        outcomes = [
            _outcome(
                fn(*_exchange(arguments, by_id)),
                [by_id.get(id(tensor), tensor) for tensor in written_tensors],
            )
            for by_id in copies
        ]
        return outcomes[0] == outcomes[1] != first

    def _leaves_unwritten(
        self, fn: Callable[..., object], originals: list[tuple[Any, Any]], level: float
    ) -> bool:
        """Return whether a call leaves its outputs as they were spoiled."""
        stays = False
        for _ in range(ROUNDS):
            for spot, content in originals:
                _spoil(spot, content, level)
            before = [_fingerprint(spot) for spot, _ in originals]
            fn(*self._sets[0])
            stays |= before == [_fingerprint(spot) for spot, _ in originals]
        return stays


def _fingerprint(tensor: Any) -> tuple[int, tuple[Any, ...]]:
    """Return the sum of a tensor's bits, and a sample of them. They tell its content from another."""
    import torch

    plain = tensor.detach()
    plain = torch.view_as_real(plain) if plain.is_complex() else plain
    flat = plain.contiguous().view(-1).view(torch.uint8) if plain.numel() else plain.view(-1)
    # Words of eight bytes are summed as fast as memory is read, others ten times slower.
    words = flat[: flat.numel() // 8 * 8]
    aligned = words.numel() and words.storage_offset() % 8 == 0
    total = int(words.view(torch.int64).sum()) if aligned else 0
    count = max(1, round(MOST_SAMPLED ** (1 / max(1, plain.dim()))))
    places = tuple(slice(None, None, max(1, size // count)) for size in plain.shape)
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[plain.element_size()]
    return total, tuple(plain[places].reshape(-1).view(bits).tolist())


def _outcome(output: object, written_tensors: list[Any]) -> tuple[list[Any], list[Any]] | None:
    """Return the states of a result's tensors, and its numbers. The tensors that were written to
    count too.

    None of a result that holds nothing that can be seen, or something that cannot.
    """
    from torch.utils._pytree import tree_leaves

    tensors = [*dense_tensors(output), *written_tensors]
    numbers = [
        leaf for leaf in tree_leaves(output) if isinstance(leaf, int | float | complex | str)
    ]
    if not (tensors or numbers) or not all(map(_is_plain, tensors)):
        return None
    return [_fingerprint(tensor) for tensor in tensors], numbers


def _exchange(arguments: tuple[object, ...], by_id: dict[int, Any]) -> tuple[object, ...]:
    """The arguments with other tensors in the places of these."""
    from torch.utils._pytree import tree_map

    return tuple(tree_map(lambda leaf: by_id.get(id(leaf), leaf), arguments))


def _is_plain(tensor: Any) -> bool:
    """Return whether a tensor is nothing but values in memory. It is no wrapper, and nothing in it
    is conjugated when it is read.
    """
    import torch

    odd = (tensor.is_meta, tensor.is_nested, tensor.is_quantized, tensor.is_conj(), tensor.is_neg())
    return type(tensor) in (torch.Tensor, torch.nn.Parameter) and not (
        any(odd) or torch._is_functional_tensor(tensor)
    )


def _is_changeable(tensor: Any) -> bool:
    """Return whether a tensor holds floating-point numbers of its own. A number that indexes stays."""
    if (
        not _is_plain(tensor)
        or not (tensor.is_floating_point() or tensor.is_complex())
        or not tensor.numel()
        # Two numbers in a byte, which torch converts into nothing.
        or "float4" in str(tensor.dtype)
    ):
        return False
    by_stride = sorted(range(tensor.dim()), key=lambda dim: (tensor.stride(dim), dim), reverse=True)
    return bool(tensor.permute(by_stride).is_contiguous())


def _storage(tensor: Any) -> int:
    return int(tensor.untyped_storage().data_ptr())


def _one_per_storage(tensors: list[Any]) -> list[Any]:
    """Return one tensor for each storage. Views of the same would be changed twice."""
    return list({_storage(tensor): tensor for tensor in tensors}.values())


def _flat(tensor: Any) -> Any:
    """Return a flat view of a tensor, without autograd and versions."""
    import torch

    # Dense, so that its storage holds its values without a gap, in whatever order.
    flat = torch.as_strided(tensor.data, (tensor.numel(),), (1,))
    return torch.view_as_real(flat).view(-1) if flat.is_complex() else flat


def _write(flat: Any, content: Any) -> None:
    """Write content, also into what was made in inference mode."""
    import torch

    with torch.inference_mode():
        flat.copy_(content)


def _put_back(originals: list[tuple[Any, Any]]) -> None:
    for spot, content in originals:
        _write(spot, content)


def _spoil(flat: Any, content: Any, level: float) -> None:
    """Write numbers far above the largest of this content. `level` is a share of them; they are not
    the same everywhere.
    """
    import torch

    low, high = (float(bound) for bound in content.aminmax())
    above = 20 * max(-low, high) + 1.7
    above = min(above, torch.finfo(content.dtype).max) if math.isfinite(above) else 1.0
    with torch.inference_mode():
        flat.fill_(level * above)
        flat[1::2].fill_(0.8 * level * above)


def _wide(flat: Any) -> Any:
    """Return numbers in a format of 32 bits or more to compute with."""
    return flat.float() if flat.element_size() < 4 else flat


def _vary(part: Any) -> Any:
    """Return the same numbers, or a ramp below a constant. A constant that moved by some places
    would be what it was. The format has 32 bits or more.
    """
    import torch

    wide = _wide(part)
    if not bool((wide == wide[0]).all()):
        return wide
    top = wide[0] if bool(wide[0] != 0) else torch.ones_like(wide[0])
    return top * torch.linspace(0.5, 1, wide.numel(), dtype=wide.dtype, device=wide.device)
