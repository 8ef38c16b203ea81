# SPDX-License-Identifier: BSD-3-Clause
"""plan_test.py — fa3.Plan, fa3.explain, fa3.supported."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import fa3
import numpy as np
import pytest
from attention_test import qkv


def test_of_specs(rng):
    q, k, v = qkv(rng, "bfloat16")
    specs = [fa3.Spec(x.shape, "bfloat16") for x in (q, k, v)]
    plan = fa3.Plan(fa3.attention, *specs, causal=True, softcap=2.0, return_lse=True)
    out, lse = plan.run(q, k, v)
    want, want_lse = fa3.attention(q, k, v, causal=True, softcap=2.0, return_lse=True)
    assert (out == want).all() and (lse == want_lse).all()


def test_of_a_backward_and_of_quantize(rng):
    q, k, v = qkv(rng)
    out, lse = fa3.attention(q, k, v, return_lse=True)
    plan = fa3.Plan(fa3.attention_backward, out, q, k, v, out, lse)
    want = fa3.attention_backward(out, q, k, v, out, lse)
    assert all((a == b).all() for a, b in zip(plan.run(out, q, k, v, out, lse), want, strict=True))
    plan = fa3.Plan(fa3.quantize, k, "int8", offset=True)
    assert (plan.run(k, "int8").codes == fa3.quantize(k, "int8", offset=True).codes).all()


def test_tuples_of_arrays_are_given_to_each_run(rng):
    x = rng.standard_normal((1, 5, 1, 32), np.float32)
    angle = rng.standard_normal((5, 8), np.float32)
    tables, other = (np.cos(angle), np.sin(angle)), (np.cos(2 * angle), np.sin(2 * angle))
    plan = fa3.Plan(fa3.quantize, x, "int8", rotary=tables)
    got = plan.run(x, "int8", rotary=other)
    assert (got.codes == fa3.quantize(x, "int8", rotary=other).codes).all()
    with pytest.raises(ValueError, match="rotary_dim=0"):
        plan.run(x, "int8")


def test_arrays_by_name(rng):
    q, k, v = qkv(rng)
    used = np.array([5, 9], np.int32)
    plan = fa3.Plan(fa3.attention, q, k, v, seqused_kv=used)
    out = np.empty((2, 33, 4, 24), np.float32)
    assert plan.run(q, k, v, seqused_kv=used[::-1].copy(), out=out) is out
    assert (out == fa3.attention(q, k, v, seqused_kv=used[::-1].copy())).all()
    with pytest.raises(ValueError, match="seqused_kv"):
        plan.run(q, k, v)


def test_arrays_by_name_alone(rng):
    q, k, v = qkv(rng)
    plan = fa3.Plan(fa3.attention, q=q, k=k, v=v)
    assert (plan.run(q=q, k=k, v=v) == fa3.attention(q, k, v)).all()
    codes = [fa3.quantize(x) for x in (q, k, v)]
    assert (fa3.Plan(fa3.attention, *codes).run(*codes) == fa3.attention(*codes)).all()
    with pytest.raises(TypeError, match="missing 3 required"):
        plan.run()


def test_by_many_threads(rng):
    plan = fa3.Plan(fa3.attention, *qkv(rng), context=fa3.Context(num_threads=1))
    problems = [qkv(np.random.default_rng(i)) for i in range(24)]
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda p: plan.run(*p), problems))
    for problem, result in zip(problems, results, strict=True):
        assert (result == fa3.attention(*problem)).all()


def test_workspace_of_the_caller(rng):
    q, k, v = qkv(rng)
    plan = fa3.Plan(fa3.attention, q, k, v)
    workspace = np.empty(plan.workspace_bytes + 100, np.uint8)
    assert (plan.run(q, k, v, workspace=workspace) == fa3.attention(q, k, v)).all()


def test_explain():
    spec = fa3.Spec((1, 4096, 16, 128), "bfloat16")
    told = fa3.explain(fa3.attention, spec, spec, spec, causal=True)
    assert told["backend"] == "cpu" and told["problem"]["mask"] == "causal"
    assert told["problem"]["dtype"] == "bf16"
    told = fa3.explain(fa3.attention_backward, spec, spec, spec, spec, spec,
                       fa3.Spec((1, 16, 4096), "float32"))  # fmt: skip
    assert told["op"] == "backward"


def test_supported():
    spec = fa3.Spec((1, 64, 4, 64), "float32")
    yes = fa3.supported(fa3.attention, spec, spec, spec)
    assert yes and yes.supported and "cpu" in yes.reason
    no = fa3.supported(fa3.attention, spec, spec, spec, precision="fp8")
    assert not no and no.reason.startswith('attention: precision="fp8"')
    nowhere = fa3.Spec((1, 64, 4, 64), "bfloat16", device="cuda:97")
    answer = fa3.supported(fa3.attention, nowhere, nowhere, nowhere)
    assert not answer and "cuda" in answer.reason
    wide = fa3.Spec((1, 64, 4, 600), "float32")
    assert not fa3.supported(fa3.attention, wide, wide, wide)


def test_spec():
    spec = fa3.Spec((2, 3), "float8_e4m3fn", device="cuda:1")
    assert (spec.shape, spec.dtype, spec.device, spec.ndim) == (
        (2, 3),
        "float8_e4m3fn",
        "cuda:1",
        2,
    )
    assert spec == pickle.loads(pickle.dumps(spec)) == copy.deepcopy(spec)
    assert spec != fa3.Spec((2, 3), "float8_e4m3fn") and spec != "float8_e4m3fn"
    assert len({spec, copy.copy(spec), fa3.Spec((2, 3)), fa3.Spec((2, 3), strides=(3, 1))}) == 3
    assert hash(spec) == hash(pickle.loads(pickle.dumps(spec)))
    assert fa3.Spec((2, 3), strides=(6, 1)).strides == (6, 1) and spec.strides is None
    assert repr(spec) == 'fa3.Spec((2, 3), "float8_e4m3fn", device="cuda:1")'
