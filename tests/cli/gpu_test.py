# SPDX-License-Identifier: BSD-3-Clause
"""The command on a GPU: what it copies there and back, which backend auto takes. On the fake driver
of tests/cuda, whose kernel writes 42 into the first element of O and of LSE and nothing else."""

import json
import unittest

import tensors
from kit import CHECK_FAILED, FAILED, UNSUPPORTED, FakeGpuTest

BF16 = ["--dtype", "bf16"]


class OnFakeGpu(FakeGpuTest):
    def setUp(self):
        super().setUp()
        self.environment["FAKE_CUDA_FORWARD"] = "right"

    def on_gpu(self, *args, code=0, says="", **variables):
        result = self.run_fa3(*args, env={**self.environment, **variables})
        self.assertEqual(result.returncode, code, (args, result.stdout, result.stderr))
        self.assertIn(says, result.stderr)
        return result.stdout

    def run_file(self, *args, **variables):
        """Report, O and LSE of fa3 run on a small problem."""
        source, out = self.path("in.safetensors"), self.path("out.safetensors")
        tensors.write(source, tensors.dense(dim=8))
        text = self.on_gpu("run", source, "-o", out, "--json", *args, **variables)
        written = tensors.read(out)
        return json.loads(text), written["o"], written["lse"]

    def test_run_copies_there_and_back(self):
        for backend in ["cuda", "auto"]:
            report, o, lse = self.run_file(*BF16, "--backend", backend)
            self.assertEqual((report["backend"], report["device"]), ("cuda", "Fake H200"))
            self.assertIs(report["copied"], True)
            self.assertIsNone(report["gpu_declined"])
            self.assertEqual(report["forward"]["seconds"], 1.5e-3)  # as the fake's events say
            self.assertEqual((o[2][0], lse[2][0]), (42, 42))

    def test_run_copies_gradients_there_and_back(self):
        source, out = self.path("in.safetensors"), self.path("out.safetensors")
        dense = tensors.dense(dim=8)
        tensors.write(source, {**dense, "do": dense["q"]})
        for backend in ["cuda", "auto"]:
            text = self.on_gpu(
                "run", source, "-o", out, *BF16, "--backward", "--backend", backend, "--json"
            )
            self.assertEqual(json.loads(text)["backend"], "cuda")
            self.assertEqual(tensors.read(out)["dk"][2][0], 42)

    def test_varlen_files_are_planned_by_their_longest_sequence(self):
        count, source = 64, self.path("in.safetensors")
        rows = tensors.draw((16 * count, 1, 64), 1)
        cuts = ("I32", [count + 1], [16 * i for i in range(count + 1)])
        problem = {"q": rows, "k": rows, "v": rows}
        tensors.write(source, {**problem, "cu_seqlens_q": cuts, "cu_seqlens_kv": cuts})
        self.on_gpu("run", source, "-o", self.path("o"), *BF16, "--backend", "cuda")
        programs = json.loads(self.on_gpu("jit", "--list", "--json"))["programs"]
        lengths = ",".join(["16"] * count)
        sizes = ["--varlen-q", lengths, "--varlen-kv", lengths, "--heads-q", 1, "--head-dim", 64]
        explain = ["explain", *BF16, *sizes, "--backend", "cuda", "--json"]
        planned = json.loads(self.on_gpu(*explain))["sm90"]["kernel"]
        self.assertEqual([p["expression"] for p in programs if p["kept"]], [planned])

    def test_text_says_that_tensors_were_copied(self):
        source, out = self.path("in.safetensors"), self.path("out.safetensors")
        tensors.write(source, tensors.dense(dim=8))
        text = self.on_gpu("run", source, "-o", out, *BF16)
        self.assertIn("backend   cuda on Fake H200\n", text)
        self.assertIn("gpu       tensors copied to the GPU and back", text)

    def test_auto_says_why_it_leaves_the_gpu_alone(self):
        report, o, _ = self.run_file()  # f32
        self.assertEqual((report["backend"], report["copied"]), ("cpu", False))
        self.assertIn("dtype f32", report["gpu_declined"])
        self.assertNotEqual(o[2][0], 42)
        backward = ["check", *BF16, "--backward", "--out-dtype", "f32", "--seqlen-q", 5]
        self.assertIn("the GPU is not used: ", self.on_gpu(*backward))
        mixed = self.path("cases.json")
        sizes = {"heads_q": 1, "seqlen_q": 8, "head_dim_qk": 8}
        with open(mixed, "w") as file:
            json.dump([{"name": n, "dtype": n, **sizes} for n in ("bf16", "f32")], file)
        table = self.on_gpu("bench", "--cases", mixed, "--repetitions", 1)
        self.assertRegex(table, r"\Acpu \([^\n]*\nthe GPU is not used: [^\n]*dtype f32")

    def test_auto_does_without_kernels(self):
        lacking = {"FA3_NVRTC": "/absent/libnvrtc.so"}
        report, _, _ = self.run_file(*BF16, **lacking)
        self.assertEqual(report["backend"], "cpu")
        self.assertIn("no usable NVRTC", report["gpu_declined"])
        cuda = ["check", *BF16, "--backend", "cuda"]
        self.on_gpu(*cuda, code=FAILED, says="no usable NVRTC", **lacking)

    def test_pack_of_wider_kernels(self):
        pack = self.path("pack")
        self.on_gpu("jit", "--pack", pack, "--programs", "fwd/d64/bf16")
        bare = {"FA3_NVRTC": "/absent/libnvrtc.so", "FA3_CACHE_DIR": self.path("empty")}
        small = ["--seqlen-q", 5, "--head-dim", 8, "--backend", "cuda", "--quiet"]
        shape = ["--seqlen-q", 5, "--head-dim", 8]
        explain = ["explain", *BF16, *shape, "--backend", "cuda", "--json"]
        for expected, variables in ((64, {"FA3_KERNEL_PACK": pack, **bare}), (16, {})):
            report = json.loads(self.on_gpu(*explain, **variables))  # of the kernel that runs
            self.assertIn(f".head_dim_qk = {expected},", report["sm90"]["kernel"])
            self.assertEqual(report["estimate"]["kernel_head_dims"], [expected, expected])
        says = "kernel fwd/d16/bf16/full/dense/q64 is in no cache and no pack"
        self.on_gpu(
            *["bench", *BF16, *small, "--no-verify", "--repetitions", 1],
            says=says,
            FA3_KERNEL_PACK=pack,
            **bare,
        )

    def test_no_gpu_is_no_news(self):
        report, _, _ = self.run_file(*BF16, FAKE_CUDA_GPUS="0")
        self.assertEqual((report["backend"], report["gpu_declined"]), ("cpu", None))

    def test_explicit_cuda_never_falls_back(self):
        self.on_gpu("check", "--backend", "cuda", code=UNSUPPORTED, says="dtype f32")
        with_backward = [*BF16, "--backward", "--out-dtype", "f32", "--backend", "cuda"]
        for command in [["check"], ["bench", "--no-verify"]]:
            self.on_gpu(*command, *with_backward, code=UNSUPPORTED, says="dout is f32")

    def test_check_judges_what_came_back(self):
        problem = ["check", *BF16, "--seqlen-q", 33, "--json"]
        report = json.loads(self.on_gpu(*problem, code=CHECK_FAILED))
        self.assertEqual((report["backend"], report["ok"]), ("cuda", False))
        self.assertIs(report["outputs"]["o"]["ok"], False)  # NaN but for one element
        self.assertNotIn("error", report)
        self.assertIn("--backend auto", report["replay"])

    def test_check_of_a_file(self):
        source = self.path("in.safetensors")
        tensors.write(source, tensors.dense(dim=8))
        report = json.loads(self.on_gpu("check", source, *BF16, "--json", code=CHECK_FAILED))
        self.assertEqual(report["backend"], "cuda")

    def test_check_sees_writes_beside_the_tensors(self):
        problem = ["check", *BF16, "--backend", "cuda", "--json"]
        text = self.on_gpu(*problem, code=CHECK_FAILED, FAKE_CUDA_FORWARD="stray")
        self.assertIn("beside the elements of o were written", json.loads(text)["error"])

    def test_bench_times_calls_between_events(self):
        sizes = ["--seqlen-q", 64, "--heads-q", 1, "--repetitions", 3]
        row = json.loads(self.on_gpu("bench", *BF16, *sizes, "--no-verify", "--json"))
        self.assertEqual((row["backend"], row["clock"], row["copied"]), ("cuda", "events", True))
        # The fake's clock gives 1.5 ms for any work: two calls at first, so 0.75 ms each.
        self.assertEqual(row["calls"], 4)
        self.assertAlmostEqual(row["median_ms"], 1.5 / 4)
        table = self.on_gpu("bench", *BF16, *sizes, "--no-verify")
        self.assertIn("between events", table.splitlines()[0])

    def test_bench_of_decode(self):
        small = ["--decode", "--batch", 2, "--seqlen-kv", 130, "--no-verify", "--json"]
        row = json.loads(self.on_gpu("bench", *small))
        self.assertEqual((row["backend"], row["page_size"], row["calls"]), ("cuda", 16, 4))
        self.assertEqual(row["kv_bytes"], 2 * 130 * 2 * 8 * 128 * 2)
        self.assertAlmostEqual(row["kv_gb_per_s"], row["kv_bytes"] / row["median_ms"] / 1e6)

    def test_gpu_that_fails(self):
        problem = [*BF16, "--backend", "cuda"]
        fault = {"FAKE_CUDA_FAIL": "cuMemAlloc_v2"}
        self.on_gpu("bench", *problem, "--no-verify", code=FAILED, says="cuMemAlloc_v2", **fault)
        # No memory there is no verdict on the backend.
        self.assertEqual(
            self.on_gpu("check", *problem, code=FAILED, says="cuMemAlloc_v2", **fault), ""
        )

    def test_explain(self):
        report = json.loads(self.on_gpu("explain", *BF16, "--json"))
        self.assertEqual(report["backend"], "cuda")
        self.assertIn("sm90::fwd<", report["sm90"]["kernel"])
        cache = ["--seqlen-q", 1, "--seqlen-kv", 1000, "--page-size", 16]
        report = json.loads(self.on_gpu("explain", *BF16, *cache, "--json"))
        self.assertEqual(report["problem"]["max_seqlen_kv"], 1000)
        self.assertIn("sm90::decode<", report["sm90"]["kernel"])
        self.assertIn(".kv = fa3::KvSource::kRuns", report["sm90"]["kernel"])


if __name__ == "__main__":
    unittest.main()
