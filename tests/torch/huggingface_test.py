# SPDX-License-Identifier: BSD-3-Clause
"""huggingface_test.py — small models of transformers on fa3, against its eager attention."""

import copy
import importlib

import fa3.huggingface
import pytest
import torch
import transformers
from torch_kit import assert_close, each_device
from transformers import (
    BartConfig,
    BertConfig,
    BloomConfig,
    CodeGenConfig,
    Gemma2Config,
    GptOssConfig,
    LlamaConfig,
    MistralConfig,
    T5Config,
)

fa3.huggingface.register()
COMMON = {
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
    "initializer_range": 0.3,  # the usual 0.02 makes attention so even that no test sees it
}
GROUPED = {**COMMON, "num_key_value_heads": 2, "pad_token_id": 0}
CONFIGS = {
    "llama": lambda: LlamaConfig(**GROUPED),
    "mistral": lambda: MistralConfig(**GROUPED, sliding_window=6),
    "gemma2": lambda: Gemma2Config(**GROUPED, head_dim=16, sliding_window=5),
    "gpt_oss": lambda: GptOssConfig(
        **GROUPED, head_dim=16, sliding_window=5, num_local_experts=4, num_experts_per_tok=2
    ),
}
# Of logits around 1, and in FP32 of gradients: sums over a model of two layers.
BOUND = {"cpu": 1e-4, "cuda": 6e-2}


def models(config, device, kind=transformers.AutoModelForCausalLM):
    """The same weights twice: eager, and on fa3."""
    torch.manual_seed(7)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    eager, ours = (
        kind.from_config(copy.deepcopy(config), attn_implementation=name).to(device, dtype).eval()
        for name in ("eager", "fa3")
    )
    ours.load_state_dict(eager.state_dict())
    assert eager.config._attn_implementation == "eager"
    assert ours.config._attn_implementation == "fa3"
    return eager, ours


def tokens(device, rows=3, length=20):
    return torch.randint(1, 100, (rows, length), generator=torch.Generator().manual_seed(3)).to(
        device
    )


def padding(device, side, lengths=(20, 13, 4), length=20):
    kept = torch.arange(length)[None] < torch.tensor(lengths)[:, None]
    return (kept if side == "right" else kept.flip(1)).long().to(device)


def distance(a, b):
    return (a - b).abs().max().item()


@each_device
@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("side", ["none", "left", "right"])
def test_logits_and_gradients(device, name, side):
    eager, ours = models(CONFIGS[name](), device)
    ids = tokens(device)
    mask = torch.ones_like(ids) if side == "none" else padding(device, side)
    kept = mask.bool()
    first = kept & ~torch.nn.functional.pad(kept, (1, -1))  # would be predicted from padding
    labels = ids.masked_fill(~kept | first, -100)

    def run(model):
        output = model(input_ids=ids, attention_mask=mask, labels=labels)
        output.loss.backward()
        return output.logits[kept], [p.grad.float() for p in model.parameters()]

    (want, want_grads), (got, grads) = run(eager), run(ours)
    assert_close(got, want, BOUND[device])
    if device == "cpu":
        for a, b in zip(grads, want_grads, strict=True):
            assert_close(a, b, BOUND[device])
    else:
        # Of two models in BF16 neither is right: fa3's is as close to the same in FP32 as eager's.
        eager.zero_grad()
        _, exact = run(eager.float())
        ours_off, eager_off = (max(map(distance, of, exact)) for of in (grads, want_grads))
        assert ours_off <= 1.2 * eager_off + 1e-3


@each_device
@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_generate(device, name, cache):
    eager, ours = models(CONFIGS[name](), device)
    ids, mask = tokens(device, length=12), padding(device, "left", (12, 9, 3), 12)
    options = {"max_new_tokens": 8, "do_sample": False, "cache_implementation": cache}
    if cache == "static":
        options["disable_compile"] = True
    given = {"input_ids": ids, "attention_mask": mask, "return_dict_in_generate": True}
    want = eager.generate(**given, **options, output_logits=True)
    got = ours.generate(**given, **options, output_logits=True)
    if device == "cpu":
        assert torch.equal(got.sequences, want.sequences)
    assert_close(got.logits[0], want.logits[0], BOUND[device])


@each_device
@pytest.mark.parametrize("side", ["none", "left", "right"])
def test_encoder(device, side):
    eager, ours = models(BertConfig(**COMMON), device, transformers.AutoModel)
    ids = tokens(device)
    mask = torch.ones_like(ids) if side == "none" else padding(device, side)
    with torch.no_grad():
        want = eager(input_ids=ids, attention_mask=mask).last_hidden_state
        got = ours(input_ids=ids, attention_mask=mask).last_hidden_state
    assert_close(got[mask.bool()], want[mask.bool()], BOUND[device])


@each_device
def test_across_sequences(device):
    """A decoder that attends to an encoder's output, which is longer and padded."""
    config = BartConfig(vocab_size=100, d_model=64, encoder_layers=1, decoder_layers=1,
                        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=96,
                        decoder_ffn_dim=96, max_position_embeddings=64, init_std=0.3)  # fmt: skip
    eager, ours = models(config, device, transformers.AutoModelForSeq2SeqLM)
    given = {
        "input_ids": tokens(device),
        "attention_mask": padding(device, "right"),
        "decoder_input_ids": tokens(device, length=7),
    }
    with torch.no_grad():
        assert_close(ours(**given).logits, eager(**given).logits, BOUND[device])


@each_device
def test_packed_sequences(device):
    eager, ours = models(CONFIGS["llama"](), device)
    ids = tokens(device, rows=1)
    positions = torch.cat([torch.arange(n) for n in (9, 4, 7)])[None].to(device)
    with torch.no_grad():
        want = eager(input_ids=ids, position_ids=positions, use_cache=False).logits
        got = ours(input_ids=ids, position_ids=positions, use_cache=False).logits
    assert_close(got, want, BOUND[device])
    with torch.no_grad():
        alone = ours(input_ids=ids[:, 9:13], use_cache=False).logits
    assert_close(got[:, 9:13], alone, BOUND[device])


def test_compiled():
    """In one graph: neither function breaks it."""
    _, ours = models(CONFIGS["llama"](), "cpu")
    ids = tokens("cpu")
    with torch.no_grad():
        got = torch.compile(ours, backend="aot_eager", fullgraph=True)(ids).logits
        assert_close(got, ours(ids).logits, BOUND["cpu"])


def test_padding_is_not_attended():
    """What stands in padding has no effect."""
    _, ours = models(CONFIGS["llama"](), "cpu")
    ids, mask = tokens("cpu"), padding("cpu", "left")
    other = torch.where(mask.bool(), ids, 99 - ids)
    with torch.no_grad():
        a, b = (ours(input_ids=x, attention_mask=mask).logits for x in (ids, other))
    assert torch.equal(a[mask.bool()], b[mask.bool()])


def test_what_is_lacking_is_said():
    _, ours = models(CONFIGS["llama"](), "cpu")
    layer = ours.model.layers[0].self_attn
    x = torch.ones(1, 4, 5, 16)
    for options, message in (
        ({"dropout": 0.1}, "dropout"),
        ({"output_attentions": True}, "output_attentions"),
        ({"head_mask": x, "block_mask": x}, "head_mask, block_mask"),
        ({"invented": 0}, "invented"),
        ({"cu_seq_lens_q": torch.tensor([0, 2, 5])}, "cu_seq_lens_q"),
    ):
        with pytest.raises(NotImplementedError, match=f'{message}.*attn_implementation="eager"'):
            fa3.huggingface.attend(layer, x, x, x, None, **options)
    with pytest.raises(NotImplementedError, match="attention_mask of torch.float32"):
        fa3.huggingface.attend(layer, x, x, x, torch.zeros(1, 5))


def test_what_has_no_effect_is_taken():
    layer = models(CONFIGS["llama"](), "cpu")[1].model.layers[0].self_attn
    x = torch.randn(1, 4, 5, 16)
    want, _ = fa3.huggingface.attend(layer, x, x, x, None)
    options = {"position_ids": torch.arange(5)[None], "use_cache": True, "s_aux": None}
    got, _ = fa3.huggingface.attend(
        layer, x, x, x, None, **options, output_attentions=False, invented=None, deterministic=True
    )
    assert torch.equal(got, want)


@pytest.mark.parametrize("causal", [True, False])
def test_cu_seq_lens(causal):
    layer = models(CONFIGS["llama"](), "cpu")[1].model.layers[0].self_attn
    x = torch.randn(1, 4, 9, 16)
    lens = torch.tensor([0, 4, 9], dtype=torch.int32)
    got, _ = fa3.huggingface.attend(
        layer, x, x, x, None, is_causal=causal, cu_seq_lens_q=lens, cu_seq_lens_k=lens,
        max_length_q=5, max_length_k=5,
    )  # fmt: skip
    for part in (slice(0, 4), slice(4, 9)):
        y = x[:, :, part]
        want, _ = fa3.huggingface.attend(layer, y, y, y, None, is_causal=causal)
        assert_close(got[:, part], want, BOUND["cpu"])


@pytest.mark.parametrize("side", ["none", "right"])
def test_position_bias(side):
    """T5: encoder, decoder and attention across, with a bias of positions that is learned."""
    device = "cpu"
    config = T5Config(vocab_size=100, d_model=64, d_kv=16, d_ff=96, num_layers=2, num_heads=4,
                      relative_attention_num_buckets=8, relative_attention_max_distance=16,
                      dropout_rate=0.0, initializer_factor=3.0, pad_token_id=0,
                      decoder_start_token_id=0)  # fmt: skip
    eager, ours = models(config, device, transformers.AutoModelForSeq2SeqLM)
    ids = tokens(device)
    mask = torch.ones_like(ids) if side == "none" else padding(device, side)

    def run(model):
        output = model(input_ids=ids, attention_mask=mask, labels=tokens(device, length=7))
        output.loss.backward()
        bias = model.encoder.block[0].layer[0].SelfAttention.relative_attention_bias.weight
        return output.logits, bias.grad

    (want, want_grad), (got, grad) = run(eager), run(ours)
    assert_close(got, want, BOUND[device])
    assert want_grad.abs().max() > 1e-3
    assert_close(grad, want_grad, 3e-3)  # sums over all rows and keys of a bucket
    options = {"max_new_tokens": 6, "do_sample": False, "input_ids": ids}
    a, b = (m.generate(attention_mask=mask, **options) for m in (eager, ours))
    assert torch.equal(a, b)


@pytest.mark.parametrize("kind", [torch.bool, torch.float32])
def test_position_bias_and_mask(kind):
    """A mask of four dimensions and a bias: both count."""
    layer = models(CONFIGS["llama"](), "cpu")[1].model.layers[0].self_attn
    x, bias = torch.randn(2, 4, 6, 16), torch.randn(1, 4, 6, 6)
    shown = torch.ones(2, 1, 6, 6, dtype=torch.bool).tril()
    mask = shown if kind == torch.bool else torch.where(shown, 0.0, torch.finfo(kind).min)
    got, _ = fa3.huggingface.attend(layer, x, x, x, mask, position_bias=bias)
    added = bias.masked_fill(~shown, -torch.inf)
    want = torch.nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=added)
    assert_close(got, want.transpose(1, 2), BOUND["cpu"])


OWN_ATTENTION = {
    "bloom": lambda: BloomConfig(vocab_size=100, hidden_size=64, n_layer=1, n_head=4),
    "codegen": lambda: CodeGenConfig(
        vocab_size=100, n_embd=64, n_layer=1, n_head=4, rotary_dim=8, n_positions=64
    ),
}


@pytest.mark.parametrize("name", OWN_ATTENTION)
def test_models_with_an_attention_of_their_own(name):
    """They would compute with whatever mask they get, and without one see the future."""
    config = OWN_ATTENTION[name]()
    _, ours = models(config, "cpu")
    with pytest.raises(NotImplementedError, match=f"{type(config).__name__}.*=\"eager\""):
        ours(tokens("cpu"))


def test_models_that_ask_for_the_mask_in_full():
    """Those with an indexer compute with it, and hand fa3 the keys that it leaves."""
    config = transformers.DeepseekV32Config(
        vocab_size=100, hidden_size=64, intermediate_size=96, moe_intermediate_size=32,
        num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=4, n_routed_experts=4,
        num_experts_per_tok=2, n_group=1, topk_group=1, kv_lora_rank=16, q_lora_rank=16,
        qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=16, index_topk=4, index_n_heads=2,
        index_head_dim=16, first_k_dense_replace=1, max_position_embeddings=64,
    )  # fmt: skip
    eager, ours = models(config, "cpu")
    ids, mask = tokens("cpu"), padding("cpu", "left")
    with torch.no_grad():
        for given in ({}, {"attention_mask": mask}):
            want, got = (m(ids, **given).logits[mask.bool()] for m in (eager, ours))
            assert_close(got, want, BOUND["cpu"])
    layer, x = ours.model.layers[0].self_attn, torch.randn(1, 4, 5, 16)
    chosen = torch.tensor([[[0, -1], [1, 0], [0, 2], [3, -1], [4, 1]]], dtype=torch.int32)
    seen = torch.zeros(1, 1, 5, 5, dtype=torch.bool)
    for row, keys in enumerate(chosen[0].tolist()):
        seen[..., row, [key for key in keys if key >= 0]] = True
    want = torch.nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=seen)
    hidden = torch.finfo(torch.float32).min
    for mask in (None, torch.ones_like(seen), torch.zeros(1, 1, 5, 5)):
        got, _ = fa3.huggingface.attend(layer, x, x, x, mask, indices=chosen)
        assert_close(got, want.transpose(1, 2), BOUND["cpu"])
    added = torch.zeros(1, 1, 5, 5).masked_fill(~torch.ones(5, 5).tril().bool(), hidden)
    got, _ = fa3.huggingface.attend(layer, x, x, x, added, indices=chosen)
    assert_close(got, want.transpose(1, 2), BOUND["cpu"])


def test_configurations_of_ones_own():
    class OwnConfig(LlamaConfig):
        pass

    class Unknown(transformers.PreTrainedConfig):
        pass

    part = transformers.T5GemmaConfig().decoder  # of a model, no model's by itself
    importlib.import_module("transformers.models.t5gemma.modeling_t5gemma")
    for config in (OwnConfig(**GROUPED), part):
        assert fa3.huggingface.build_mask(1, 4, 4, config=config).band.causal
    with pytest.raises(NotImplementedError, match="Unknown"):
        fa3.huggingface.build_mask(1, 4, 4, config=Unknown())


@pytest.mark.parametrize("kind", [torch.bool, torch.float32])
def test_masks_of_ones_own(kind):
    """Of four dimensions, passed in: queries that it leaves no key are nobody's."""
    eager, ours = models(CONFIGS["llama"](), "cpu")
    ids = tokens("cpu", rows=2)
    length = ids.shape[1]
    shown = torch.ones(length, length, dtype=torch.bool).tril().expand(2, 1, -1, -1).clone()
    shown[1, :, :, 1:4] = False
    shown[1, :, range(length), range(length)] = True
    added = torch.zeros(shown.shape).masked_fill(~shown, torch.finfo(torch.float32).min)
    with torch.no_grad():
        want = eager(input_ids=ids, attention_mask=added, use_cache=False).logits
        mask = shown if kind == torch.bool else added
        got = ours(input_ids=ids, attention_mask=mask, use_cache=False).logits
    assert_close(got, want, BOUND["cpu"])
