# SPDX-License-Identifier: BSD-3-Clause
"""The mask that travels through a model of transformers: fa3.huggingface._mask.Mask.

To the model it is the bool tensor (batch, 1, queries, keys) that transformers makes for PyTorch's
SDPA, True where a query sees a key. Its bits are computed only if the model itself computes with
them; attention takes the sequence ids, the causality and the window it is made of. So a mask
survives what models do between the two functions, and one that they change is an ordinary tensor.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

_aten = torch.ops.aten
# The result is the mask again: the operators run on its parts.
_OF_PARTS = {_aten.detach.default, _aten.alias.default, _aten.clone.default}
_PARTS = ("ids_q", "ids_kv", "begin", "used")
_ADDITIONS = {"aten::add", "aten::add_", "aten::sub", "aten::rsub", "aten::sub_"}


class Band(NamedTuple):
    """What a query sees by its position, in keys that are its own.

    left, right: as fa3.torch.attention's window, None without bound. chunk: keys of the query's own
    chunk of so many, 0 without chunks."""

    causal: bool = False
    left: int | None = None
    right: int | None = None
    chunk: int = 0


class Mask(Tensor):
    """A query sees keys that are its own, in a band. Its own are one of two:

    those of its id. ids_q: int32 (batch, queries), never 0. ids_kv: int32 (batch, keys that count),
      0 hides a key; keys behind them, of a static cache, are hidden. Query i stands where key i +
      (keys that count − queries) does. plain: all ids are alike.
    those of a range: `used` keys, int32 (batch), from begin on, int32 (batch), None = 0. Query i
      stands where key begin + i + (used − queries) does, and chunks count from begin: attention's
      seqused_kv and kv_begin.
    """

    ids_q: Tensor | None
    ids_kv: Tensor | None
    begin: Tensor | None
    used: Tensor | None
    band: Band
    plain: bool

    @staticmethod
    def __new__(cls: type, parts: dict[str, Tensor], size: tuple, how: tuple[Band, bool]) -> "Mask":
        device = next(iter(parts.values())).device
        return Tensor._make_wrapper_subclass(cls, size, dtype=torch.bool, device=device)

    def __init__(self, parts: dict[str, Tensor], size: tuple, how: tuple[Band, bool]) -> None:
        for name in _PARTS:
            setattr(self, name, parts.get(name))
        self.band, self.plain = how

    @staticmethod
    def of_ids(ids_q: Tensor, ids_kv: Tensor, keys: int, band: Band, plain: bool) -> "Mask":
        size = (ids_q.shape[0], 1, ids_q.shape[1], keys)
        return Mask({"ids_q": ids_q, "ids_kv": ids_kv}, size, (band, plain))

    @staticmethod
    def of_range(begin: Tensor | None, used: Tensor, rows: int, keys: int, band: Band) -> "Mask":
        parts = {"used": used} if begin is None else {"begin": begin, "used": used}
        return Mask(parts, (used.shape[0], 1, rows, keys), (band, False))

    def __tensor_flatten__(self) -> tuple[list[str], tuple[Band, bool]]:
        return self._names(), self._how()

    def _names(self) -> list[str]:
        return [name for name in _PARTS if getattr(self, name) is not None]

    def _how(self) -> tuple[Band, bool]:
        return self.band, self.plain

    @staticmethod
    def __tensor_unflatten__(parts: dict, how: tuple, size: Any, stride: Any) -> "Mask":
        return Mask(parts, size, how)

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"Mask({tuple(self.shape)}, {self.band})"

    def __setitem__(self, at: Any, value: Any) -> None:
        _refuse_to_write("[…] =")  # it would reach a view of the bits alone

    @property
    def may_hide_all(self) -> bool:
        """Whether a query of a sequence that has keys may see none of them."""
        return not self.plain and (self.band.causal or self.band.left is not None)

    def in_full(self) -> Tensor:
        """The tensor that it stands for: bool (batch, 1, queries, keys)."""
        rows, keys = self.shape[2:]
        at = torch.arange(keys, device=self.device)
        if self.used is not None:
            used = self.used[:, None, None, None]
            if self.begin is not None:
                at = at - self.begin[:, None, None, None]
            seen = (at >= 0) & (at < used)
        else:
            used = self.ids_kv.shape[1]
            seen = self.ids_q[:, None, :, None] == self.ids_kv[:, None, None, :]
            seen = torch.nn.functional.pad(seen, (0, keys - used))
        stands = torch.arange(rows, device=self.device)[:, None] + (used - rows)
        band = self.band
        if band.causal:
            seen = seen & (at <= stands)
        if band.left is not None:
            seen = seen & (at >= stands - band.left)
        if band.right is not None:
            seen = seen & (at <= stands + band.right)
        if band.chunk:
            seen = seen & (at // band.chunk == stands // band.chunk)
        return seen.expand(*self.shape)

    @classmethod
    def __torch_dispatch__(
        cls, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        kwargs = kwargs or {}
        first = args[0] if args else None
        if isinstance(first, Mask) and _keeps(function, args, kwargs):
            move = {k: v for k, v in kwargs.items() if k != "dtype"}
            same = _aten.alias.default if function is _aten.slice.Tensor else function
            parts = {name: same(getattr(first, name), **move) for name in first._names()}
            return Mask(parts, tuple(first.shape), first._how())
        name = function._schema.name
        if name in _ADDITIONS:
            raise NotImplementedError(
                "fa3.huggingface: the model adds its mask to scores: it computes attention itself, "
                'and would not call fa3; load the model with attn_implementation="eager"'
            )
        if isinstance(first, Mask) and function._schema.is_mutable:
            _refuse_to_write(name)
        args, kwargs = tree_map(lambda x: x.in_full() if isinstance(x, Mask) else x, (args, kwargs))
        return function(*args, **kwargs)


def _keeps(function: Any, args: tuple, kwargs: dict[str, Any]) -> bool:
    """Whether the result is the same mask, perhaps on another device."""
    mask = args[0]
    if function is _aten._to_copy.default:
        return kwargs.get("dtype") in (None, torch.bool)
    if function is _aten.slice.Tensor:
        dim, begin, end, step = (*args[1:], *(0, None, None, 1)[len(args) - 1 :])
        return not begin and step == 1 and (end is None or end >= mask.shape[dim])
    return function in _OF_PARTS


def _refuse_to_write(name: str) -> None:
    raise NotImplementedError(
        f"fa3.huggingface: the model writes into its mask ({name}): not offered; load the model "
        'with attn_implementation="eager"'
    )
