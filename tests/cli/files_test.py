# SPDX-License-Identifier: BSD-3-Clause
"""Where fa3 run reads and writes: pipes, files not to be lost, what a killed run has left."""

import os
import pathlib
import pty
import signal
import stat
import subprocess
import time
import unittest

import tensors
from kit import BAD_INPUT, DONE, FA3, FAILED, USAGE, CliTest


def contents(path):
    with open(path, "rb") as file:
        return file.read()


class FilesTest(CliTest):
    def setUp(self):
        super().setUp()
        self.source, self.out = self.path("in.safetensors"), self.path("out.safetensors")
        tensors.write(self.source, tensors.dense())


class Overwriting(FilesTest):
    def test_map_spares_input_and_output(self):
        before = contents(self.source)
        os.symlink("in.safetensors", self.path("link"))
        os.link(self.source, self.path("other name"))
        for name in ["in.safetensors", "./in.safetensors", "link", "other name"]:
            args = ["run", self.source, "-o", self.out, "--map", f"{self.folder}/{name}"]
            self.assert_fails(USAGE, *args, says=["--map", name, "input", "another"])
        for name in ["out.safetensors", "../" + self.folder.name + "/out.safetensors"]:
            args = ["run", self.source, "-o", self.out, "--map", f"{self.folder}/{name}"]
            self.assert_fails(USAGE, *args, says=["--map", "output"])  # which is not there yet
        self.assert_fails(USAGE, "run", self.source, "-o", self.out, "--map", "-", says="--map")
        self.assertEqual(contents(self.source), before)

    def test_link_to_nowhere_stays_a_link(self):
        os.symlink("new.safetensors", self.path("dangling"))
        self.fa3("run", self.source, "-o", self.path("dangling"))
        self.assertTrue(os.path.islink(self.path("dangling")))
        self.assertIn("o", tensors.read(self.path("new.safetensors")))
        os.remove(self.path("new.safetensors"))
        both = ["-o", self.path("dangling"), "--map", self.path("new.safetensors")]
        self.assert_fails(USAGE, "run", self.source, *both, says=["--map", "output"])
        os.symlink("loop", self.path("loop"))
        for place in [["-o", self.path("loop")], ["-o", self.out, "--map", self.path("loop")]]:
            self.assert_fails(FAILED, "run", self.source, *place, says="Too many levels")

    def test_mode_is_kept(self):
        picture = self.path("map.png")
        args = ["run", self.source, "-o", self.out, "--map", picture]
        self.fa3(*args, preexec_fn=lambda: os.umask(0o027))
        for path in [self.out, picture]:
            self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o640)  # a new file's
        os.chmod(self.out, 0o604)
        os.chmod(picture, 0o600)
        inode = os.stat(self.out).st_ino
        self.fa3(*args, preexec_fn=lambda: os.umask(0o077))
        self.assertNotEqual(os.stat(self.out).st_ino, inode)
        self.assertEqual(stat.S_IMODE(os.stat(self.out).st_mode), 0o604)
        self.assertEqual(stat.S_IMODE(os.stat(picture).st_mode), 0o600)

    @unittest.skipUnless(os.geteuid() == 0, "only root may give files away")
    def test_owner_is_kept(self):
        self.fa3("run", self.source, "-o", self.out)
        os.chown(self.out, 12345, 23456)
        self.fa3("run", self.source, "-o", self.out)
        self.assertEqual((os.stat(self.out).st_uid, os.stat(self.out).st_gid), (12345, 23456))


    def test_names_that_cannot_be(self):
        """Noticed before the work."""
        long = self.path("x" * 256)
        self.assert_fails(FAILED, "run", self.source, "-o", long, says=["x: ", "a shorter one"])
        args = ["run", self.source, "-o", self.out, "--map"]
        self.assert_fails(FAILED, *args, long, says=["--map: ", "a shorter one"])

    @unittest.skipUnless(os.geteuid() == 0, "only root may become another user")
    def test_file_of_another_in_a_sticky_folder(self):
        self.folder.chmod(0o1777)
        (self.folder / "out").write_text("theirs")
        (self.folder / "out").chmod(0o666)
        os.chmod(self.source, 0o644)
        nobody = lambda: (os.setgroups([]), os.setgid(65534), os.setuid(65534))
        if self.run_fa3("--version", preexec_fn=nobody).returncode:
            self.skipTest(f"{FA3} is out of reach for others than root")
        says = ["cannot replace: it is another user's", "name another"]
        args = ["run", self.source, "-o", self.path("out")]
        self.assert_fails(FAILED, *args, preexec_fn=nobody, says=says)

    def test_name_that_is_not_utf8(self):
        out = self.folder / os.fsdecode(b"\xff.safetensors")
        for command in ["run", "quantize"]:
            report = self.fa3_json(command, self.source, "-o", out)
            self.assertEqual(report["output"], self.path("\ufffd.safetensors"))


def holds_a_lock(pid):
    """Whether one of its files is locked: a temporary one exists a moment before it is."""
    try:
        found = [entry.read_text() for entry in pathlib.Path(f"/proc/{pid}/fdinfo").iterdir()]
    except OSError:  # it closes one of them
        return False
    return any("FLOCK" in text for text in found)


class Killed(FilesTest):
    def temporary(self):
        return [name for name in self.names() if name.startswith(".fa3-")]

    def start_long(self):
        """A run of many seconds that has made and locked its temporary file."""
        count = 2000 * 64 * 16
        long = ("F32", [1, 2000, 64, 16], tensors.draw((1000,), 5)[2] * (count // 1000))
        tensors.write(self.path("long.safetensors"), {"q": long, "k": long, "v": long})
        command = [FA3, "run", self.path("long.safetensors"), "-o", self.path("o.safetensors")]
        before = self.temporary()
        process = subprocess.Popen([*command, "--backend", "reference", "--threads", "1"])
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        end = time.monotonic() + 60
        locked = lambda: self.temporary() != before and holds_a_lock(process.pid)
        while not locked() and time.monotonic() < end:
            time.sleep(0.01)
        process.send_signal(signal.SIGSTOP)  # however long what follows takes
        self.assertIsNone(process.poll())
        return process

    def test_next_run_removes_what_a_killed_one_left(self):
        process = self.start_long()
        (name,) = self.temporary()
        self.fa3("run", self.source, "-o", self.out)
        self.assertEqual(self.temporary(), [name])  # that process is alive
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.assertEqual(self.temporary(), [name])
        foreign = [".fa3-mine.tmp", ".fa3-0123456g.tmp", ".fa3-01234567.tmp~"]
        for other in foreign:
            open(self.path(other), "w").close()
        os.mkdir(self.path(".fa3-89abcdef.tmp"))
        os.symlink("in.safetensors", self.path(".fa3-01234567.tmp"))
        self.fa3("run", self.source, "-o", self.out)
        left = sorted([*foreign, ".fa3-89abcdef.tmp", ".fa3-01234567.tmp"])
        self.assertEqual(self.temporary(), left)
        self.assertTrue(os.path.exists(self.source))


class Streams(FilesTest):
    def piped(self, *args, data=b"", **options):
        command = [FA3, *args]
        return subprocess.run(command, input=data, capture_output=True, timeout=60, **options)

    def test_pipes(self):
        self.fa3("run", self.source, "-o", self.out)
        data, want = contents(self.source), contents(self.out)
        before = self.names()
        for args in [["-", "-o", "-"], [self.source, "-o", "-"], ["-", "-o", "-", "--mmap"]]:
            result = self.piped("run", *args, data=data)
            self.assertEqual((result.returncode, result.stderr), (DONE, b""), args)
            self.assertEqual(result.stdout, want, args)
        self.assertEqual(self.names(), before)
        with open(self.source) as file:  # a file as stdin needs no copy
            options = {"stdin": file, "capture_output": True, "env": {"TMPDIR": "/none"}}
            result = subprocess.run([FA3, "run", "-", "-o", "-"], **options)
            self.assertEqual(result.stdout, want)
        result = self.piped("run", "-", "-o", "-", data=data, env={"TMPDIR": ""})
        self.assertEqual((result.returncode, result.stdout), (DONE, want))
        check = self.piped("check", "-", data=data)
        self.assertEqual(check.returncode, DONE)

    def test_wrong_input(self):
        result = self.piped("run", "-", "-o", "-", data=b"no tensors")
        self.assertEqual((result.returncode, result.stdout), (BAD_INPUT, b""))
        self.assertIn(b"fa3 run: stdin: ", result.stderr)
        data = contents(self.source)
        result = self.piped("run", "-", "-o", "-", data=data, env={"TMPDIR": "/none"})
        self.assertEqual((result.returncode, result.stdout), (FAILED, b""))
        self.assertIn(b"TMPDIR", result.stderr)

    def test_terminals_are_refused(self):
        terminal, other_end = pty.openpty()
        self.addCleanup(os.close, terminal)
        self.addCleanup(os.close, other_end)
        run = [FA3, "run", self.source, "-o", "-"]
        result = subprocess.run(run, stdout=other_end, stderr=subprocess.PIPE, timeout=60)
        self.assertEqual(result.returncode, USAGE)
        self.assertIn(b"terminal", result.stderr)
        self.assert_fails(USAGE, "run", "-", "-o", self.out, stdin=other_end, says="terminal")

    def test_nothing_else_on_stdout(self):
        self.assert_fails(USAGE, "run", self.source, "-o", "-", "--json", says=["--json", "-o -"])

    def test_reader_that_has_gone(self):
        picture = self.path("map.png")
        before = self.names()
        read_end, write_end = os.pipe()
        os.close(read_end)
        run = [FA3, "run", self.source, "-o", "-", "--map", picture]
        result = subprocess.run(run, stdout=write_end, stderr=subprocess.PIPE, timeout=60)
        os.close(write_end)
        self.assertEqual((result.returncode, result.stderr), (-signal.SIGPIPE, b""))
        self.assertEqual(self.names(), before)


class Integers(FilesTest):
    def varlen(self, dtype, ends):
        length = ends[-1]
        draw = lambda heads, seed: tensors.draw((9, heads, 4), seed)
        cu = (dtype, [len(ends)], ends)
        tensors.write(
            self.source,
            {"q": draw(2, 1), "k": draw(1, 2), "v": draw(1, 3)}
            | {"cu_seqlens_q": cu, "cu_seqlens_kv": cu, "seqused_kv": (dtype, [2], [2, 5])},
        )

    def test_64_bits(self):
        results = []
        for dtype in ["I32", "I64"]:
            self.varlen(dtype, [0, 3, 9])
            self.fa3("run", self.source, "-o", self.out)
            results.append(contents(self.out))
        self.assertEqual(*results)

    def test_values_that_32_bits_cannot_hold(self):
        for wrong in [2**31, -(2**31) - 1, 2**32]:
            self.varlen("I64", [0, wrong, 9])
            says = ["cu_seqlens_q", "element 1", str(wrong), "32 bits"]
            self.assert_fails(BAD_INPUT, "run", self.source, "-o", self.out, says=says)


class Layout(FilesTest):
    def test_swapped_layout_is_suggested(self):
        # 8 queries and 3 keys: not valid numbers of heads, if mistaken for them.
        first = {"q": (1, 4, 8, 4), "k": (1, 2, 3, 4), "v": (1, 2, 3, 4)}
        tensors.write(self.source, {n: tensors.draw(shape, 1) for n, shape in first.items()})
        args = ["run", self.source, "-o", self.out]
        says = ["(1, 4, 8, 4)", "give --layout bhsd"]
        self.assert_fails(BAD_INPUT, *args, says=says)
        self.fa3(*args, "--layout", "bhsd")
        tensors.write(self.source, tensors.dense(1, 8, 3, 4, 2))
        says = ["give --layout bshd"]
        self.assert_fails(BAD_INPUT, *args, "--layout", "bhsd", says=says)


if __name__ == "__main__":
    unittest.main()
