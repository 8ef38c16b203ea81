# SPDX-License-Identifier: BSD-3-Clause
"""huggingface_masks_test.py — what a model of transformers asks its mask function for decides what
its queries see on fa3: kinds, windows, padding, static caches; and the mask as a tensor."""

import copy
import itertools

import fa3.huggingface
import pytest
import torch
import transformers
from fa3.huggingface._mask import Band, Mask
from torch_kit import assert_close
from transformers import masking_utils

fa3.huggingface.register()
BOUND = 1e-4
SMALL = {
    "vocab_size": 99, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "max_position_embeddings": 128, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2,
}  # fmt: skip
SEQ2SEQ = {
    "d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "vocab_size": 99,
    "max_position_embeddings": 64,
}  # fmt: skip


def models(kind, config, *names):
    """The same weights, large enough for attention to be uneven, on each implementation."""
    torch.manual_seed(0)
    made = []
    for name in names or ("eager", "fa3"):
        model = kind._from_config(copy.deepcopy(config), attn_implementation=name).eval()
        if made:
            model.load_state_dict(made[0].state_dict())
        else:
            for p in model.parameters():
                if p.dim() > 1:
                    p.data.normal_(std=0.12)
        made.append(model)
    return made


def causal(window=None):
    """The function of a mask."""
    if window is None:
        return masking_utils.causal_mask_function
    return masking_utils.sliding_window_causal_mask_function(window)


def tokens(rows=2, length=12, seed=3):
    return torch.randint(3, 98, (rows, length), generator=torch.Generator().manual_seed(seed))


# ---- Kinds --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["NllbMoe", "PegasusX"])
@torch.no_grad()
def test_decoders_whose_modules_say_the_opposite(name):
    """is_causal is False in their decoders' self-attention."""
    options = {"encoder_sparse_step": 0, "decoder_sparse_step": 0} if name == "NllbMoe" else {}
    config = getattr(transformers, f"{name}Config")(**SEQ2SEQ, **options)
    kind = getattr(transformers, f"{name}ForConditionalGeneration")
    eager, ours = models(kind, config)
    x, before = tokens(1), tokens(1, 9, seed=4)
    after = before.clone()
    after[:, 5:] = 7
    a, b, want = (
        m(input_ids=x, decoder_input_ids=d).logits
        for m, d in ((ours, before), (ours, after), (eager, before))
    )
    assert_close(a, want, BOUND)
    assert torch.equal(a[:, :5], b[:, :5])
    assert not torch.equal(a[:, 5:], b[:, 5:])


@pytest.mark.parametrize("name", ["ClapText", "Splinter"])
@torch.no_grad()
def test_encoders_whose_modules_say_nothing(name):
    config = getattr(transformers, f"{name}Config")(**SMALL)
    eager, ours = models(getattr(transformers, f"{name}Model"), config)
    x = tokens()
    assert_close(ours(x).last_hidden_state, eager(x).last_hidden_state, BOUND)


@torch.no_grad()
def test_window_that_attention_is_not_told():
    config = transformers.PhimoeConfig(
        **SMALL, num_key_value_heads=2, num_local_experts=4, sliding_window=5
    )
    eager, ours = models(transformers.PhimoeForCausalLM, config)
    x = tokens(length=20)
    assert_close(ours(x).logits, eager(x).logits, BOUND)


@torch.no_grad()
def test_decoder_turned_into_an_encoder():
    """By its configuration; attention is not told, and its module says causal."""
    config = transformers.LlamaConfig(**SMALL)
    config.is_causal = False
    eager, ours = models(transformers.LlamaModel, config)
    x = tokens()
    assert_close(ours(x).last_hidden_state, eager(x).last_hidden_state, BOUND)
    layer = ours.layers[0].self_attn
    q = torch.randn(1, 4, 12, 16)
    mask = masking_utils.create_causal_mask(ours.config, torch.zeros(1, 12, 64), None, None)
    got, _ = fa3.huggingface.attend(layer, q, q, q, mask, is_causal=True)
    want, _ = fa3.huggingface.attend(layer, q, q, q, None)
    assert torch.equal(got, want)


def test_without_a_mask_keywords_count_and_modules_do_not():
    module = torch.nn.Module()
    module.is_causal = True
    q = torch.randn(1, 4, 9, 16)
    sdpa = torch.nn.functional.scaled_dot_product_attention
    for options, want in (
        ({}, sdpa(q, q, q)),
        ({"is_causal": True}, sdpa(q, q, q, is_causal=True)),
        ({"is_causal": True, "sliding_window": 3},
         sdpa(q, q, q, attn_mask=torch.ones(9, 9, dtype=torch.bool).tril().triu(-2))),
    ):  # fmt: skip
        got, _ = fa3.huggingface.attend(module, q, q, q, None, **options)
        assert_close(got, want.transpose(1, 2), BOUND)
    with pytest.raises(NotImplementedError, match="sliding_window: 3 of 9 keys.*eager"):
        fa3.huggingface.attend(module, q, q, q, None, sliding_window=3)


# ---- Padding ------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", ["right", "left", "holes"])
@pytest.mark.parametrize("name", ["Llama", "Bert", "Gemma2"])
def test_rows_of_padding(name, side):
    """Labels that are not masked: the loss counts rows of padding, too. Rows that see nothing are
    those on which eager and sdpa disagree: there it is sdpa's."""
    options = {"Gemma2": {"sliding_window": 5, "head_dim": 16, "num_key_value_heads": 2}}
    config = getattr(transformers, f"{name}Config")(**SMALL, **options.get(name, {}))
    auto = f"{name}ForMaskedLM" if name == "Bert" else f"{name}ForCausalLM"
    other = "sdpa" if side == "left" and name == "Llama" else "eager"
    theirs, ours = models(getattr(transformers, auto), config, other, "fa3")
    x = tokens()
    mask = torch.ones_like(x)
    mask[1, {"right": slice(8, None), "left": slice(0, 4), "holes": slice(3, 6)}[side]] = 0
    keep = slice(None)
    if side == "left" and name == "Gemma2":  # sdpa lacks its softcap
        keep = mask.bool()
    outputs = [m(input_ids=x, attention_mask=mask, labels=x) for m in (theirs, ours)]
    if keep == slice(None):
        assert_close(outputs[1].loss, outputs[0].loss, 1e-5)
    want, got = (o.logits[keep] for o in outputs)
    assert_close(got, want, BOUND)
    grads = []
    for model, logits in ((theirs, want), (ours, got)):
        logits.square().mean().backward()
        grads.append([p.grad for p in model.parameters() if p.grad is not None])
    for a, b in zip(*grads, strict=True):
        assert_close(b, a, BOUND)


@pytest.mark.parametrize("window", [None, 3])
def test_rows_that_see_nothing_under_a_bias(window):
    """With a bias of positions eager and sdpa agree on them: their weights are even."""
    kind = causal(window)
    padding = torch.ones(2, 6, dtype=torch.bool)
    padding[1, :3] = False
    given = {"mask_function": kind, "attention_mask": padding, "device": "cpu"}
    mask = fa3.huggingface.build_mask(2, 6, 6, **given)
    full = masking_utils.sdpa_mask(2, 6, 6, **given, allow_is_causal_skip=False)
    x, bias = torch.randn(2, 4, 6, 16), torch.randn(1, 4, 6, 6)
    module = torch.nn.Module()
    want = x @ x.transpose(-1, -2) / 4 + bias
    want = want.masked_fill(~full, torch.finfo(torch.float32).min).softmax(-1) @ x
    for made in (mask, full):
        got, _ = fa3.huggingface.attend(module, x, x, x, made, position_bias=bias)
        assert_close(got, want.transpose(1, 2), BOUND)
    assert_close(got[1, 0], x[1].mean(1), BOUND)


# ---- The mask as a tensor -----------------------------------------------------------------------


def functions():
    begin = torch.tensor([0, 2])
    packed = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 2, 2], [0, 0, 0, 0, 0, 1, 1, 1, 1]])
    positions = torch.tensor([[0, 1, 2, 0, 1, 2, 3, 0, 1], [0, 1, 2, 3, 4, 0, 1, 2, 3]])
    causal = masking_utils.causal_mask_function
    window = masking_utils.sliding_window_causal_mask_function(3)
    # Newer than the oldest transformers that fa3.huggingface takes.
    both = getattr(masking_utils, "packed_sequence_compatibility_function", None)
    packings = both and {
        "packed": (both(causal, positions, packed), True),
        "packed_window": (both(window, positions, packed), True),
        "packed_chunks": (
            both(masking_utils.chunked_causal_mask_function(2, begin), positions, packed), False),
    }  # fmt: skip
    return (packings or {}) | {
        "causal": (causal, True),
        "bidirectional": (masking_utils.bidirectional_mask_function, True),
        "window": (window, True),
        "both_ways": (masking_utils.sliding_window_bidirectional_mask_function(2), True),
        "chunks": (masking_utils.chunked_causal_mask_function(4, begin), True),
        "union": (masking_utils.or_masks(causal, lambda b, h, q, kv: kv < 3), False),
        "ones_own": (masking_utils.and_masks(causal, lambda b, h, q, kv: kv != 2), False),
    }  # fmt: skip


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("name", functions())
@pytest.mark.parametrize("side", ["none", "left", "right", "holes"])
def test_masks_are_those_of_transformers(name, side, inference):
    """Bit by bit, and attention on them is that on the tensors. Packed sequences stand alone."""
    with torch.set_grad_enabled(not inference):
        compare_masks(name, side)


def compare_masks(name, side):
    function, said = functions()[name]
    sizes = [(9, 9, 0, 0), (9, 12, 0, 0), (2, 9, 7, 0), (1, 9, 8, 0), (3, 6, 6, 3), (4, 12, 3, 0),
             (2, 6, 8, 4)]  # fmt: skip
    sizes = sizes[:1] if name.startswith("packed") else sizes
    for q, kv, q_offset, kv_offset in sizes:
        padding = torch.ones(2, q_offset + q, dtype=torch.bool)
        if side != "none":
            hidden = {"left": slice(0, 2), "right": slice(-2, None), "holes": slice(1, 3)}
            padding[1, hidden[side]] = False
        given = {
            "batch_size": 2, "q_length": q, "kv_length": kv, "q_offset": q_offset,
            "kv_offset": kv_offset, "mask_function": function, "device": "cpu",
            "attention_mask": None if side == "none" else padding,
            "allow_is_bidirectional_skip": False, "use_vmap": False,
        }  # fmt: skip
        made = fa3.huggingface.build_mask(**given, allow_is_causal_skip=True)
        want = masking_utils.sdpa_mask(**given, allow_is_causal_skip=False)
        aligned = name != "both_ways" or q_offset + q - kv_offset == kv
        assert isinstance(made, Mask) == (said and aligned), (q, kv, q_offset)
        assert made.shape == want.shape
        assert made.dtype == want.dtype
        assert torch.equal(made | False, want)
        x, y = torch.randn(2, 4, q, 16), torch.randn(2, 4, kv, 16)
        got, _ = fa3.huggingface.attend(torch.nn.Module(), x, y, y, made)
        theirs = torch.nn.functional.scaled_dot_product_attention(x, y, y, attn_mask=want)
        assert_close(got, theirs.transpose(1, 2), BOUND)


def a_mask():
    padding = torch.ones(2, 6, dtype=torch.bool)
    padding[1, :2] = False
    return fa3.huggingface.build_mask(2, 6, 9, attention_mask=padding, device="cpu")


def test_what_models_do_with_masks():
    mask = a_mask()
    full = mask.in_full()
    for kept in (
        mask.to("cpu"), mask[:, :, :, :9], mask[:, :, :6], mask.clone(), mask.detach(),
        mask.contiguous(), copy.deepcopy(mask), {"full_attention": mask}["full_attention"],
        mask.bool(), mask[..., :100],
    ):  # fmt: skip
        assert isinstance(kept, Mask)
        assert torch.equal(kept & True, full)
    for changed, want in (
        (mask[:, :, -1:], full[:, :, -1:]),
        (mask[:, 0], full[:, 0]),
        (~mask, ~full),
        (mask.expand(2, 4, 6, 9), full.expand(2, 4, 6, 9)),
        (torch.cat([mask, mask], -1), torch.cat([full, full], -1)),
        (torch.where(mask, 1.0, 2.0), torch.where(full, 1.0, 2.0)),
        (mask.float(), full.float()),
        (torch.zeros(2, 1, 6, 9).masked_fill(mask, 3.0), full * 3.0),
    ):
        assert not isinstance(changed, Mask)
        assert torch.equal(changed, want)
    for wrong in (lambda: torch.zeros(2, 4, 6, 9) + mask, lambda: mask.float() + mask):
        with pytest.raises(NotImplementedError, match="adds its mask to scores.*eager"):
            wrong()
    with pytest.raises(NotImplementedError, match="writes into its mask.*eager"):
        mask &= full
    with pytest.raises(NotImplementedError, match="writes into its mask.*eager"):
        mask[0, 0, 0] = True
    assert "causal=True" in repr(mask)


def test_a_mask_of_other_queries_is_taken_in_full():
    mask = a_mask()
    x, y = torch.randn(2, 4, 6, 16), torch.randn(2, 4, 4, 16)
    got, _ = fa3.huggingface.attend(torch.nn.Module(), x, y, y, mask)
    want = torch.nn.functional.scaled_dot_product_attention(
        x, y, y, attn_mask=mask.in_full()[..., :4]
    )
    assert_close(got, want.transpose(1, 2), BOUND)
    y = torch.randn(2, 4, 10, 16)
    with pytest.raises(NotImplementedError, match="attention_mask: of 9 keys, got 10"):
        fa3.huggingface.attend(torch.nn.Module(), x, y, y, mask)


def test_compiled_in_one_graph():
    """Gradients too; with padding, whose values the graph does not know."""
    config = transformers.Gemma2Config(**SMALL, sliding_window=5, head_dim=16)
    _, ours = models(transformers.Gemma2ForCausalLM, config)
    x = tokens()
    mask = torch.ones_like(x)
    mask[1, 8:] = 0
    given = {"input_ids": x, "attention_mask": mask, "labels": x}
    results = []
    for model in (ours, torch.compile(ours, backend="aot_eager", fullgraph=True)):
        ours.zero_grad()
        loss = model(**given).loss
        loss.backward()
        results.append((loss, [p.grad for p in ours.parameters() if p.grad is not None]))
    (a, grads), (b, others) = results
    assert_close(b, a, BOUND)
    for x, y in zip(grads, others, strict=True):
        assert_close(y, x, BOUND)


def test_gradient_checkpointing():
    config = transformers.LlamaConfig(**SMALL)
    _, ours = models(transformers.LlamaForCausalLM, config)
    x, mask = tokens(), torch.ones(2, 12, dtype=torch.long)
    mask[1, 8:] = 0
    grads = []
    for reentrant in (None, False, True):
        ours.train()
        if reentrant is not None:
            ours.gradient_checkpointing_enable({"use_reentrant": reentrant})
        ours.zero_grad()
        ours(input_ids=x, attention_mask=mask, labels=x, use_cache=False).loss.backward()
        grads.append([p.grad.clone() for p in ours.parameters()])
    for others in grads[1:]:
        assert all(map(torch.equal, grads[0], others))


# ---- What is refused, and how -------------------------------------------------------------------

TABLES = {
    "gptj": (lambda: transformers.GPTJConfig(n_embd=64, n_layer=1, n_head=4, rotary_dim=8),
             "eager"),
    "falcon": (lambda: transformers.FalconConfig(hidden_size=64, num_hidden_layers=1,
                                                 num_attention_heads=4), "sdpa"),
    "data2vec": (lambda: transformers.Data2VecVisionConfig(
        hidden_size=64, num_hidden_layers=1, num_attention_heads=4), "sdpa"),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
def test_tables_of_their_own(name):
    make, remedy = TABLES[name]
    said = f'{type(make()).__name__} has attention classes.*attn_implementation="{remedy}"'
    with pytest.raises(NotImplementedError, match=said):
        transformers.AutoModel.from_config(make(), attn_implementation="fa3")
    transformers.AutoModel.from_config(make(), attn_implementation=remedy)


def test_remedies_work():
    """What the sentence names is what transformers takes for that model."""
    options = {**SMALL, "num_hidden_layers": 1, "num_key_value_heads": 2, "head_dim": 16}
    llama = transformers.LlamaConfig(**options, attention_dropout=0.25)
    x = tokens(1)
    for config, given, said in ((llama, {"output_attentions": True}, "output_attentions"),):
        kind = transformers.AutoModelForCausalLM
        ours, eager = (
            kind.from_config(copy.deepcopy(config), attn_implementation=name).eval()
            for name in ("fa3", "eager")
        )
        with pytest.raises(NotImplementedError, match=f'{said}.*attn_implementation="eager"'):
            ours(x, **given)
        out = eager(x, **given)
        assert not given or out.attentions[0].shape == (1, 4, 12, 12)
    with pytest.raises(NotImplementedError, match=r"dropout: 0.25 \(LlamaConfig.attention_dropout"):
        ours.train()(x)


def test_no_two_kinds_are_mistaken():
    """Under torch.compile kind and window are part of what a graph is guarded by."""
    module, q = torch.nn.Module(), torch.randn(1, 2, 6, 16)
    compiled = torch.compile(
        lambda q, mask: fa3.huggingface.attend(module, q, q, q, mask)[0], backend="aot_eager"
    )
    ids = torch.ones(1, 6, dtype=torch.int32)
    for causal, left in itertools.product((True, False), (None, 1, 2)):
        mask = Mask.of_ids(ids, ids, 6, Band(causal, left), False)
        want, _ = fa3.huggingface.attend(module, q, q, q, mask.in_full())
        assert_close(compiled(q, mask), want, BOUND)
