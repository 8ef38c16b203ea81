// SPDX-License-Identifier: BSD-3-Clause
// numerics.cpp — operands by kind of launch, one K step each, D = A·B + C with 64 columns.
#include "conformance/measure/numerics.h"

#include <fmt/core.h>

#include <bit>
#include <cmath>

#include "conformance/cases/product.h"
#include "conformance/cases/run.h"
#include "conformance/model/numbers.h"

namespace fa3::selftest {
namespace {

constexpr int kColumns = 64;
constexpr int kLaunchesPerKind = 6;

// How the sizes of the numbers of a launch are spread.
enum class Kind {
  kWide,    // A and B: all finite codes; of the 8-bit exponents those from 2^-40 to 2^40
  kMedium,  // from 2^-6 to 2^6
  kNear,    // from 1/2 to 2; half of C is 0
  kEdge,    // A and B as small as the type has; of the 8-bit exponents those whose products are
            // FP32's subnormals. TF32 also with low bits, which it does not have
};
constexpr Kind kKinds[] = {Kind::kWide, Kind::kMedium, Kind::kNear, Kind::kEdge};

constexpr MmaType kTypes[] = {MmaType::kBf16, MmaType::kF16, MmaType::kTf32, MmaType::kE4m3,
                              MmaType::kE5m2};

double signed_fraction(int low, int high, int mantissa_bits, Random& random) {
  const double mantissa =
      1 + std::ldexp(random.integer(0, (1 << mantissa_bits) - 1), -mantissa_bits);
  return std::ldexp(random.integer(0, 1) == 0 ? mantissa : -mantissa, random.integer(low, high));
}

double random_element(MmaType type, Kind kind, Random& random) {
  const bool long_exponent = type == MmaType::kBf16 || type == MmaType::kTf32;
  const int mantissa_bits = type == MmaType::kTf32 && kind == Kind::kEdge ? 23 : 10;
  double value = 0;
  switch (kind) {
    case Kind::kWide:
      if (long_exponent) {
        value = signed_fraction(-40, 40, mantissa_bits, random);
        break;
      }
      do {
        const uint32_t codes = size_of(type) == 1 ? 0xFF : 0xFFFF;
        value = value_of(type, random.word() & codes);
      } while (!std::isfinite(value));
      break;
    case Kind::kMedium:
      value = signed_fraction(-6, 6, mantissa_bits, random);
      break;
    case Kind::kNear:
      value = signed_fraction(-1, 1, mantissa_bits, random);
      break;
    case Kind::kEdge:
      if (long_exponent) {
        value = signed_fraction(-72, -62, mantissa_bits, random);
      } else {
        value = signed_fraction(type == MmaType::kE4m3   ? -9
                                : type == MmaType::kE5m2 ? -16
                                                         : -24,
                                type == MmaType::kE4m3 ? -5 : -13, mantissa_bits, random);
      }
      break;
  }
  const uint32_t code = code_of(type, value);
  return type == MmaType::kTf32 ? value : value_of(type, code);
}

Operand random_numbers(MmaType type, Kind kind, Random& random) {
  Operand operand{type, kProductRows, 32 / size_of(type), {}};
  operand.value.resize(static_cast<size_t>(operand.mn * operand.k));
  for (double& value : operand.value) value = random_element(type, kind, random);
  return operand;
}

// About as large as one of the element's products.
float random_addend(const Product& product, Place place, Kind kind, Random& random) {
  if (kind == Kind::kNear && random.integer(0, 1) == 0) return 0;
  const int j = random.integer(0, product.a.k - 1);
  const double about = product.a.at(place.row, j) * product.b.at(place.column, j);
  const int exponent = about == 0 ? 0 : std::ilogb(about);
  return static_cast<float>(signed_fraction(exponent - 3, exponent + 5, 23, random));
}

// [register][thread] as [row][column].
std::vector<uint32_t> by_rows(const std::vector<uint32_t>& words) {
  std::vector<uint32_t> rows(words.size());
  for (size_t word = 0; word < words.size(); ++word) {
    const Place place =
        accumulator_place(static_cast<int>(word % 128), static_cast<int>(word / 128));
    rows[static_cast<size_t>(place.row * kColumns + place.column)] = words[word];
  }
  return rows;
}

void append(Bytes& bytes, const Bytes& more) {
  bytes.insert(bytes.end(), more.begin(), more.end());
}

void append_codes(Bytes& bytes, const Operand& operand) {
  for (const double value : operand.value) {
    const Bytes code = bytes_of(code_of(operand.type, value));
    bytes.insert(bytes.end(), code.begin(), code.begin() + size_of(operand.type));
  }
}

WgmmaCase case_of(MmaType type) { return {type, type, kColumns, false, false, false}; }

Status record(GpuRuntime& runtime, MmaType type, Kind kind, Random& random, Bytes& bytes) {
  const WgmmaCase which = case_of(type);
  const int es = size_of(type);
  const int k = 32 / es;
  const SmemLayout layout = smem_layout(kProductRows, k, es, Swizzle::k32, false, true);
  const Product product{
      which, random_numbers(type, kind, random), random_numbers(type, kind, random), layout, layout,
      true};
  std::vector<uint32_t> c(kProductRows * kColumns);
  for (size_t word = 0; word < c.size(); ++word) {
    const Place place =
        accumulator_place(static_cast<int>(word % 128), static_cast<int>(word / 128));
    c[word] = std::bit_cast<uint32_t>(random_addend(product, place, kind, random));
  }
  std::vector<Bytes> after;
  FA3_RETURN_IF_ERROR(execute(runtime, product_program(which, 1),
                              product_experiment(product, c, std::nullopt), after));
  std::vector<uint32_t> d(c.size());
  std::memcpy(d.data(), after[kProductD].data(), 4 * d.size());
  append_codes(bytes, product.a);
  append_codes(bytes, product.b);
  append(bytes, to_bytes(by_rows(c)));
  append(bytes, to_bytes(by_rows(d)));
  return {};
}

}  // namespace

std::string recording_layout() {
  return fmt::format(
      "One file per type, {} launches of m64n{}, one K step (32 bytes): D = A·B + C.\n"
      "Launch: A [64][k], B [{}][k] (the type's codes), C [64][{}], D [64][{}] (f32), rows first,\n"
      "little-endian; k = 16 (bf16, f16), 8 (tf32, whole words), 32 (e4m3, e5m2).\n"
      "Launches {} each of: wide, medium, near (half of C is 0), edge (see numerics.cpp).\n",
      kLaunchesPerKind * std::size(kKinds), kColumns, kColumns, kColumns, kColumns,
      kLaunchesPerKind);
}

std::vector<Program> numerics_programs() {
  std::vector<Program> programs;
  for (const MmaType type : kTypes) programs.push_back(product_program(case_of(type), 1));
  return programs;
}

Status record_numerics(GpuRuntime& runtime, uint64_t seed, std::vector<Recording>& recordings) {
  for (const MmaType type : kTypes) {
    recordings.push_back({short_name(type), {}});
    for (const Kind kind : kKinds) {
      for (int i = 0; i < kLaunchesPerKind; ++i) {
        Random random(seed, fmt::format("{}/{}/{}", short_name(type), static_cast<int>(kind), i));
        FA3_RETURN_IF_ERROR(record(runtime, type, kind, random, recordings.back().bytes));
      }
    }
  }
  return {};
}

}  // namespace fa3::selftest
