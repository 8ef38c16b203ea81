# SPDX-License-Identifier: BSD-3-Clause
"""fa3 selftest in the simulator, and on the fake GPU of tests/cuda, which loads no kernel."""

import json
import os
import re
import shutil
import unittest
from pathlib import Path

from kit import BAD_INPUT, CHECK_FAILED, FA3, UNSUPPORTED, USAGE, CliTest, FakeGpuTest, built_fake

CASE = "matrix/movmatrix"


class InSimulator(CliTest):
    def selftest(self, *args):
        return self.fa3_json("selftest", "--backend", "sim", *args)

    def test_case(self):
        report = self.selftest("--filter", f"^{CASE}$", "--seed", 7)
        self.assertEqual(report["seed"], 7)
        self.assertEqual(
            report["devices"], [{"backend": "sim", "usable": True, "name": "simulator"}]
        )
        self.assertEqual(report["cases"], [{"name": CASE, "status": "passed", "message": ""}])
        self.assertEqual(
            report["summary"], {"cases": 1, "passed": 1, "failed": 0, "skipped": 0}
        )
        text = self.fa3("selftest", "--backend", "sim", "--filter", "matrix")
        self.assertRegex(text, r"\Asim   simulator\n(\d+) cases: \1 passed, 0 failed, 0 skipped\n")

    def test_list_runs_nothing(self):
        names = self.fa3("selftest", "--list").splitlines()
        self.assertIn(CASE, names)
        self.assertEqual(len(names), len(set(names)))
        listed = self.fa3_json("selftest", "--list", "--filter", "matrix/")
        self.assertEqual({row["status"] for row in listed["cases"]}, {"skipped"})
        self.assertEqual(listed["devices"], [])
        self.assertEqual(
            [row["name"] for row in listed["cases"]], [n for n in names if "matrix/" in n]
        )

    def test_wrong_options(self):
        self.assert_fails(BAD_INPUT, "selftest", "--filter", "(", says=["'('", "regular"])
        for filter_ in ["(" * 60_000 + ")" * 60_000, "x" * 1001]:  # std::regex recurses
            says = ["filter has", f"{len(filter_)} characters, need at most 1000"]
            self.assert_fails(BAD_INPUT, "selftest", "--filter", filter_, says=says)
        deepest = "(" * 499 + ")" * 499
        self.fa3("selftest", "--list", "--filter", deepest)
        self.assert_fails(BAD_INPUT, "selftest", "--filter", "^$", says=["matches no case"])
        self.assert_fails(USAGE, "selftest", "--backend", "cpu", says=["cpu", "sim, cuda, all"])
        self.assert_fails(USAGE, "selftest", "--seed", "-1", says="--seed")
        for mode in [["--list"], ["--backend", "sim"]]:
            self.assert_fails(BAD_INPUT, "selftest", "--measure", *mode, says="measure=1")



class WithFewLibraries(CliTest):
    """A copy of the command and of libfa3, with other libraries beside it or none."""

    def setUp(self):
        super().setUp()
        binary = Path(FA3).resolve()
        self.built, self.lib = binary.parents[1] / "lib", self.folder / "lib"
        for folder in ["bin", "lib"]:
            (self.folder / folder).mkdir()
        shutil.copy(binary, self.folder / "bin/fa3")
        for library in self.built.glob("libfa3.so*"):
            shutil.copy(library, self.lib, follow_symlinks=False)

    def run_fa3(self, *args, **options):
        return super().run_fa3(*args, program=str(self.folder / "bin/fa3"), **options)

    def test_without_simulator(self):
        shutil.copy(self.built / "libfa3_conformance.so", self.lib)
        self.assert_fails(
            UNSUPPORTED, "selftest", "--backend", "sim", says=["libfa3_sim.so", "make sim"]
        )
        self.assertIn(CASE, self.fa3("selftest", "--list"))

    def test_without_conformance_cases(self):
        says = ["libfa3_conformance.so could not be opened", "install it beside libfa3.so"]
        for mode in [[], ["--list"], ["--measure"]]:
            self.assert_fails(UNSUPPORTED, "selftest", *mode, says=says)
        environment = {**os.environ, "FA3_NVRTC": built_fake("nvrtc")}
        environment["FA3_CACHE_DIR"] = self.path("cache")
        (self.folder / "cache").mkdir(mode=0o700)
        pack = ["--pack", self.path("p"), "--programs", "samples/gemm"]
        for what in [["--warm", "samples"], pack]:
            self.assert_fails(UNSUPPORTED, "jit", *what, says=says, env=environment)
        text = self.fa3("jit", "--warm", "all", env=environment)
        self.assertIn("fwd/d128/bf16", text)
        self.assertNotIn("samples", text)
        self.assertNotIn("samples", self.fa3("jit", "--list", env=environment))

    def test_conformance_cases_of_another_version(self):
        shutil.copy(built_fake("conformance"), self.lib / "libfa3_conformance.so")
        message = self.assert_fails(
            UNSUPPORTED, "selftest", says=["version 0.0.9", "install both together"]
        )
        (own,) = re.findall(r"libfa3\.so of (\S+);", message)
        self.assertIn(own, self.fa3("--version"))


class OnFakeGpu(FakeGpuTest):
    def selftest(self, *args, **variables):
        result = self.run_fa3(
            "selftest", "--filter", CASE, "--json", *args, env={**self.environment, **variables}
        )
        self.assertEqual(result.stderr, "")
        return result.returncode, json.loads(result.stdout)

    def test_gpu_that_loads_nothing(self):
        code, report = self.selftest()
        self.assertEqual(code, CHECK_FAILED)
        self.assertEqual([d["usable"] for d in report["devices"]], [True, True])
        self.assertEqual(report["devices"][1]["nvrtc"], "13.0")
        self.assertEqual(report["summary"]["failed"], 1)
        self.assertRegex(report["cases"][0]["message"], "^Fake H200: jit: .* does not load .*kMove")

    def test_gpu_that_cannot_be_opened(self):
        """What libfa3 throws then ends in the report that libfa3_conformance writes."""
        code, report = self.selftest(FAKE_CUDA_FAIL="cuDevicePrimaryCtxRetain")
        self.assertEqual(code, 0)
        self.assertEqual([d["usable"] for d in report["devices"]], [True, False])
        self.assertIn("cuDevicePrimaryCtxRetain", report["devices"][1]["why"])
        self.assert_fails(
            UNSUPPORTED,
            *["selftest", "--backend", "cuda"],
            env={**self.environment, "FAKE_CUDA_FAIL": "cuDevicePrimaryCtxRetain"},
            says=["nothing to run", "cuDevicePrimaryCtxRetain"],
        )

    def matrix_cases(self, *args, **variables):
        """The report of cases that all fail on the fake GPU, for one reason or another."""
        result = self.run_fa3(
            *["selftest", "--filter", "^matrix/", "--backend", "cuda", "--json", *args],
            env={**self.environment, **variables},
        )
        report = json.loads(result.stdout)
        self.assertEqual((result.returncode, result.stderr), (CHECK_FAILED, ""))
        self.assertGreater(len(report["cases"]), 5)
        self.assertEqual(report["summary"]["passed"], 0)
        return report

    def test_case_that_ends_the_process(self):
        report = self.matrix_cases(FAKE_CUDA_KILL="2")
        self.assertEqual(report["devices"][0]["usable"], True)
        self.assertEqual(report["summary"]["skipped"], 0)
        for i, row in enumerate(report["cases"]):  # every second load of a process
            says = "^Fake H200: jit: " if i % 2 == 0 else "^the process was ended by signal 9"
            self.assertRegex(row["message"], says)

    def test_case_that_hangs(self):
        report = self.matrix_cases("--case-seconds", 5, FAKE_CUDA_HANG="4")
        self.assertEqual(report["summary"]["skipped"], 0)
        self.assertEqual(report["cases"][3]["message"], "the process hung and was ended")
        self.assertRegex(report["cases"][4]["message"], "^Fake H200: jit: ")

    def test_case_that_loses_the_gpu(self):
        report = self.matrix_cases(FAKE_CUDA_FAIL="cuStreamIsCapturing")
        self.assertEqual(report["summary"]["skipped"], 0)
        for row in report["cases"]:
            self.assertRegex(row["message"], "^Fake H200: .*cuStreamIsCapturing")

    def test_gpu_that_ends_every_process(self):
        report = self.matrix_cases("--measure", FAKE_CUDA_KILL="1")
        self.assertEqual(report["summary"]["failed"], 3)
        why = "3 processes in a row ended in their first case"
        self.assertEqual({row["message"] for row in report["cases"][3:]}, {why})
        self.assertEqual(report["measurements"], {"values": {}, "why": why})

    def test_measuring_that_ends_the_process(self):
        code, report = self.selftest("--measure", FAKE_CUDA_KILL="2")
        self.assertEqual(code, CHECK_FAILED)
        self.assertEqual([d["usable"] for d in report["devices"]], [True, True])
        self.assertRegex(report["measurements"]["why"], "^the process was ended by signal 9")

    def test_measuring_that_breaks_off(self):
        code, report = self.selftest("--measure")
        self.assertEqual(code, CHECK_FAILED)
        self.assertEqual(report["measurements"]["values"], {})
        self.assertRegex(report["measurements"]["why"], "does not load .*elected_lanes")

    def test_gpu_that_is_none_of_ours(self):
        code, report = self.selftest("--measure", FAKE_CUDA_CAPABILITY="80")
        self.assertEqual(code, 0)
        self.assertEqual(report["measurements"]["values"], {})
        self.assertIn("Hopper", report["measurements"]["why"])
        text = self.fa3(
            *["selftest", "--filter", CASE, "--measure"],
            env={**self.environment, "FAKE_CUDA_CAPABILITY": "80"},
        )
        self.assertRegex(text, r"\nnothing measured: [^\n]*Hopper[^\n]*\n\Z")
        self.assertEqual([d["usable"] for d in report["devices"]], [True, False])
        self.assertIn("Hopper", report["devices"][1]["why"])
        self.assert_fails(
            UNSUPPORTED,
            *["selftest", "--backend", "cuda"],
            env={**self.environment, "FAKE_CUDA_CAPABILITY": "80"},
            says=["nothing to run", "Hopper"],
        )


if __name__ == "__main__":
    unittest.main()
