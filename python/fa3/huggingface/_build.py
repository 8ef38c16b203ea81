# SPDX-License-Identifier: BSD-3-Clause
"""The mask function: what transformers asks for, as a Mask of sequence ids where it is one."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ._mask import Band, Mask
from ._models import refuse_own_attention

_UTILS = "transformers.masking_utils"
# Models that put numbers to be added beside the mask, which would be turned into a bool one's type.
_ADDING = {"deepseek_v4"}
# Queries up to which a range goes to the kernels of decode; more are faster by ids, whose tensors
# need no copy.
_FEW = 64


@dataclass
class _Kind:
    """What the functions of a mask say together."""

    causal: bool = False
    left: int | None = None
    right: int | None = None
    sequences: Tensor | None = None  # (batch, positions): a query sees keys of its own
    chunk: tuple[int, Tensor] | None = None  # length, and where the first begins: (batch)
    remapped: bool = False  # positions are those in their sequences

    def narrow(self, left: int, right: int | None) -> None:
        self.left = left if self.left is None else min(left, self.left)
        if right is not None:
            self.right = right if self.right is None else min(right, self.right)


def _name(function: Callable) -> str:
    """Of what made a function, if transformers did."""
    if getattr(function, "__module__", None) != _UTILS:
        return ""
    return function.__qualname__.split(".")[0]


def _cells(function: Callable) -> dict[str, Any]:
    names = function.__code__.co_freevars
    return dict(zip(names, (c.cell_contents for c in function.__closure__ or ()), strict=True))


def _read(function: Callable, kind: _Kind) -> bool:
    """Adds what `function` says to `kind`; False if that is none of what a Mask can say."""
    name = _name(function)
    if name == "causal_mask_function":
        kind.causal = True
    elif name == "bidirectional_mask_function":
        pass
    elif name == "sliding_window_overlay":
        kind.narrow(_cells(function)["sliding_window"] - 1, None)
    elif name == "sliding_window_bidirectional_overlay":
        width = _cells(function)["sliding_window"]
        kind.narrow(width, width)
    elif name == "packed_sequence_mask_function" and kind.sequences is None:
        kind.sequences = _cells(function)["packed_sequence_mask"]
    elif name == "chunked_overlay" and kind.chunk is None:
        cells = _cells(function)
        kind.chunk = (cells["chunk_size"], cells["left_padding"])
    elif name == "and_masks":
        return all([_read(part, kind) for part in _cells(function)["mask_functions"]])
    elif name == "remap_positions_for_packed_sequence":
        # Positions of a sequence follow each other, so that distances in it stay what they are.
        kind.remapped = True
        return _read(_cells(function)["mask_function"], kind)
    else:
        return False
    return True


def _ones(batch: int, length: Any, device: Any) -> Tensor:
    return torch.ones((1, 1), dtype=torch.int32, device=device).expand(batch, length)


def _kept(mask: Tensor, batch: int, begin: int, count: int) -> Tensor:
    """Of a mask of padding, the keys from `begin` on; behind its end there is padding."""
    lacking = begin + count - mask.shape[1]
    if lacking > 0:
        mask = torch.nn.functional.pad(mask, (0, lacking))
    return (mask[:, begin : begin + count] != 0).expand(batch, count)


def _is_traced(*values: Any) -> bool:
    """Whether nothing may be read from the device: a graph is being recorded."""
    from transformers.utils.import_utils import is_tracing

    return any(is_tracing(x) for x in values)


def build_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int = 0,
    mask_function: Callable | None = None,
    attention_mask: Tensor | None = None,
    device: Any = None,
    config: Any = None,
    **others: Any,
) -> Tensor | None:
    """The mask of a model, (batch, 1, queries, keys): a Mask, or bool where none can say it, or
    numbers where the model has others beside them. None,
    as in eager attention, only for attention in both directions in which nothing is hidden."""
    from transformers.masking_utils import causal_mask_function, eager_mask, sdpa_mask

    if config is not None:
        refuse_own_attention(type(config))
    mask_function = causal_mask_function if mask_function is None else mask_function
    if getattr(config, "model_type", None) in _ADDING:
        return eager_mask(
            batch_size, q_length, kv_length, q_offset=q_offset, kv_offset=kv_offset,
            mask_function=mask_function, attention_mask=attention_mask, device=device,
            config=config, **others,
        )  # fmt: skip
    kind = _Kind()
    known = _read(mask_function, kind) and (attention_mask is None or attention_mask.dim() == 2)
    made = None
    if known:
        sizes = (batch_size, q_length, kv_length, q_offset, kv_offset)
        traced = _is_traced(q_offset, attention_mask)
        made = _make(kind, sizes, attention_mask, device, traced)
    if made is None:
        return sdpa_mask(
            batch_size=batch_size, q_length=q_length, kv_length=kv_length, q_offset=q_offset,
            kv_offset=kv_offset, mask_function=mask_function, attention_mask=attention_mask,
            device=device, config=config, **(others | {"allow_is_causal_skip": False}),
        )  # fmt: skip
    # A configuration that turns a decoder into an encoder is told to attention, too, whose caller
    # may say the opposite.
    told = getattr(config, "is_causal", True) is False
    whole = made.plain and made.band == Band()
    if whole and not told and others.get("allow_is_bidirectional_skip", False):
        return None
    return made


def _make(
    kind: _Kind, sizes: tuple, padding: Tensor | None, device: Any, traced: bool
) -> Mask | None:
    """None: the keys that count do not end where the last query stands, or ids cannot say it."""
    batch, rows, keys, q_offset, kv_offset = sizes
    moving = isinstance(q_offset, Tensor)  # in steps of a static cache
    step = moving and rows == 1 and kind.causal
    used = keys
    if not step and (kind.causal or kind.left is not None):
        if moving and traced:
            return None
        used = int(q_offset) + rows - int(kv_offset)
        if used > keys or used < rows or (not kind.causal and used != keys):
            return None
    if kind.sequences is not None:
        if kind.chunk is not None or kind.sequences.shape[1] != used or used != rows:
            return None
    if kind.chunk is not None and kind.remapped:
        return None
    kept = None if padding is None else _kept(padding, batch, kv_offset, used)
    band = Band(kind.causal, kind.left, None if kind.causal else kind.right)
    if kind.sequences is None and not (traced and (kept is not None or kind.chunk is not None)):
        made = _without_ids(kind, band, sizes, used, kept, device)
        if made is not None:
            return made
    if step:  # on the device, so that its shape is that of all steps
        reached = _reached(kind.left, sizes, device)[None].expand(batch, keys)
        kept = reached if kept is None else kept & reached
        band = Band()
    ids_q, ids_kv = _ones(batch, rows, device), _ones(batch, used, device)
    if kind.sequences is not None:
        ids_q = ids_kv = kind.sequences.to(torch.int32).expand(batch, used) + 1
    if kind.chunk is not None:
        ids_q, ids_kv = _chunks(kind.chunk, batch, (q_offset, rows), (kv_offset, used), device)
    plain = kept is None and kind.sequences is None and kind.chunk is None
    if kept is not None:
        ids_kv = torch.where(kept, ids_kv, 0)
    return Mask.of_ids(ids_q, ids_kv, keys, band, plain)


def _reached(left: int | None, sizes: tuple, device: Any) -> Tensor:
    """Of a step's keys, those that are written and in its window: (keys)."""
    _, _, keys, q_offset, kv_offset = sizes
    at = torch.arange(keys, device=device) + (kv_offset - q_offset)
    return (at <= 0) if left is None else (at <= 0) & (at >= -left)


def _without_ids(
    kind: _Kind, band: Band, sizes: tuple, used: int, kept: Tensor | None, device: Any
) -> Mask | None:
    """Where all keys count, or of few queries those of one range: in inference only, since
    gradients of a cache are not offered. Reads from the device if there is padding or chunks; in
    other steps, nothing. None: it takes ids."""
    batch, rows, keys, q_offset, kv_offset = sizes
    step = isinstance(q_offset, Tensor) and rows == 1 and kind.causal
    begin = length = None
    if step:
        at = q_offset + 1 - kv_offset  # the keys that are written
        length = torch.as_tensor(at, device=device).to(torch.int32).reshape(1).expand(batch)
    if kept is not None:
        if step:
            kept = kept & (torch.arange(used, device=device) < length[:, None])
        begin, length, (everything, from_0, to_end, one_range) = _range(kept, length)
        if everything:
            kept = begin = None
            length = length if step else None  # the form of the steps before
        elif not one_range or rows > _FEW or torch.is_grad_enabled():
            return None
        elif not to_end and (kind.chunk is not None or not _sees_all(band, rows)):
            return None  # where queries stand is counted from the end
        elif from_0:
            begin = None
    if kind.chunk is not None:
        band = _in_chunks(kind.chunk, band, sizes, begin)
        if band is None:
            return None
    if length is not None:
        return Mask.of_range(begin, length.contiguous(), rows, keys, band)
    return Mask.of_ids(_ones(batch, rows, device), _ones(batch, used, device), keys, band, True)


def _sees_all(band: Band, rows: int) -> bool:
    """Whether each query sees all keys that count."""
    return band.left is None and band.right is None and (rows == 1 or not band.causal)


def _in_chunks(
    chunk: tuple[int, Tensor], band: Band, sizes: tuple, begin: Tensor | None
) -> Band | None:
    """The band with chunks, which count from where a sequence begins: that must be where attention
    counts from, or else there is one query, whose chunk is a window."""
    _, rows, _, q_offset, kv_offset = sizes
    length, first = chunk
    if not (first == (0 if begin is None else begin)).all():
        return None
    if begin is None and int(kv_offset) % length == 0 or int(kv_offset) == 0:
        return band._replace(chunk=length)
    if begin is not None or rows != 1 or isinstance(q_offset, Tensor):
        return None
    left = q_offset % length
    return band._replace(left=left if band.left is None else min(left, band.left))


def _range(kept: Tensor, end: Tensor | None) -> tuple[Tensor, Tensor, list[bool]]:
    """Where the keys that count, (batch, keys), begin and how many they are, (batch); whether they
    are all, all begin with the first, all end with the last, and none is left out between. end:
    that of the last, (batch), if that is not how many there are."""
    keys = kept.shape[1]
    end = torch.full((1,), keys, device=kept.device) if end is None else end
    count = kept.sum(1)
    begin = torch.where(count > 0, kept.int().argmax(1), end)
    at = torch.arange(keys, device=kept.device)
    between = (at >= begin[:, None]) & (at < (begin + count)[:, None])
    said = (kept.all(), (begin == 0).all(), (begin + count == end).all(), (kept == between).all())
    return begin.int(), count.int(), torch.stack(said).tolist()


def _chunks(
    chunk: tuple[int, Tensor], batch: int, of_q: tuple, of_kv: tuple, device: Any
) -> tuple[Tensor, Tensor]:
    """Numbers of the chunks of queries and keys, from 1 on in what is before the first, too."""
    length, begin = chunk
    (offset, count) = of_kv
    begin = begin.clamp(max=offset + count)  # beyond that nothing is left to see
    before = (offset + count) // length + 1
    ids = []
    for offset, count in (of_q, of_kv):
        at = torch.arange(count, device=device) + offset
        number = (at[None] - begin[:, None]).div(length, rounding_mode="floor") + (before + 1)
        ids.append(number.to(torch.int32).expand(batch, count))
    return ids[0], ids[1]
