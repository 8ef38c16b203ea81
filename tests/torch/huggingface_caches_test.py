# SPDX-License-Identifier: BSD-3-Clause
"""huggingface_caches_test.py — steps of generation on fa3: static caches, compiled steps, and that
attention gets the lengths of a cache."""

import random

import fa3.huggingface
import pytest
import torch
import transformers
from fa3.huggingface._attend import _of_mask
from fa3.huggingface._mask import Band
from huggingface_masks_test import BOUND, SMALL, causal, models, tokens
from torch._dynamo.utils import counters
from torch_kit import assert_close
from transformers import masking_utils

# ---- Static caches ------------------------------------------------------------------------------

STATIC = {
    "doge": lambda: transformers.DogeConfig(**SMALL, num_key_value_heads=2),
    "bert_decoder": lambda: transformers.BertConfig(**SMALL, is_decoder=True),
    "bert": lambda: transformers.BertConfig(**SMALL),
    "phimoe": lambda: transformers.PhimoeConfig(
        **SMALL, num_key_value_heads=2, num_local_experts=4, sliding_window=5
    ),
}


@pytest.mark.parametrize("name", STATIC)
@pytest.mark.parametrize("padded", [False, True])
def test_static_caches(name, padded):
    kind = transformers.AutoModelForCausalLM
    torch.manual_seed(0)
    eager, ours = (
        kind.from_config(STATIC[name](), attn_implementation=x).eval() for x in ("eager", "fa3")
    )
    for p in eager.parameters():
        if p.dim() > 1:
            p.data.normal_(std=0.12)
    ours.load_state_dict(eager.state_dict())
    x = tokens()
    mask = torch.ones_like(x)
    if padded:
        mask[1, :4] = 0
    want, got = (
        m.generate(x, attention_mask=mask, max_new_tokens=5, do_sample=False, disable_compile=True,
                   cache_implementation="static", return_dict_in_generate=True, output_logits=True)
        for m in (eager, ours)
    )  # fmt: skip
    assert torch.equal(got.sequences, want.sequences)
    for a, b in zip(want.logits, got.logits, strict=True):
        assert_close(b, a, BOUND)


def test_compiled_steps_of_a_static_cache():
    """generate() compiles the step, with a mask that is made outside: one graph for all lengths."""
    config = transformers.LlamaConfig(**SMALL, num_key_value_heads=2)
    eager, ours = models(transformers.LlamaForCausalLM, config)
    x, mask = tokens(), torch.ones(2, 12, dtype=torch.long)
    mask[1, :4] = 0
    compiled = transformers.CompileConfig(fullgraph=True, backend="aot_eager", mode=None)
    compiled._compile_all_devices = True
    given = {"attention_mask": mask, "max_new_tokens": 6, "do_sample": False}
    torch._dynamo.reset()
    counters.clear()
    got = ours.generate(x, **given, cache_implementation="static", compile_config=compiled)
    assert counters["stats"]["unique_graphs"] == 1
    assert torch.equal(got, eager.generate(x, **given))


@pytest.mark.parametrize("window", [None, 4])
def test_steps_of_a_static_cache_read_nothing(window):
    """Their masks have one shape and are made on the device: the offset is a tensor."""
    kind = causal(window)
    padding = torch.ones(2, 9, dtype=torch.bool)
    padding[1, :7] = False
    with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True):
        offset = torch.zeros((), dtype=torch.int32)  # int() of it would raise
        fake = fa3.huggingface.build_mask(
            2, 1, 16, offset, mask_function=kind, attention_mask=padding, device="cpu"
        )
    assert fake.ids_kv.shape == (2, 16)
    made = fa3.huggingface.build_mask(
        2, 1, 16, torch.tensor(8), mask_function=kind, attention_mask=padding, device="cpu"
    )
    want = masking_utils.sdpa_mask(
        2, 1, 16, 8, mask_function=kind, attention_mask=padding, allow_is_causal_skip=False
    )
    assert torch.equal(made & True, want)


@torch.no_grad()
def test_what_attention_gets():
    """Lengths where the keys that count are a range: the ids of a step would keep it from the
    kernels of decode."""
    left = torch.ones(2, 9, dtype=torch.bool)
    left[1, :3] = False
    holes = left.clone()
    holes[1, 5] = False
    empty = left.clone()
    empty[0] = False

    def names(rows, padding=None, offset=None, kind=None, kv=9):
        mask = fa3.huggingface.build_mask(
            2, rows, kv, kv - rows if offset is None else offset, mask_function=kind,
            attention_mask=padding, device="cpu",
        )  # fmt: skip
        x = torch.zeros(2, 1, kv, 8)
        given, used = _of_mask(mask, x[:, :, :rows], x)
        return {key: x for key, x in given.items() if isinstance(x, torch.Tensor) or x}, used

    def lengths(given):
        return {key: x.tolist() for key, x in given.items() if isinstance(x, torch.Tensor)}

    def chunks(*begin):
        return masking_utils.chunked_causal_mask_function(4, torch.tensor(begin))

    window = masking_utils.sliding_window_causal_mask_function(3)
    both = masking_utils.bidirectional_mask_function
    assert names(9) == ({"causal": True}, 9)
    for rows in (9, 1):
        assert lengths(names(rows, left)[0]) == {"seqused_kv": [9, 6], "kv_begin": [0, 3]}
        assert lengths(names(rows, empty)[0]) == {"seqused_kv": [0, 6], "kv_begin": [9, 3]}
        assert set(lengths(names(rows, holes)[0])) == {"sequence_ids_q", "sequence_ids_kv"}
    assert lengths(names(9, left.flip(1), kind=both)[0]) == {"seqused_kv": [9, 6]}
    many = torch.ones(2, 99, dtype=torch.bool)
    many[1, :3] = False
    assert "sequence_ids_q" in names(99, many, kv=99)[0]
    assert "seqused_kv" in names(1, many, kv=99)[0]
    assert set(lengths(names(9, left.flip(1))[0])) == {"sequence_ids_q", "sequence_ids_kv"}
    given, _ = names(9, left, kind=window)
    assert given["window"] == (2, 0)
    assert "kv_begin" in given
    for padding in (None, left):
        given, used = names(1, padding, torch.tensor(6), window)  # of a static cache
        want = {"seqused_kv": [7, 7 if padding is None else 4]}
        assert lengths(given) == (want if padding is None else want | {"kv_begin": [0, 3]})
        assert (given["window"], used) == ((2, 0), 9)
    # The last key of the second is not where its query stands, from which a window counts.
    for offset in (torch.tensor(8), 8):
        assert "sequence_ids_q" in names(1, left.flip(1), offset, window)[0]
        assert lengths(names(1, left.flip(1), offset)[0]) == {"seqused_kv": [9, 6]}
    assert names(9, kind=chunks(0, 0)) == ({"causal": True, "attention_chunk": 4}, 9)
    given, _ = names(9, left, kind=chunks(0, 3))
    assert given["attention_chunk"] == 4
    assert "kv_begin" in given
    assert "sequence_ids_q" in names(9, left, kind=chunks(0, 0))[0]
    # Of a dynamic cache, whose first key is the 8th: the step's chunk is a window.
    mask = fa3.huggingface.build_mask(
        2, 1, 4, 9, 6, mask_function=chunks(0, 0), attention_mask=None, device="cpu"
    )
    assert mask.band == Band(causal=True, left=1)
    assert mask.in_full()[0, 0, 0].tolist() == [False, False, True, True]


@torch.no_grad()
@pytest.mark.parametrize("side", ["left", "right"])
def test_biases_count_from_the_first_key(side):
    """Not from where a sequence's keys begin, as columns of a mask do beside kv_begin."""
    padding = torch.ones(2, 9, dtype=torch.bool)
    padding[1, slice(0, 3) if side == "left" else slice(-3, None)] = False
    mask = fa3.huggingface.build_mask(
        2, 9, 9, mask_function=masking_utils.bidirectional_mask_function, attention_mask=padding,
        device="cpu",
    )  # fmt: skip
    assert mask.used is not None
    x, bias = torch.randn(2, 4, 9, 16), torch.randn(1, 4, 9, 9)
    got, _ = fa3.huggingface.attend(torch.nn.Module(), x, x, x, mask, position_bias=bias)
    seen = bias.masked_fill(~padding[:, None, None], -torch.inf)
    want = torch.nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=seen)
    assert_close(got, want.transpose(1, 2), BOUND)


def random_problem(rng):
    """Arguments of a mask function: steps and prompts behind caches of every kind, with padding
    anywhere, on either side or in between."""
    batch, rows = rng.choice([1, 2, 3]), rng.choice([1, 1, 1, 2, 5, 9, 70])
    kv_offset, past = rng.choice([0, 0, 1, 4]), rng.choice([0, 1, 4, 7, 12])
    q_offset, length = kv_offset + past, kv_offset + past + rows
    side = rng.choice(["none", "left", "right", "between", "anywhere"])
    padding = torch.ones(batch, length, dtype=torch.bool)
    for row in padding:
        k = rng.randint(0, length)
        if side == "anywhere":
            row[:] = torch.rand(length) < 0.5
        row[{"left": slice(0, k), "right": slice(k, None), "between": slice(1, k)}.get(
            side, slice(0, 0))] = False  # fmt: skip
    width, left = rng.choice([1, 2, 3, 5]), (padding.cumsum(-1) == 0).sum(-1)
    kind = rng.choice([
        masking_utils.causal_mask_function, masking_utils.bidirectional_mask_function,
        masking_utils.sliding_window_causal_mask_function(width),
        masking_utils.sliding_window_bidirectional_mask_function(width),
        masking_utils.chunked_causal_mask_function(width, left),
    ])  # fmt: skip
    return q_offset, {
        "batch_size": batch, "q_length": rows, "kv_length": past + rows + rng.choice([0, 0, 3]),
        "kv_offset": kv_offset, "mask_function": kind, "device": "cpu",
        "attention_mask": None if side == "none" else padding, "use_vmap": False,
        "allow_is_bidirectional_skip": False,
    }  # fmt: skip


def test_random_masks():
    """Bit by bit, and attention on them; offsets are numbers or, in static caches, tensors."""
    rng, module = random.Random(5), torch.nn.Module()
    of_ranges = 0
    for _ in range(400):
        q_offset, given = random_problem(rng)
        want = masking_utils.sdpa_mask(**given, q_offset=q_offset, allow_is_causal_skip=False)
        q_offset = torch.tensor(q_offset) if rng.random() < 0.5 else q_offset
        with torch.set_grad_enabled(rng.random() < 0.3):
            made = fa3.huggingface.build_mask(**given, q_offset=q_offset)
            assert torch.equal(made | False, want), (given, q_offset)
            x, y = (torch.randn(given["batch_size"], 2, n, 16) for n in want.shape[2:])
            got, _ = fa3.huggingface.attend(module, x, y, y, made)
        theirs = torch.nn.functional.scaled_dot_product_attention(x, y, y, attn_mask=want)
        assert_close(got, theirs.transpose(1, 2), BOUND)
        of_ranges += getattr(made, "used", None) is not None
    assert of_ranges > 50
