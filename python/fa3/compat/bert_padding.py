# SPDX-License-Identifier: BSD-3-Clause
"""The functions of FlashAttention-2's flash_attn.bert_padding, in plain PyTorch with gradients:
tokens of padded sequences (batch, seqlen, …) to and from (total, …)."""

import torch
from torch import Tensor

__all__ = [
    "index_first_axis",
    "index_first_axis_residual",
    "index_put_first_axis",
    "pad_input",
    "unpad_input",
    "unpad_input_for_concatenated_sequences",
]


def index_first_axis(input: Tensor, indices: Tensor) -> Tensor:
    """Rows `indices`, int64 or int32 (total), of input, (rows, …)."""
    return torch.index_select(input, 0, indices)


def index_first_axis_residual(input: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
    """The same, and input itself; gradients of both are added."""
    return torch.index_select(input, 0, indices), input.view_as(input)


def index_put_first_axis(values: Tensor, indices: Tensor, first_axis_dim: int) -> Tensor:
    """(first_axis_dim, …), zeros but for values, (total, …), in the rows `indices`, int64 or int32
    (total)."""
    rows = values.new_zeros((first_axis_dim, *values.shape[1:]))
    return rows.index_copy(0, indices.long(), values)


def unpad_input(
    hidden_states: Tensor, attention_mask: Tensor, unused_mask: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor, int, Tensor]:
    """The tokens that a mask lets through, one sequence after another.

    hidden_states: (batch, seqlen, …).
    attention_mask: (batch, seqlen), bool or integers: 1 for tokens that count.
    unused_mask: the same: 1 for others that are to be kept all the same.

    Returns: the tokens (total, …); their places among batch · seqlen, int64; cu_seqlens, int32
      (batch + 1); the length of the longest sequence; how many tokens of each count, int32 (batch).
    """
    _check(hidden_states, attention_mask, "attention_mask")
    kept = attention_mask
    if unused_mask is not None:
        _check(hidden_states, unused_mask, "unused_mask")
        kept = attention_mask + unused_mask
    lengths = kept.sum(-1, dtype=torch.int32)
    indices = kept.flatten().nonzero().flatten()
    counting = attention_mask.sum(-1, dtype=torch.int32)
    tokens = index_first_axis(hidden_states.flatten(0, 1), indices)
    return tokens, indices, _starts(lengths), lengths.max().item(), counting


def unpad_input_for_concatenated_sequences(
    hidden_states: Tensor, attention_mask_in_length: Tensor
) -> tuple[Tensor, Tensor, Tensor, int]:
    """The tokens of rows that each hold several sequences.

    hidden_states: (batch, seqlen, …).
    attention_mask_in_length: integers (batch, seqlen): in each row the lengths of its sequences,
      then zeros. A row's tokens are its first ones, as many as the lengths add up to.

    Returns: the tokens (total, …); their places among batch · seqlen, int64; cu_seqlens, int32
      (sequences + 1); the length of the longest sequence.
    """
    _check(hidden_states, attention_mask_in_length, "attention_mask_in_length")
    total = attention_mask_in_length.sum(-1, keepdim=True)
    position = torch.arange(attention_mask_in_length.shape[1], device=total.device)
    indices = (position < total).flatten().nonzero().flatten()
    lengths = attention_mask_in_length.flatten()
    lengths = lengths[lengths.nonzero().flatten()]
    tokens = index_first_axis(hidden_states.flatten(0, 1), indices)
    return tokens, indices, _starts(lengths), lengths.max().item()


def pad_input(hidden_states: Tensor, indices: Tensor, batch: int, seqlen: int) -> Tensor:
    """(batch, seqlen, …) with hidden_states, (total, …), at the places `indices`, else 0."""
    rows = index_put_first_axis(hidden_states, indices, batch * seqlen)
    return rows.view(batch, seqlen, *rows.shape[1:])


def _check(hidden_states: Tensor, mask: Tensor, name: str) -> None:
    if tuple(mask.shape) != tuple(hidden_states.shape[:2]):
        raise ValueError(
            f"{name}: shape {tuple(mask.shape)}, need {tuple(hidden_states.shape[:2])}, the first "
            "two dimensions of hidden_states"
        )


def _starts(lengths: Tensor) -> Tensor:
    """int32 (sequences + 1)."""
    return torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
