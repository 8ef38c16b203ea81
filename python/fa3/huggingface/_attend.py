# SPDX-License-Identifier: BSD-3-Clause
"""The attention function: what transformers' modules call."""

from typing import Any

import torch
from torch import Tensor

import fa3.torch

from ._continuous import OF_BATCHES, attend_paged
from ._mask import Mask

_REMEDY = 'load the model with attn_implementation="eager"'

# What models hand down to attention and it has no use for. Packed sequences are in the mask, which
# is made of position_ids; seq_idx says the same to layers that are no attention.
_NO_EFFECT = {
    "cache_position", "grid_thw", "layer_idx", "logits_to_keep", "max_length_k", "max_length_q",
    "num_items_in_batch", "output_hidden_states", "output_router_logits", "past_key_values",
    "position_embeddings", "position_ids", "return_dict", "seq_idx", "use_cache",
}  # fmt: skip


def _check_others(
    module: torch.nn.Module, dropout: float, others: dict[str, Any], known: set[str]
) -> None:
    """Refuses what would change the result and is not computed here."""
    if dropout > 0:
        raise NotImplementedError(
            f"fa3.huggingface: dropout: {dropout}{_keys_of(module, dropout)}, need 0, or the model "
            f"in eval(): not offered yet; {_REMEDY}"
        )
    lacking = [
        name
        for name, value in others.items()
        if value is not None
        and name not in known
        and not (name == "output_attentions" and value is False)
    ]
    if lacking:
        what = ", ".join(lacking)
        raise NotImplementedError(f"fa3.huggingface: {what}: not offered yet; {_REMEDY}")


def _keys_of(module: torch.nn.Module, dropout: float) -> str:
    """Where a configuration says that: its keys, those of attention alone if there are any."""
    config = getattr(module, "config", None)
    keys = [k for k, v in getattr(config, "__dict__", {}).items() if "drop" in k and v == dropout]
    keys = [k for k in keys if "att" in k] or keys
    return f" ({type(config).__name__}.{', '.join(keys)})" if keys else ""


def _biased(bias: Tensor, mask: Tensor | None) -> Tensor:
    """position_bias and a mask of four dimensions as one that is added to the scores. Hidden keys
    get the least number, as in sdpa and eager: a row that sees nothing has even weights there."""
    if mask is None:
        return bias
    if mask.dtype == torch.bool:
        return torch.where(mask, bias, torch.finfo(bias.dtype).min)
    return bias + mask


def _chosen(indices: Tensor, mask: Tensor | None, keys: int) -> Tensor:
    """A mask in full of which only the keys remain that an indexer has chosen: (batch, queries,
    chosen), −1 for none. Of these models' masks eager attention does the same."""
    at = indices.long().masked_fill(indices < 0, keys)
    shape = (*indices.shape[:2], keys + 1)
    seen = torch.zeros(shape, dtype=torch.bool, device=indices.device).scatter(-1, at, True)
    seen = seen[:, None, :, :keys]
    if mask is None:
        return seen
    mask = mask[..., :keys]
    if mask.dtype == torch.bool:
        return mask & seen
    return mask.masked_fill(~seen, torch.finfo(mask.dtype).min)


def _packed(
    cu_q: Tensor | None, cu_kv: Tensor | None, query: Tensor, key: Tensor, causal: bool
) -> dict[str, Tensor]:
    """Sequence ids of cu_seq_lens, where sequences lie in one row one after the other."""
    if cu_q is None and cu_kv is None:
        return {}
    rows, keys = query.shape[2], key.shape[2]
    if cu_q is None or cu_kv is None or query.shape[0] != 1:
        raise NotImplementedError(
            f"fa3.huggingface: cu_seq_lens_q, cu_seq_lens_k with a batch of {query.shape[0]}: need "
            f"both, and a batch of 1; {_REMEDY}"
        )
    if causal and (rows != keys or (cu_q is not cu_kv and not torch.equal(cu_q, cu_kv))):
        raise NotImplementedError(
            "fa3.huggingface: cu_seq_lens_q: differs from cu_seq_lens_k under a causal mask: not "
            f"offered yet; {_REMEDY}"
        )
    ids = (
        torch.searchsorted(cu, torch.arange(n, device=cu.device, dtype=cu.dtype), right=True)
        for cu, n in ((cu_q, rows), (cu_kv, keys))
    )
    of_q, of_kv = (x.to(torch.int32)[None] for x in ids)
    return {"sequence_ids_q": of_q, "sequence_ids_kv": of_kv}


def _of_mask(mask: Mask, query: Tensor, key: Tensor) -> tuple[dict[str, Any], int]:
    """A Mask as arguments of fa3, and the number of keys that count; or in full, where it is that
    of other queries or keys."""
    batch, rows, keys = query.shape[0], query.shape[2], key.shape[2]
    used = keys if mask.ids_kv is None else mask.ids_kv.shape[1]
    if mask.shape[2] != rows or mask.shape[0] not in (1, batch) or used > keys:
        return {"attn_mask": mask.in_full()[..., :keys]}, keys
    if keys > mask.shape[3]:
        raise NotImplementedError(
            f"fa3.huggingface: attention_mask: of {mask.shape[3]} keys, got {keys}; {_REMEDY}"
        )
    band = mask.band
    given: dict[str, Any] = {"causal": band.causal, "attention_chunk": band.chunk}
    if band.left is not None or band.right is not None:
        given["window"] = (band.left, 0 if band.causal else band.right)
        given["causal"] = False
    if mask.used is not None:
        if keys < mask.shape[3] or (mask.begin is not None and _has_gradients(query, key)):
            return {"attn_mask": mask.in_full()[..., :keys]}, keys
        given["seqused_kv"] = mask.used.expand(batch).contiguous()
        if mask.begin is not None:
            given["kv_begin"] = mask.begin.expand(batch).contiguous()
    elif not mask.plain:
        given["sequence_ids_q"] = mask.ids_q.expand(batch, -1).contiguous()
        given["sequence_ids_kv"] = mask.ids_kv.expand(batch, -1).contiguous()
    return given, used


def _has_gradients(*tensors: Tensor) -> bool:
    return torch.is_grad_enabled() and any(x.requires_grad for x in tensors)


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
    position_bias: Tensor | None = None,
    cu_seq_lens_q: Tensor | None = None,
    cu_seq_lens_k: Tensor | None = None,
    deterministic: bool | None = None,
    indices: Tensor | None = None,
    cache: Any = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Attention of (batch, heads, seqlen, head_dim) as transformers calls it; returns (batch,
    seqlen, heads, head_dim) and no probabilities.

    attention_mask decides, as in transformers' eager attention: what build_mask returns, or a mask
    (batch, heads or 1, queries, keys), bool or added to the scores. Without one all keys are seen,
    whatever the module's is_causal says; is_causal and sliding_window that are passed with no mask
    count. position_bias is added to the scores, too; indices are the keys that an indexer leaves
    each query; s_aux, (heads), attention sinks. cu_seq_lens count where the mask has no sequences
    and no padding, as in transformers' flash attention. cache: the pages of continuous batching,
    in which cu_seq_lens alone decide."""
    common = {
        "softmax_scale": scaling,
        "softcap": softcap or 0.0,
        "sinks": s_aux,
        "deterministic": deterministic or None,
    }
    if cache is not None:
        beside = {"indices with cache": indices, "position_bias with cache": position_bias}
        _check_others(module, dropout, others | beside, _NO_EFFECT | OF_BATCHES)
        window = None if sliding_window is None else (sliding_window - 1, 0)
        batch = {"cu_seq_lens_q": cu_seq_lens_q, "cu_seq_lens_k": cu_seq_lens_k, **others}
        out = attend_paged(
            module, query, key, value, cache, batch, causal=window is None, window=window, **common
        )
        return out, None
    _check_others(module, dropout, others, _NO_EFFECT)
    given: dict[str, Any] = {}
    if indices is not None:
        attention_mask = _chosen(indices, attention_mask, key.shape[2])
    if isinstance(attention_mask, Mask) and position_bias is not None:
        # Columns of a bias count from the first key, those of a cache from begin.
        if attention_mask.may_hide_all or attention_mask.begin is not None:
            attention_mask = attention_mask.in_full()
    if isinstance(attention_mask, Mask):
        given, used = _of_mask(attention_mask, query, key)
        if used < key.shape[2]:
            key, value = key[:, :, :used], value[:, :, :used]
        if attention_mask.plain and "attn_mask" not in given:
            causal = attention_mask.band.causal
            given.update(_packed(cu_seq_lens_q, cu_seq_lens_k, query, key, causal))
    elif attention_mask is not None:
        if attention_mask.dim() != 4:
            raise NotImplementedError(
                f"fa3.huggingface: attention_mask of {attention_mask.dtype}, shape "
                f"{tuple(attention_mask.shape)}: need what build_mask returns, or a mask of "
                f"four dimensions; {_REMEDY}"
            )
        given["attn_mask"] = attention_mask[..., : key.shape[2]]
    else:
        given["causal"] = bool(is_causal)
        if sliding_window is not None and sliding_window < key.shape[2]:
            if not is_causal:
                raise NotImplementedError(
                    f"fa3.huggingface: sliding_window: {sliding_window} of {key.shape[2]} keys, "
                    f"without a mask and without is_causal=True: not offered; {_REMEDY}"
                )
            given.update(causal=False, window=(sliding_window - 1, 0))
        given.update(_packed(cu_seq_lens_q, cu_seq_lens_k, query, key, bool(is_causal)))
    if position_bias is not None:
        bias = position_bias[..., : key.shape[2]]
        given["attn_mask"] = _biased(bias, given.get("attn_mask"))
    out = fa3.torch.attention(
        *(x.transpose(1, 2) for x in (query, key, value)), **common, **given
    )
    return out, None
