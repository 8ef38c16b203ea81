#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""example_gpu_test.py — examples/gpu.cpp and decode.c on the fake driver, and where there is no
Hopper GPU."""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

WRONG, NO_GPU = 1, 4
OPTIONS = argparse.Namespace()


class OnFakeGpu(unittest.TestCase):
    def run_program(self, program, driver=True, **variables):
        with tempfile.TemporaryDirectory() as folder:
            if driver:
                fake = OPTIONS.fakes / "fa3_fake_driver.so"
                pathlib.Path(folder, "libcuda.so.1").symlink_to(fake.resolve())
            keep = {k: v for k, v in os.environ.items() if k.endswith("SAN_OPTIONS")}
            environment = {
                **keep,
                "LD_LIBRARY_PATH": folder,
                "FA3_CACHE_DIR": f"{folder}/cache",
                "FA3_NVRTC": str(OPTIONS.fakes / "fa3_fake_nvrtc.so"),
                "FAKE_CUDA_FORWARD": "attention",
                **variables,
            }
            return subprocess.run(
                [program], env=environment, capture_output=True, text=True, timeout=60
            )


class ExampleGpu(OnFakeGpu):
    def run_example(self, **variables):
        return self.run_program(OPTIONS.example, **variables)

    def expect(self, done, status, says):
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        self.assertIn(says, done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)

    def test_runs_and_replays_a_graph(self):
        done = self.run_example()
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout + done.stderr)
        self.assertIn("on Fake H200", done.stdout)
        self.assertEqual(done.stdout.count("on new queries"), 3)
        self.assertEqual(done.stdout.count(": right"), 4)

    def test_wrong_results_are_noticed(self):
        done = self.run_example(FAKE_CUDA_FORWARD="right")  # a kernel that writes one element
        self.assertEqual(done.returncode, WRONG)
        self.assertEqual(done.stdout.count(": WRONG"), 4)

    def test_failing_call_is_named(self):
        for call in ("cuMemAlloc_v2", "cuStreamBeginCapture_v2", "cuGraphLaunch"):
            name = call.removesuffix("_v2")
            self.expect(self.run_example(FAKE_CUDA_FAIL=call), WRONG, f"gpu: {name}: CUDA_ERROR")

    def test_without_a_hopper_gpu(self):
        says = "gpu: no Hopper GPU to compute on: "
        self.expect(self.run_example(FAKE_CUDA_GPUS="0"), NO_GPU, says + "the driver finds none")
        self.expect(self.run_example(FAKE_CUDA_CAPABILITY="80"), NO_GPU, "Hopper")
        done = self.run_example(driver=False)
        if done.returncode == 0 or "libcuda.so.1" not in done.stderr:
            self.skipTest("this machine has a driver")
        self.expect(done, NO_GPU, says + "libcuda.so.1")


class ExampleDecode(OnFakeGpu):
    def run_example(self, **variables):
        return self.run_program(OPTIONS.decode, FAKE_CUDA_FORWARD="right", **variables)

    def test_wrong_results_are_noticed(self):
        done = self.run_example()  # a GPU whose kernels write one element at most
        self.assertEqual((done.returncode, done.stderr), (WRONG, ""), done.stdout)
        self.assertIn("on Fake H200", done.stdout)
        self.assertIn("15 of 20 pages are in use", done.stdout)
        self.assertIn("WRONG", done.stdout)

    def test_failing_call_is_named(self):
        for call in ("cuMemAlloc_v2", "cuMemcpyHtoDAsync_v2", "cuStreamSynchronize"):
            done = self.run_example(FAKE_CUDA_FAIL=call)
            says = f"decode: {call.removesuffix('_v2')}: CUDA_ERROR"
            self.assertEqual(done.returncode, WRONG, done.stdout)
            self.assertTrue(done.stderr.startswith(says), done.stderr)
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)

    def test_without_a_hopper_gpu(self):
        for variables in ({"FAKE_CUDA_GPUS": "0"}, {"FAKE_CUDA_CAPABILITY": "80"}):
            done = self.run_example(**variables)
            self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
            self.assertNotIn("Fake", done.stdout)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--example", type=pathlib.Path, required=True)
    parser.add_argument("--decode", type=pathlib.Path, required=True)
    parser.add_argument("--fakes", type=pathlib.Path, required=True)
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])
