#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""python_calls.py — what a call from Python costs: microseconds, on a problem of one query.

    bench/python_calls.py [--lib libfa3.so] [--commit COMMIT]

Prints JSON lines, a cell for each way to call: the C function through ctypes, and what ctypes costs
by itself; fa3.attention on arrays of NumPy; and where PyTorch is there, its tensors by
fa3.attention, fa3.torch and scaled_dot_product_attention, with and without gradients, on the CPU
and on a GPU, there the time until the work is on the stream. The ways take turns; a figure is a
median of turns.
"""

import argparse
import ctypes
import json
import pathlib
import platform
import statistics
import sys
import time

import fa3

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import machine  # noqa: E402

TURNS = 15


def c_calls(path):
    """fa3_forward and a function that does nothing, through ctypes."""
    import fa3_ctypes
    import numpy

    library = fa3_ctypes.Library(path)
    context = fa3_ctypes.Context(library)
    x, out = numpy.zeros((1, 1, 1, 8), numpy.float32), numpy.zeros((1, 1, 1, 8), numpy.float32)
    args = fa3_ctypes.forward_args()
    for name in ("q", "k", "v", "o"):
        data = (out if name == "o" else x).ctypes.data
        one = (ctypes.c_int64 * 5)(1, 1, 1, 8)
        strides = (ctypes.c_int64 * 5)(8, 8, 8, 1)
        setattr(args, name, fa3_ctypes.Tensor(data, 1, 4, one, strides))
    call, nothing = library.c.fa3_forward, library.c.fa3_version
    handle, pointer = context.handle, ctypes.byref(args)
    if call(handle, pointer, None) != 0:
        raise RuntimeError(library.c.fa3_last_error().decode())
    keep = (context, x, out)
    return {
        "C, through ctypes": lambda: call(handle, pointer, None),
        "ctypes alone": lambda: nothing() and keep and None,
    }


def numpy_calls():
    import numpy

    x, out = numpy.zeros((1, 1, 1, 8), numpy.float32), numpy.zeros((1, 1, 1, 8), numpy.float32)
    plan = fa3.Plan(fa3.attention, x, x, x)
    return {
        "NumPy: fa3.attention": lambda: fa3.attention(x, x, x),
        "NumPy: fa3.attention, out": lambda: fa3.attention(x, x, x, out=out),
        "NumPy: fa3.Plan.run": lambda: plan.run(x, x, x),
    }


def torch_calls(device):
    import torch

    import fa3.torch

    sdpa, ours = torch.nn.functional.scaled_dot_product_attention, fa3.torch.attention
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    x = torch.zeros(1, 64, 1, 64, dtype=dtype, device=device)
    if device == "cpu":
        x = x[:, :1, :, :8].contiguous()
    y = x.clone().requires_grad_()

    def step(attend):
        y.grad = None
        attend(y, y, y).sum().backward()

    return {
        f"PyTorch, {device}: fa3.attention": lambda: fa3.attention(x, x, x),
        f"PyTorch, {device}: fa3.torch": lambda: ours(x, x, x),
        f"PyTorch, {device}: SDPA": lambda: sdpa(x, x, x),
        f"PyTorch, {device}: fa3.torch, recorded": lambda: ours(y, y, y),
        f"PyTorch, {device}: SDPA, recorded": lambda: sdpa(y, y, y),
        f"PyTorch, {device}: fa3.torch, forward and backward": lambda: step(ours),
        f"PyTorch, {device}: SDPA, forward and backward": lambda: step(sdpa),
    }


def measure(call, seconds, wait):
    """Microseconds a call, over `seconds`."""
    count, began = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - began) < seconds:
        for _ in range(100):
            call()
        count += 100
    wait()
    return elapsed / count * 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--lib", help="libfa3.so, for the C function")
    parser.add_argument("--commit", default="unknown", help="that the library was built from")
    parser.add_argument("--seconds", type=float, default=0.03, help="of a turn (0.03)")
    options = parser.parse_args()
    calls = (c_calls(options.lib) if options.lib else {}) | numpy_calls()
    device, versions, wait = fa3.Context().info()["name"], {}, lambda: None
    try:
        import torch

        versions["torch"] = torch.__version__
        calls |= torch_calls("cpu")
        if torch.cuda.is_available():
            calls |= torch_calls("cuda")
            device, wait = torch.cuda.get_device_name(), torch.cuda.synchronize
    except ImportError:
        pass
    meta = machine.gpu_meta("python-calls", device, fa3.__version__, options.commit)
    meta |= {"python": platform.python_version(), "cpu": fa3.Context().info()["name"], **versions}
    print(json.dumps(meta))
    turns = {name: [] for name in calls}
    for turn in range(TURNS + 1):  # the first one warms up
        for name, call in calls.items():
            took = measure(call, options.seconds, wait)
            if turn > 0:
                turns[name].append(took)
    for name, taken in turns.items():
        us = round(statistics.median(taken), 2)
        print(json.dumps({"kind": "cell", "cell": name, "us": us, "turns": TURNS}))


if __name__ == "__main__":
    main()
