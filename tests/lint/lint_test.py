#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""lint_test.py — feeds scripts/lint trees that break one rule each and expects it reported."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

LINT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "lint"
SPDX = "// SPDX-License-Identifier: BSD-3-Clause\n"


def lint(files):
    """Exit status and output of lint over a tree of {path: text}."""
    with tempfile.TemporaryDirectory() as root:
        for name, text in files.items():
            path = pathlib.Path(root, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        done = subprocess.run(
            [sys.executable, str(LINT), "--root", root, "--no-tools"],
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout


class LintTest(unittest.TestCase):
    def expect(self, finding, files):
        status, output = lint(files)
        self.assertEqual(status, 1, output)
        self.assertIn(finding, output)
        self.assertIn(" 1 findings", output)

    def expect_clean(self, files):
        status, output = lint(files)
        self.assertEqual(status, 0, output)

    def test_clean_tree(self):
        self.expect_clean(
            {
                "src/api/a.cpp": SPDX
                + '#include "core/b.h"\n// abort() in words is fine, and "assert(" in a comment\n'
                'static_assert(true);\nconst char* s = "printf(";\n',
                "src/core/b.h": SPDX,
                "src/device/target.h": SPDX + "#ifdef __clang__\n#endif\n",
                "src/core/env.cpp": SPDX + "auto x = getenv(name);\n",
                "src/backend/cpu/kernels.cpp": SPDX
                + '#include "backend/cpu/kernels.cpp"\n',  # Highway's idiom
            }
        )

    def test_each_rule(self):
        for finding, name, text in [
            ("src/core/a.h:1: spdx", "src/core/a.h", "int a;\n"),
            ("src/core/a.h:2: tab", "src/core/a.h", SPDX + "\tint a;\n"),
            ("src/core/a.h:2: space", "src/core/a.h", SPDX + "int a; \n"),
            ("docs/a.md:1: path", "docs/a.md", "see " + "/home/" + "someone/file\n"),
            ("src/core/a.h:2: todo", "src/core/a.h", SPDX + "// TO" + "DO: later\n"),
            ("src/core/a.h:501: size", "src/core/a.h", SPDX + "int a;\n" * 500),
            (
                "src/core/a.cpp:3: no-abort",
                "src/core/a.cpp",
                SPDX + "void f() {\n  std::abort();\n}\n",
            ),
            ("src/core/a.cpp:2: no-abort", "src/core/a.cpp", SPDX + "void f() { assert(x); }\n"),
            (
                "src/core/a.cpp:2: no-abort",
                "src/core/a.cpp",
                SPDX + "void f() { std::cerr << 1; }\n",
            ),
            ("tools/cli/a.cpp:2: env", "tools/cli/a.cpp", SPDX + "auto x = std::getenv(n);\n"),
            (
                "src/backend/cpu/a.cpp:2: asm",
                "src/backend/cpu/a.cpp",
                SPDX + 'void f() { asm("nop"); }\n',
            ),
            (
                "src/device/attn/a.h:2: arch-ifdef",
                "src/device/attn/a.h",
                SPDX + "#ifdef __CUDA_ARCH__\n#endif\n",
            ),
        ]:
            with self.subTest(finding):
                self.expect(finding, {name: text})

    def test_empty_files(self):
        self.expect_clean({"python/fa3/py.typed": ""})
        for name in ("ca.m", "docs/a.md", "src/core/a.h", "tests/data"):
            with self.subTest(name):
                status, output = lint({name: ""})
                self.assertEqual(status, 1, output)
                self.assertIn(f"{name}:1: empty", output)

    def test_types_defined_twice(self):
        def header(body, space="fa3::sm90"):
            return f"{SPDX}namespace {space} {{\n{body}\n}}\n"

        first = header("struct alignas(16) Tile : Base {\n  int row;\n};")
        for second in [
            header("class Tile {};"),
            header("template <class T>\nstruct Tile final {};"),
            header("struct Other {\n  struct Tile {};\n};\nenum class Tile : int {};"),
            header("namespace sm90 {\nvoid f() {}\nunion Tile {};\n}", "fa3"),
        ]:
            with self.subTest(second):
                files = {"src/plan/a.h": first, "src/plan/b.h": second}
                self.expect("b.h:", files)
                self.expect("twice: fa3::sm90::Tile is also in src/plan/a.h", files)
        for second in [
            header("struct Tile;"),
            header("struct Tile {};", "fa3"),
            header("struct Tile {};", "fa3::sm90::other"),
            header("namespace {\nstruct Tile {};\n}"),
            header("struct Other {\n  struct Tile {};\n};"),
            header("inline void f() {\n  struct Tile {};\n}"),
            header("struct Tile f() {\n  return {};\n}"),
            header("template <>\nstruct Tile<int> {};"),
            header("// struct Tile {}\n#define TILE struct Tile {}"),
        ]:
            with self.subTest(second):
                self.expect_clean({"src/plan/a.h": first, "src/plan/b.h": second})

    def test_waiver(self):
        self.expect_clean(
            {
                "src/core/a.cpp": SPDX
                + "void f() { abort(); }  // lint-ok(no-abort): a test of lint\n"
            }
        )
        self.expect(
            "no-abort",
            {"src/core/a.cpp": SPDX + "void f() { abort(); }  // lint-ok(asm): another rule\n"},
        )

    def test_anchors(self):
        code = SPDX + "struct Loop {\n  void run();  // not walk\n};\n"
        self.expect_clean({"src/core/a.h": code, "docs/a.md": "see `src/core/a.h`:`Loop::run`\n"})
        for symbol in ["Loop::walk", "Loop::ru", "Other::run"]:
            with self.subTest(symbol):
                self.expect(
                    f"docs/a.md:1: anchor: src/core/a.h has no {symbol}",
                    {"src/core/a.h": code, "docs/a.md": f"`src/core/a.h`:`{symbol}`\n"},
                )
        self.expect("docs/a.md:1: anchor", {"docs/a.md": "`src/core/gone.h`:`run`\n"})

    def test_tables(self):
        table = "| a | b |\n|---|:-:|\n| 1 | 2 |\n"
        self.expect_clean({"docs/a.md": f"text\n\n{table}\n{table}- item\n\n  | c |\n  | - |\n"})
        self.expect_clean({"docs/a.md": "```sh\n| sort\n```\n"})
        for number, text in [
            (5, table + "\n| 3 | 4 |\n| 5 | 6 |\n"),  # a blank line inside a table
            (1, "| 1 | 2 |\n"),
            (3, "text\n\n| a | b |\n\n"),
        ]:
            with self.subTest(text):
                self.expect(f"docs/a.md:{number}: table", {"docs/a.md": text})

    def test_layers(self):
        self.expect(
            "src/core/a.h:2: layer",
            {"src/core/a.h": SPDX + '#include "api/b.h"\n', "src/api/b.h": SPDX},
        )
        self.expect(
            "src/device/a.h:2: layer",
            {"src/device/a.h": SPDX + '#include "core/b.h"\n', "src/core/b.h": SPDX},
        )
        self.expect(
            "src/plan/a.cpp:2: layer",
            {"src/plan/a.cpp": SPDX + '#include "../api/b.h"\n', "src/api/b.h": SPDX},
        )
        self.expect(
            "src/plan/a.cpp:2: layer",
            {"src/plan/a.cpp": SPDX + '#include "backend/b.h"\n', "src/backend/b.h": SPDX},
        )
        self.expect(
            "src/sim/a.cpp:2: layer",
            {"src/sim/a.cpp": SPDX + '#include "backend/b.h"\n', "src/backend/b.h": SPDX},
        )

    def test_conformance(self):
        device = {"conformance/device/selftest/a.cuh": SPDX + '#include "device/b.h"\n'}
        self.expect_clean(
            {
                **device,
                "conformance/a.cpp": SPDX + '#include "core/b.h"\n#include "conformance/c.h"\n',
                "conformance/c.h": SPDX + '#include "runtime/gpu_runtime.h"\n',
                "src/sim/programs/p.cpp": SPDX + '#include "device/selftest/a.cuh"\n',
                **{f"src/{name}.h": SPDX for name in ("core/b", "device/b", "runtime/gpu_runtime")},
            }
        )
        jit = {"src/backend/cuda/jit.h": SPDX}
        includes = SPDX + '#include "backend/cuda/jit.h"\n'
        self.expect("conformance/a.cpp:2: layer", {"conformance/a.cpp": includes, **jit})
        core = {"conformance/device/a.cuh": SPDX + '#include "core/b.h"\n', "src/core/b.h": SPDX}
        self.expect("conformance/device/a.cuh:2: layer", core)
        for include in ("conformance/device/selftest/a.cuh", "device/selftest/a.cuh"):
            text = SPDX + f'#include "{include}"\n'
            self.expect("src/api/a.cpp:2: layer", {"src/api/a.cpp": text, **device})

    def test_cycle(self):
        status, output = lint(
            {
                "src/core/a.h": SPDX + '#include "core/b.h"\n',
                "src/core/b.h": SPDX + '#include "core/a.h"\n',
            }
        )
        self.assertEqual(status, 1)
        self.assertIn("src/core/a.h:2: cycle", output)
        self.assertIn("src/core/b.h:2: cycle", output)

    def test_reference_reaches_device_through_others(self):
        self.expect(
            "src/backend/cpu/reference.cpp:2: reference: reaches src/device/mask.h",
            {
                "src/backend/cpu/reference.cpp": SPDX + '#include "backend/cpu/helper.h"\n',
                "src/backend/cpu/helper.h": SPDX + '#include "device/mask.h"\n',
                "src/device/mask.h": SPDX,
            },
        )


if __name__ == "__main__":
    unittest.main()
