#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""gpt.py — quality end to end: small GPTs trained on Python's standard library, with attention of
fa3 and of PyTorch, and how well they predict other files of it when attention computes in 8 bits.

    PYTHONPATH=build/release/python bench/gpt.py --out FILE             a Hopper GPU, with PyTorch
    PYTHONPATH=build/release/python bench/gpt.py --tiny --text bench    a CPU, in two minutes

For each head dim and seed, training with each attention from the same weights on the same batches;
then the loss on the validation files with attention in BF16 and in each kind of 8 bits. Prints JSON
lines, as they are known: `run` has a training's loss, `cell` a method's loss on the validation
files. bench/gpt_report.py makes table and picture of them.
"""

import argparse
import contextlib
import hashlib
import json
import math
import pathlib
import platform
import re
import sys
import sysconfig
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import fa3
import fa3.torch
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import cross_entropy, gelu, layer_norm, linear
from torch.nn.functional import scaled_dot_product_attention as sdpa

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import machine  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
E4M3 = torch.float8_e4m3fn
# Trainings: head dim and attentions; a second time the same shows what a repetition changes.
RUNS = "128:fa3,cudnn,fa2,fa2 64:fa3,cudnn,fa2,fa2 256:fa3"
BLOCKS = (256, 128, 64)  # columns that share a scale
EVERY = 10  # steps whose mean loss is written


class Size(NamedTuple):
    layers: int = 6
    width: int = 512
    context: int = 1024
    batch: int = 32
    vocabulary: int = 4096
    validation: int = 512  # windows of `context` tokens, at most


TINY = Size(layers=1, width=128, context=64, batch=2, vocabulary=512, validation=2)


# ---- Text ---------------------------------------------------------------------------------------


def read_text(folder):
    """(training, validation) and what they are: files in the order of their paths; one in sixteen,
    by a hash of its path, is for validation. A zero byte follows each file."""
    skipped = {"site-packages", "dist-packages", "__pycache__"}
    parts, digest, count = ([], []), hashlib.sha256(), 0
    for path in sorted(folder.rglob("*.py"), key=lambda p: p.relative_to(folder).as_posix()):
        name = path.relative_to(folder)
        if skipped & set(name.parts):
            continue
        content = path.read_bytes()
        digest.update(name.as_posix().encode() + b"\0" + content + b"\0")
        of = hashlib.sha256(name.as_posix().encode()).digest()[0] % 16 == 0
        parts[of].append(content)
        count += 1
    if not parts[0] or not parts[1]:
        raise SystemExit(f"gpt: {folder}: {count} files of Python, need some more; see --text")
    texts = [b"".join(x + b"\0" for x in part).decode("latin-1") for part in parts]
    about = {"files": count, "training_bytes": len(texts[0]), "validation_bytes": len(texts[1])}
    return *texts, about | {"sha256": digest.hexdigest()}


PIECES = re.compile(r" ?[A-Za-z_]+|\n+ *| +|[0-9]|[^A-Za-z_0-9\s]+|.", re.DOTALL)


class Tokeniser:
    """Tokens are the 256 bytes and the most frequent pieces of the training text: words with the
    blank before them, indentations, runs of signs. Other pieces are bytes."""

    def __init__(self, text, vocabulary):
        counts = Counter(PIECES.findall(text))
        pieces = sorted((p for p in counts if len(p) > 1), key=lambda p: (-counts[p], p))
        self.ids = {chr(i): [i] for i in range(256)}
        self.ids |= {p: [256 + i] for i, p in enumerate(pieces[: vocabulary - 256])}

    def encode(self, text):
        ids, tokens = dict(self.ids), []
        for piece in PIECES.findall(text):
            known = ids.get(piece)
            if known is None:
                known = ids[piece] = list(piece.encode("latin-1"))
            tokens += known
        return torch.tensor(tokens)


# ---- Model --------------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, width, heads, layers):
        super().__init__()
        self.heads = heads
        self.norm = nn.Parameter(torch.ones(2, width))
        self.qkv = nn.Parameter(torch.randn(3 * width, width) * 0.02)
        self.out = nn.Parameter(torch.randn(width, width) * 0.02 / math.sqrt(2 * layers))
        self.up = nn.Parameter(torch.randn(4 * width, width) * 0.02)
        self.down = nn.Parameter(torch.randn(width, 4 * width) * 0.02 / math.sqrt(2 * layers))

    def forward(self, x, attend):
        width = x.shape[-1]
        qkv = linear(layer_norm(x, (width,), self.norm[0]), self.qkv)
        heads = attend(qkv.view(*x.shape[:2], 3, self.heads, width // self.heads))
        x = x + linear(heads.reshape(x.shape), self.out)
        return x + linear(gelu(linear(layer_norm(x, (width,), self.norm[1]), self.up)), self.down)


class Gpt(nn.Module):
    """Learned positions, norms before, no biases, the embedding again as the last layer."""

    def __init__(self, size, head_dim):
        super().__init__()
        self.embedding = nn.Parameter(torch.randn(size.vocabulary, size.width) * 0.02)
        self.position = nn.Parameter(torch.randn(size.context, size.width) * 0.02)
        self.norm = nn.Parameter(torch.ones(size.width))
        heads = size.width // head_dim
        self.blocks = nn.ModuleList(
            Block(size.width, heads, size.layers) for _ in range(size.layers)
        )

    def forward(self, tokens, attend):
        """Loss of each token but the first of a window."""
        x = self.embedding[tokens[:, :-1]] + self.position[: tokens.shape[1] - 1]
        for block in self.blocks:
            x = block(x, attend)
        logits = linear(layer_norm(x, (x.shape[-1],), self.norm), self.embedding)
        return cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())


# ---- Attention: functions of (batch, seqlen, 3, heads, head_dim) --------------------------------


def by_fa3(qkv):
    return fa3.torch.attention_qkvpacked(qkv, causal=True)


def by_pytorch(qkv):
    q, k, v = qkv.transpose(1, 3).unbind(2)
    return sdpa(q, k, v, is_causal=True).transpose(1, 2)


# What trains: the function, and the backend of PyTorch that it is bound to.
ATTENTIONS = {
    "fa3": (by_fa3, None),
    "fa2": (by_pytorch, SDPBackend.FLASH_ATTENTION),
    "cudnn": (by_pytorch, SDPBackend.CUDNN_ATTENTION),
}


def bound_to(backend):
    return contextlib.nullcontext() if backend is None else sdpa_kernel(backend)


def one_scale(x):
    """E4M3 codes with one scale for the whole tensor."""
    scale = (x.abs().amax().float() / 448).reshape(1)
    return fa3.Quantized((x.float() / scale).to(E4M3), scale, None, (0, 0))


def in_blocks(columns):
    """E4M3 codes with a scale for each row and `columns` columns of a head."""
    return lambda x: fa3.quantize(x, block=(1, columns if columns < x.shape[-1] else 0))


class Method(NamedTuple):
    """How attention is computed in validation: by fa3 of what `arguments` makes of qkv, or by a
    backend of PyTorch."""

    name: str
    arguments: Callable | None = None  # (q, k, v) and keywords of fa3.attention
    backend: SDPBackend | None = None

    def __call__(self, qkv):
        if self.backend is not None:
            return by_pytorch(qkv)
        arrays, how = self.arguments(qkv)
        return fa3.attention(*arrays, causal=True, **how)

    def row(self, qkv):
        """Of fa3's table, compiled here if it is not there yet."""
        if self.backend is not None:
            return None
        self(qkv)
        arrays, how = self.arguments(qkv)
        return fa3.explain(fa3.attention, *arrays, causal=True, **how)["sm90"]["row"]


def quantised(quantise):
    return lambda qkv: (tuple(map(quantise, qkv.unbind(2))), {})


def in_precision(name):
    return lambda qkv: (qkv.unbind(2), {"precision": name})


def methods(head_dim, device):
    yield Method("bf16_fa3", in_precision("default"))
    for name, (_, backend) in ATTENTIONS.items():
        if backend is not None and (device == "cuda" or name != "cudnn"):
            yield Method(f"bf16_{name}", None, backend)
    yield Method("e4m3_tensor", quantised(one_scale))
    yield Method("e4m3_head", quantised(fa3.quantize))
    for columns in BLOCKS:
        if columns <= head_dim:
            yield Method(f"e4m3_block{columns}", quantised(in_blocks(columns)))
    for name in ("fp8", "eight_bit", "eight_bit_accurate"):
        yield Method(name, in_precision(name))


# ---- Training and validation --------------------------------------------------------------------


class Bench:
    def __init__(self, size, text, device, out):
        self.size, self.device, self.out = size, device, out
        training, validation, self.about_text = read_text(text)
        tokeniser = Tokeniser(training, size.vocabulary)
        self.training = tokeniser.encode(training).to(device)
        windows = tokeniser.encode(validation)
        self.bytes_per_token = len(validation) / len(windows)
        count = min((len(windows) - 1) // size.context, size.validation)
        self.windows = torch.stack(
            [windows[i * size.context :][: size.context + 1] for i in range(count)]
        ).to(device)
        self.about_text["training_tokens"] = len(self.training)
        self.about_text["validation_tokens"] = count * size.context
        self.about_text["bytes_per_token"] = round(self.bytes_per_token, 4)

    def emit(self, **line):
        print(json.dumps(line), file=self.out, flush=True)

    def autocast(self):
        return torch.autocast(self.device, torch.bfloat16)

    def wait(self):
        if self.device == "cuda":
            torch.cuda.synchronize()

    def model(self, head_dim, seed):
        torch.manual_seed(seed)
        return Gpt(self.size, head_dim).to(self.device)

    def batches(self, seed, steps):
        """Windows at random places, one batch after the other; the same for every attention."""
        random = torch.Generator().manual_seed(1000 + seed)
        last = len(self.training) - self.size.context - 1
        starts = torch.randint(last, (steps, self.size.batch), generator=random).to(self.device)
        within = torch.arange(self.size.context + 1, device=self.device)
        for of in starts:
            yield self.training[of[:, None] + within]

    def train(self, model, attention, seed, steps):
        """Losses of all steps, seconds. AdamW, a cosine after a warm-up."""
        attend, backend = ATTENTIONS[attention]
        matrices = [p for p in model.parameters() if p.dim() > 1 and len(p) > 2]
        others = [p for p in model.parameters() if not (p.dim() > 1 and len(p) > 2)]
        groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0}]
        adam = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95), fused=True)
        rise = max(1, min(100, steps // 10))
        rate = torch.optim.lr_scheduler.LambdaLR(
            adam,
            lambda i: min((i + 1) / rise, 0.55 + 0.45 * math.cos(math.pi * min(1, i / steps))),
        )
        losses = []
        self.wait()
        began = time.perf_counter()
        with bound_to(backend):
            for tokens in self.batches(seed, steps):
                with self.autocast():
                    loss = model(tokens, attend)
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                adam.step()
                adam.zero_grad()
                rate.step()
                losses.append(loss.detach())
        self.wait()
        return torch.stack(losses).tolist(), time.perf_counter() - began

    @torch.no_grad()
    def validate(self, model, method):
        """Mean loss of a token of the validation files."""
        total = 0.0
        with bound_to(method.backend), self.autocast():
            for windows in self.windows.split(2 * self.size.batch):
                total += model(windows, method).item() * len(windows)
        return total / len(self.windows)

    def cells(self, model, head_dim, about):
        for method in methods(head_dim, self.device):
            line = {"kind": "cell", "cell": f"{about['run']}_{method.name}", **about}
            line |= {"method": method.name}
            try:
                loss = self.validate(model, method)
            except (RuntimeError, NotImplementedError, ValueError) as error:
                self.emit(**line, note=str(error).split("\n")[0])
                continue
            self.emit(
                **line,
                loss=round(loss, 6),
                perplexity=round(math.exp(loss), 5),
                bits_per_byte=round(loss / math.log(2) / self.bytes_per_token, 5),
            )

    def rows(self, plan):
        """What fa3 runs in validation, by head dim and method; kernels are compiled at once."""

        def row(head_dim, method):
            shape = (2 * self.size.batch, self.size.context, 3, self.size.width // head_dim)
            return method.row(torch.randn(*shape, head_dim, device="cuda").bfloat16())

        rows = {}
        with ThreadPoolExecutor(16) as pool:
            for head_dim, _ in plan:
                for method in methods(head_dim, self.device):
                    rows[head_dim, method.name] = pool.submit(row, head_dim, method)
        return {f"d{d}_{name}": x.result() for (d, name), x in rows.items() if x.result()}

    def step_seconds(self, plan):
        """Of a step of all trainings of a seed, each after a few that find their kernels."""
        took = 0.0
        for head_dim, names in plan:
            for name in names:
                model = self.model(head_dim, 0)
                self.train(model, name, 0, 3)
                took += self.train(model, name, 0, 10)[1] / 10
        return took


def as_plan(text):
    """(head dim, attentions) of each."""
    plan = []
    for part in text.split():
        head_dim, _, names = part.partition(":")
        plan.append((int(head_dim), names.split(",")))
    return plan


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--runs", type=as_plan, default=as_plan(RUNS), help=f"[{RUNS}]")
    parser.add_argument("--seeds", type=int, default=3, help="how many [3]")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--no-validation", action="store_true", help="train only")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--budget", type=float, help="seconds for all trainings: sets --steps")
    parser.add_argument("--text", type=pathlib.Path, help="folder [Python's standard library]")
    parser.add_argument("--out", help="file to append to [standard output]")
    parser.add_argument("--commit", help="of the library [the commit of this tree or bundle]")
    parser.add_argument("--tiny", action="store_true", help="small model, few steps: a trial")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    text = options.text or pathlib.Path(sysconfig.get_path("stdlib"))
    out = open(options.out, "a") if options.out else sys.stdout
    size, seeds, steps = Size(), options.seeds, options.steps
    if options.tiny:
        size, seeds, steps = TINY, min(seeds, 2), min(steps, 20)
    plan = [(d, names) for d, names in options.runs if d <= size.width]
    torch.set_float32_matmul_precision("high")
    bench = Bench(size, text, device, out)
    if device == "cpu":
        plan = [(d, [name for name in names if name != "cudnn"]) for d, names in plan]
    on_gpu = device == "cuda"
    rows = bench.rows(plan) if on_gpu and not options.no_validation else {}
    if options.budget:
        each = seeds * bench.step_seconds(plan)
        steps = max(20, int(options.budget / each) // EVERY * EVERY)
    name = torch.cuda.get_device_name() if on_gpu else fa3.Context().info()["name"]
    commit = options.commit or machine.commit(ROOT)
    meta = machine.gpu_meta("gpt", name, fa3.__version__, commit)
    meta |= {"torch": torch.__version__, "python": platform.python_version()}
    meta |= {"cudnn": torch.backends.cudnn.version() if on_gpu else None}
    meta |= {"model": size._asdict(), "steps": steps}
    weights = sum(p.numel() for p in bench.model(64, 0).parameters())
    bench.emit(**meta, weights=weights, text=bench.about_text, rows=rows)
    for seed in range(options.first_seed, options.first_seed + seeds):
        for head_dim, names in plan:
            for i, name in enumerate(names):
                again = names[:i].count(name)
                run = f"d{head_dim}_{name}{f'_again{again}' * bool(again)}_seed{seed}"
                about = {"run": run, "head_dim": head_dim, "attention": name, "again": again}
                about["seed"] = seed
                model = bench.model(head_dim, seed)
                losses, seconds = bench.train(model, name, seed, steps)
                means = torch.tensor(losses).split(EVERY)
                bench.emit(
                    kind="run",
                    **about,
                    seconds=round(seconds, 2),
                    tokens=steps * size.batch * size.context,
                    every=EVERY,
                    loss=[round(x.mean().item(), 5) for x in means],
                )
                if not options.no_validation:
                    bench.cells(model, head_dim, about)


if __name__ == "__main__":
    main()
