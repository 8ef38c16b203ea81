# SPDX-License-Identifier: BSD-3-Clause
"""transformers' continuous batching: sequences of all requests in one row, keys in its pages.

It takes an attn_implementation only if "flash" is in its name, and block tables only of names that
it finds functions for, so fa3 has a second name. Steps in which each request has one token append
it and read the pages in one call; others get their keys in one row, which transformers gathers.
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
    # A token of each sequence. Those that pad the batch have no pages: nothing of them is written.
    sequences = q.shape[0]
    before = (cu_k.diff()[:sequences] - 1).clamp(min=0)
    with torch.no_grad():
        out = fa3.torch.attention(
            q[:, None], of_layer["k_cache"], of_layer["v_cache"], page_table=table.int(),
            seqused_kv=before.int(), k_new=k[:, None], v_new=v[:, None], **given,
        )  # fmt: skip
    return out[:, 0][None]


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
