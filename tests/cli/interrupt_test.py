# SPDX-License-Identifier: BSD-3-Clause
"""Ctrl-C: exit code 130, no output, no temporary file."""

import resource
import select
import signal
import subprocess
import time
import unittest
from pathlib import Path

import tensors
from kit import FA3, INTERRUPTED, CliTest


def as_from_a_terminal(ignoring=()):
    """No signal ignored but these, wherever the tests were started from."""
    for of in [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]:
        signal.signal(of, signal.SIG_IGN if of in ignoring else signal.SIG_DFL)


def signals_of(process, kind):
    """Of a process, by number: signals that wait for it (ShdPnd) or have a handler (SigCgt)."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    (mask,) = (line.split()[1] for line in status.splitlines() if line.startswith(kind + ":"))
    return {n for n in range(1, 65) if int(mask, 16) >> (n - 1) & 1}


class Interrupt(CliTest):
    def wait_until(self, condition, otherwise):
        end = time.monotonic() + 60
        while not condition() and time.monotonic() < end:
            time.sleep(0.01)
        self.assertTrue(condition(), otherwise)

    def write_long_problem(self):
        """Many seconds for the reference, in tasks short enough to stop soon under sanitizers."""
        count = 2000 * 64 * 16
        block = tensors.draw((1000,), 5)[2]
        tensor = ("F32", [1, 2000, 64, 16], block * (count // 1000))
        tensors.write(
            self.path("in.safetensors"), {"q": tensor, "k": tensor, "v": tensor, "do": tensor}
        )

    def start(self, when, *args, ignoring=()):
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        signals = lambda: as_from_a_terminal(ignoring)
        process = subprocess.Popen([FA3, *args], **pipes, preexec_fn=signals)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.wait_until_it_listens(process, ignoring)
        self.wait_until(when, "the work never began")
        self.assertIsNone(process.poll(), "the work was over too soon")
        return process

    def wait_until_it_listens(self, process, ignoring=()):
        """Before its handlers are there a signal ends a process, which may take long to load."""
        wanted = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP} - set(ignoring)
        self.wait_until(lambda: wanted <= signals_of(process, "SigCgt"), "no handlers")

    def interrupt(self, when, *args, by=signal.SIGINT):
        process = self.start(when, *args)
        process.send_signal(by)
        stdout, stderr = process.communicate(timeout=60)
        self.assertEqual((process.returncode, stdout), (INTERRUPTED, ""))
        self.assertIn("interrupted", stderr)

    def test_run_leaves_nothing_behind(self):
        self.write_long_problem()
        run = [
            "run",
            self.path("in.safetensors"),
            "-o",
            self.path("out.safetensors"),
            "--backend",
            "reference",
        ]
        run += ["--threads", "1"]
        began = lambda: len(self.names()) > 1  # the temporary file
        for by in [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]:
            self.interrupt(began, *run, by=by)
            self.assertEqual(self.names(), ["in.safetensors"])
        self.interrupt(
            lambda: len(self.names()) > 2, *run, "--backward", "--map", self.path("map.png")
        )
        self.assertEqual(self.names(), ["in.safetensors"])

    def test_nohup_outlives_its_terminal(self):
        self.write_long_problem()
        run = ["run", self.path("in.safetensors"), "-o", self.path("out.safetensors")]
        process = self.start(
            lambda: len(self.names()) > 1,
            *[*run, "--backend", "reference", "--threads", "1"],
            ignoring=[signal.SIGHUP, signal.SIGINT],
        )
        for ignored in [signal.SIGHUP, signal.SIGINT]:
            process.send_signal(ignored)  # does not even wait: it is thrown away
        self.assertIsNone(process.poll())
        process.send_signal(signal.SIGTERM)
        self.assertIn("interrupted", process.communicate(timeout=60)[1])

    def test_second_one_ends_it_at_once(self):
        tensor = tensors.draw([1, 2000, 4, 16], 5)
        tensors.write(self.path("in.safetensors"), {"q": tensor, "k": tensor, "v": tensor})
        process = self.start(lambda: True, "run", self.path("in.safetensors"), "-o", "-")
        select.select([process.stdout], [], [], 60)  # more than the pipe holds: the write blocks
        process.send_signal(signal.SIGINT)
        # Of two that wait at once only one would arrive.
        taken = lambda: signal.SIGINT not in signals_of(process, "ShdPnd")
        self.wait_until(taken, "the first one did not arrive")
        self.assertIsNone(process.poll())
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(timeout=60), -signal.SIGINT)
        process.stdout.close()
        process.stderr.close()

    def test_reference_stops_within_a_head(self):
        tensor = tensors.draw([1, 40000, 1, 8], 5)
        tensors.write(self.path("in.safetensors"), {"q": tensor, "k": tensor, "v": tensor})
        run = ["run", self.path("in.safetensors"), "-o", self.path("out.safetensors")]
        run += ["--backend", "reference", "--threads", "1"]
        used = lambda: sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])  # CPU seconds
        before = used()
        self.interrupt(lambda: len(self.names()) > 1, *run)
        self.assertLess(used() - before, 8)

    def test_run_keeps_the_input_it_was_to_replace(self):
        self.write_long_problem()
        path = self.path("in.safetensors")
        began = lambda: len(self.names()) > 1
        self.interrupt(began, "run", path, "-o", path, "--backend", "reference", "--threads", "1")
        self.assertEqual(self.names(), ["in.safetensors"])
        self.assertEqual(sorted(tensors.read(path)), ["do", "k", "q", "v"])

    def test_check_and_bench(self):
        for command in ["check", "bench"]:
            args = [
                command,
                "--backend",
                "reference",
                "--heads-q",
                "64",
                "--seqlen-q",
                "8000",
                "--json",
            ]
            begin = time.monotonic()
            self.interrupt(lambda: time.monotonic() > begin + 0.5, *args)

    def state_and_parent(self, stat):
        """Of a process; a child that has ended and that nobody has asked about counts as gone."""
        try:
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            return "Z", 0
        return state, int(parent)

    def children(self, process):
        stats = Path("/proc").glob("[0-9]*/stat")
        return [int(s.parent.name) for s in stats if self.state_and_parent(s)[1] == process]

    def runs(self, process):
        return self.state_and_parent(Path(f"/proc/{process}/stat"))[0] != "Z"

    def test_selftest_takes_its_child_along(self):
        process = subprocess.Popen(
            [FA3, "selftest", "--backend", "sim"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=as_from_a_terminal,
        )
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.wait_until_it_listens(process)
        ended = lambda: process.poll() is not None
        self.wait_until(lambda: ended() or self.children(process.pid), "no child")
        child = self.children(process.pid)[0]
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=60)
        self.assertEqual((process.returncode, stdout), (INTERRUPTED, b""))
        self.assertEqual(stderr, b"\nfa3: interrupted\n")
        self.wait_until(lambda: not self.runs(child), "the child lives on")


if __name__ == "__main__":
    unittest.main()
