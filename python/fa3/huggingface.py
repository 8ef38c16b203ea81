# SPDX-License-Identifier: BSD-3-Clause
"""fa3.huggingface: attn_implementation="fa3" in the package transformers.

    import fa3.huggingface
    fa3.huggingface.register()
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="fa3")

Registers an attention function and a mask function: without the latter transformers passes no mask,
and padding would be attended without a word. Padding on either side, packed sequences, sliding
windows, grouped heads, dynamic and static caches, training. Padding and packed sequences become
sequence ids of fa3, never a mask of length × length; other masks do, those of one's own and those
that are passed in with four dimensions. What fa3 lacks raises NotImplementedError and
names "sdpa" as the remedy. transformers 5.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import fa3.torch

__all__ = ["register"]
_REMEDY = 'load the model with attn_implementation="sdpa"'


def register(name: str = "fa3") -> None:
    """Makes `name` an attn_implementation. May be called again."""
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(name, attend)
    AttentionMaskInterface.register(name, ids_of_keys)


# ---- The mask -----------------------------------------------------------------------------------

# What masks are made of, by the names of the functions in transformers.masking_utils.
_CAUSAL = {"causal_mask_function", "sliding_window_overlay"}
_IDS = {"packed_sequence_mask_function"}
_KNOWN = _CAUSAL | _IDS | {"bidirectional_mask_function", "padding_mask_function"}
_COMPOSED = {"and_masks", "remap_positions_for_packed_sequence"}


def _parts(function: Callable) -> list[Callable]:
    """The functions that a mask function is the intersection of."""
    name = function.__qualname__.split(".")[0]
    inside = [cell.cell_contents for cell in function.__closure__ or ()]
    if name not in _COMPOSED:
        return [function]
    several = [f for x in inside if isinstance(x, (tuple, list)) for f in x]
    return [part for f in [*several, *inside] if callable(f) for part in _parts(f)]


def ids_of_keys(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int = 0,
    kv_offset: int = 0,
    mask_function: Callable | None = None,
    attention_mask: Tensor | None = None,
    device: Any = None,
    **others: Any,
) -> Tensor | None:
    """The mask of a model as int32 (batch, keys that count): a query sees keys of its own id, which
    is that of the key at its own position. 0: padding. None: all keys are alike. generate() passes
    the result in again as attention_mask, so that it must mean the same there. Masks of other
    functions: bool (batch, 1, queries, keys)."""
    parts = [] if mask_function is None else _parts(mask_function)
    names = {f.__qualname__.split(".")[0]: f for f in parts}
    unknown = names.keys() - _KNOWN
    if unknown:
        from transformers.masking_utils import sdpa_mask

        return sdpa_mask(
            batch_size=batch_size, q_length=q_length, kv_length=kv_length, q_offset=q_offset,
            kv_offset=kv_offset, mask_function=mask_function, attention_mask=attention_mask,
            device=device, **(others | {"allow_is_causal_skip": False}),
        )  # fmt: skip
    used = kv_length
    if names.keys() & _CAUSAL:  # keys of a static cache that are yet to come do not count
        used = int(q_offset) + q_length - int(kv_offset)
    ids = None
    for name in names.keys() & _IDS:
        (packed,) = (cell.cell_contents for cell in names[name].__closure__)
        ids = packed.to(torch.int32) + 1
    if attention_mask is not None:
        kept = _columns(attention_mask, int(kv_offset), used) != 0
        if ids is not None:
            ids = ids.masked_fill(~kept, 0)
        elif not kept.all():
            ids = kept.to(torch.int32)
    if ids is None and used != kv_length:
        ids = torch.ones(batch_size, used, dtype=torch.int32, device=device)
    return ids


def _columns(mask: Tensor, begin: int, count: int) -> Tensor:
    """Of the keys from `begin` on. A mask that generate() has made beforehand begins there already;
    one that ends too soon shows nothing more."""
    part = mask[:, begin : begin + count] if mask.shape[1] >= begin + count else mask[:, -count:]
    return torch.nn.functional.pad(part, (0, count - part.shape[1]))


# ---- Attention ----------------------------------------------------------------------------------


def attend(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    is_causal: bool | None = None,
    s_aux: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Attention of (batch, heads, seqlen, head_dim) as transformers calls it; returns (batch,
    seqlen, heads, head_dim) and no probabilities. attention_mask: what ids_of_keys returns, or a
    mask (batch, heads or 1, queries, keys), bool or added to the scores."""
    lacking = {
        "dropout": dropout > 0,
        "attention sinks (s_aux)": s_aux is not None,
        "output_attentions": bool(others.get("output_attentions")),
        "a paged cache": type(others.get("cache")).__name__ == "PagedAttentionCache",
    }
    if any(lacking.values()):
        what = ", ".join(name for name, is_so in lacking.items() if is_so)
        raise NotImplementedError(f"fa3.huggingface: {what}: not offered yet; {_REMEDY}")
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    window = None
    ids: dict[str, Tensor] = {}
    if attention_mask is not None and attention_mask.dim() == 4:  # all that hides keys is in it
        causal, sliding_window = False, None
        ids["attn_mask"] = attention_mask[..., : key.shape[2]]
        attention_mask = None
    if sliding_window is not None:
        if not causal:
            raise NotImplementedError(
                f"fa3.huggingface: sliding_window without a causal mask: not offered yet; {_REMEDY}"
            )
        window = (sliding_window - 1, 0)
    if attention_mask is not None:
        if attention_mask.dim() != 2 or attention_mask.dtype != torch.int32:
            raise NotImplementedError(
                f"fa3.huggingface: attention_mask of {attention_mask.dtype}, shape "
                f"{tuple(attention_mask.shape)}: need what ids_of_keys returns, or a mask of "
                f"four dimensions; {_REMEDY}"
            )
        keys, rows = attention_mask.shape[1], query.shape[2]
        key, value = key[:, :, :keys], value[:, :, :keys]
        own = attention_mask[:, max(keys - rows, 0) :]
        if not causal and keys != rows:  # across sequences: all queries see what is not padding
            own = attention_mask.new_ones(())
        own = own.expand(query.shape[0], rows).contiguous()
        ids = {"sequence_ids_q": own, "sequence_ids_kv": attention_mask.contiguous()}
    out = fa3.torch.attention(
        *(x.transpose(1, 2) for x in (query, key, value)),
        causal=bool(causal),
        window=window,
        softmax_scale=scaling,
        softcap=softcap or 0.0,
        **ids,
    )
    return out, None
