# SPDX-License-Identifier: BSD-3-Clause
"""process_test.py — threads, fork, spawn, imports: the package in a process."""

import multiprocessing
import os
import subprocess
import sys
import threading
import time

import fa3
import numpy as np
import pytest
from attention_test import qkv


def test_the_lock_is_released():
    """Other threads run meanwhile: in a call or two of many, since the machine may be busy."""
    x = np.ones((1, 3000, 8, 64), np.float32)
    ticks, done, most = [], threading.Event(), 0

    def tick():
        while not done.is_set():
            ticks.append(time.monotonic())
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    for _ in range(50):
        began = time.monotonic()
        fa3.attention(x, x, x)
        ended = time.monotonic()
        most = max(most, sum(began < t < ended for t in ticks))
        if most >= 3:
            break
    done.set()
    thread.join()
    assert most >= 3


def test_many_threads_share_a_context(rng):
    q, k, v = qkv(rng)
    want = fa3.attention(q, k, v)
    wrong = []

    def work():
        for _ in range(20):
            if not (fa3.attention(q, k, v) == want).all():
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def in_child(pipe, context, q, k, v):
    try:
        pipe.send(fa3.attention(q, k, v, context=context))
    except Exception as error:
        pipe.send(error)


def result_of_child(method, context, arrays):
    spawn = multiprocessing.get_context(method)
    mine, its = spawn.Pipe()
    child = spawn.Process(target=in_child, args=(its, context, *arrays))
    child.start()
    try:
        assert mine.poll(60), "the child hangs"
        return mine.recv()
    finally:
        child.kill()
        child.join()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_children_get_their_own(rng, method):
    arrays = qkv(rng, rows=300, keys=300)
    want = fa3.attention(*arrays)  # so that the parent has a context, and threads
    assert (result_of_child(method, None, arrays) == want).all()
    assert (fa3.attention(*arrays) == want).all()


def test_a_context_of_the_parent_is_refused(rng):
    error = result_of_child("fork", fa3.Context(), qkv(rng))
    assert isinstance(error, RuntimeError) and "made before fork()" in str(error)


def run(code, **environment):
    folder = os.path.dirname(os.path.dirname(fa3.__file__))
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": folder, **environment},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_brings_no_torch():
    code = "import fa3, sys; assert 'torch' not in sys.modules; print(fa3.__version__)"
    assert run(code).strip() == fa3.__version__


def test_works_without_numpy():
    code = """
import sys
sys.modules["numpy"] = sys.modules["ml_dtypes"] = None  # importing them fails
import fa3
spec = fa3.Spec((1, 8, 2, 16))
print(fa3.Plan(fa3.attention, spec, spec, spec).workspace_bytes)
"""
    assert int(run(code)) > 0


def test_fp8_without_ml_dtypes():
    code = """
import sys
sys.modules["ml_dtypes"] = None
import fa3, numpy
x = numpy.ones((1, 8, 2, 16), numpy.float16)
codes = fa3.quantize(x)
assert codes.codes.dtype == numpy.uint8
out = fa3.attention(codes, codes, codes, dtype="float8_e4m3fn")
assert abs(out - 1).max() < 1e-6
try:
    fa3.attention(x, x, x, out_dtype="bfloat16")
except TypeError as error:
    print(error)
"""
    assert "pip install ml_dtypes" in run(code)


def test_the_environment_counts():
    code = "import fa3; print(fa3.Context().info()['num_threads'])"
    assert run(code, FA3_NUM_THREADS="1").strip() == "1"


def test_build_info():
    info = fa3.build_info()
    assert info["version"] == fa3.__version__
