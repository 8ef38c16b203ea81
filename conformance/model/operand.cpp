// SPDX-License-Identifier: BSD-3-Clause
// operand.cpp — PTX ISA 9.7.15.5.1 (fragments, descriptors, layouts) and 5.5.7 (swizzles).
#include "conformance/model/operand.h"

#include <bit>
#include <cmath>

#include "conformance/model/numbers.h"

namespace fa3::selftest {
namespace {

constexpr int kStepBytes = 32;

const Format& format_of(MmaType type) {
  switch (type) {
    case MmaType::kF16:
      return kF16;
    case MmaType::kTf32:
      return kTf32;
    case MmaType::kE4m3:
      return kE4m3;
    case MmaType::kE5m2:
      return kE5m2;
    default:
      return kBf16;
  }
}

// TF32 keeps the upper 19 bits of a word.
constexpr int kTf32Shift = 13;

}  // namespace

std::string short_name(MmaType type) {
  switch (type) {
    case MmaType::kF16:
      return "f16";
    case MmaType::kBf16:
      return "bf16";
    case MmaType::kTf32:
      return "tf32";
    case MmaType::kE4m3:
      return "e4m3";
    case MmaType::kE5m2:
      return "e5m2";
    case MmaType::kS8:
      return "s8";
    case MmaType::kU8:
      return "u8";
  }
  return "?";
}

std::string enumerator(MmaType type) {
  std::string name = short_name(type);
  name[0] = static_cast<char>(name[0] - 'a' + 'A');
  return "fa3::MmaType::k" + name;
}

double value_of(MmaType type, uint32_t code) {
  if (type == MmaType::kS8) return static_cast<int8_t>(code);
  if (type == MmaType::kU8) return static_cast<uint8_t>(code);
  if (type == MmaType::kTf32) code >>= kTf32Shift;
  return decode(format_of(type), code);
}

uint32_t code_of(MmaType type, double value) {
  if (is_int8(type)) return static_cast<uint32_t>(static_cast<int>(value)) & 0xFF;
  // All bits of the word: it is the tensor core that ignores the lower ones.
  if (type == MmaType::kTf32) return std::bit_cast<uint32_t>(static_cast<float>(value));
  return encode(format_of(type), value);
}

double random_value(MmaType type, Values values, Random& random) {
  if (type == MmaType::kS8) return random.integer(-128, 127);
  if (type == MmaType::kU8) return random.integer(0, 255);
  if (values == Values::kIntegers) return random.integer(-4, 4);
  return value_of(type, code_of(type, 4 * random.unit() - 2));
}

Operand random_operand(MmaType type, int mn, int k, Values values, Random& random) {
  Operand operand{type, mn, k, {}};
  operand.value.resize(static_cast<size_t>(mn * k));
  for (double& value : operand.value) value = random_value(type, values, random);
  return operand;
}

uint32_t swizzled(uint32_t address, Swizzle swizzle) {
  const uint32_t mask = static_cast<uint32_t>(swizzle) / 16;  // 8, 4, 2 chunks of 16 bytes; or 0
  return mask == 0 ? address : address ^ ((address >> 7 & (mask - 1)) << 4);
}

uint64_t SmemLayout::descriptor() const {
  uint64_t mode = 0;
  if (swizzle == Swizzle::k128) mode = 1;
  if (swizzle == Swizzle::k64) mode = 2;
  if (swizzle == Swizzle::k32) mode = 3;
  return uint64_t{lbo >> 4} << 16 | uint64_t{sbo >> 4} << 32 | mode << 62;
}

uint32_t SmemLayout::address(int step, int element_bytes, int m, int i) const {
  const auto start = offset[static_cast<size_t>(step)];
  const auto mn = static_cast<uint32_t>(m), k = static_cast<uint32_t>(i);
  const auto es = static_cast<uint32_t>(element_bytes);
  const auto width = static_cast<uint32_t>(swizzle);
  if (!mn_major) {
    const uint32_t byte = k * es;
    if (width == 0) return start + mn / 8 * sbo + mn % 8 * 16 + byte / 16 * lbo + byte % 16;
    return swizzled(start + mn / 8 * sbo + mn % 8 * width + byte, swizzle);
  }
  if (width == 0) return start + mn / 8 * sbo + mn % 8 * es + k / 8 * lbo + k % 8 * 16;
  const uint32_t row = width / es;  // elements of a row of the pattern
  return swizzled(start + mn / row * lbo + mn % row * es + k / 8 * sbo + k % 8 * width, swizzle);
}

SmemLayout smem_layout(int mn, int k, int element_bytes, Swizzle swizzle, bool mn_major,
                       bool compact) {
  SmemLayout layout{swizzle, mn_major, 16, 0, {}};
  const auto rows = static_cast<uint32_t>(mn), depth = static_cast<uint32_t>(k);
  const auto es = static_cast<uint32_t>(element_bytes);
  const auto width = static_cast<uint32_t>(swizzle);
  const uint32_t steps = depth * es / kStepBytes;
  const uint32_t block = width == 0 ? 128 : 8 * width;  // bytes of one core matrix or pattern
  const uint32_t depth_blocks = depth / 8;              // of an MN-major operand
  uint32_t panel = 0;                                   // K-major: bytes of `width` along K
  if (!mn_major && width != 0) {
    layout.sbo = block;
    panel = rows * width;
  } else if (!mn_major) {
    layout.lbo = compact ? block : rows * 16;
    layout.sbo = compact ? block * depth * es / 16 : block;
  } else if (width != 0) {
    const uint32_t panels = (rows * es + width - 1) / width;
    layout.sbo = compact ? block : block * panels;
    layout.lbo = compact ? block * depth_blocks : block;
  } else {
    layout.lbo = compact ? block : block * rows / 8;
    layout.sbo = compact ? block * depth_blocks : block;
  }
  for (uint32_t step = 0; step < steps; ++step) {
    const uint32_t byte = step * kStepBytes;
    if (!mn_major && width != 0) {
      layout.offset.push_back(byte / width * panel + byte % width);
    } else if (mn_major && width != 0) {
      layout.offset.push_back(step * 2 * layout.sbo);
    } else {
      layout.offset.push_back(step * 2 * layout.lbo);
    }
  }
  return layout;
}

Bytes smem_image(const Operand& operand, const SmemLayout& layout) {
  const int es = size_of(operand.type);
  const int per_step = kStepBytes / es;
  Bytes image;
  for (int m = 0; m < operand.mn; ++m) {
    for (int i = 0; i < operand.k; ++i) {
      const uint32_t at = layout.address(i / per_step, es, m, i % per_step);
      const size_t end = (at + static_cast<size_t>(es) + 15) / 16 * 16;
      if (image.size() < end) image.resize(end, std::byte{0xFF});
      const uint32_t code = code_of(operand.type, operand.at(m, i));
      std::memcpy(image.data() + at, &code, static_cast<size_t>(es));
    }
  }
  return image;
}

Bytes a_fragments(const Operand& a) {
  const int es = size_of(a.type);
  const int per_register = 4 / es;
  const int per_step = kStepBytes / es;
  std::vector<uint32_t> words;
  for (int step = 0; step < a.k / per_step; ++step) {
    for (int r = 0; r < 4; ++r) {
      for (int thread = 0; thread < 128; ++thread) {
        const int row = 16 * (thread / 32) + thread % 32 / 4 + 8 * (r & 1);
        uint32_t word = 0;
        for (int e = 0; e < per_register; ++e) {
          const int k = per_step / 2 * (r >> 1) + per_register * (thread % 4) + e;
          word |= code_of(a.type, a.at(row, step * per_step + k)) << (8 * es * e);
        }
        words.push_back(word);
      }
    }
  }
  return to_bytes(words);
}

Place accumulator_place(int thread, int i) {
  const int lane = thread % 32;
  return {16 * (thread / 32) + lane / 4 + 8 * (i >> 1 & 1),
          8 * (i >> 2) + 2 * (lane % 4) + (i & 1)};
}

}  // namespace fa3::selftest
