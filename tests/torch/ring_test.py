# SPDX-License-Identifier: BSD-3-Clause
"""ring_test.py — ring-flash-attn, unchanged, on fa3.compat in place of FlashAttention-2: sequences
over two processes give what one process gives. So does yunchang, where it is installed.

The processes talk over gloo and compute on the CPU backend. This file is also their program, which
writes for each process a JSON object with the errors of each form.
"""

import importlib.util
import json
import os
import subprocess
import sys

import pytest
import torch

WORLD = 2
LENGTHS = (24, 40, 16)  # of the sequences of the varlen forms; each a multiple of 2 · WORLD
HEADS, HEADS_KV, HEAD_DIM = 4, 2, 32
FORMS = [
    "ring full",
    "ring causal",
    "zigzag",
    "stripe",
    "ring varlen",
    "zigzag varlen",
    "llama3 varlen",
    "llama3 varlen full",
]
# Of LongContextAttention, with the two processes in a ring. With both in a Ulysses group the
# backward stops in yunchang/ring/utils.py at batch_isend_irecv: a ring of one process sends to
# itself, which gloo refuses.
YUNCHANG = ["yunchang basic", "yunchang zigzag", "yunchang strip"]


@pytest.fixture(scope="module")
def errors(tmp_path_factory):
    """For each process: form → name → the largest error, by the largest value of one process."""
    for needed in ("ring_flash_attn", "transformers"):
        if importlib.util.find_spec(needed) is None:
            pytest.skip(f"{needed} is not installed")
    folder = tmp_path_factory.mktemp("ring")
    done = subprocess.run(
        [sys.executable, __file__, folder], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(WORLD)]


@pytest.mark.parametrize("form", FORMS + YUNCHANG)
def test_two_processes_give_what_one_gives(errors, form):
    if form in YUNCHANG and importlib.util.find_spec("yunchang") is None:
        pytest.skip("yunchang is not installed")
    for of_process in errors:
        assert set(of_process[form]) == {"out", "lse", "dq", "dk", "dv"}
        for name, error in of_process[form].items():
            bound = 1e-5 if name == "lse" else 2e-3
            if name == "dq" and form in ("ring full", "ring causal", "ring varlen", YUNCHANG[0]):
                bound = 4e-3  # those two round dq to bfloat16, whatever q is
            assert error <= bound, f"{name}: error {error:.3g}, need at most {bound:.3g}"


# ---- The program of the processes ---------------------------------------------------------------


def places(form):
    """Tokens of each process, of `sum(LENGTHS)` in a row."""
    total = sum(LENGTHS)
    token = torch.arange(total)
    if form.startswith("llama3"):
        return token.chunk(WORLD)
    if form in ("stripe", "yunchang strip"):
        return [token[rank::WORLD] for rank in range(WORLD)]
    sequences = token.split(LENGTHS) if form.endswith("varlen") else [token]
    found = [[] for _ in range(WORLD)]
    for sequence in sequences:
        if "zigzag" in form:
            parts = sequence.chunk(2 * WORLD)
            pairs = [torch.cat([parts[r], parts[-1 - r]]) for r in range(WORLD)]
        else:
            pairs = sequence.chunk(WORLD)
        for mine, part in zip(found, pairs, strict=True):
            mine.append(part)
    return [torch.cat(mine) for mine in found]


def starts(lengths):
    return torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32)


def in_one(form, q, k, v):
    """out and lse (heads, tokens) of all tokens at once."""
    from flash_attn import flash_attn_func, flash_attn_varlen_func

    causal = not form.endswith("full")
    if "varlen" in form:
        cu, longest = starts(LENGTHS), max(LENGTHS)
        out, lse, _ = flash_attn_varlen_func(
            q, k, v, cu, cu, longest, longest, causal=causal, return_attn_probs=True
        )
        return out, lse
    out, lse, _ = flash_attn_func(
        q[None], k[None], v[None], causal=causal, return_attn_probs=True
    )
    return out[0], lse[0]


def spread(form, rank, q, k, v):
    """The same of this process's tokens, by ring-flash-attn."""
    import ring_flash_attn as ring

    options = {"causal": not form.endswith("full"), "return_attn_probs": True}
    if form in YUNCHANG:
        from yunchang import LongContextAttention
        from yunchang.kernels import AttnType

        layer = LongContextAttention(ring_impl_type=form.split()[1], attn_type=AttnType.FA)
        return layer(q[None], k[None], v[None], causal=True)[0], None
    if form.startswith("llama3"):
        cu_q, cu_k, longest_q, longest_k, mine = ring.llama3_flash_attn_prepare_cu_seqlens(
            starts(LENGTHS), options["causal"], rank, WORLD
        )
        return ring.llama3_flash_attn_varlen_func(
            q, k, v, cu_q, cu_k, longest_q, longest_k, heads_k_stride=1, local_k_slice=mine,
            **options,
        )[:2]  # fmt: skip
    if "varlen" in form:
        functions = {
            "ring varlen": ring.ring_flash_attn_varlen_func,
            "zigzag varlen": ring.zigzag_ring_flash_attn_varlen_func,
        }
        mine = [n // WORLD for n in LENGTHS]
        return functions[form](q, k, v, starts(mine), max(mine), **options)[:2]
    functions = {
        "ring full": ring.ring_flash_attn_func,
        "ring causal": ring.ring_flash_attn_func,
        "zigzag": ring.zigzag_ring_flash_attn_func,
        "stripe": ring.stripe_flash_attn_func,
    }
    out, lse, _ = functions[form](q[None], k[None], v[None], **options)
    return out[0], lse[0]


def compare(form, rank):
    """Errors of this process's out, lse, dq, dk and dv. In 16 bits, as FlashAttention takes them:
    with others ring-flash-attn adds gradients up in a buffer that the next step writes to."""
    torch.manual_seed(7)
    heads_kv = HEADS if form in YUNCHANG else HEADS_KV
    total = sum(LENGTHS)
    whole = [torch.randn(total, h, HEAD_DIM) for h in (HEADS, heads_kv, heads_kv)]
    whole = [x.half().requires_grad_() for x in whole]
    dout = torch.randn(total, HEADS, HEAD_DIM).half()
    want, want_lse = in_one(form, *whole)
    wanted = torch.autograd.grad(want, whole, dout)
    mine = places(form)[rank]
    parts = [x.detach()[mine].requires_grad_() for x in whole]
    out, lse = spread(form, rank, *parts)
    found = torch.autograd.grad(out, parts, dout[mine])
    want_lse = want_lse[:, mine]
    pairs = {"out": (out, want[mine]), "lse": (want_lse if lse is None else lse, want_lse)}
    pairs |= {f"d{n}": (a, b[mine]) for n, a, b in zip("qkv", found, wanted, strict=True)}
    assert all(a.shape == b.shape for a, b in pairs.values())
    return {
        n: (a.float() - b.float()).abs().max().item() / max(1, b.abs().max().item())
        for n, (a, b) in pairs.items()
    }


def work(rank, folder):
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=WORLD
    )
    forms = FORMS
    if importlib.util.find_spec("yunchang"):
        from yunchang import set_seq_parallel_pg

        set_seq_parallel_pg(1, WORLD, rank, WORLD)
        forms = FORMS + YUNCHANG
    found = {form: compare(form, rank) for form in forms}
    with open(os.path.join(folder, f"{rank}.json"), "w") as file:
        json.dump(found, file)
    torch.distributed.destroy_process_group()


def main(folder):
    import fa3.compat
    import transformers.modeling_flash_attention_utils as of_transformers
    import transformers.utils.import_utils as is_there

    fa3.compat.install("flash_attn")
    # ring-flash-attn imports it from where older versions of transformers had it.
    name = "is_flash_attn_greater_or_equal_2_10"
    setattr(of_transformers, name, getattr(is_there, name, None))
    import ring_flash_attn  # noqa: F401  here, so that the processes need not

    torch.multiprocessing.start_processes(work, (folder,), WORLD, start_method="fork")


if __name__ == "__main__":
    main(sys.argv[1])
