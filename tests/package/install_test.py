#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""install_test.py — `make install` into fresh places, use from there, and `make uninstall`.

The lines that the Makefile runs are run here on the build folder under test.
"""

import argparse
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
MAX_LIBRARIES = 15  # that the loader opens for the command
UNSUPPORTED = 4  # exit status of the command
MANIFEST = "share/doc/fa3/install_manifest.txt"
OPTIONS = argparse.Namespace()


def environment(**more):
    """A clean one, in which nothing tells the loader where libfa3 lies."""
    keep = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "LANG")}
    return {**keep, **{k: str(v) for k, v in more.items()}}


def attempt(*command, cwd="/", **variables):
    return subprocess.run(
        list(map(str, command)),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=cwd,
        env=environment(**variables),
    )


def run(*command, **options):
    done = attempt(*command, **options)
    if done.returncode != 0:
        raise AssertionError(f"{shlex.join(map(str, command))}\n{done.returncode}\n{done.stdout}")
    return done.stdout


def make(rule, prefix, destdir="", **variables):
    """Runs what `make RULE PREFIX=… DESTDIR=…` runs but for compiling."""
    given = [f"PREFIX={prefix}"] + ([f"DESTDIR={destdir}"] if destdir else [])
    lines = run("make", "--dry-run", rule, *given, cwd=ROOT).splitlines()
    (line,) = [x for x in lines if x.startswith(("cmake --install", "scripts/uninstall"))]
    line = line.replace("build/release", shlex.quote(str(OPTIONS.build)))
    if destdir:
        variables["DESTDIR"] = destdir  # as make hands it on
    return attempt("sh", "-c", line, cwd=ROOT, **variables)


def tree(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


class Install(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.tmp = pathlib.Path(self.folder.name).resolve()
        self.prefix = self.tmp / "made for" / "fa3"  # with a blank, to find missing quotes

    def install(self, *args, **variables):
        done = make("install", *(args or (self.prefix,)), **variables)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def uninstall(self, *args):
        done = make("uninstall", *(args or (self.prefix,)))
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def build_example(self, advice, *flags):
        """forward.c by pkg-config, where the installation said that it finds it."""
        (place,) = re.findall(r"PKG_CONFIG_PATH='(.+?)'", advice)
        printed = run("pkg-config", "--cflags", "--libs", "fa3", PKG_CONFIG_PATH=place)
        program, source = self.tmp / "forward", ROOT / "examples" / "forward.c"
        libraries = [*shlex.split(printed), *flags, "-lm"]
        run(OPTIONS.cc, "-std=c11", source, *libraries, "-o", program)
        return program

    def test_programs_find_the_library_as_it_says(self):
        advice = self.install()
        (rpath,) = re.findall(r"-Wl,-rpath,'.+?'", advice)
        run(self.build_example(advice, *shlex.split(rpath)))
        (place,) = re.findall(r"LD_LIBRARY_PATH='(.+?)'", advice)
        run(self.build_example(advice), LD_LIBRARY_PATH=place)

    def test_simulator_answers_from_the_prefix(self):
        self.install()
        shape = "--batch 1 --heads-q 1 --heads-kv 1 --seqlen-q 64 --seqlen-kv 64 --head-dim 64"
        check = ["check", "--backend", "sim", "--dtype", "bf16", *shape.split()]
        log = run(self.prefix / "bin/fa3", *check, LD_DEBUG="files")  # another may be installed
        own = f"calling init: {re.escape(str(self.prefix))}/.*libfa3_sim.so"
        self.assertTrue(re.search(own, log), "the simulator of the prefix was not loaded")

    def selftest(self, *options, **variables):
        command = [self.prefix / "bin/fa3", "selftest", "--backend", "sim", *options]
        return attempt(*command, **variables)

    def test_selftest_runs_from_the_prefix(self):
        self.install()
        done = self.selftest("--filter", "^matrix/", LD_DEBUG="files")
        self.assertEqual(done.returncode, 0, done.stdout[-2000:])
        for library in ("libfa3_conformance.so", "libfa3_sim.so"):
            own = f"calling init: {re.escape(str(self.prefix))}/.*{re.escape(library)}"
            self.assertRegex(done.stdout, own)
        lines = (self.prefix / MANIFEST).read_text(encoding="utf-8").splitlines()
        self.assertIn("lib/libfa3_conformance.so", lines)
        self.assertIn("include/fa3/conformance.h", lines)

    def test_selftest_without_its_library(self):
        """A package may leave it out: the rest works, and find_package finds the rest."""
        self.install()
        (self.prefix / "lib/libfa3_conformance.so").unlink()
        done = self.selftest()
        self.assertEqual(done.returncode, UNSUPPORTED, done.stdout)
        self.assertIn("libfa3_conformance.so could not be opened", done.stdout)
        self.assertIn("install it beside libfa3.so", done.stdout)
        listed = json.loads(run(self.prefix / "bin/fa3", "jit", "--list", "--json"))
        families = {p["name"].partition("/")[0] for p in listed["programs"]}
        known = {"append", "bwd", "combine", "decode", "fwd", "merge", "quantize", "score_offset"}
        self.assertEqual(families, known)
        project = self.tmp / "project"
        project.mkdir()
        text = "cmake_minimum_required(VERSION 3.22)\nproject(p C)\nfind_package(fa3 REQUIRED)\n"
        (project / "CMakeLists.txt").write_text(text, encoding="utf-8")
        compiler = f"-DCMAKE_C_COMPILER={OPTIONS.cc}"
        run("cmake", project, "-B", project / "out", f"-DCMAKE_PREFIX_PATH={self.prefix}", compiler)

    def test_uninstall_leaves_nothing(self):
        self.install()
        self.install()  # folders that are there by now are its own all the same
        self.uninstall()
        self.assertEqual(tree(self.tmp), [])

    def test_uninstall_keeps_what_is_not_its_own(self):
        (self.prefix / "lib/pkgconfig").mkdir(parents=True)
        (self.prefix / "bin").mkdir()
        (self.prefix / "bin/other").touch()
        before = tree(self.tmp)
        self.install()
        (self.prefix / "include/fa3/mine.h").touch()
        self.assertIn("include/fa3/ is kept", self.uninstall())
        mine = [f"made for/fa3/include{path}" for path in ("", "/fa3", "/fa3/mine.h")]
        self.assertEqual(tree(self.tmp), sorted(before + mine))

    def test_uninstall_knows_an_older_version(self):
        self.install()
        older = "lib/libfa3.so.0.0.9"
        (self.prefix / older).touch()
        with open(self.prefix / MANIFEST, "a", encoding="utf-8") as manifest:
            manifest.write(older + "\n")
        self.install()
        self.uninstall()
        self.assertEqual(tree(self.tmp), [])

    def test_destdir(self):
        stage, prefix = self.tmp / "stage of it", pathlib.Path("/opt/fa3 of nobody")
        self.assertIn("run ldconfig where", self.install(prefix, stage))
        self.assertFalse(prefix.exists())
        home = stage / prefix.relative_to("/")
        run(home / "bin/fa3", "info")
        for path in [*home.rglob("*.cmake"), *home.rglob("*.pc"), home / MANIFEST]:
            self.assertNotIn(str(stage), path.read_text(encoding="utf-8"), path)
        self.uninstall(prefix, stage)
        self.assertEqual(tree(stage), [])

    def test_relative_paths(self):
        there = os.path.relpath(self.prefix, ROOT) + "/"
        self.install(there)
        run(self.prefix / "bin/fa3", "info")
        self.uninstall(there)
        self.assertEqual(tree(self.tmp), [])
        stage = self.tmp / "stage"
        there = os.path.relpath(stage, ROOT) + "/"
        self.install("/usr/local", there)
        run(stage / "usr/local/bin/fa3", "info")
        self.uninstall("/usr/local", there)
        self.assertEqual(tree(stage), [])

    def test_prefix_is_the_root(self):
        stage = self.tmp / "stage"
        self.install("/", stage)
        run(stage / "bin/fa3", "info")
        self.uninstall("/", stage)
        self.assertEqual(tree(stage), [])

    def test_paths_with_quotes(self):
        there, stage = self.tmp / "it's $HOME", self.tmp / "stage's"
        for place in [(str(there).replace("$", "$$"),), ("/usr/o'ne", stage)]:
            self.install(*place)
            self.uninstall(*place)
        self.assertEqual(tree(self.tmp), ["stage's"])

    def test_paths_that_cmake_cannot_list(self):
        for name in ["a;b", "a[b"]:
            for place in [(self.tmp / name,), ("/usr/local", self.tmp / name)]:
                done = make("install", *place)
                self.assertNotEqual(done.returncode, 0)
                self.assertRegex(done.stdout, r"Nothing\s+was\s+installed")
                self.assertEqual(tree(self.tmp), [])

    def test_paths_with_dots(self):
        (self.tmp / "0").mkdir()  # sorts before the folders that are made
        there = f"{self.tmp}/0/../{self.prefix.relative_to(self.tmp)}"
        self.install(there)
        self.uninstall(there)
        self.assertEqual(tree(self.tmp), ["0"])

    def test_uninstall_without_a_manifest(self):
        self.prefix.mkdir(parents=True)
        (self.prefix / "file").touch()
        done = make("uninstall", self.prefix)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(f"{self.prefix / MANIFEST} is not there", done.stdout)
        self.assertTrue((self.prefix / "file").exists())

    def test_ldconfig(self):
        """A system whose loader searches the folder, played by programs put ahead of its own."""
        fakes, ran = self.tmp / "fakes", self.tmp / "ran"
        fakes.mkdir()
        lists = f'case "$*" in *-v*) echo "{self.prefix}/lib: (from x)";; "") : >"{ran}";; esac'
        for name, text in (("ldconfig", lists), ("id", 'echo "$FAKE_USER"')):
            (fakes / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
            (fakes / name).chmod(0o755)
        path = f"{fakes}:{os.environ['PATH']}"
        output = self.install(PATH=path, FAKE_USER=1000)
        self.assertIn("once root has run: ldconfig", output)
        self.assertFalse(ran.exists())
        make("install", self.prefix, self.tmp / "stage", PATH=path, FAKE_USER=0)
        self.assertFalse(ran.exists())
        output = self.install(PATH=path, FAKE_USER=0)
        self.assertIn("ran ldconfig", output)
        self.assertTrue(ran.exists())

    def test_libraries_are_few_and_in_the_readme(self):
        self.install()
        lib = self.prefix / "lib"
        opened = {file: run("ldd", file) for file in (self.prefix / "bin/fa3", *lib.glob("*.so"))}
        names = re.findall(r"^\s*(\S+)", opened[self.prefix / "bin/fa3"], re.M)
        self.assertLessEqual(len(names), MAX_LIBRARIES, names)
        release = pathlib.Path("/etc/os-release")
        if not release.exists() or "VERSION_CODENAME=bookworm" not in release.read_text("utf-8"):
            self.skipTest("README.md has the names of Debian 12")
        readme = (ROOT / "README.md").read_text(encoding="utf-8")
        for name in sorted(set(re.findall(r"(\S+) => /", "\n".join(opened.values())))):
            if not name.startswith("libfa3"):
                owners = run("dpkg-query", "--search", f"*/{name}").splitlines()
                packages = {owner.partition(":")[0] for owner in owners}
                known = any(f"`{package}`" in readme for package in packages)
                self.assertTrue(known, f"{name}: README.md names none of {packages}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--cc", default="cc")
    OPTIONS, rest = parser.parse_known_args()
    OPTIONS.build = OPTIONS.build.resolve()
    unittest.main(argv=[sys.argv[0], *rest])
