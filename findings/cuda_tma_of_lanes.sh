#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# cuda_tma_of_lanes.sh — CUDA 13: a TMA load that all lanes of a warp issue, each with a box of its
# own, becomes a loop that issues one lane's box after another.
#
# cp.async.bulk.tensor takes coordinates, an address and an mbarrier in ordinary registers, so that
# a lane a page looks like one instruction for 32 pages. The machine's instruction takes uniform
# registers: for sm_90a ptxas elects a lane, moves its operands there, issues, and branches back
# while lanes are left. On an H200 that took a warp some 60 clocks a box, of 128 bytes or of 4 kB
# alike, and four warps beside each other took no longer each: boxes are spread over warps, not over
# lanes. A lane picked by threadIdx.x == 0 gets the loop, too; one that elect.sync picks does
# not.
#
# Seen: TMA loads in the machine code, and votes that branch back to them.
#   threadIdx.x == 0: 1 loads, 1 loops
#   elect.sync: 1 loads, 0 loops
#   each lane: 1 loads, 1 loops
. "$(dirname "$0")/kit.sh"
install nvidia-cuda-nvrtc==13.5.37 nvidia-cuda-nvdisasm==13.5.37
cat >tma.py <<'END'
import ctypes, pathlib, subprocess, sys, sysconfig

SOURCE = r"""
extern "C" __global__ void one(const __grid_constant__ char map[128]) {
  extern __shared__ __align__(128) char memory[];
  const unsigned to = __cvta_generic_to_shared(memory);
  if (threadIdx.x == 0)
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3}], [%4];" ::"r"(to + 128), "l"(map), "r"(0), "r"(5), "r"(to)
                 : "memory");
}
extern "C" __global__ void elected(const __grid_constant__ char map[128]) {
  extern __shared__ __align__(128) char memory[];
  const unsigned to = __cvta_generic_to_shared(memory);
  unsigned leads;
  asm volatile("{.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;}" : "=r"(leads));
  if (leads)
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3}], [%4];" ::"r"(to + 128), "l"(map), "r"(0), "r"(5), "r"(to)
                 : "memory");
}
extern "C" __global__ void each(const __grid_constant__ char map[128], const int* row) {
  extern __shared__ __align__(128) char memory[];
  const unsigned to = __cvta_generic_to_shared(memory);
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
               "[%0], [%1, {%2, %3}], [%4];" ::"r"(to + 128 + 128 * threadIdx.x), "l"(map), "r"(0),
               "r"(row[threadIdx.x]), "r"(to)
               : "memory");
}
"""
site = pathlib.Path(sysconfig.get_path("purelib"), "nvidia", "cu13")
nvrtc = ctypes.CDLL(str(next(site.glob("lib/libnvrtc.so.*"))))
program, size = ctypes.c_void_p(), ctypes.c_size_t()
nvrtc.nvrtcCreateProgram(ctypes.byref(program), SOURCE.encode(), b"tma.cu", 0, None, None)
options = [b"--gpu-architecture=sm_90a"]
if nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options)):
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    sys.exit(log.value.decode())
nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size))
code = ctypes.create_string_buffer(size.value)
nvrtc.nvrtcGetCUBIN(program, code)
pathlib.Path("tma.cubin").write_bytes(code.raw)
text = subprocess.check_output([site / "bin/nvdisasm", "-c", "tma.cubin"], text=True)
for name, words in (("one", "threadIdx.x == 0"), ("elected", "elect.sync"), ("each", "each lane")):
    body = text.split(f".section\t.text.{name}")[1].split(".section")[0]
    print(f"{words}: {body.count('UTMALDG')} loads, {body.count('BRA.U.ANY')} loops")
END
as_seen "$("$python" tma.py)"
