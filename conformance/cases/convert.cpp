// SPDX-License-Identifier: BSD-3-Clause
// convert.cpp — conversions: to narrow types every output with the inputs around it, from
// narrow types every input; approximations on a grid within PTX's bounds; max, min, fma, prmt,
// clz.
#include "device/selftest/convert.cuh"

#include <bit>
#include <cmath>
#include <limits>

#include "conformance/cases/cases.h"
#include "conformance/model/numbers.h"

namespace fa3::selftest {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr u32 kNan = 0x7FFFFFFF;  // the NaN that PTX's arithmetic gives

u32 word(float x) { return std::bit_cast<u32>(x); }
float real(u32 x) { return std::bit_cast<float>(x); }

// Operands and the expected results; bounds where results are approximate.
struct Table {
  std::vector<u32> in, out;
  std::vector<float> bound;
};

Experiment experiment_of(const Table& table) {
  Experiment experiment;
  experiment.shape.threads = kConvertThreads;
  experiment.shape.grid[0] = kConvertCtas;
  experiment.buffers = {
      {"in", to_bytes(table.in), {}},
      {"out", Bytes(4 * table.out.size()), Expected{4, to_bytes(table.out), table.bound}}};
  const auto count = static_cast<u32>(table.out.size());
  experiment.args = [count](const Placed& placed) {
    return bytes_of(ConvertArgs{placed.at<u32>(0), placed.at<u32>(1), count});
  };
  return experiment;
}

// ---- Narrow types -------------------------------------------------------------------------------

// Each value of the format, the midpoint to the next one, and the floats adjacent to both; then
// zeros, Infs, NaNs, the ends of FP32, and random floats.
std::vector<float> around_all_values(const Format& format, Random& random) {
  std::vector<float> inputs;
  const auto add = [&](double at) {
    const float x = static_cast<float>(at);
    for (const float y : {std::nextafter(x, -kInf), x, std::nextafter(x, kInf)}) {
      inputs.push_back(y);
      inputs.push_back(-y);
    }
  };
  for (u32 code = 0; code <= format.max_finite; ++code) {
    const double value = decode(format, code);
    const double next =
        code < format.max_finite ? decode(format, code + 1) : 2 * value - decode(format, code - 1);
    add(value);
    add(value + (next - value) / 2);
  }
  for (const u32 bits :
       {0u, 0x80000000u, 0x7F800000u, 0xFF800000u, 0x7FC00000u, 0xFFC00000u, 0x7F800001u,
        0x7FFFFFFFu, 0xFFFFFFFFu, 1u, 0x80000001u, 0x007FFFFFu, 0x7F7FFFFFu, 0xFF7FFFFFu}) {
    inputs.push_back(real(bits));
  }
  while (inputs.size() % 4096 != 0) inputs.push_back(real(random.word()));
  return inputs;
}

// `per_word` neighbours of the list go into one word, the first lowest.
Experiment make_narrow(const Format& format, size_t per_word, Random& random) {
  const std::vector<float> inputs = around_all_values(format, random);
  const int bits = 32 / static_cast<int>(per_word);
  Table table;
  for (size_t i = 0; i < inputs.size(); i += per_word) {
    u32 out = 0;
    for (size_t j = 0; j < per_word; ++j) {
      table.in.push_back(word(inputs[i + j]));
      out |= encode(format, inputs[i + j]) << (bits * static_cast<int>(j));
    }
    table.out.push_back(out);
  }
  return experiment_of(table);
}

// All 65536 inputs; NaN may come back as any NaN.
Experiment make_widen(const Format& format) {
  Table table;
  for (u32 code = 0; code < 0x10000; ++code) {
    table.in.push_back(code);
    table.out.push_back(word(static_cast<float>(decode(format, code))));
    table.bound.push_back(0);
  }
  return experiment_of(table);
}

// All pairs of FP8 codes to pairs of FP16: exact, NaN as conversions give it.
Experiment make_fp8_to_f16(const Format& format) {
  Table table;
  for (u32 codes = 0; codes < 0x10000; ++codes) {
    table.in.push_back(codes);
    table.out.push_back(encode(kF16, decode(format, codes & 0xFF)) |
                        encode(kF16, decode(format, codes >> 8)) << 16);
  }
  return experiment_of(table);
}

// ---- Approximations -----------------------------------------------------------------------------

bool subnormal(double x) { return x != 0 && std::fabs(x) < 0x1p-126; }
float flushed(double x) {
  return subnormal(x) ? std::copysign(0.f, static_cast<float>(x)) : static_cast<float>(x);
}
double ulp_of(double x) { return std::ldexp(1.0, std::max(std::ilogb(x), -126) - 23); }

std::vector<float> grid(double low, double high, int count) {
  std::vector<float> inputs;
  for (int i = 0; i <= count; ++i) {
    inputs.push_back(static_cast<float>(low + (high - low) * i / count));
  }
  return inputs;
}

// Floats of every exponent, random mantissas, both signs; and the special ones.
std::vector<float> all_exponents(Random& random) {
  std::vector<float> inputs = {0.f, -0.f, kInf, -kInf, real(kNan), 1.f, -1.f, 2.f, 0.5f};
  for (u32 exponent = 0; exponent < 255; ++exponent) {
    for (int i = 0; i < 64; ++i)
      inputs.push_back(real(exponent << 23 | (random.word() & 0x807FFFFF)));
  }
  return inputs;
}

// f with subnormal inputs and results flushed, as .ftz does; bound(x, exact) is the error allowed
// in addition to the rounding of the table.
template <class Exact, class Bound>
Experiment make_approximation(const std::vector<float>& inputs, const Exact& exact,
                              const Bound& bound) {
  Table table;
  for (const float x : inputs) {
    const double y = exact(static_cast<double>(x));
    table.in.push_back(word(x));
    table.out.push_back(word(static_cast<float>(y)));
    table.bound.push_back(std::isfinite(y) && y != 0 ? static_cast<float>(bound(x, y)) : 0.f);
  }
  return experiment_of(table);
}

std::vector<float> joined(std::vector<float> a, const std::vector<float>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// 2 ulp over the full range.
Experiment make_ex2(Random& random) {
  return make_approximation(
      joined(grid(-150, 130, 1 << 16), all_exponents(random)),
      [](double x) { return double{flushed(std::exp2(flushed(x)))}; },
      [](double, double y) { return 2.5 * ulp_of(y); });
}

// Absolute error 2^-22 where the argument is in (0.5, 2), else 2 ulp.
Experiment make_lg2(Random& random) {
  return make_approximation(
      joined(grid(0x1p-10, 4, 1 << 16), all_exponents(random)),
      [](double x) { return std::log2(double{flushed(x)}); },
      [](double x, double y) { return x > 0.5 && x < 2 ? 0x1p-22 + ulp_of(y) : 2.5 * ulp_of(y); });
}

// 1 ulp.
Experiment make_rcp(Random& random) {
  return make_approximation(
      joined(grid(0.25, 4, 1 << 16), all_exponents(random)),
      [](double x) { return double{flushed(1 / double{flushed(x)})}; },
      [](double, double y) { return 1.5 * ulp_of(y); });
}

// Relative error 2^-11; subnormal results are kept.
Experiment make_tanh(Random& random) {
  return make_approximation(
      joined(grid(-10, 10, 1 << 16), all_exponents(random)), [](double x) { return std::tanh(x); },
      [](double, double y) { return std::fabs(y) * 0x1.01p-11 + 0x1p-149; });
}

// ---- Exact arithmetic ---------------------------------------------------------------------------

std::vector<float> operands(Random& random) {
  std::vector<float> list = {0.f,      -0.f,      1.f, -1.f,       kInf,
                             -kInf,    1e-40f,    3.f, real(kNan), real(0x7FC00001),
                             0x1p127f, -0x1p-126f};
  for (int i = 0; i < 20; ++i) list.push_back(real(random.word()));
  return list;
}

// NaN operands: the number where there is one, unless `nan_wins`. −0 is less than +0.
float chosen(float a, float b, bool largest, bool nan_wins) {
  if (std::isnan(a) || std::isnan(b)) {
    if (nan_wins || (std::isnan(a) && std::isnan(b))) return real(kNan);
    return std::isnan(a) ? b : a;
  }
  if (a == b) return std::signbit(a) == largest ? b : a;
  return (a > b) == largest ? a : b;
}

Experiment make_choice(bool largest, bool nan_wins, Random& random) {
  Table table;
  const std::vector<float> list = operands(random);
  for (const float a : list) {
    for (const float b : list) {
      table.in.insert(table.in.end(), {word(a), word(b)});
      table.out.push_back(word(chosen(a, b, largest, nan_wins)));
    }
  }
  return experiment_of(table);
}

Experiment make_fma(Random& random) {
  Table table;
  const std::vector<float> list = operands(random);
  for (const float a : list) {
    for (const float b : list) {
      for (const float c : list) {
        table.in.insert(table.in.end(), {word(a), word(b), word(c)});
        table.out.push_back(word(std::fma(a, b, c)));
        table.bound.push_back(0);  // any NaN is accepted
      }
    }
  }
  return experiment_of(table);
}

// All selectors on a few pairs of words.
Experiment make_prmt(Random& random) {
  Table table;
  const u32 pairs[][2] = {
      {0x33221100, 0x77665544}, {0x80FF7F01, 0x00A55A9C}, {random.word(), random.word()}};
  for (const auto& [a, b] : pairs) {
    const uint64_t both = uint64_t{b} << 32 | a;
    for (u32 selector = 0; selector < 0x10000; ++selector) {
      u32 out = 0;
      for (int i = 0; i < 4; ++i) {
        const u32 choice = selector >> (4 * i) & 15;
        u32 byte = static_cast<u32>(both >> (8 * (choice & 7))) & 0xFF;
        if ((choice & 8) != 0) byte = (byte & 0x80) != 0 ? 0xFF : 0;
        out |= byte << (8 * i);
      }
      table.in.insert(table.in.end(), {a, b, selector});
      table.out.push_back(out);
    }
  }
  return experiment_of(table);
}

// Words around each power of two, and random ones of each length.
Experiment make_clz(Random& random) {
  Table table;
  for (u32 zeros = 0; zeros <= 32; ++zeros) {
    const u32 most = zeros < 32 ? ~0u >> zeros : 0;
    for (const u32 x : {most, most / 2 + (zeros < 32), most - (random.word() & most / 2)}) {
      table.in.push_back(x);
      table.out.push_back(zeros);
    }
  }
  return experiment_of(table);
}

struct Row {
  const char* name;
  const char* function;
  Experiment (*make)(Random&);
};

constexpr Row kRows[] = {
    {"f32-to-f16x2", "kPackF16", [](Random& r) { return make_narrow(kF16, 2, r); }},
    {"f32-to-bf16x2", "kPackBf16", [](Random& r) { return make_narrow(kBf16, 2, r); }},
    {"f32-to-e4m3x4", "kPackE4m3", [](Random& r) { return make_narrow(kE4m3, 4, r); }},
    {"f32-to-e5m2x4", "kPackE5m2", [](Random& r) { return make_narrow(kE5m2, 4, r); }},
    {"f16-to-f32", "kF16ToF32", [](Random&) { return make_widen(kF16); }},
    {"bf16-to-f32", "kBf16ToF32", [](Random&) { return make_widen(kBf16); }},
    {"e4m3x2-to-f16x2", "kE4m3x2ToF16x2", [](Random&) { return make_fp8_to_f16(kE4m3); }},
    {"e5m2x2-to-f16x2", "kE5m2x2ToF16x2", [](Random&) { return make_fp8_to_f16(kE5m2); }},
    {"ex2", "kEx2", &make_ex2},
    {"lg2", "kLg2", &make_lg2},
    {"rcp", "kRcp", &make_rcp},
    {"tanh", "kTanh", &make_tanh},
    {"fma", "kFma", &make_fma},
    {"max", "kMax", [](Random& r) { return make_choice(true, false, r); }},
    {"min", "kMin", [](Random& r) { return make_choice(false, false, r); }},
    {"max-nan", "kMaxNan", [](Random& r) { return make_choice(true, true, r); }},
    {"prmt", "kPrmt", &make_prmt},
    {"clz", "kClz", &make_clz},
};

}  // namespace

void add_convert_cases(std::vector<Case>& cases) {
  for (const Row& row : kRows) {
    cases.push_back(
        {std::string("convert/") + row.name,
         device_program(
             "device/selftest/convert.cuh",
             std::string("fa3::selftest::convert<fa3::selftest::Function::") + row.function + ">"),
         row.make});
  }
}

}  // namespace fa3::selftest
