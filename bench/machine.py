#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""machine.py — what a result says about how it was measured: commit, processor or GPU, driver; no
host. And the refusal of results that do not say it. `bench/machine.py` prints the commit."""

import ctypes
import datetime
import json
import os
import pathlib
import re
import subprocess
import time

UNKNOWN = "unknown"
# Of the first line of a result, by where it was measured.
CPU_FIELDS = ("suite", "started", "device_name", "fa3", "fa3_commit", "torch")
GPU_FIELDS = ("suite", "started", "device_name", "driver", "cuda", "fa3", "fa3_commit")

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
    """Short commit of the tree or bundle at root, -dirty when tracked files differ; else unknown.

    A bundle of gpu_check/ has no repository, or lies inside another one: its VERSION counts."""
    version = pathlib.Path(root, "VERSION")
    if version.is_file():
        named = re.search(r"\bcommit ([\w-]+)", version.read_text())
        return named.group(1) if named else UNKNOWN

    def git(*arguments):
        command = ["git", "-C", str(root), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no")
        return git("rev-parse", "--short=12", "HEAD") + ("-dirty" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return UNKNOWN


def driver_versions():
    """(driver, as nvidia-smi prints it; the newest CUDA that it supports), from NVML."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return UNKNOWN, UNKNOWN
    text, number = ctypes.create_string_buffer(96), ctypes.c_int()
    if nvml.nvmlInit_v2() != 0:
        return UNKNOWN, UNKNOWN
    driver = nvml.nvmlSystemGetDriverVersion(text, ctypes.c_uint(len(text))) == 0
    cuda = nvml.nvmlSystemGetCudaDriverVersion_v2(ctypes.byref(number)) == 0
    return (
        text.value.decode() if driver else UNKNOWN,
        f"{number.value // 1000}.{number.value // 10 % 100}" if cuda else UNKNOWN,
    )


def gpu_meta(suite, device_name, fa3, fa3_commit):
    """First line of a result that is measured on a GPU; gpu_meta.h writes the same in C++."""
    driver, cuda = driver_versions()
    now = datetime.datetime.now(datetime.timezone.utc)
    return {
        "kind": "meta",
        "suite": suite,
        "started": now.isoformat(timespec="seconds"),
        "device_name": device_name,
        "driver": driver,
        "cuda": cuda,
        "fa3": fa3,
        "fa3_commit": fa3_commit,
    }


def load(path):
    """Lines of a result file. Raises ValueError with the place."""
    lines = []
    for number, text in enumerate(path.read_text().splitlines(), 1):
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError as error:
            raise ValueError(
                f"{path.name}:{number}: not JSON ({error}); restore the file from version control"
            ) from None
    if not lines:
        raise ValueError(f"{path.name}: empty; restore the file from version control")
    return lines


def result_name(meta):
    """File name of a result in results/<device>/."""
    return f"{meta['started'][:10]}-{meta['fa3_commit']}-{meta['suite']}.jsonl"


def missing(meta, fields):
    """The fields that the first line of a result lacks."""
    return [name for name in fields if meta.get(name) in (None, "", UNKNOWN)]


def require(name, lines, fields, remedy):
    """Raises ValueError unless a result says how it was measured: one meta line, the first, with
    these fields; on a GPU, in every cell, also the row of fa3's table."""
    metas = [line for line in lines if line.get("kind") == "meta"]
    if len(metas) > 1:
        raise ValueError(f"{name}: {len(metas)} meta lines; need one run in one file; {remedy}")
    lacks = missing(lines[0] if metas and metas[0] is lines[0] else {}, fields)
    if not metas:
        lacks.insert(0, "meta line")
    if "driver" in fields:
        cells = [line for line in lines if "cell" in line or "case" in line]
        without = sum(not line.get("row") for line in cells)
        if without:
            lacks.append(f"row in {without} of {len(cells)} cells")
    if lacks:
        lacking = ", ".join(lacks)
        raise ValueError(f"{name}: does not say how it was measured: no {lacking}; {remedy}")


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


if __name__ == "__main__":
    print(commit(pathlib.Path(__file__).resolve().parent.parent))
