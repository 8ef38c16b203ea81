# SPDX-License-Identifier: BSD-3-Clause
"""machine.py — what a result says about where it was measured: processor and commit, no host."""

import os
import pathlib
import subprocess
import time

_VENDORS = {"GenuineIntel": "intel", "AuthenticAMD": "amd", "HygonGenuine": "hygon"}


def device_slug(instruction_set, cpuinfo="/proc/cpuinfo"):
    """Folder name of a processor: vendor, family, model, SIMD in use; cpu-intel-6-207-avx3_bf16."""
    fields = {}
    if pathlib.Path(cpuinfo).exists():
        for line in pathlib.Path(cpuinfo).read_text().splitlines():
            key, _, value = line.partition(":")
            fields.setdefault(key.strip(), value.strip())
    if "vendor_id" in fields:
        vendor = _VENDORS.get(fields["vendor_id"], "x86")
        parts = [vendor, fields.get("cpu family", "0"), fields.get("model", "0")]
    elif "CPU part" in fields:
        parts = ["arm", fields.get("CPU implementer", "0"), fields["CPU part"]]
    else:
        parts = ["unknown"]
    return "-".join(["cpu", *parts, instruction_set])


def commit(root):
    """Short commit of the tree at root, -dirty when tracked files differ; unknown without git."""

    def git(*arguments):
        command = ["git", "-C", str(root), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no")
        return git("rev-parse", "--short=12", "HEAD") + ("-dirty" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


class Neighbours:
    """How many cores all but this process has kept busy since this was made (Linux; else 0)."""

    def __init__(self):
        self._begin = self._now()

    @staticmethod
    def _now():
        """(wall, CPU of the whole machine, CPU of this process and its ended children), seconds."""
        own = sum(os.times()[:4])
        machine = own
        if pathlib.Path("/proc/stat").exists():
            # user nice system idle iowait irq softirq steal; time stolen by other guests counts
            ticks = list(map(int, pathlib.Path("/proc/stat").read_text().split()[1:9]))
            machine = (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")
        return time.perf_counter(), machine, own

    def cores(self):
        wall, machine, own = (now - then for now, then in zip(self._now(), self._begin))
        return max(0.0, round((machine - own) / wall, 3))
