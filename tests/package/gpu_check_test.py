#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""gpu_check_test.py — the bundle of `make gpu-check`: complete, at home in any folder, and clear
about a machine without a GPU. Programs that this build leaves out (with sanitizers it does) are
played by another."""

import argparse
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "bench" / "gpu_check"
NO_GPU, USAGE, CANNOT_START = 4, 2, 5
OPTIONS = argparse.Namespace()

spec = importlib.util.spec_from_file_location("bundle", FOLDER / "bundle.py")
bundle = importlib.util.module_from_spec(spec)
spec.loader.exec_module(bundle)


def environment(**more):
    """A clean one: the loader has no hint but ours."""
    return {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "LANG": "C", **more}


class GpuCheck(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.tmp = pathlib.Path(cls.folder.name)
        build = cls.build_folder("build")
        cls.run_bundle("--build", build, "--out", cls.tmp / "first", "--no-kernels", check=True)
        cls.home = cls.tmp / "moved elsewhere"  # with a blank, to find missing quotes
        (cls.tmp / "first").rename(cls.home)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @classmethod
    def build_folder(cls, name, without=""):
        folder = cls.tmp / name
        (folder / "bin").mkdir(parents=True)
        (folder / "lib").symlink_to(OPTIONS.build / "lib")
        for program in bundle.PROGRAMS:
            built = OPTIONS.build / "bin" / program
            if program != without:
                source = built if built.exists() else pathlib.Path(shutil.which("true"))
                shutil.copy(source, folder / "bin" / program)
        return folder

    @staticmethod
    def run_bundle(*args, check=False):
        command = [sys.executable, FOLDER / "bundle.py", *args]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        if check and done.returncode != 0:
            raise AssertionError(done.stderr)
        return done

    def run_check(self, *args, **variables):
        command = [self.home / "gpu-check.sh", *args]
        done = subprocess.run(
            list(map(str, command)),
            capture_output=True,
            text=True,
            timeout=100,
            cwd="/",
            env=environment(**variables),
        )
        return done

    def test_has_every_file_that_its_script_names(self):
        script = (self.home / "gpu-check.sh").read_text()
        named = set(re.findall(r"\$here/([\w./-]+)", script)) - {"results", "kernels.pack"}
        self.assertGreater(len(named), 8)
        for name in sorted(named):
            self.assertTrue((self.home / name).exists(), name)
        for module in re.findall(r"^(?:from|import) (\w+)", self.text("bench/*.py"), re.M):
            known = importlib.util.find_spec(module) is not None
            beside = (self.home / "bench" / f"{module}.py").exists()
            self.assertTrue(beside or known or module in ("torch", "matplotlib", "fa3"), module)

    def test_commit_travels_along(self):
        command = [sys.executable, self.home / "bench" / "machine.py"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
        self.assertIn(f", commit {done.stdout.strip()}, ", (self.home / "VERSION").read_text())

    def text(self, pattern):
        return "\n".join(path.read_text() for path in sorted(self.home.glob(pattern)))

    def test_archive_is_the_folder(self):
        with tarfile.open(self.tmp / "first.tar.gz") as archive:
            names = {n.partition("/")[2] for n in archive.getnames()} - {""}
        here = {str(p.relative_to(self.home)) for p in self.home.rglob("*")}
        self.assertEqual(names, {n for n in here if not n.startswith("results")})

    def test_libraries_are_its_own(self):
        lib = self.home / "lib"
        own = ["libfa3.so", "libfa3_conformance.so", "libfa3_sim.so"]
        programs = [self.home / "bin" / name for name in bundle.PROGRAMS]
        for binary in [*programs, *(lib / name for name in own)]:
            loader = environment(LD_LIBRARY_PATH=f"{lib}:{lib}/programs")
            done = subprocess.run(["ldd", binary], capture_output=True, text=True, env=loader)
            for line in done.stdout.splitlines():
                name = line.split()[0]
                if " => " in line and not bundle.GLIBC.match(name):
                    self.assertIn(f"=> {self.home}", line, binary)
        carried = [p.name for p in lib.rglob("*.so*") if not p.name.startswith("libfa3")]
        self.assertLessEqual(len(carried), 8, sorted(carried))
        # Python gets the C++ runtime of its own machine.
        self.assertEqual([p.name for p in lib.iterdir() if bundle.RUNTIME.match(p.name)], [])

    def test_conformance_cases_run_from_it(self):
        """In the simulator of the bundle; the step of the script takes them to the GPU, too."""
        command = [self.home / "bin/fa3", "selftest", "--backend", "sim", "--filter", "^matrix/"]
        loader = environment(LD_LIBRARY_PATH=f"{self.home}/lib:{self.home}/lib/programs")
        done = subprocess.run(command, capture_output=True, text=True, env=loader)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"(\d+) cases: \1 passed")

    def test_without_a_gpu(self):
        if self.run_check("--help").returncode != 0:
            self.fail("--help")
        results = self.tmp / "results of a run"
        done = self.run_check("--results", results, LD_LIBRARY_PATH="/nonexistent")
        if "no GPU: " not in done.stdout:
            self.skipTest("this machine has a GPU")
        self.assertEqual((done.returncode, done.stderr), (NO_GPU, ""))
        steps = [json.loads(x) for x in (results / "summary.jsonl").read_text().splitlines()]
        script = (self.home / "gpu-check.sh").read_text()
        self.assertEqual([s["step"] for s in steps], re.findall(r"^step ([\w-]+) ", script, re.M))
        verdicts = {s["step"]: s["verdict"] for s in steps}
        self.assertEqual(verdicts.pop("info"), "ok")
        self.assertEqual(verdicts.pop("kernels"), "ok")
        self.assertEqual(set(verdicts.values()), {"skipped"})
        for step in steps:
            self.assertIn(step["step"], done.stdout)
            if step["verdict"] == "skipped":
                self.assertRegex(step["why"], "^no GPU: .*libcuda.so.1.*install driver")
        self.assertIn(f"{len(verdicts)} skipped", done.stdout.splitlines()[-1])

    def test_programs_that_do_not_start(self):
        broken = self.tmp / "broken"
        shutil.copytree(self.home, broken)
        (broken / "bin" / "fa3").write_text("#!/bin/sh\necho no such glibc >&2\nexit 1\n")
        command = [broken / "gpu-check.sh"]
        done = subprocess.run(command, capture_output=True, text=True, env=environment())
        self.assertEqual(done.returncode, CANNOT_START)
        self.assertIn("do not start here: no such glibc", done.stderr)

    def test_wrong_options(self):
        for args in [["--fast"], ["--results"]]:
            done = self.run_check(*args)
            self.assertEqual((done.returncode, done.stdout), (USAGE, ""))
            self.assertIn(args[0], done.stderr)

    def test_what_is_missing_is_named(self):
        build = self.build_folder("partial", without="fa3_tune_fwd")
        done = self.run_bundle("--build", build, "--out", self.tmp / "none", "--no-kernels")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("build the target fa3_tune_fwd", done.stderr)

    def test_replaces_nothing_but_a_bundle(self):
        other = self.tmp / "other"
        other.mkdir()
        shutil.copy(FOLDER / "gpu-check.sh", other)
        done = self.run_bundle("--out", other)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("is no bundle", done.stderr)
        self.assertEqual([p.name for p in other.iterdir()], ["gpu-check.sh"])

    def test_problems_have_kernels(self):
        """What problems run on the fake GPU is among what the bundle's names mean."""
        nvrtc = str(self.fake("fa3_fake_nvrtc.so"))
        packed = {"FA3_NVRTC": nvrtc, "FA3_CACHE_DIR": str(self.tmp / "cache")}
        names = ["--warm", ",".join(bundle.KERNELS)]
        compiled = {k["expression"] for k in self.fa3_json("jit", *names, **packed)}
        for line, plan in self.plans_of("shapes.txt"):
            for step in ("sm90", "combine"):
                if step == "sm90" or step in plan:
                    kernel = plan[step]["kernel"]
                    self.assertTrue(kernel in compiled, f"{line}: {kernel}")

    def test_problems_of_8_bits_have_plans(self):
        rows = {plan["sm90"]["row"] for _, plan in self.plans_of("shapes8.txt")}
        for row in ("d64 8bit flushed two", "d128 8bit flushed", "d256 8bit flushed"):
            self.assertIn(row, rows)

    def test_backward_problems_have_plans(self):
        plans = self.plans_of("shapes_bwd.txt")
        rows = {plan["backward_kernels"]["main"]["row"] for _, plan in plans}
        self.assertEqual(rows, {"d64", "d64_terms", "d128", "d256"})

    def test_problems_with_caches_have_plans(self):
        rows = {plan["sm90"]["row"] for _, plan in self.plans_of("shapes_cache.txt")}
        self.assertLess({"decode"}, rows)

    def plans_of(self, name):
        """(line, plan on the fake GPU) of each problem of a file."""
        path = self.fake_gpu()
        for line in (FOLDER / name).read_text().splitlines():
            if line.strip() and not line.startswith("#"):
                options = [*self.choosing(line), "--backend", "cuda"]
                yield line, self.fa3_json("explain", *options, **path)

    def fake(self, name):
        path = OPTIONS.fakes / name
        if not path.exists():
            self.skipTest(f"{path} is not built; build the target {path.stem}")
        return path

    def fake_gpu(self):
        """Environment variables with which the command finds a GPU."""
        driver = self.tmp / "driver/libcuda.so.1"
        driver.parent.mkdir(exist_ok=True)
        if not driver.exists():
            driver.symlink_to(self.fake("fa3_fake_driver.so"))
        return {"LD_LIBRARY_PATH": str(driver.parent)}

    @staticmethod
    def choosing(line):
        """Of the options of `fa3 check` those that choose a kernel, which `fa3 explain` knows."""
        one = ("--seqused-q", "--seqused-kv", "--spare-q", "--spare-kv", "--seed", "--layout")
        others = dict.fromkeys((*one, "--magnitude"), 1)  # values behind them
        others |= {"--no-lse": 0, "--dlse": 0, "--scattered-ids": 0}
        words, chosen = iter(line.split()), []
        for word in words:
            if word not in others:
                chosen.append(word)
            for _ in range(others.get(word, 0)):
                next(words)
        return chosen

    @staticmethod
    def fa3_json(*args, **variables):
        command = [OPTIONS.build / "bin" / "fa3", *args, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, env=environment(**variables))
        if done.returncode != 0:
            raise AssertionError(done.stderr)
        return json.loads(done.stdout)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--fakes", type=pathlib.Path, required=True)
    parser.parse_known_args(namespace=OPTIONS)
    OPTIONS.build = OPTIONS.build.resolve()
    unittest.main(argv=sys.argv[:1])
