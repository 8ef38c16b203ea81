# SPDX-License-Identifier: BSD-3-Clause
"""fa3 jit, and what fa3 info says of CUDA, with the fake driver and the fake NVRTC of tests/cuda:
they are the same on machines with and without a GPU. FA3_FAKES is their folder."""

import json
import os
import resource
import unittest

from kit import BAD_INPUT, FAILED, USAGE, CliTest, built_fake

HEADER = "device/types.h"  # any file of the library's device code
PROGRAMS = [{"header": HEADER, "expression": "fa3::a<1>"}]


class JitTest(CliTest):
    def setUp(self):
        super().setUp()
        self.environment = {
            **os.environ,
            "FA3_CACHE_DIR": self.path("cache"),
            "FA3_NVRTC": built_fake("nvrtc"),
        }
        self.environment.pop("FA3_KERNEL_PACK", None)

    def run_fa3(self, *args, **options):
        environment = {**self.environment, **options.pop("env", {})}
        return super().run_fa3(*args, env=environment, **options)

    def fa3_json(self, *args, **options):
        return json.loads(self.fa3(*args, "--json", **options))

    def programs(self, content):
        path = self.folder / "programs.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path


class Jit(JitTest):
    def test_warm_fills_the_cache(self):
        first = self.fa3_json("jit", "--warm", "all")
        self.assertGreaterEqual(len(first), 1)
        self.assertEqual({row["source"] for row in first}, {"compiled"})
        second = self.fa3_json("jit", "--warm", "all")
        self.assertEqual({row["source"] for row in second}, {"disk"})
        self.assertEqual([row["bytes"] for row in first], [row["bytes"] for row in second])
        listed = self.fa3_json("jit", "--list")
        self.assertEqual(listed["cache"]["entries"], len(first))
        self.assertEqual(listed["cache"]["folder"], self.path("cache"))
        self.assertEqual({p["kept"] for p in listed["programs"]}, {"disk"})
        self.assertIn("disk", self.fa3("jit", "--warm", "all"))

    def test_list_can_be_warmed(self):
        listed = self.fa3_json("jit", "--list")
        self.assertEqual({p["kept"] for p in listed["programs"]}, {None})
        rows = self.fa3_json("jit", "--warm", self.programs(listed["programs"]))
        self.assertEqual(len(rows), len(listed["programs"]))

    def test_names(self):
        names = "fwd/d128/bf16/causal,samples/gemm"
        rows = self.fa3_json("jit", "--warm", names)
        self.assertEqual(
            [row["name"] for row in rows],
            [
                f"fwd/d128/bf16/causal/{lengths}{part}"
                for lengths in ("dense", "ragged")
                for part in ("/q64", "/q1024", "/q4096", "", "/few_tiles")
            ]
            + [f"samples/gemm/{x}" for x in ("bf16", "f16", "e4m3", "bf16_transposed", "e5m2")],
        )
        self.assertRegex(rows[1]["expression"], "sm90::fwd<.*kBf16.*head_dim_qk = 128,.*kCausal")
        listed = self.fa3_json("jit", "--list")["programs"]
        self.assertEqual(len({p["name"] for p in listed}), len(listed))
        kept = {p["name"] for p in listed if p["kept"]}
        self.assertEqual(kept, {row["name"] for row in rows})
        self.assertIn("disk    fwd/d128/bf16/causal/dense\n", self.fa3("jit", "--list"))
        softcap = self.fa3_json("jit", "--warm", "fwd/d80/bf16/full/dense/softcap")
        self.assertRegex(softcap[0]["expression"], "head_dim_qk = 80,.*kSoftcap")

    def test_names_in_a_file(self):
        mixed = self.programs(["fwd/d64/q64", *PROGRAMS, "fwd/d64/q64/bf16"])
        rows = self.fa3_json("jit", "--warm", mixed)
        self.assertEqual(len(rows), 13)
        self.assertNotIn("name", rows[-1])

    def test_names_of_nothing(self):
        for name in ["fwd/d100", "fwd/bf16/f16", "fwd,fwd/q63", "samples/ge", "all/fwd", "fwd,,"]:
            for what in [["--warm", name], ["--pack", self.path("pack"), "--programs", name]]:
                self.assert_fails(USAGE, "jit", *what, says=["kernels '", "need "])
        long = ",".join(["samples"] * 40)  # longer than a file's name may be
        rows = self.fa3_json("jit", "--warm", long)
        self.assertEqual(len(rows), len(self.fa3_json("jit", "--warm", "samples")))

    def test_clear(self):
        self.fa3("jit", "--warm", "all")
        self.fa3("jit", "--clear")
        self.assertEqual(self.fa3_json("jit", "--list")["cache"]["entries"], 0)
        self.assertEqual(os.listdir(self.path("cache")), [])
        os.rmdir(self.path("cache"))
        self.fa3("jit", "--clear")
        self.assertNotIn("cache", self.names())

    def test_pack_replaces_compiler_and_cache(self):
        pack = self.path("kernels.fa3pack")
        self.fa3("jit", "--pack", pack, "--programs", self.programs(PROGRAMS))
        bare = {
            "FA3_NVRTC": "/absent/libnvrtc.so",
            "FA3_KERNEL_PACK": pack,
            "FA3_CACHE_DIR": self.path("other"),
        }
        rows = self.fa3_json("jit", "--warm", self.programs(PROGRAMS), env=bare)
        self.assertEqual([row["source"] for row in rows], ["pack"])
        listed = self.fa3_json("jit", "--list", env=bare)
        self.assertEqual(
            listed["pack"], {"usable": True, "file": pack, "nvrtc": "13.0", "kernels": 1}
        )
        self.assertFalse(listed["nvrtc"]["usable"])
        self.assertIn("/absent/libnvrtc.so", listed["nvrtc"]["why"])
        self.assertIn(pack, self.fa3("jit", "--list", env=bare))

    def test_wrong_lists(self):
        cases = [
            ("{", "not a JSON array"),
            ("{}", "not a JSON array"),
            ('[{"header": "a"}]', "programs[0]"),
            ('[{"header": "a", "expression": 1}]', "expression"),
        ]
        for content, says in cases:
            self.programs(content)
            self.assert_fails(
                BAD_INPUT,
                "jit",
                "--warm",
                self.folder / "programs.json",
                says=[says, "programs.json"],
            )
        for path in [self.path("absent.json"), str(self.folder)]:
            self.assert_fails(BAD_INPUT, "jit", "--warm", path, says=[path, "cannot be read"])

    def test_header_that_is_not_the_librarys(self):
        (self.folder / "mine.cuh").write_text("")
        (self.folder / "cache").mkdir(mode=0o700)
        mine = self.programs([{"header": self.path("mine.cuh"), "expression": "fa3::a<1>"}])
        for what in [["--warm", mine], ["--pack", self.path("pack"), "--programs", mine]]:
            self.assert_fails(BAD_INPUT, "jit", *what, says=["mine.cuh", "device code"])
        self.assertEqual(self.fa3_json("jit", "--list")["cache"]["entries"], 0)

    def test_kernel_that_does_not_compile(self):
        programs = self.programs([{"header": HEADER, "expression": "fa3::broken"}])
        (self.folder / "cache").mkdir(mode=0o700)
        self.assert_fails(
            FAILED, "jit", "--warm", programs, says=["fa3::broken", HEADER, "fake log"]
        )

    def test_no_compiler(self):
        (self.folder / "cache").mkdir(mode=0o700)
        for what in [["--warm", "all"], ["--pack", self.path("pack")]]:
            message = self.assert_fails(
                FAILED,
                "jit",
                *what,
                env={"FA3_NVRTC": "/absent/libnvrtc.so"},
                says=["no usable NVRTC", "/absent/libnvrtc.so", "FA3_NVRTC"],
            )
            self.assertRegex(message, r"\Afa3 jit: no ")

    def test_cache_that_others_may_write(self):
        (self.folder / "cache").mkdir()
        (self.folder / "cache").chmod(0o777)
        for what in [["--warm", "all"], ["--clear"]]:
            self.assert_fails(FAILED, "jit", *what, says=["mode 777", "FA3_CACHE_DIR"])
        self.assertIn("mode 777", self.fa3_json("jit", "--list")["cache"]["why"])

    def test_pack_that_cannot_be_written(self):
        self.fa3("jit", "--warm", "all")
        self.assert_fails(
            FAILED, "jit", "--pack", self.path("no/pack"), says=["no/pack", "No such file"]
        )
        link = self.folder / "link"
        link.symlink_to(self.folder / "target")
        for path in [link, self.folder]:
            self.assert_fails(
                FAILED, "jit", "--pack", path, says=[str(path), "not an ordinary file"]
            )
        self.assertTrue(link.is_symlink())
        self.assert_fails(USAGE, "jit", "--pack", "", says="--pack: got '', need FILE")
        says = ["pack cannot be written", "File too large", "free space or name another place"]
        full = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
        self.assert_fails(FAILED, "jit", "--pack", self.path("pack"), preexec_fn=full, says=says)

    def test_pack_that_is_none(self):
        pipe = self.path("pipe")
        os.mkfifo(pipe)
        listed = self.fa3_json("jit", "--list", env={"FA3_KERNEL_PACK": pipe})
        self.assertIn("not a sound pack", listed["pack"]["why"])

    def test_kernel_that_is_listed_twice_is_bundled_once(self):
        sizes = []
        for copies in [1, 2]:
            pack = self.path("pack")
            self.fa3("jit", "--pack", pack, "--programs", self.programs(copies * PROGRAMS))
            sizes.append(os.path.getsize(pack))
        self.assertEqual(sizes[0], sizes[1])
        self.assertIn("1 kernel by", self.fa3("jit", "--list", env={"FA3_KERNEL_PACK": pack}))

    def test_one_thing_at_a_time(self):
        for what in [[], ["--list", "--clear"], ["--warm", "all", "--pack", self.path("p")]]:
            self.assert_fails(USAGE, "jit", *what, says="exactly one")
        for what in [["--list"], ["--warm", "all"]]:
            self.assert_fails(USAGE, "jit", *what, "--programs", "all", says="--pack")


class InfoOnCuda(JitTest):
    def why(self, library=None, **variables):
        """What `fa3 info` says of the cuda backend with that file as libcuda.so.1."""
        folder = self.folder / "driver"
        folder.mkdir(exist_ok=True)
        place = folder / "libcuda.so.1"
        place.unlink(missing_ok=True)
        if library is not None:
            place.symlink_to(library)
        environment = {"LD_LIBRARY_PATH": str(folder), **variables}
        info = self.fa3_json("info", env=environment)
        backends = {b["name"]: b for b in info["build"]["backends"]}
        why = backends["cuda"]["why"]
        self.assertEqual(backends["cuda"]["usable"], why.startswith("forward in f16 and bf16"))
        self.assertIn(backends["cuda"]["why"], self.fa3("info", env=environment))
        return backends["cuda"]["why"]

    def assert_why(self, says, *args, **variables):
        why = self.why(*args, **variables)
        for text in says:
            self.assertIn(text, why)

    def test_driver_that_is_none(self):
        text = self.folder / "text"
        text.write_text("no library")
        self.assert_why(["no NVIDIA driver", "libcuda.so.1", "550"], text)

    def test_driver_too_old_incomplete_or_failing(self):
        driver = built_fake("driver")
        self.assert_why(["CUDA 12.2", "12.4", "550"], driver, FAKE_CUDA_VERSION="12020")
        self.assert_why(["incomplete", "cuInit"], built_fake("partial"))
        self.assert_why(["does not start", "cuInit"], driver, FAKE_CUDA_INIT="999")
        self.assert_why(["CUDA_ERROR_FAKE"], driver, FAKE_CUDA_FAIL="cuDeviceGet")

    def test_gpu_that_is_none_of_ours(self):
        driver = built_fake("driver")
        self.assert_why(["sees no GPU"], driver, FAKE_CUDA_GPUS="0", FAKE_CUDA_INIT="100")
        self.assert_why(["8.0", "9.0", "Hopper"], driver, FAKE_CUDA_CAPABILITY="80")

    def test_compiler_too_old_or_too_new(self):
        driver = built_fake("driver")
        self.assert_why(["version 12.2", "12.4"], driver, FAKE_NVRTC_VERSION="12020")
        self.assert_why(["too new", "CUDA 12.8"], driver, FAKE_CUDA_VERSION="12080")

    def test_all_there(self):
        self.assert_why(
            ["forward in f16 and bf16", "Fake H200", "CUDA 13.0", "NVRTC 13.0"],
            built_fake("driver"),
        )

    @unittest.skipIf(os.path.exists("/usr/lib/x86_64-linux-gnu/libcuda.so.1"), "has a driver")
    def test_no_driver(self):
        self.assert_why(["no NVIDIA driver", "libcuda.so.1", "550"])


if __name__ == "__main__":
    unittest.main()
