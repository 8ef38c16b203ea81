// SPDX-License-Identifier: BSD-3-Clause
// cases_wgmma.cpp — wgmma: types × majors × swizzles × columns, A in shared memory or registers.
#include <fmt/core.h>

#include <bit>
#include <cmath>

#include "device/selftest/wgmma.cuh"
#include "selftest/cases.h"
#include "selftest/operand.h"

namespace fa3::selftest {
namespace {

constexpr int kRows = 64;

// How the operands of one run lie in shared memory, and what is computed.
struct Mode {
  Swizzle a = Swizzle::k128, b = Swizzle::k128;
  bool compact = true;
  bool accumulate = false;
  Values values = Values::kIntegers;
};

// Error of a sum of k products relative to Σ|a·b| + |c|. PTX leaves order and rounding open: FP32
// sums may truncate at each step, FP8 sums keep about 13 bits.
float tolerance(MmaType type, int k) {
  return is_fp8(type) ? 0x1p-10f : static_cast<float>(k) * 0x1p-23f;
}

uint32_t accumulator_bits(MmaType type, double value) {
  return is_int8(type) ? static_cast<uint32_t>(static_cast<int32_t>(value))
                       : std::bit_cast<uint32_t>(static_cast<float>(value));
}

Experiment make(const WgmmaCase& which, const Mode& mode, Random& random) {
  const int es = size_of(which.a);
  const int k = kWgmmaSteps * 32 / es;
  const Operand a = random_operand(which.a, kRows, k, mode.values, random);
  const Operand b = random_operand(which.b, which.n, k, mode.values, random);
  const SmemLayout a_layout = smem_layout(kRows, k, es, mode.a, which.a_mn_major, mode.compact);
  const SmemLayout b_layout = smem_layout(which.n, k, es, mode.b, which.b_mn_major, mode.compact);

  const size_t words = static_cast<size_t>(kRows * which.n);
  std::vector<uint32_t> before(words), after(words);
  std::vector<float> bound(mode.values == Values::kFractions ? words : 0);
  for (int i = 0; i < which.n / 2; ++i) {
    for (int thread = 0; thread < 128; ++thread) {
      const size_t word = static_cast<size_t>(128 * i + thread);
      const Place place = accumulator_place(thread, i);
      double sum = 0, magnitude = 0;
      if (mode.accumulate) {
        sum = random.integer(-1000, 1000);
        magnitude = std::fabs(sum);
        before[word] = accumulator_bits(which.a, sum);
      } else {
        before[word] = 0x7FC00000;  // NaN: must not be read
      }
      for (int j = 0; j < k; ++j) {
        const double product = a.at(place.row, j) * b.at(place.column, j);
        sum += product;
        magnitude += std::fabs(product);
      }
      after[word] = accumulator_bits(which.a, sum);
      if (!bound.empty()) bound[word] = tolerance(which.a, k) * static_cast<float>(magnitude);
    }
  }

  Experiment experiment;
  experiment.shape.threads = 128;
  experiment.shape.smem_bytes = sizeof(WgmmaSmem);
  experiment.buffers = {{"a", which.a_in_registers ? a_fragments(a) : smem_image(a, a_layout), {}},
                        {"b", smem_image(b, b_layout), {}},
                        {"c", to_bytes(before), {}},
                        {"d", Bytes(4 * words), Expected{4, to_bytes(after), bound}}};
  const auto a_bytes = static_cast<u32>(experiment.buffers[0].before.size());
  const auto b_bytes = static_cast<u32>(experiment.buffers[1].before.size());
  experiment.args = [=](const Placed& placed) {
    WgmmaArgs args{};
    args.a = placed.at<u8>(0);
    args.b = placed.at<u8>(1);
    args.c = placed.at<u32>(2);
    args.d = placed.at<u32>(3);
    args.a_desc = a_layout.descriptor();
    args.b_desc = b_layout.descriptor();
    for (size_t step = 0; step < kWgmmaSteps; ++step) {
      args.a_offset[step] = a_layout.offset[step];
      args.b_offset[step] = b_layout.offset[step];
    }
    args.a_bytes = a_bytes;
    args.b_bytes = b_bytes;
    args.accumulate = mode.accumulate;
    return bytes_of(args);
  };
  return experiment;
}

const char* text(bool value) { return value ? "true" : "false"; }

std::string expression(const WgmmaCase& which) {
  return fmt::format("fa3::selftest::wgmma<fa3::selftest::WgmmaCase{{{}, {}, {}, {}, {}, {}}}>",
                     enumerator(which.a), enumerator(which.b), which.n, text(which.a_in_registers),
                     text(which.a_mn_major), text(which.b_mn_major));
}

std::string name_of(const WgmmaCase& which, const Mode& mode) {
  const auto operand = [](MmaType type, bool mn_major) {
    return short_name(type) + (mn_major ? "-mn" : "-k");
  };
  const std::string a_place =
      which.a_in_registers ? "" : fmt::format("{}-", static_cast<int>(mode.a));
  return fmt::format("wgmma/{}/{}/{}/n{}/swizzle{}{}{}{}{}", which.a_in_registers ? "rs" : "ss",
                     operand(which.a, which.a_mn_major), operand(which.b, which.b_mn_major),
                     which.n, a_place, static_cast<int>(mode.b),
                     mode.compact ? "" : "/mn-neighbours", mode.accumulate ? "/accumulate" : "",
                     mode.values == Values::kFractions ? "/fractions" : "");
}

void add(std::vector<Case>& cases, const WgmmaCase& which, const Mode& mode) {
  cases.push_back({name_of(which, mode),
                   {"device/selftest/wgmma.cuh", expression(which)},
                   [=](Random& random) { return make(which, mode, random); }});
}

// All swizzles of one program, then what one swizzle is enough for.
void add_modes(std::vector<Case>& cases, const WgmmaCase& which) {
  bool accumulate = false;
  for (const Swizzle s : {Swizzle::k128, Swizzle::k64, Swizzle::k32, Swizzle::kNone}) {
    add(cases, which, {.a = s, .b = s, .accumulate = accumulate});
    accumulate = !accumulate;
  }
  add(cases, which, {.a = Swizzle::kNone, .compact = false});
  add(cases, which, {.a = Swizzle::k64, .b = Swizzle::kNone, .compact = false, .accumulate = true});
  if (!is_int8(which.a)) {
    add(cases, which, {.accumulate = true, .values = Values::kFractions});
  }
}

void add_types(std::vector<Case>& cases, MmaType a, MmaType b, std::initializer_list<int> columns) {
  const int majors = size_of(a) == 2 ? 2 : 1;
  for (const int n : columns) {
    for (int b_major = 0; b_major < majors; ++b_major) {
      for (int a_major = 0; a_major < majors; ++a_major) {
        add_modes(cases, {a, b, n, false, a_major == 1, b_major == 1});
      }
      add_modes(cases, {a, b, n, true, false, b_major == 1});
    }
  }
}

}  // namespace

void add_wgmma_cases(std::vector<Case>& cases) {
  add_types(cases, MmaType::kBf16, MmaType::kBf16, {8, 64, 96, 128, 176, 256});
  add_types(cases, MmaType::kF16, MmaType::kF16, {64, 176, 256});
  add_types(cases, MmaType::kTf32, MmaType::kTf32, {8, 64, 256});
  add_types(cases, MmaType::kE4m3, MmaType::kE4m3, {8, 64, 96, 128, 176, 256});
  add_types(cases, MmaType::kE5m2, MmaType::kE5m2, {64, 256});
  add_types(cases, MmaType::kE4m3, MmaType::kE5m2, {96});
  add_types(cases, MmaType::kE5m2, MmaType::kE4m3, {96});
  add_types(cases, MmaType::kS8, MmaType::kS8, {8, 24, 64, 96, 128, 176, 256});
  add_types(cases, MmaType::kU8, MmaType::kU8, {64, 256});
  add_types(cases, MmaType::kS8, MmaType::kU8, {96});
  add_types(cases, MmaType::kU8, MmaType::kS8, {96});
  // The columns that the lists above leave out.
  for (int n = 8; n <= 256; n += 8) {
    const bool listed = n == 8 || n == 64 || n == 96 || n == 128 || n == 176 || n == 256;
    if (listed) continue;
    add(cases, {MmaType::kBf16, MmaType::kBf16, n, false, false, false}, {.accumulate = true});
    add(cases, {MmaType::kBf16, MmaType::kBf16, n, true, false, true}, {});
    if (wgmma_has_columns(MmaType::kS8, n) && n != 24) {
      add(cases, {MmaType::kS8, MmaType::kS8, n, false, false, false}, {.accumulate = true});
    }
  }
}

}  // namespace fa3::selftest
