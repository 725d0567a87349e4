"""The check that every call does its work.

A function that remembers its results, works in every tenth call only, or leaves its work to another thread is fast and
wrong. So the tensors that a call writes to are spoiled before it, and those that it reads get other values. Values
change in place and behind autograd's version counter: a function cannot notice it by an address or a version.
"""

import contextlib
import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

from ..core.errors import BadInput, NoRoom
from ..core.units import format_amount
from .calls import dense_tensors, tensors_of

# So many values of a tensor get new ones, or this share of a large tensor.
MOST_CHANGED, LEAST_SHARE = 1 << 22, 1 / 64
# So many values of a tensor are compared, beside the sum of all.
MOST_SAMPLED = 4096
# Calls in a row for each level. A function that works in every second call would pass a single one.
ROUNDS = 2
# Levels to spoil outputs with, as shares of a number far above the largest value. An honest function may leave one of
# them unchanged, but never all: `relu_` and a running maximum leave large values, a running minimum negative ones, and
# a sum in bfloat16 leaves values that are too large for it.
LEVELS = 1.0, -1.0, 0.0
# Copies of a set's values that exist at once while new ones are made, beside the one that is kept for every set.
COPIES = 3
STALE = (
    "a call did not write its output, so the result was cached, skipped, or left to another thread; "
    "expected every call to do its work (refill=False turns this check off)"
)
REMEMBERED = (
    "a call returned its earlier result although the values of its arguments had changed, so "
    "the function caches results by object or address; expected every call to do its work (refill=False "
    "turns this check off)"
)
# The factor of new values. As a power of two it scales sums and products without rounding in every format, keeps signs
# and order, and lets a function that ends on convergence still end.
OTHER_FACTOR = 0.5


class Refill:
    """A function that gives one argument set's floating-point tensors new values.

    They differ at each call: the old values, moved by a few places and made somewhat smaller. So positive values and
    probabilities stay such. A tensor of equal values gets a ramp below that value.
    """

    def __init__(self, arguments: tuple[object, ...]) -> None:
        self._parts = _parts_to_change(arguments)
        self._templates = [_vary(part.clone()) for part in self._parts]
        self._call_count = 0

    def __bool__(self) -> bool:
        """Return whether any tensor can be changed."""
        return bool(self._parts)

    def __call__(self) -> None:
        """Give every tensor new values."""
        self._call_count += 1
        # Seven factors in turn, between 9/16 and 15/16.
        factor = 1 - (self._call_count % 7 + 1) / 16
        for index, (part, template) in enumerate(zip(self._parts, self._templates, strict=True)):
            # Each tensor's values move by another distance. Otherwise tensors with equal content would stay equal, and
            # a function that copies one into another would find its result there already.
            distance = self._call_count * (index + 1) + index
            _write(part, template.roll(distance % template.numel()) * factor)


def refill_of(
    fn: Callable[..., object], sets: Sequence[tuple[object, ...]], free_bytes: int
) -> Callable[[int], None]:
    """Return a function that gives the set with an index new values.

    The tensors that the measured function holds itself get new values too.

    Raises:
        NoRoom: the copies do not fit into `free_bytes`.
        BadInput: there is no floating-point tensor to change.
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
            "of the function. Pass the tensors that the function reads by args or make_args"
        )
    return lambda index: refills[index]()


def _parts_to_change(arguments: tuple[object, ...]) -> list[Any]:
    """Return flat views of the values to change, one for each changeable tensor.

    Of a large tensor it is the first part.
    """
    tensors = _one_per_storage(
        [tensor for tensor in dense_tensors(arguments) if _is_changeable(tensor)]
    )
    return [
        _flat(tensor)[: max(MOST_CHANGED, int(LEAST_SHARE * tensor.numel()))] for tensor in tensors
    ]


class FreshnessCheck:
    """A check of calls with the first argument set, and of tensors that the function holds.

    With `before`, the content of these tensors is noted before the first call. The check later compares it, to learn
    which tensors the calls write to.
    """

    def __init__(
        self, fn: Callable[..., object], sets: Sequence[tuple[object, ...]], *, before: bool
    ) -> None:
        """Note what tensors hold before the first call.

        This shows later which of them calls write to. Without `before` nothing is noted.
        """
        self._fn = fn
        # A reference to the list, not to a set, so that replacing a set frees its buffers.
        self._sets = sets
        tensors = self._tensors if before else []
        noted_tensors = tensors if any(map(_is_changeable, tensors)) else []
        self._before = {_storage(tensor): _fingerprint(tensor) for tensor in noted_tensors}

    def why_stale(
        self, fn: Callable[..., object], settle: Callable[[], object], free_bytes: Callable[[], int]
    ) -> str:
        """Return why calls are not believed; empty if they are.

        Empty too if nothing can be checked. The function is called a few more times. Afterwards all tensors hold what
        they held before.

        Args:
            fn: the function as it was timed.
            settle: waits until all work is done.
            free_bytes: returns the memory that is free now.
        """
        originals: list[tuple[Any, Any]] = []
        try:
            settle()
            # First, every call must overwrite outputs that are spoiled before it.
            written_tensors = self._written_tensors()
            spots = self._spots(fn, written_tensors)
            if 2 * sum(spot.nbytes for spot in spots) <= free_bytes():
                originals += [(spot, spot.clone()) for spot in spots]
            # An honest function may leave one level unchanged (a maximum leaves large values), but never all.
            if originals and all(self._leaves_unwritten(fn, originals, level) for level in LEVELS):
                return STALE
            _put_back(originals)
            # Then the result must follow values of the arguments that change in place.
            parts = _parts_to_change(self._sets[0])
            if not parts or 2 * sum(part.nbytes for part in parts) > free_bytes():
                return ""
            originals += [(part, part.clone()) for part in parts]
            return REMEMBERED if self._remembers(fn, parts, written_tensors, free_bytes) else ""
        except Exception:
            # The function may not accept other values than its own, so its failure proves nothing.
            return ""
        finally:
            # If the device fails here, the next question to it raises its error.
            with contextlib.suppress(Exception):
                settle()
                _put_back(originals)
                settle()

    def _spots(self, fn: Callable[..., object], written_tensors: list[Any]) -> list[Any]:
        """Return flat views of the tensors that every working call must write to.

        They are arguments, and results whose memory is the same in each call. Empty if a result gets new memory in each
        call, or if one of these tensors cannot be spoiled.
        """
        # A function that only changes its own output may leave it as it is: a tensor that was clamped does not change
        # when it is clamped again. So the function must also read another tensor.
        read_only_tensors = [
            tensor
            for tensor in self._tensors
            if all(tensor is not written_to for written_to in written_tensors)
        ]
        if not any(map(_is_changeable, read_only_tensors)):
            return []
        own_storages = {
            _storage(tensor) for tensor in dense_tensors(self._sets[0]) if _is_plain(tensor)
        }
        # Both results are kept. If the first were freed, the second would get the same memory.
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
        # The second call may have written to new memory, or only some tensors can be spoiled.
        same_memory = [*map(_storage, first)] == [*map(_storage, second)]
        if not same_memory or not all(map(_is_changeable, spots)):
            return []
        return [_flat(tensor) for tensor in spots]

    @property
    def _tensors(self) -> list[Any]:
        """The plain tensors among the arguments and those that the function holds."""
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
        """Return whether results depend on the arguments' addresses, not on their values.

        That is so if the result stays the same when the values change in place, but is another one for copies of the
        changed arguments. Two copies must agree, so that a random result does not count.
        """
        arguments = self._sets[0]
        tensors = list(dense_tensors(arguments))
        first = _outcome(fn(*arguments), written_tensors)
        for part in parts:
            _write(part, OTHER_FACTOR * _wide(part))
        # Most functions are cleared here, since their result changes with the values.
        if first is None or first != _outcome(fn(*arguments), written_tensors):
            return False
        needed = 2 * sum(
            {_storage(tensor): tensor.untyped_storage().nbytes() for tensor in tensors}.values()
        )
        if needed > free_bytes():
            return False
        # Both copies are kept. If the first were freed, the second would get the same memory.
        copies = [
            dict(zip(map(id, tensors), copy.deepcopy(tensors), strict=True)) for _ in range(2)
        ]
        # The call above may have changed arguments in place. The copies were made after it, so call once more from the
        # same values.
        if first != _outcome(fn(*arguments), written_tensors):
            return False
        outcomes = [
            _outcome(
                fn(*_exchange(arguments, by_id)),
                [by_id.get(id(tensor), tensor) for tensor in written_tensors],
            )
            for by_id in copies
        ]
        of_first_copy, of_second_copy = outcomes
        return of_first_copy == of_second_copy and of_second_copy != first

    def _leaves_unwritten(
        self, fn: Callable[..., object], originals: list[tuple[Any, Any]], level: float
    ) -> bool:
        """Return whether any of some calls leaves all outputs as they were spoiled for it.

        `originals` has each output with a copy of its content; `level` is that of `_spoil`.
        """
        was_unwritten = False
        for _ in range(ROUNDS):
            for spot, content in originals:
                _spoil(spot, content, level)
            before = [_fingerprint(spot) for spot, _ in originals]
            fn(*self._sets[0])
            was_unwritten |= before == [_fingerprint(spot) for spot, _ in originals]
        return was_unwritten


def _fingerprint(tensor: Any) -> tuple[int, tuple[Any, ...]]:
    """Return what to compare a tensor's content by.

    That is the sum of its bits, and a sample of its values.
    """
    import torch

    plain = tensor.detach()
    plain = torch.view_as_real(plain) if plain.is_complex() else plain
    flat = plain.contiguous().view(-1).view(torch.uint8) if plain.numel() else plain.view(-1)
    # Words of eight bytes are summed as fast as memory is read, smaller ones ten times slower. Bytes after the last
    # whole word are only in the sample.
    words = flat[: flat.numel() // 8 * 8]
    aligned = words.numel() and words.storage_offset() % 8 == 0
    total = int(words.view(torch.int64).sum()) if aligned else 0
    # So many places along each dimension make about `MOST_SAMPLED` sampled values.
    count = max(1, round(MOST_SAMPLED ** (1 / max(1, plain.dim()))))
    places = tuple(slice(None, None, max(1, size // count)) for size in plain.shape)
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[plain.element_size()]
    return total, tuple(plain[places].reshape(-1).view(bits).tolist())


def _outcome(output: object, written_tensors: list[Any]) -> tuple[list[Any], list[Any]] | None:
    """Return the fingerprints of a result's tensors, and its numbers.

    The tensors that calls write to count as results too. None if there is nothing to compare, or if a tensor is not
    plain.
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
    """Return the arguments with other tensors in place of those whose `id` is in `by_id`."""
    from torch.utils._pytree import tree_map

    return tuple(tree_map(lambda leaf: by_id.get(id(leaf), leaf), arguments))


def _is_plain(tensor: Any) -> bool:
    """Return whether a tensor is nothing but values in memory.

    A wrapper is not, nor a tensor that is conjugated or negated only when it is read.
    """
    import torch

    odd = (tensor.is_meta, tensor.is_nested, tensor.is_quantized, tensor.is_conj(), tensor.is_neg())
    return type(tensor) in (torch.Tensor, torch.nn.Parameter) and not (
        any(odd) or torch._is_functional_tensor(tensor)
    )


def _is_changeable(tensor: Any) -> bool:
    """Return whether a tensor's values can be changed.

    They must be floating-point numbers in dense memory. Integers are left alone, since they may be indices.
    """
    if (
        not _is_plain(tensor)
        or not (tensor.is_floating_point() or tensor.is_complex())
        or not tensor.numel()
        # It packs two numbers into a byte, and torch cannot convert it.
        or "float4" in str(tensor.dtype)
    ):
        return False
    # Dense memory is contiguous if its dimensions are ordered by their strides.
    by_stride = sorted(range(tensor.dim()), key=lambda dim: (tensor.stride(dim), dim), reverse=True)
    return bool(tensor.permute(by_stride).is_contiguous())


def _storage(tensor: Any) -> int:
    """Return the address of the memory behind a tensor."""
    return int(tensor.untyped_storage().data_ptr())


def _one_per_storage(tensors: list[Any]) -> list[Any]:
    """Return the last tensor of each storage.

    Views of one storage would be changed twice.
    """
    return list({_storage(tensor): tensor for tensor in tensors}.values())


def _flat(tensor: Any) -> Any:
    """Return a flat view of a tensor, without autograd and versions."""
    import torch

    # A changeable tensor fills its memory without a gap, in whatever order, so one stride is enough.
    flat = torch.as_strided(tensor.data, (tensor.numel(),), (1,))
    return torch.view_as_real(flat).view(-1) if flat.is_complex() else flat


def _write(flat: Any, content: Any) -> None:
    """Write content into a flat view.

    It may be of a tensor that was made in inference mode.
    """
    import torch

    with torch.inference_mode():
        flat.copy_(content)


def _put_back(originals: list[tuple[Any, Any]]) -> None:
    """Write the original content back into every flat view."""
    for spot, content in originals:
        _write(spot, content)


def _spoil(flat: Any, content: Any, level: float) -> None:
    """Overwrite a tensor that calls write to.

    A call which leaves it as it is can then be noticed. The new value is `level` times a number far above the largest
    value. Every second place gets a smaller one, so that the tensor is not constant.

    Args:
        flat: the flat view that is overwritten.
        content: a copy of what it held before.
        level: a share, negative or zero too: one of `LEVELS`.
    """
    import torch

    low, high = (float(bound) for bound in content.aminmax())
    # The constant also makes a number for content of zeros.
    above = 20 * max(-low, high) + 1.7
    above = min(above, torch.finfo(content.dtype).max) if math.isfinite(above) else 1.0
    with torch.inference_mode():
        flat.fill_(level * above)
        flat[1::2].fill_(0.8 * level * above)


def _wide(flat: Any) -> Any:
    """Return values in a format of 32 bits or more, to compute with."""
    return flat.float() if flat.element_size() < 4 else flat


def _vary(part: Any) -> Any:
    """Return a part's values in 32 bits or more.

    For equal values, it is a ramp below them. Equal values would not change if they were moved by some places.
    """
    import torch

    wide = _wide(part)
    if not bool((wide == wide[0]).all()):
        return wide
    top = wide[0] if bool(wide[0] != 0) else torch.ones_like(wide[0])
    return top * torch.linspace(0.5, 1, wide.numel(), dtype=wide.dtype, device=wide.device)
