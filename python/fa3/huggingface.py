# SPDX-License-Identifier: BSD-3-Clause
"""fa3.huggingface: attn_implementation="fa3" in the package transformers.

    import fa3.huggingface
    fa3.huggingface.register()
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="fa3")

Registers an attention function and a mask function: without the latter transformers passes no mask,
and padding would be attended without a word. Padding on either side, packed sequences, sliding
windows, grouped heads, dynamic and static caches, training. Padding and packed sequences become
sequence ids of fa3, never a mask of length × length; other masks do, those of one's own and those
that are passed in with four dimensions, and biases of positions. What fa3 lacks raises
NotImplementedError and names "sdpa" as the remedy; so do models that compute attention themselves.
transformers 5.
"""

import sys
from collections.abc import Callable, Iterator
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


def _classes(kind: type) -> Iterator[type]:
    yield kind
    for child in kind.__subclasses__():
        yield from _classes(child)


_served: set[type] = set()  # configurations whose models call attend


@torch.compiler.assume_constant_result
def _refuse_own_attention(config: type) -> None:
    """Models that compute attention themselves, with whatever mask they are given, would lose the
    causal one without a word: their modules do not look attention functions up."""
    if config in _served:
        return
    from transformers import PreTrainedConfig, PreTrainedModel

    models = [
        model
        for model in _classes(PreTrainedModel)
        if model.config_class not in (None, PreTrainedConfig)
        and issubclass(config, model.config_class)
    ]
    own = [kind for model in models for kind in model.__mro__ if issubclass(kind, PreTrainedModel)]
    modules = {kind.__module__ for kind in own if kind is not PreTrainedModel}
    for kind in config.__mro__:  # those of parts of a model are often no model's by themselves
        if issubclass(kind, PreTrainedConfig) and kind is not PreTrainedConfig:
            modules.add(kind.__module__.replace("configuration_", "modeling_"))
    served = any(hasattr(sys.modules.get(name), "ALL_ATTENTION_FUNCTIONS") for name in modules)
    if not served and not any(model.is_backend_compatible() for model in models):
        raise NotImplementedError(
            f"fa3.huggingface: {config.__name__}: its models compute attention themselves, and "
            'would not call fa3; load the model with attn_implementation="eager"'
        )
    _served.add(config)


def ids_of_keys(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int = 0,
    kv_offset: int = 0,
    mask_function: Callable | None = None,
    attention_mask: Tensor | None = None,
    device: Any = None,
    config: Any = None,
    **others: Any,
) -> Tensor | None:
    """The mask of a model as int32 (batch, keys that count): a query sees keys of its own id, which
    is that of the key at its own position. 0: padding. None: all keys are alike. generate() passes
    the result in again as attention_mask, so that it must mean the same there. Masks of other
    functions, and those that a model asks for in full: bool (batch, 1, queries, keys)."""
    if config is not None:
        _refuse_own_attention(type(config))
    parts = [] if mask_function is None else _parts(mask_function)
    names = {f.__qualname__.split(".")[0]: f for f in parts}
    used = kv_length
    if names.keys() & _CAUSAL:  # keys of a static cache that are yet to come do not count
        used = int(q_offset) + q_length - int(kv_offset)
    # transformers itself forbids to skip the mask where sequences are packed, and in steps of a
    # static cache; other models that do so compute with it.
    skipped = others.get("allow_is_causal_skip", True)
    skipped = skipped and others.get("allow_is_bidirectional_skip", True)
    wanted = not skipped and not names.keys() & _IDS and (q_length > 1 or used == kv_length)
    if wanted or names.keys() - _KNOWN:
        from transformers.masking_utils import sdpa_mask

        return sdpa_mask(
            batch_size=batch_size, q_length=q_length, kv_length=kv_length, q_offset=q_offset,
            kv_offset=kv_offset, mask_function=mask_function, attention_mask=attention_mask,
            device=device, config=config, **(others | {"allow_is_causal_skip": False}),
        )  # fmt: skip
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

# What models hand down to attention and it has no use for. Packed sequences are in the mask, which
# is made of position_ids; seq_idx says the same to layers that are no attention.
_NO_EFFECT = {
    "cache_position", "layer_idx", "logits_to_keep", "max_length_k", "max_length_q",
    "num_items_in_batch", "output_hidden_states", "output_router_logits", "past_key_values",
    "position_embeddings", "position_ids", "return_dict", "seq_idx", "use_cache",
}  # fmt: skip


def _check_others(dropout: float, s_aux: Tensor | None, others: dict[str, Any]) -> None:
    """Refuses what would change the result and is not computed here."""
    lacking = [
        name
        for name, value in others.items()
        if value is not None
        and name not in _NO_EFFECT
        and not (name == "output_attentions" and value is False)
    ]
    if dropout > 0:
        lacking.append("dropout")
    if s_aux is not None:
        lacking.append("attention sinks (s_aux)")
    if lacking:
        what = ", ".join(lacking)
        raise NotImplementedError(f"fa3.huggingface: {what}: not offered yet; {_REMEDY}")


def _biased(bias: Tensor, mask: Tensor | None) -> Tensor:
    """position_bias and a mask of four dimensions as one that is added to the scores."""
    if mask is None:
        return bias
    if mask.dtype == torch.bool:
        return torch.where(mask, bias, -torch.inf)
    return bias + mask


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
    **others: Any,
) -> tuple[Tensor, None]:
    """Attention of (batch, heads, seqlen, head_dim) as transformers calls it; returns (batch,
    seqlen, heads, head_dim) and no probabilities. attention_mask: what ids_of_keys returns, or a
    mask (batch, heads or 1, queries, keys), bool or added to the scores. position_bias is added to
    them, too. cu_seq_lens count where there is no mask, as in transformers' flash attention."""
    _check_others(dropout, s_aux, others)
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    window = None
    masks: dict[str, Tensor] = {}
    if attention_mask is None:
        masks = _packed(cu_seq_lens_q, cu_seq_lens_k, query, key, bool(causal))
    elif attention_mask.dim() == 4:  # all that hides keys is in it
        causal, sliding_window = False, None
        masks["attn_mask"] = attention_mask[..., : key.shape[2]]
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
        masks = {"sequence_ids_q": own, "sequence_ids_kv": attention_mask.contiguous()}
    if position_bias is not None:
        bias = position_bias[..., : key.shape[2]]
        masks["attn_mask"] = _biased(bias, masks.get("attn_mask"))
    out = fa3.torch.attention(
        *(x.transpose(1, 2) for x in (query, key, value)),
        causal=bool(causal),
        window=window,
        softmax_scale=scaling,
        softcap=softcap or 0.0,
        deterministic=deterministic or None,
        **masks,
    )
    return out, None
