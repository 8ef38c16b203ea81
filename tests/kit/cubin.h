// SPDX-License-Identifier: BSD-3-Clause
// cubin.h — a kernel's machine code as NVRTC emits it: enough of SASS to see the order of what
// matters. Opcodes are not documented; these were found by compiling code that has to contain them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fa3::kit {

// Low 12 bits of an instruction of sm_90.
enum Opcode : uint16_t {
  kArrive = 0x9a7,        // SYNCS: mbarrier arrive
  kBranch = 0x947,        // BRA
  kClock = 0x805,         // CS2R: clock64
  kConvert = 0x23e,       // F2FP
  kExit = 0x94d,          // EXIT
  kLoadLocal = 0x983,     // LDL
  kMufu = 0x308,          // MUFU: ex2, rcp …
  kRedux = 0x3c4,         // REDUX
  kRegToUniform = 0x2ca,  // R2UR
  kSetMaxReg = 0x9c8,     // USETMAXREG
  kStoreLocal = 0x387,    // STL
  kStoreMatrix = 0x844,   // STSM
  kTmaLoad = 0x5b4,       // UTMALDG
  kTmaStore = 0x3b5,      // UTMASTG
  kTryWait = 0x5a7,       // SYNCS: mbarrier try_wait
  kWarpgroup = 0x9c5,     // WARPGROUP: arrive (wgmma_fence) or depbar (wgmma_wait)
};

struct Instruction {
  uint64_t low, high;

  int opcode() const { return static_cast<int>(low & 0xfff); }
  bool is_predicated() const { return (low >> 12 & 7) != 7; }  // else PT, which is always true
  bool is_wgmma() const;     // of any type, A in shared memory or in registers
  bool is_wgmma_rs() const;  // A in registers
  bool is_wgmma_fence() const { return opcode() == kWarpgroup && low >> 32 == 0; }
  bool is_wgmma_wait() const { return opcode() == kWarpgroup && !is_wgmma_fence(); }
};

// Instructions [begin, end) with a branch at the end back to the beginning.
struct Loop {
  size_t begin, end;
};

class Code {
 public:
  // The code of the kernel with that (mangled) name. Throws std::runtime_error saying what is wrong
  // with the image.
  Code(std::string_view cubin, const std::string& symbol);

  const std::vector<Instruction>& instructions() const { return instructions_; }
  size_t count(int opcode) const;
  // Of all instructions: names, sections and lines do not count.
  std::string sha256() const;

  // Loops that contain a wgmma and no smaller such loop, in the order of their addresses. Spin
  // waits are placed after the kernel's end and branch back: ranges over an EXIT are no loops.
  std::vector<Loop> inner_wgmma_loops() const;
  std::vector<Instruction> in(Loop loop) const;

 private:
  std::vector<Instruction> instructions_;
};

}  // namespace fa3::kit
