#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""package_test.py — installs fa3, moves the installation, and uses it as a stranger would.

find_package and pkg-config build examples/ out of tree, README.md's program compiles and runs, the
C++ snippets of README.md and of the guide compile, the command starts; the library is small and
needs neither CUDA nor torch.
"""
import argparse
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
MAX_BYTES = 5_000_000  # of libfa3.so, stripped
OPTIONS = argparse.Namespace()
# Calls the library that the compiler was told to link.
LISTS_CASES = r"""
#include <fa3/conformance.h>
#include <stdio.h>
int main(void) {
  fa3_context* context = NULL;
  fa3_conformance_args args = {0};
  const char* report = NULL;
  args.struct_size = sizeof args;
  args.filter = "^matrix/";
  args.list = 1;
  if (fa3_context_create(NULL, &context) != FA3_OK ||
      fa3_conformance_run(context, &args, &report) != FA3_OK) {
    puts(fa3_last_error());
    return 1;
  }
  puts(report);
  fa3_context_destroy(context);
  return 0;
}
"""

# What the C++ snippets of the pages name: of the CUDA runtime, and of the caller's program.
CUDA_NAMES = """#include <cstdio>
#include <fa3/fa3.hpp>
struct CUstream_st; struct CUgraph_st; struct CUgraphExec_st;
using cudaStream_t = CUstream_st*; using cudaGraph_t = CUgraph_st*;
using cudaGraphExec_t = CUgraphExec_st*;
enum { cudaStreamCaptureModeThreadLocal = 1 };
template <class T> int cudaMalloc(T**, size_t);
int cudaStreamCreate(cudaStream_t*);
int cudaStreamBeginCapture(cudaStream_t, int);
int cudaStreamEndCapture(cudaStream_t, cudaGraph_t*);
int cudaGraphInstantiate(cudaGraphExec_t*, cudaGraph_t, unsigned long long);
int cudaGraphLaunch(cudaGraphExec_t, cudaStream_t);
"""
SNIPPETS = {
    "README.md": "void* q, void* k, void* v, void* o, void* workspace, cudaStream_t stream,"
    " int64_t batch, int64_t seqlen",
    "docs/guide/use_from_cuda.md": "",
}


def run(*command, **kwargs):
    """Output of a command; a failure shows it."""
    words = [str(word) for word in command]
    done = subprocess.run(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **kwargs
    )
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(words)}\nexit status {done.returncode}\n{done.stdout}")
    return done.stdout


class PackageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        tmp = pathlib.Path(cls.folder.name)
        run("cmake", "--install", OPTIONS.build, "--prefix", tmp / "first")
        cls.prefix = tmp / "moved elsewhere"  # with a blank, to find missing quotes
        (tmp / "first").rename(cls.prefix)
        cls.library = next(cls.prefix.rglob("libfa3.so")).resolve()
        cls.tmp = tmp

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def environment(self, **more):
        """A clean environment in which only the loader knows where the library lies."""
        keep = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "LANG")}
        return {**keep, "LD_LIBRARY_PATH": str(self.library.parent), **more}

    def pkg_config(self, *options):
        pc = self.library.parent / "pkgconfig"
        printed = run("pkg-config", *options, "fa3", env=self.environment(PKG_CONFIG_PATH=str(pc)))
        return printed.strip()

    def flags(self):
        return shlex.split(self.pkg_config("--cflags", "--libs"))

    def test_what_is_installed(self):
        for name in (
            *("include/fa3/fa3.h", "include/fa3/fa3.hpp", "bin/fa3", "share/man/man1/fa3.1"),
            *(f"include/fa3/{part}.h" for part in ("base", "combine", "context", "info", "jit")),
            "include/fa3/quantize.h",
            *("include/fa3/selftest.h", "include/fa3/conformance.h", "lib/libfa3_conformance.so"),
            "share/bash-completion/completions/fa3",
            "share/fish/vendor_completions.d/fa3.fish",
        ):
            self.assertGreater((self.prefix / name).stat().st_size, 1000, name)
        self.assertFalse(list(self.prefix.rglob("*.a")), "no static library belongs in there")
        for path in [*self.prefix.rglob("*.cmake"), *self.prefix.rglob("*.pc")]:
            text = path.read_text(encoding="utf-8")
            for place in (str(ROOT), str(self.tmp)):
                self.assertNotIn(place, text, f"{path.name} names a folder of this machine")

    def test_find_package(self):
        out = self.tmp / "by_cmake"
        run(
            "cmake", "-S", ROOT / "examples", "-B", out,
            f"-DCMAKE_PREFIX_PATH={self.prefix}",
            f"-DCMAKE_C_COMPILER={OPTIONS.cc}",
            f"-DCMAKE_CXX_COMPILER={OPTIONS.cxx}",
        )  # fmt: skip
        run("cmake", "--build", out)
        for name in ("forward", "attention", "decode"):
            run(out / name, cwd="/")
        self.assertTrue((out / "gpu").is_file())  # example_gpu_test.py runs it

    def test_conformance_component(self):
        project = self.tmp / "conformance"
        project.mkdir()
        (project / "list.c").write_text(LISTS_CASES, encoding="utf-8")
        (project / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.22)\nproject(p C)\n"
            "find_package(fa3 REQUIRED COMPONENTS conformance)\n"
            "add_executable(list list.c)\ntarget_link_libraries(list fa3::conformance)\n",
            encoding="utf-8",
        )
        out = project / "out"
        places = [f"-DCMAKE_PREFIX_PATH={self.prefix}", f"-DCMAKE_C_COMPILER={OPTIONS.cc}"]
        run("cmake", "-S", project, "-B", out, *places)
        run("cmake", "--build", out)
        self.assertIn("matrix/movmatrix", run(out / "list"))
        plain = project / "plain"
        flags = ["-lfa3_conformance", *self.flags(), "-o", plain]
        run(OPTIONS.cc, "-std=c99", project / "list.c", "-L", self.library.parent, *flags)
        self.assertIn("matrix/movmatrix", run(plain, env=self.environment()))

    def test_find_package_declines_another_version(self):
        project = self.tmp / "newer"
        project.mkdir()
        (project / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.22)\nproject(p C)\nfind_package(fa3 99 REQUIRED)\n",
            encoding="utf-8",
        )
        with self.assertRaisesRegex(AssertionError, "compatible\\s+with\\s+requested\\s+version"):
            run("cmake", "-S", project, "-B", project / "out", f"-DCMAKE_PREFIX_PATH={self.prefix}")

    def test_pkg_config(self):
        compilers = {(OPTIONS.cc, OPTIONS.cxx)}
        for pair in (("gcc", "g++"), ("clang", "clang++")):
            if all(shutil.which(name) for name in pair):
                compilers.add(pair)
        strict = ["-Wall", "-Wextra", "-pedantic", "-Werror"]
        for cc, cxx in sorted(compilers):
            with self.subTest(cc):
                for source in ("forward.c", "decode.c", "attention.cpp", "gpu.cpp"):
                    compiler = [cc, "-std=c11"] if source.endswith(".c") else [cxx, "-std=c++17"]
                    path, program = ROOT / "examples" / source, self.tmp / source.split(".")[0]
                    run(*compiler, *strict, path, *self.flags(), "-ldl", "-lm", "-o", program)
                    if source != "gpu.cpp":
                        run(program, cwd="/", env=self.environment())

    def test_version_agrees(self):
        header = (self.prefix / "include/fa3/base.h").read_text(encoding="utf-8")
        numbers = re.findall(r"#define FA3_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", header)
        self.assertEqual(self.pkg_config("--modversion"), ".".join(numbers))
        self.assertIn(f".so.{numbers[0]}.", self.library.name)
        changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
        self.assertIn("[" + ".".join(numbers) + "]", changes, "CHANGELOG.md lacks this version")

    def test_readme_program(self):
        programs = re.findall(r"```c\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.S)
        self.assertTrue(programs, "README.md shows no C program")
        for text in programs:
            source, binary = self.tmp / "readme.c", self.tmp / "readme"
            source.write_text(text, encoding="utf-8")
            run(OPTIONS.cc, "-std=c99", "-Wall", "-Werror", source, *self.flags(), "-o", binary)
            # The first token sees itself only: its output is its value.
            self.assertIn("1.000000 2.000000", run(binary, env=self.environment()))

    def test_gpu_snippets_compile(self):
        for page, names in SNIPPETS.items():
            text = "".join(re.findall(r"```cpp\n(.*?)```", (ROOT / page).read_text("utf-8"), re.S))
            self.assertTrue(text, f"{page} shows no C++")
            statements = re.sub(r"^#include.*\n", "", text, flags=re.M)
            source = self.tmp / "snippets.cpp"
            source.write_text(f"{CUDA_NAMES}void page({names}) {{\n{statements}}}\n", "utf-8")
            compiler = [OPTIONS.cxx, "-std=c++17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
            run(*compiler, source, *self.flags())

    def test_command_starts_without_help(self):
        env = {k: v for k, v in self.environment().items() if k != "LD_LIBRARY_PATH"}
        self.assertIn("cpu", run(self.prefix / "bin/fa3", "info", env=env))

    def test_library_is_small_and_alone(self):
        needs = run("ldd", self.library, env=self.environment()).lower()
        for word in ("cuda", "torch", "nvrtc", "not found"):
            self.assertNotIn(word, needs)
        conformance = self.library.parent / "libfa3_conformance.so"
        for binary in (self.library, conformance, self.prefix / "bin/fa3"):
            dynamic = run("readelf", "-d", binary)
            self.assertNotRegex(dynamic, r"(?:RPATH|RUNPATH).*\[(?!\$ORIGIN)", str(binary))
        # What keeps state, contexts, kernels, driver and compiler, is libfa3's alone.
        own = run("nm", "--demangle", conformance)
        self.assertRegex(own, r"fa3::selftest::")
        self.assertNotRegex(own, r"fa3::(Executor|cuda::(Jit|Driver|Nvrtc|KernelMemory))::")
        stripped = self.tmp / "stripped.so"
        run("strip", "-o", stripped, self.library)
        size = stripped.stat().st_size
        print(f"libfa3.so: {size} bytes stripped, at most {MAX_BYTES}")
        self.assertLessEqual(size, MAX_BYTES)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", required=True, help="build folder to install from")
    parser.add_argument("--cc", default="cc")
    parser.add_argument("--cxx", default="c++")
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])
