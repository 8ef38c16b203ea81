# SPDX-License-Identifier: BSD-3-Clause
"""transformers' continuous batching: sequences of all requests in one row, keys in its pages.

It takes an attn_implementation only if "flash" is in its name, and block tables only of names that
it finds functions for, so fa3 has a second name. Steps in which each request has one token append
it and read the pages in one call; in others new keys are written first, and prompts and tokens read
the pages where they are. Layers with windows have rings, whose keys transformers gathers in a row.
"""

import functools
from typing import Any

import torch
from torch import Tensor

import fa3.torch

_names: set[str] = set()

# What a batch hands down beside the arguments of attention.
OF_BATCHES = {
    "block_table", "logits_indices", "logits_processor_args", "max_length_k", "max_length_q",
    "read_index", "write_index",
}  # fmt: skip


def attend_paged(
    module: torch.nn.Module, q: Tensor, k: Tensor, v: Tensor, cache: Any, batch: dict[str, Any],
    **given: Any,
) -> Tensor:  # fmt: skip
    """Attention of tokens (1, heads, tokens, head_dim) on a PagedAttentionCache; returns (1,
    tokens, heads, head_dim). batch: cu_seq_lens_q, cu_seq_lens_k by kind of layer, and OF_BATCHES.
    given: to attention, as it is."""
    allocator = cache.layer_to_allocator[module.layer_idx]
    if batch.get("block_table") is None and allocator.supports_block_table:
        if batch["read_index"][allocator.index].numel() > 0:
            return _on_pages(allocator, module.layer_idx, q, k, v, batch, given)
    of_layer = dict(batch)
    k, v = cache.update(
        key_states=k, value_states=v, layer_idx=module.layer_idx, kwargs=of_layer
    )  # keys, and in of_layer what is this layer's
    q, k, v = (x.transpose(1, 2)[0] for x in (q, k, v))
    cu_k = of_layer["cu_seq_lens_k"]
    table = of_layer.get("block_table")
    if table is None:
        out = fa3.torch.attention(
            q, k, v, cu_seqlens_q=of_layer["cu_seq_lens_q"], cu_seqlens_kv=cu_k,
            max_seqlen_q=of_layer["max_length_q"], max_seqlen_kv=of_layer["max_length_k"], **given,
        )  # fmt: skip
        return out[None]
    return _append(q, k, v, of_layer, given)


# Writes to views of one memory, which graphs of torch.compile do not take; nor would transformers'
# own, PagedAttentionCache.update, which is left out of them, too.
@torch.compiler.disable
@torch.no_grad()
def _append(
    q: Tensor, k: Tensor, v: Tensor, of_layer: dict[str, Any], given: dict[str, Any]
) -> Tensor:
    """Of a token of each sequence. Those that pad the batch have no pages: nothing of them is
    written."""
    before = (of_layer["cu_seq_lens_k"].diff()[: q.shape[0]] - 1).clamp(min=0)
    out = fa3.torch.attention(
        q[:, None], of_layer["k_cache"], of_layer["v_cache"], seqused_kv=before.int(),
        page_table=of_layer["block_table"].int(), k_new=k[:, None], v_new=v[:, None], **given,
    )  # fmt: skip
    return out[:, 0][None]


@torch.compiler.disable
@torch.no_grad()
def _on_pages(
    allocator: Any, layer: int, q: Tensor, k: Tensor, v: Tensor, batch: dict[str, Any],
    given: dict[str, Any],
) -> Tensor:  # fmt: skip
    """Of prompts and tokens, whose keys lie in the pages that a batch's indices of tokens name."""
    q, k, v = (x.transpose(1, 2)[0] for x in (q, k, v))
    of_tokens = batch["read_index"][allocator.index]
    allocator.update(k, v, layer, of_tokens[:0], batch["write_index"][allocator.index])
    pages_k, pages_v = allocator.get_cache_for_block_table(layer)
    rows = pages_k.shape[1]
    cu_k = batch["cu_seq_lens_k"][allocator.layer_type]
    longest = batch["max_length_k"][allocator.layer_type]
    first = torch.arange(0, max(longest, 1), rows, device=q.device)  # of each page of a sequence
    used = cu_k.diff()[:, None]
    at = (cu_k[:-1, None] + first).clamp(max=of_tokens.shape[0] - 1)
    table = torch.where(first < used, of_tokens[at.long()] // rows, -1)
    out = fa3.torch.attention(
        q, pages_k, pages_v, page_table=table.int(), seqused_kv=used[:, 0].int(),
        cu_seqlens_q=batch["cu_seq_lens_q"], max_seqlen_q=batch["max_length_q"],
        max_seqlen_kv=longest, **given,
    )  # fmt: skip
    return out[None]


def admit(name: str) -> None:
    """Lets transformers take `name` for a flash implementation: it looks functions up before it
    hands out block tables, and replaces what a model does not list. It calls attend all the same.
    """
    _names.add(name)
    if len(_names) > 1:
        return
    from transformers import PreTrainedModel
    from transformers import modeling_flash_attention_utils as utils

    look = utils._lazy_imports
    adjust = PreTrainedModel._check_and_adjust_attn_implementation

    @functools.wraps(look)
    def found(implementation: str | None, *others: Any, **named: Any) -> Any:
        if implementation not in _names:
            return look(implementation, *others, **named)
        from fa3.compat import flash_attn_interface as ours

        return (
            ours.flash_attn_func, ours.flash_attn_varlen_func, ours.flash_attn_with_kvcache,
            utils._pad_input, utils._unpad_input,
        )  # fmt: skip

    @functools.wraps(adjust)
    def adjusted(self: Any, requested: str | None, *others: Any, **named: Any) -> str:
        listed = getattr(self, "_compatible_flash_implementations", None)
        if requested in _names and listed is not None and requested not in listed:
            self._compatible_flash_implementations = [*listed, requested]
        return adjust(self, requested, *others, **named)

    utils._lazy_imports = found
    PreTrainedModel._check_and_adjust_attn_implementation = adjusted  # type: ignore[method-assign]
