#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""make_test.py — rules of the Makefile in a fresh build folder.

A build folder remembers the options that other rules gave it. Each rule here gets one of its own,
configured with its options alone, and its targets must exist there and link what it promises.
Nothing is compiled.
"""

import argparse
import importlib.util
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
OPTIONS = argparse.Namespace()

spec = importlib.util.spec_from_file_location("bundle", ROOT / "bench" / "gpu_check" / "bundle.py")
bundle = importlib.util.module_from_spec(spec)
spec.loader.exec_module(bundle)


def run(*command):
    keep = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "LANG")}
    words = list(map(str, command))
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, env=keep)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(words)}\n{done.stdout}{done.stderr}")
    return done.stdout


@unittest.skipUnless(shutil.which("ninja"), "asks ninja what it would build")
class FreshBuildFolder(unittest.TestCase):
    def files_of(self, rule):
        """Paths of the programs and shared libraries that a rule links."""
        commands = run("make", "--dry-run", rule).replace("\\\n", " ").splitlines()
        configure, build = (
            [shlex.split(line) for line in commands if line.startswith(f"cmake --{step} ")][-1]
            for step in ("preset", "build")
        )
        with tempfile.TemporaryDirectory() as folder:
            compilers = [f"-DCMAKE_C_COMPILER={OPTIONS.cc}", f"-DCMAKE_CXX_COMPILER={OPTIONS.cxx}"]
            run(*configure, "-B", folder, "-G", "Ninja", *compilers)
            targets = build[build.index("--target") + 1 :]
            links = run("ninja", "-C", folder, "-t", "commands", *targets)
        return set(re.findall(r" -o ((?:bin|lib)/\S+)", links))

    def assert_links(self, rule, *patterns):
        files = self.files_of(rule)
        for pattern in patterns:
            found = any(re.fullmatch(pattern, file) for file in files)
            self.assertTrue(found, f"make {rule} links no {pattern}, only {sorted(files)}")

    product = (r"bin/fa3", r"lib/libfa3\.so\.[\d.]+", r"lib/libfa3_conformance\.so")

    def test_build(self):
        self.assert_links("build", *self.product)

    def test_install(self):
        self.assert_links("install", *self.product)

    def test_sim(self):
        self.assert_links("sim", r"lib/libfa3_sim\.so")

    def test_gpu_check(self):
        programs = [f"bin/{program}" for program in bundle.PROGRAMS]
        self.assert_links("gpu-check", *programs, *self.product, r"lib/libfa3_sim\.so")


class Accuracy(unittest.TestCase):
    def test_result_names_its_commit(self):
        commit = ["--commit", "$(bench/machine.py)"]
        for given, file in [([], ""), (["RESULT=it's a.jsonl"], "it's a.jsonl")]:
            last = run("make", "--dry-run", "accuracy", *given).splitlines()[-1]
            self.assertEqual(shlex.split(last), ["build/release/bin/fa3_accuracy", file, *commit])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cc", default="cc")
    parser.add_argument("--cxx", default="c++")
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])
