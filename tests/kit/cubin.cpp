// SPDX-License-Identifier: BSD-3-Clause
// cubin.cpp — the ELF file around the code, and its branches.
#include "tests/kit/cubin.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <stdexcept>

#include "core/sha256.h"

namespace fa3::kit {
namespace {

constexpr size_t kBytes = 16;  // of an instruction

template <class T>
T read(std::string_view image, size_t offset) {
  if (offset > image.size() || image.size() - offset < sizeof(T)) {
    throw std::runtime_error("cubin: " + std::to_string(image.size()) + " bytes, need byte " +
                             std::to_string(offset + sizeof(T)) + "; is the file cut off?");
  }
  T value;
  std::memcpy(&value, image.data() + offset, sizeof(T));
  return value;
}

// Index of the instruction that a branch at `index` goes to.
std::optional<size_t> target(const Instruction& branch, size_t index) {
  // A signed count of 4 bytes from the next instruction: bits 16…23 and, above them, 34…81.
  const uint64_t upper = branch.low >> 34 | (branch.high & 0x3ffff) << 30;
  const int64_t words =
      static_cast<int64_t>(upper << 16) >> 8 | static_cast<int64_t>(branch.low >> 16 & 0xff);
  const int64_t address = static_cast<int64_t>((index + 1) * kBytes) + 4 * words;
  if (address < 0 || address % kBytes != 0) return std::nullopt;
  return static_cast<size_t>(address) / kBytes;
}

}  // namespace

bool Instruction::is_wgmma() const {
  const int family = opcode() & 0x3ff;
  return family >= 0x1f0 && family <= 0x1f3 && (opcode() >> 10 == 2 || opcode() >> 10 == 3);
}

bool Instruction::is_wgmma_rs() const { return is_wgmma() && opcode() >> 10 == 3; }

Code::Code(std::string_view cubin, const std::string& symbol) {
  const auto header = read<Elf64_Ehdr>(cubin, 0);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) {
    throw std::runtime_error("cubin: not an ELF file");
  }
  const auto section = [&](size_t i) {
    return read<Elf64_Shdr>(cubin, header.e_shoff + i * header.e_shentsize);
  };
  const Elf64_Shdr names = section(header.e_shstrndx);
  const std::string wanted = ".text." + symbol;
  for (size_t i = 0; i < header.e_shnum; ++i) {
    const Elf64_Shdr text = section(i);
    const size_t name = names.sh_offset + text.sh_name;
    if (name > cubin.size() || cubin.substr(name, wanted.size() + 1) != wanted + '\0') continue;
    for (size_t at = 0; at + kBytes <= text.sh_size; at += kBytes) {
      instructions_.push_back(read<Instruction>(cubin, text.sh_offset + at));
    }
    return;
  }
  throw std::runtime_error("cubin: no kernel " + symbol);
}

size_t Code::count(int opcode) const {
  return std::count_if(instructions_.begin(), instructions_.end(),
                       [&](const Instruction& i) { return i.opcode() == opcode; });
}

std::string Code::sha256() const {
  Sha256 hash;
  for (const Instruction& i : instructions_)
    hash.update({reinterpret_cast<const char*>(&i), sizeof i});
  return hex(hash.finish());
}

std::vector<Loop> Code::inner_wgmma_loops() const {
  std::vector<Loop> loops;
  for (size_t i = 0; i < instructions_.size(); ++i) {
    if (instructions_[i].opcode() != kBranch) continue;
    const std::optional<size_t> to = target(instructions_[i], i);
    if (!to || *to > i) continue;
    const Loop loop{*to, i + 1};
    const auto has = [body = in(loop)](auto predicate) {
      return std::any_of(body.begin(), body.end(), predicate);
    };
    if (has([](const Instruction& x) { return x.is_wgmma(); }) &&
        !has([](const Instruction& x) { return x.opcode() == kExit; })) {
      loops.push_back(loop);
    }
  }
  std::erase_if(loops, [all = loops](const Loop& outer) {
    return std::any_of(all.begin(), all.end(), [&](const Loop& inner) {
      return inner.begin >= outer.begin && inner.end <= outer.end &&
             inner.end - inner.begin < outer.end - outer.begin;
    });
  });
  std::sort(loops.begin(), loops.end(),
            [](const Loop& a, const Loop& b) { return a.begin < b.begin; });
  return loops;
}

std::vector<Instruction> Code::in(Loop loop) const {
  return {instructions_.begin() + loop.begin, instructions_.begin() + loop.end};
}

}  // namespace fa3::kit
