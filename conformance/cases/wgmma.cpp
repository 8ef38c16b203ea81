// SPDX-License-Identifier: BSD-3-Clause
// wgmma.cpp — wgmma: types × majors × swizzles × columns, A in shared memory or registers.
#include <fmt/core.h>

#include <bit>

#include "conformance/cases/cases.h"
#include "conformance/cases/product.h"
#include "conformance/model/sum.h"

namespace fa3::selftest {
namespace {

// How the operands of one run lie in shared memory, and what is computed.
struct Mode {
  Swizzle a = Swizzle::k128, b = Swizzle::k128;
  bool compact = true;
  bool accumulate = false;
  Values values = Values::kIntegers;
};

uint32_t accumulator_bits(MmaType type, double value) {
  return is_int8(type) ? static_cast<uint32_t>(static_cast<int32_t>(value))
                       : std::bit_cast<uint32_t>(static_cast<float>(value));
}

// What the model says after all steps.
float modelled(const SumModel& model, const Operand& a, const Operand& b, Place place, float c) {
  const int per_step = 32 / size_of(a.type);
  std::vector<Factors> step(static_cast<size_t>(per_step));
  for (int begin = 0; begin < a.k; begin += per_step) {
    for (int j = 0; j < per_step; ++j) {
      step[static_cast<size_t>(j)] = {a.at(place.row, begin + j), b.at(place.column, begin + j)};
    }
    c = modelled_sum(model, c, step);
  }
  return c;
}

Experiment make(const WgmmaCase& which, const Mode& mode, Random& random) {
  const int es = size_of(which.a);
  const int k = kWgmmaSteps * 32 / es;
  Product product{which,
                  random_operand(which.a, kProductRows, k, mode.values, random),
                  random_operand(which.b, which.n, k, mode.values, random),
                  smem_layout(kProductRows, k, es, mode.a, which.a_mn_major, mode.compact),
                  smem_layout(which.n, k, es, mode.b, which.b_mn_major, mode.compact),
                  mode.accumulate};
  const Operand& a = product.a;
  const Operand& b = product.b;

  const size_t words = static_cast<size_t>(kProductRows * which.n);
  // Sums of small integers are exact in any order. Others are rounded, as the model says.
  const std::optional<SumModel> model =
      mode.values == Values::kFractions ? sum_model(which.a) : std::nullopt;
  std::vector<uint32_t> before(words), after(words);
  for (int i = 0; i < which.n / 2; ++i) {
    for (int thread = 0; thread < 128; ++thread) {
      const size_t word = static_cast<size_t>(128 * i + thread);
      const Place place = accumulator_place(thread, i);
      double sum = 0;
      if (mode.accumulate) {
        sum = random.integer(-1000, 1000);
        before[word] = accumulator_bits(which.a, sum);
      } else {
        before[word] = 0x7FC00000;  // NaN: must not be read
      }
      if (model) {
        sum = modelled(*model, a, b, place, static_cast<float>(sum));
      } else {
        for (int j = 0; j < k; ++j) sum += a.at(place.row, j) * b.at(place.column, j);
      }
      after[word] = accumulator_bits(which.a, sum);
    }
  }
  return product_experiment(product, before, Expected{4, to_bytes(after)});
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
  cases.push_back({name_of(which, mode), product_program(which),
                   [=](Random& random) { return make(which, mode, random); }});
}

// All swizzles of one program, then the cases that need only one swizzle.
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
