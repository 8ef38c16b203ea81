# SPDX-License-Identifier: BSD-3-Clause
"""fa3.torch.scaled_dot_product_attention: PyTorch's function, over fa3.torch.attention."""

import torch
from torch import Tensor

from .function import attention


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | Tensor | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """torch.nn.functional.scaled_dot_product_attention by fa3.

    Args:
      query: (…, heads, seqlen_q, head_dim), of any number of dimensions in front, or none.
      key, value: (…, heads, seqlen_kv, head_dim): what is in front broadcasts. Nothing is copied
        where there are four dimensions.
      attn_mask: what broadcasts to (…, seqlen_q, seqlen_kv): bool, where False hides a key, or
        numbers that are added to the scores. On a GPU with 16-bit tensors.
      dropout_p: 0; others are refused: probabilities with NotImplementedError.
      is_causal: query i sees keys up to i: top-left aligned, as PyTorch has it. And attn_mask,
        where both are given, which PyTorch refuses.
      scale: None = 1/√head_dim. A tensor of one element that requires a gradient gets it.
      enable_gqa: query's heads may be a multiple of those of key and value.

    Returns:
      (…, heads, seqlen_q, head_dim_v). A query from which all keys are hidden has 0.

    Raises:
      as fa3.torch.attention.
    """
    if not isinstance(dropout_p, (int, float)) and not hasattr(dropout_p, "__float__"):
        raise TypeError(f"dropout_p: {dropout_p!r}, need a number")
    if not 0 <= dropout_p <= 1:
        raise ValueError(f"dropout_p: {dropout_p}, need a probability, 0 to 1; only 0 is offered")
    if dropout_p > 0:
        raise NotImplementedError(
            f"dropout_p: {dropout_p}, need 0: dropout is not offered yet; take torch.nn.functional."
            "scaled_dot_product_attention for it"
        )
    for name, x in (("query", query), ("key", key), ("value", value)):
        if not isinstance(x, Tensor):
            raise TypeError(f"{name}: {type(x).__name__}, need a torch.Tensor")
        if x.dim() < 2:
            raise ValueError(f"{name}: {x.dim()} dimensions, need 2 or more, (…, seqlen, head_dim)")
    inputs, front = (query, key, value), query.shape[:-2]
    if enable_gqa:
        if query.dim() < 3 or key.shape[:-2] != value.shape[:-2]:
            raise ValueError(
                f"enable_gqa: query {tuple(query.shape)}, key {tuple(key.shape)}, value "
                f"{tuple(value.shape)}, need (…, heads, seqlen, head_dim), and the same heads of "
                "key and value"
            )
        inputs = [x.expand(*front[:-1], *x.shape[-3:]) for x in inputs]
    else:
        front = torch.broadcast_shapes(*(x.shape[:-2] for x in inputs))
        inputs = [x.expand(*front, *x.shape[-2:]) for x in inputs]
    if attn_mask is not None and len(front) > 2:  # several dimensions become that of the batch
        if any(n != 1 for n in attn_mask.shape[:-2]):
            attn_mask = attn_mask.expand(*front, *attn_mask.shape[-2:]).flatten(0, -4)
        else:
            attn_mask = attn_mask.reshape(attn_mask.shape[-2:])
    query, key, value = (
        (x[(None,) * (4 - x.dim())] if x.dim() < 4 else x.flatten(0, -4)).transpose(1, 2)
        for x in inputs
    )
    queries, keys = query.shape[1], key.shape[1]
    window = None
    if is_causal and queries < keys:  # what no query sees
        key, value = key[:, :queries], value[:, :queries]
        if attn_mask is not None and attn_mask.dim() > 0 and attn_mask.shape[-1] != 1:
            attn_mask = attn_mask[..., :queries]
    elif is_causal and queries > keys:  # j ≤ i, counted from the bottom right
        window = (None, queries - keys)
    out = attention(
        query, key, value, causal=is_causal and window is None, window=window,
        softmax_scale=scale, attn_mask=attn_mask,
    )  # fmt: skip
    out = out.transpose(1, 2)
    return out.reshape(*front, *out.shape[-2:])
