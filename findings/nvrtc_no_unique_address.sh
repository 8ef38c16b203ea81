#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# nvrtc_no_unique_address.sh — NVRTC 13.0.88: a member behind a struct that ends with an empty
# [[no_unique_address]] member and is aligned beyond its contents is addressed outside the struct's
# own size.
#
# alignas(1024) with 2000 bytes of contents has size 2048. Where a struct has 1024 bytes, such a
# part and then b, sizeof is 4096, a constant of the front end. The address of b in the code is
# 5072 = 1024 + 2048 + 2000: the contents are counted once more. Without the empty member it is
# 3072. A static_assert of the size of shared memory holds all the same. nvcc 13.0.88 does so, too,
# and there offsetof says 3072.
#
# Seen: PTX for compute_90a of both structs.
#   with the empty member: address 5072, sizeof 4096
#   without it: address 3072, sizeof 4096
. "$(dirname "$0")/kit.sh"
install nvidia-cuda-nvrtc==13.0.88
cat >see.py <<'END'
import ctypes
import glob
import re
import sys

packages = sys.prefix + "/lib/python*/site-packages/nvidia/**/libnvrtc.so.13"
(path,) = glob.glob(packages, recursive=True)
nvrtc = ctypes.CDLL(path)

SOURCE = """
struct Empty {};
struct alignas(1024) Part { char contents[2000]; %s };
struct All { char before[1024]; Part part; long long b; };
extern "C" __global__ void see(unsigned long long* out) {
  extern __shared__ char memory[];
  All* all = reinterpret_cast<All*>(memory);
  out[0] = reinterpret_cast<char*>(&all->b) - memory;
  out[1] = sizeof(All);
}
"""


def numbers(member):
    program = ctypes.c_void_p()
    source = (SOURCE % member).encode()
    size = ctypes.c_size_t()
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, b"see.cu", 0, None, None) == 0
    options = (ctypes.c_char_p * 2)(b"-arch=compute_90a", b"-std=c++20")
    if nvrtc.nvrtcCompileProgram(program, 2, options) != 0:
        nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetProgramLog(program, log)
        sys.exit(log.value.decode())
    nvrtc.nvrtcGetPTXSize(program, ctypes.byref(size))
    ptx = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetPTX(program, ptx)
    registers = dict(re.findall(r"mov\.b?u?64\s+(%rd\d+), (\d+);", ptx.value.decode()))
    store = r"st\.global\.b?u?64\s+\[%rd\d+(?:\+(\d+))?\], (%rd\d+|\d+);"
    stores = re.findall(store, ptx.value.decode())
    found = {int(at or 0): int(registers.get(value, value)) for at, value in stores}
    return [found[at] for at in (0, 8)]


EMPTY = "[[no_unique_address]] Empty empty;"
for name, member in (("with the empty member", EMPTY), ("without it", "")):
    address, size = numbers(member)
    print(f"{name}: address {address}, sizeof {size}")
END
as_seen "$("$python" see.py)"
