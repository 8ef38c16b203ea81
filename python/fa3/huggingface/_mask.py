# SPDX-License-Identifier: BSD-3-Clause
"""The mask that travels through a model of transformers: fa3.huggingface._mask.Mask.

To the model it is the bool tensor (batch, 1, queries, keys) that transformers makes for PyTorch's
SDPA, True where a query sees a key. Its bits are computed only if the model itself computes with
them; attention takes the sequence ids, the causality and the window it is made of. So a mask
survives what models do between the two functions, and one that they change is an ordinary tensor.
"""

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

_aten = torch.ops.aten
# The result is the mask again: the operators run on its parts.
_OF_PARTS = {_aten.detach.default, _aten.alias.default, _aten.clone.default}
_ADDITIONS = {"aten::add", "aten::add_", "aten::sub", "aten::rsub", "aten::sub_"}


class Mask(Tensor):
    """A query sees keys of its own id, no later than itself if causal, within the window.

    ids_q: int32 (batch, queries), never 0. ids_kv: int32 (batch, keys that count), 0 hides a key;
    keys behind them, of a static cache, are hidden. Query i stands where key i + (keys that count −
    queries) does. left, right: as fa3.torch.attention's window, None without bound. plain: all ids
    are alike.
    """

    ids_q: Tensor
    ids_kv: Tensor
    causal: bool
    left: int | None
    right: int | None
    plain: bool

    @staticmethod
    def __new__(
        cls: type, ids_q: Tensor, ids_kv: Tensor, keys: int, how: tuple[Any, ...]
    ) -> "Mask":
        shape = (ids_q.shape[0], 1, ids_q.shape[1], keys)
        return Tensor._make_wrapper_subclass(cls, shape, dtype=torch.bool, device=ids_q.device)

    def __init__(self, ids_q: Tensor, ids_kv: Tensor, keys: int, how: tuple[Any, ...]) -> None:
        self.ids_q, self.ids_kv = ids_q, ids_kv
        self.causal, self.left, self.right, self.plain = how

    def _how(self) -> tuple[Any, ...]:
        return (self.causal, self.left, self.right, self.plain)

    def __tensor_flatten__(self) -> tuple[list[str], tuple[Any, ...]]:
        return ["ids_q", "ids_kv"], self._how()

    @staticmethod
    def __tensor_unflatten__(parts: dict, how: tuple, size: Any, stride: Any) -> "Mask":
        return Mask(parts["ids_q"], parts["ids_kv"], size[3], how)

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        window = (self.left, self.right)
        return f"Mask({tuple(self.shape)}, causal={self.causal}, window={window})"

    def __setitem__(self, at: Any, value: Any) -> None:
        _refuse_to_write("[…] =")  # it would reach a view of the bits alone

    @property
    def may_hide_all(self) -> bool:
        """Whether a query of a sequence that has keys may see none of them."""
        return not self.plain and (self.causal or self.left is not None)

    def in_full(self) -> Tensor:
        """The tensor that it stands for: bool (batch, 1, queries, keys)."""
        seen = self.ids_q[:, None, :, None] == self.ids_kv[:, None, None, :]
        rows, keys = self.ids_q.shape[1], self.ids_kv.shape[1]
        at = torch.arange(keys, device=seen.device)
        ahead = at[None, :] - (torch.arange(rows, device=seen.device)[:, None] + (keys - rows))
        if self.causal:
            seen = seen & (ahead <= 0)
        if self.left is not None:
            seen = seen & (ahead >= -self.left)
        if self.right is not None:
            seen = seen & (ahead <= self.right)
        return torch.nn.functional.pad(seen, (0, self.shape[3] - keys))

    @classmethod
    def __torch_dispatch__(
        cls, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        kwargs = kwargs or {}
        first = args[0] if args else None
        if isinstance(first, Mask) and _keeps(function, args, kwargs):
            move = {k: v for k, v in kwargs.items() if k != "dtype"}
            same = _aten.alias.default if function is _aten.slice.Tensor else function
            parts = (same(x, **move) for x in (first.ids_q, first.ids_kv))
            return Mask(*parts, first.shape[3], first._how())
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
