# SPDX-License-Identifier: BSD-3-Clause
"""shrink.py — a small configuration of any model type of transformers, by names of fields."""

import inspect
import re
from dataclasses import dataclass
from typing import Any

# The first rule whose pattern a field's name matches gives its value; None leaves it as it is.
_RULES: list[tuple[str, Any]] = [
    (r".*(dropout|epsilon|_eps|theta|factor|scale|rate|_prob|pdrop).*", None),
    (r".*(dilation|stride|kernel).*", None),
    (r"(num_)?(key_value_heads|kv_heads)|n_kv_heads|multi_query_group_num", "kv"),
    (r"global_num_key_value_heads|swa_num_key_value_heads", "kv"),
    (r"(num_)?channels|.*num_channels|in_chans|in_channels|out_channels", None),
    (r".*(num_)?attention_heads|n_heads?|num_heads|.*_num_heads|.*_attn_heads|heads", 4),
    (r"qk_rope_head_dim|qk_nope_head_dim|index_head_dim_rope", 8),
    (r"qk_head_dim", 16),
    (r"(.*_)?(head_dim|d_kv|v_head_dim|attention_head_size|key_length|value_length)", 16),
    (r"rotary_dim", 8),
    (r"index_topk", 4),
    (r"index_n_heads", 2),
    (r"kv_lora_rank|q_lora_rank|o_lora_rank|.*_lora_rank|.*lora_dim", 16),
    (r"max_window_layers", 1),
    # All experts: which are chosen would otherwise hang on rounding.
    (r"(num_experts_per_tok|top_?k|moe_top_?k|moe_k|num_experts_per_token|experts_top_k)", 4),
    (r"top_k_experts|moe_topk|num_selected_experts|router_top_k", 4),
    (r"n_group|topk_group|num_expert_group", 1),
    (r"(num_|n_)?(local_|routed_)?experts|moe_num_experts|num_moe_experts", 4),
    (r"(n_|num_)shared_experts|moe_num_shared_experts", 1),
    (r"encoder_sparse_step", 0),
    (r"attention_window", 6),
    (r"upsample_groups", 64),
    (r"(num_)?sliding_window(_size)?|local_attention|window", 5),
    (r"attention_chunk_size", 8),
    (r"first_k_dense_replace|num_dense_layers|moe_layer_start_index", 1),
    (r"(num_)?mtp.*|num_nextn_predict_layers", 0),
    (r"(num_kv_shared_layers|n_shared_layers)", 0),
    (r"(num_|n_)?(hidden_|encoder_|decoder_|transformer_|vision_)?layers?", 2),
    (r"(num_|n_)?(conformer_|self_attention_)layers?", 2),
    (r"num_(.*_)?layers|(.*_)?num_hidden_layers|depth|num_blocks|(.*_)?n_layers?|.*_num_layers", 2),
    (r"(encoder|decoder)_num_(hidden_)?layers", 2),
    (r"(.*_)?vocab_size(_per_layer_input)?", 120),
    (r"max_position_embeddings|n_positions|n_ctx", 128),
    (r"max_sequence_length|max_seq_len(gth)?|seq_length", 128),
    (r"max_(source|target|text|encoder|decoder)_?positions?(_embeddings)?", 128),
    (r"original_max_position_embeddings|position_embeddings_size", 128),
    (r"(.*_)?image_size|input_size|img_size", 32),
    (r"(.*_)?patch_size", 8),
    (r"(.*)?(intermediate_size|ffn_dim|ffn_hidden_size|d_ff)(_mlp)?", 64),
    (r"(.*)?(d_inner|n_inner|ffn_size|mlp_dim)(_mlp)?", 64),
    (r"num_mel_bins|feature_size|num_mel_filters", 16),
    (r"(mamba_)?chunk_size|mamba_d_state|ssm_state_size", 16),
    (r"mamba_.*|ssm_.*|linear_.*|time_step.*|state_size", None),
    (r"hidden_size_per_layer_input", 8),
    (r"(.*_)?(hidden_size|d_model|n_embd|embed_dim|hidden_dim)", 64),
    (r"(.*_)?(embedding_size|emb_dim|projection_dim)", 64),
    (r"dim|width|n_state|model_dim|projector_dim|output_dim|out_hidden_size|out_dim|emb_size", 64),
    (r"(.*_)?(proj_dim|projection_size|embed_size|encoder_dim|decoder_dim|d_embed)", 64),
    (r"num_queries|num_query_tokens|num_latents|num_image_tokens", 6),
    (r"d_latents|d_head", 64),
]  # fmt: skip
# Which of two layers are attention, where the class does not say it otherwise.
_FIXED = {
    "encoder_hash_byte_group_vocab": 500, "vocabulary_map": {"<image>": 5},
    "attn_layer_indices": [1], "attn_layer_period": 2, "attn_layer_offset": 1,
          "prediction_length": 6, "context_length": 14,
}  # fmt: skip
_COMPILED = [(re.compile(pattern), value) for pattern, value in _RULES]
_HEADS = re.compile(r"num_attention_heads|n_heads?|num_heads|encoder_attention_heads")


def _small(name: str, value: Any, fields: dict[str, Any]) -> Any:
    """What a field becomes; None where it stays."""
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    if name.endswith("_token_id") or name.endswith("_token_index"):
        return _token(name, value)
    if name == "vocab_size":
        return 120  # also where it is less: of amino acids, of letters
    for pattern, small in _COMPILED:
        if pattern.fullmatch(name):
            if small == "kv":
                heads = [v for k, v in fields.items() if _HEADS.fullmatch(k) and v]
                return 4 if heads and value == heads[0] else min(2, value)
            return None if small is None or value <= 0 else min(small, value)
    return None


def _token(name: str, value: int) -> int | None:
    """Special tokens within the vocabulary, each with a number of its own."""
    usual = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    if value < 0 or (value < 20 and name in usual):
        return None
    return usual.get(name, 100 + sum(map(ord, name)) % 19)


def _lists(name: str, value: list, layers: int | None) -> Any:
    """A list with an entry for each layer: one of each kind."""
    if layers is None or len(value) != layers or layers <= 2 or name.startswith("architectures"):
        return None
    kinds = list(dict.fromkeys(map(str, value)))
    chosen = [next(v for v in value if str(v) == kind) for kind in kinds[:2]]
    return (chosen * 2)[:2]


@dataclass(frozen=True)
class Way:
    """How to shrink. lists: those of what each layer is are passed on, one of each kind, where the
    class may make others. wide: sizes of layers stay, their number and the vocabulary do not.
    window: one where the default has none. mrope: positions of three axes, where the default names
    no sections of them."""

    lists: bool = True
    layers: int = 2
    wide: bool = False
    mrope: bool = False
    window: bool = True


WAYS = (
    Way(), Way(mrope=True), Way(window=False), Way(window=False, lists=False),
    Way(window=False, lists=False, layers=8), Way(window=False, wide=True),
    Way(window=False, lists=False, wide=True),
)  # fmt: skip
_WIDE = re.compile(r".*(layer|vocab|expert|window|depth|token_i|_per_tok).*")
# Needed, and None by default.
_NEEDED = {"num_experts_per_tok": 4, "n_routed_experts": 4, "vocab_size": 120, "pad_token_id": 0,
           "head_dim": 16, "num_key_value_heads": 4}  # fmt: skip


# What the names of fields do not say.
_TYPES = {
    "dbrx": {"attn_config": {"rope_theta": 1e4, "kv_n_heads": 2, "clip_qkv": 8.0}},
    "deepseek_ocr2_text": {"mlp_layer_types": ["dense", "sparse"]},
    "dots1": {"n_shared_experts": 1},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"]},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "owlv2_text_model": {"max_position_embeddings": 32},
    "owlvit_text_model": {"max_position_embeddings": 32},
    "step3p5": {"sliding_window": 5},
    "xlnet": {"d_head": 16},
    "xmod": {"default_language": "en_XX"},
}


def shrink(kind: type, way: Way) -> Any:
    """An instance of a configuration class, small; its parts too."""
    fields = _fields(kind, kind(), way)
    config = kind(**(fields | _TYPES.get(kind.model_type, {})))
    for part in (config, *(v for v in vars(config).values() if hasattr(v, "model_type"))):
        if not hasattr(part, "pad_token_id"):
            part.pad_token_id = 0
    return config


def _fields(kind: type, whole: Any, way: Way) -> dict[str, Any]:
    from transformers import PreTrainedConfig

    values = {k: v for k, v in vars(whole).items() if not k.startswith("_")}
    known = set(inspect.signature(kind.__init__).parameters)
    known |= set(getattr(kind, "__annotations__", {}))
    layers = next((values[k] for k in ("num_hidden_layers", "num_layers", "n_layer")
                   if isinstance(values.get(k), int)), None)  # fmt: skip
    small: dict[str, Any] = {}
    for name, value in values.items():
        if name in _FIXED and name in known:
            small[name] = _FIXED[name]
        elif getattr(value, "model_type", "") == "timm_backbone":
            small.update(_backbone(known))
        elif isinstance(value, PreTrainedConfig):
            small[name] = type(value)(**_fields(type(value), value, way))
        elif name == "attention_window" and isinstance(value, list):
            small[name] = [6] * way.layers
        elif way.window and name == "layer_types" and set(value or ()) == {"full_attention"}:
            if "sliding_window" in values:
                small[name] = ["full_attention", "sliding_attention"]
        elif isinstance(value, list) and way.lists:
            shorter = _lists(name, value, layers)
            if shorter is not None:
                small[name] = shorter
        elif way.window and name == "sliding_window" and value is None:
            small[name] = 5
        elif way.window and name == "use_sliding_window":
            small[name] = True
        elif name == "decoder_sparse_step" and "encoder_sparse_step" in values:
            small[name] = 0
        elif value is None and name in _NEEDED and not (way.wide and name == "head_dim"):
            small[name] = _NEEDED[name]
        elif name in known or name.endswith("_token_id") or name.endswith("_token_index"):
            new = _small(name, value, values)
            if new is not None and (not way.wide or _WIDE.fullmatch(name)):
                small[name] = way.layers if new == 2 and "layer" in name else new
    rope = values.get("rope_parameters") or values.get("rope_scaling")
    if isinstance(rope, dict) and (way.mrope or isinstance(rope.get("mrope_section"), list)):
        key = "rope_parameters" if values.get("rope_parameters") else "rope_scaling"
        small[key] = {**rope, "mrope_section": [2, 3, 3]}
    return small


def _backbone(known: set[str]) -> dict[str, Any]:
    """In place of one of timm's."""
    from transformers import ResNetConfig

    resnet = ResNetConfig(embedding_size=8, hidden_sizes=[8, 16, 16, 16], depths=[1, 1, 1, 1],
                          out_features=["stage2", "stage3", "stage4"])  # fmt: skip
    fields = {"use_timm_backbone": False, "backbone": None, "backbone_config": resnet}
    return {name: value for name, value in fields.items() if name in known}
