#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""lesser_isa.py ISA FA3 TESTS: the cpu tier's extremes under an instruction set that this processor
has and would not choose. Exit status 77: it has not, or chooses it, and then all tests use it."""

import json
import os
import subprocess
import sys

SKIPPED = 77
# Shapes, strides, zero sizes and huge values; NaN and Inf; slopes and ids; every 16-bit value.
TERMS = "*CpuTerms.Slopes*:*CpuTerms.Ids*:*CpuTerms.Layouts*:*CpuTerms.Decode*"
SLICE = f"*CpuShapes*:*CpuNan*:{TERMS}:*CpuConversions*:*CpuGradients*"


def instruction_set(fa3, asked=None):
    """What a context takes, or None where `asked` is refused."""
    environment = {k: v for k, v in os.environ.items() if k != "FA3_SIMD"}
    if asked:
        environment["FA3_SIMD"] = asked
    done = subprocess.run(
        [fa3, "info", "--json"], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        if asked and "is not offered" in done.stdout + done.stderr:
            return None
        sys.exit(f"fa3 info: {done.stderr}")
    devices = json.loads(done.stdout)
    return next(v for v in find(devices, "instruction_set") if v)


def find(value, key):
    if isinstance(value, dict):
        for k, v in value.items():
            if k == key:
                yield v
            yield from find(v, key)
    elif isinstance(value, list):
        for v in value:
            yield from find(v, key)


def main():
    isa, fa3, tests = sys.argv[1:]
    best = instruction_set(fa3)
    if isa == best or instruction_set(fa3, isa) is None:
        print(f"{isa}: {'chosen by' if isa == best else 'not offered on'} this processor")
        sys.exit(SKIPPED)
    os.environ["FA3_SIMD"] = isa
    os.execv(tests, [tests, f"--gtest_filter={SLICE}"])


if __name__ == "__main__":
    main()
