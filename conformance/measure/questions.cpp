// SPDX-License-Identifier: BSD-3-Clause
// questions.cpp — precision of the tensor cores' accumulation; boxes that begin inside the
// swizzle's pattern, lie beyond the tensor or are narrower than the swizzle; reads that a copy
// overtakes.
#include "device/selftest/questions.cuh"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "conformance/cases/product.h"
#include "conformance/cases/run.h"
#include "conformance/measure/measure.h"

namespace fa3::selftest {
namespace {

constexpr const char* kQuestionsHeader = "device/selftest/questions.cuh";
const Program kShifted = device_program(kQuestionsHeader, "fa3::selftest::shifted_box");
const Program kBoxBytes = device_program(kQuestionsHeader, "fa3::selftest::box_bytes");
const Program kOvertakeFenced = device_program(kQuestionsHeader, "fa3::selftest::overtake<true>");
const Program kOvertakeUnfenced =
    device_program(kQuestionsHeader, "fa3::selftest::overtake<false>");

std::vector<u32> words32(const Bytes& bytes) {
  std::vector<u32> words(bytes.size() / 4);
  std::memcpy(words.data(), bytes.data(), 4 * words.size());
  return words;
}

// ---- Precision ----------------------------------------------------------------------------------

constexpr MmaType kFloatTypes[] = {MmaType::kF16, MmaType::kBf16, MmaType::kTf32, MmaType::kE4m3,
                                   MmaType::kE5m2};
constexpr int kProbeColumns = 8;

WgmmaCase precision_case(MmaType type) { return {type, type, kProbeColumns, false, false, false}; }

// D of one step; C is the same everywhere.
Status step_sums(GpuRuntime& runtime, const Operand& a, const Operand& b, float c,
                 std::vector<uint32_t>& sums) {
  const int es = size_of(a.type);
  const Product product{precision_case(a.type),
                        a,
                        b,
                        smem_layout(kProductRows, a.k, es, Swizzle::k32, false, true),
                        smem_layout(kProbeColumns, a.k, es, Swizzle::k32, false, true),
                        true};
  const std::vector<uint32_t> before(kProductRows * kProbeColumns, std::bit_cast<uint32_t>(c));
  std::vector<Bytes> after;
  FA3_RETURN_IF_ERROR(execute(runtime, product_program(product.which, 1),
                              product_experiment(product, before, std::nullopt), after));
  sums = words32(after[kProductD]);
  return {};
}

// One large term, a product or C, and terms sign·2^−depth as large, of which row and column give
// the depth. At what depth do they still change the sum?
struct Probe {
  const char* name;
  bool large_is_c;
  double sign;
  bool many;  // as many small terms as the step has, else one
};
constexpr Probe kProbes[] = {
    {"product-and-one", false, 1, false},    {"product-and-negative-one", false, -1, false},
    {"product-and-many", false, 1, true},    {"c-and-one", true, 1, false},
    {"c-and-negative-one", true, -1, false}, {"c-and-many", true, 1, true},
};

struct Depths {
  int top;    // the large term is 2^top
  int rows;   // depth by row, from 0 on, through A
  int shift;  // more depth in column 1, through B
};
Depths depths_of(MmaType type) {
  return type == MmaType::kE4m3 ? Depths{8, 17, 9} : Depths{14, 24, 12};
}

Status measure_precision(GpuRuntime& runtime, std::vector<Measurement>& results) {
  for (const MmaType type : kFloatTypes) {
    const int k = 32 / size_of(type);
    const Depths depths = depths_of(type);
    for (const Probe& probe : kProbes) {
      Operand a{type, kProductRows, k, std::vector<double>(static_cast<size_t>(kProductRows * k))};
      Operand b{type, kProbeColumns, k,
                std::vector<double>(static_cast<size_t>(kProbeColumns * k))};
      const int small_end = probe.many ? k : 2;
      for (int row = 0; row < kProductRows; ++row) {
        double* const values = a.value.data() + row * k;
        values[0] = probe.large_is_c ? 0 : std::ldexp(1, depths.top);
        for (int j = 1; j < small_end && row < depths.rows; ++j) {
          values[j] = probe.sign * std::ldexp(1, depths.top - row);
        }
      }
      for (int column = 0; column < 2; ++column) {
        double* const values = b.value.data() + column * k;
        values[0] = 1;
        for (int j = 1; j < small_end; ++j) values[j] = std::ldexp(1, -column * depths.shift);
      }
      const auto large = static_cast<float>(std::ldexp(1, depths.top));
      std::vector<uint32_t> sums;
      FA3_RETURN_IF_ERROR(step_sums(runtime, a, b, probe.large_is_c ? large : 0, sums));
      int deepest = -1;
      for (size_t word = 0; word < sums.size(); ++word) {
        const Place place =
            accumulator_place(static_cast<int>(word % 128), static_cast<int>(word / 128));
        if (place.column > 1 || std::bit_cast<float>(sums[word]) == large) continue;
        deepest = std::max(deepest, place.row + place.column * depths.shift);
      }
      results.push_back({fmt::format("sum/{}/{}/deepest-bit", short_name(type), probe.name),
                         static_cast<double>(deepest)});
    }
  }
  return {};
}

// ---- Boxes --------------------------------------------------------------------------------------

TensorMapSpec spec_of(u64 columns, u64 rows, u32 box_columns, u32 box_rows) {
  TensorMapSpec spec;
  spec.name = "tensor";
  spec.type = TmaType::kBf16;
  spec.rank = 2;
  spec.swizzle = Swizzle::k128;
  spec.dim[0] = columns;
  spec.dim[1] = rows;
  spec.stride_bytes[1] = 2 * columns;
  spec.box[0] = box_columns;
  spec.box[1] = box_rows;
  return spec;
}

std::vector<uint16_t> codes_of(const Operand& operand) {
  std::vector<uint16_t> codes;
  for (const double value : operand.value) {
    codes.push_back(static_cast<uint16_t>(code_of(operand.type, value)));
  }
  return codes;
}

Status measure_shifted(GpuRuntime& runtime, std::vector<Measurement>& results) {
  Random random(1, "shifted");
  const Operand a = random_operand(MmaType::kBf16, 64, 64, Values::kIntegers, random);
  const Operand b = random_operand(MmaType::kBf16, 64, 64, Values::kIntegers, random);
  const Bytes linear = to_bytes(codes_of(a));
  for (u32 offset = 0; offset < 1024; offset += 128) {
    Experiment experiment;
    experiment.shape.threads = 128;
    experiment.shape.smem_bytes = sizeof(ShiftedSmem);
    experiment.buffers = {{"a", linear, {}},
                          {"b", to_bytes(codes_of(b)), {}},
                          {"image", Bytes(kShiftedBytes), {}},
                          {"d", Bytes(size_t{4} * 64 * 64), {}}};
    experiment.maps = {{spec_of(64, 64, 64, 64), 0}, {spec_of(64, 64, 64, 64), 1}};
    experiment.args = [offset](const Placed& placed) {
      ShiftedArgs args{};
      args.a = placed.maps[0];
      args.b = placed.maps[1];
      args.offset = offset;
      args.image = placed.at<u8>(2);
      args.d = placed.at<u32>(3);
      return bytes_of(args);
    };
    std::vector<Bytes> after;
    FA3_RETURN_IF_ERROR(execute(runtime, kShifted, experiment, after));
    bool by_address = true;
    for (u32 i = 0; i < kShiftedBytes; ++i) {
      by_address &= after[2][swizzled(offset + i, Swizzle::k128) - offset] == linear[i];
    }
    bool product_right = true;
    const std::vector<u32> d = words32(after[3]);
    for (size_t word = 0; word < d.size(); ++word) {
      const Place place =
          accumulator_place(static_cast<int>(word % 128), static_cast<int>(word / 128));
      double sum = 0;
      for (int j = 0; j < 64; ++j) sum += a.at(place.row, j) * b.at(place.column, j);
      product_right &= double{std::bit_cast<float>(d[word])} == sum;
    }
    results.push_back(
        {fmt::format("shifted-box/offset-{}/swizzled-by-address", offset), by_address ? 1.0 : 0.0});
    results.push_back({fmt::format("shifted-box/offset-{}/wgmma-reads-it-back", offset),
                       product_right ? 1.0 : 0.0});
  }
  return {};
}

struct BoxAnswer {
  bool done;
  Bytes image;
};

// Words of the tensor are numbered from 1 on.
Status load_box(GpuRuntime& runtime, const TensorMapSpec& spec, i32 column, i32 row, u32 expected,
                BoxAnswer& answer) {
  std::vector<u32> tensor(spec.dim[0] * spec.dim[1] / 2);
  for (size_t i = 0; i < tensor.size(); ++i) tensor[i] = static_cast<u32>(i + 1);
  Experiment experiment;
  experiment.shape.threads = kTmaThreads;
  experiment.shape.smem_bytes = sizeof(BoxSmem);
  experiment.buffers = {{"tensor", to_bytes(tensor), {}},
                        {"image", Bytes(kBoxImageBytes), {}},
                        {"done", Bytes(4), {}}};
  experiment.maps = {{spec, 0}};
  experiment.args = [=](const Placed& placed) {
    BoxArgs args{};
    args.map = placed.maps[0];
    args.coordinate[0] = column;
    args.coordinate[1] = row;
    args.expected_bytes = expected;
    args.image = placed.at<u8>(1);
    args.done = placed.at<u32>(2);
    return bytes_of(args);
  };
  std::vector<Bytes> after;
  FA3_RETURN_IF_ERROR(execute(runtime, kBoxBytes, experiment, after));
  answer = {words32(after[2])[0] != 0, after[1]};
  return {};
}

Status measure_boxes(GpuRuntime& runtime, std::vector<Measurement>& results) {
  BoxAnswer answer;
  // 128 KiB and more: drivers treat smaller tensors differently.
  const TensorMapSpec full = spec_of(64, 2048, 64, 16);
  struct Place {
    const char* name;
    i32 column, row;
  };
  for (const Place& place : {Place{"inside", 0, 16}, Place{"half-beyond", 0, 2040},
                             Place{"wholly-beyond", 0, 5000}, Place{"wholly-before", -64, -64}}) {
    FA3_RETURN_IF_ERROR(load_box(runtime, full, place.column, place.row, 64 * 16 * 2, answer));
    results.push_back(
        {fmt::format("box/{}/reports-all-bytes", place.name), answer.done ? 1.0 : 0.0});
  }

  // 32 columns are 64 bytes, half the swizzle's width. Where do the rows lie?
  const TensorMapSpec narrow = spec_of(64, 2048, 32, 16);
  for (const u32 expected : {32u * 16 * 2, 64u * 16 * 2}) {
    FA3_RETURN_IF_ERROR(load_box(runtime, narrow, 0, 0, expected, answer));
    results.push_back(
        {fmt::format("narrow-box/reports-{}-bytes", expected), answer.done ? 1.0 : 0.0});
  }
  const std::vector<u32> words = words32(answer.image);
  for (const u32 row : {0u, 1u, 2u, 8u}) {
    const auto found = std::find(words.begin(), words.end(), row * 32 + 1);
    results.push_back({fmt::format("narrow-box/row-{}/first-byte-at", row),
                       found == words.end() ? -1.0 : 4.0 * double(found - words.begin())});
  }
  results.push_back({"narrow-box/bytes-written",
                     4.0 * double(std::count_if(words.begin(), words.end(),
                                                [](u32 word) { return word != kUntouched; }))});
  return {};
}

// ---- Reads that a copy overtakes ----------------------------------------------------------------

Status measure_overtaking(GpuRuntime& runtime, std::vector<Measurement>& results) {
  constexpr u32 kRounds = 20'000;
  constexpr u32 kCtas = 132 * 8;
  std::vector<u32> source(size_t{kOvertakeItems} * kOvertakeSlotBytes / 4);
  for (size_t i = 0; i < source.size(); ++i) {
    source[i] = static_cast<u32>(i / (kOvertakeSlotBytes / 4));
  }
  Experiment experiment;
  experiment.shape.grid[0] = kCtas;
  experiment.shape.threads = kOvertakeReaders + 32;
  experiment.shape.smem_bytes = sizeof(OvertakeSmem);
  experiment.buffers = {{"source", to_bytes(source), {}},
                        {"wrong", Bytes(size_t{4} * kCtas * kOvertakeReaders), {}}};
  experiment.args = [](const Placed& placed) {
    return bytes_of(OvertakeArgs{placed.at<u8>(0), kRounds, placed.at<u32>(1)});
  };
  for (const Program& program : {kOvertakeFenced, kOvertakeUnfenced}) {
    std::vector<Bytes> after;
    FA3_RETURN_IF_ERROR(execute(runtime, program, experiment, after));
    double wrong = 0;
    for (const u32 count : words32(after[1])) wrong += count;
    const double reads = 4.0 * kRounds * kCtas * kOvertakeReaders;
    results.push_back(
        {fmt::format("overtaken-reads/{}/wrong-words-per-read",
                     program.expression == kOvertakeFenced.expression ? "fenced" : "unfenced"),
         wrong / reads});
  }
  return {};
}

}  // namespace

std::vector<Program> question_programs() {
  std::vector<Program> programs = {kShifted, kBoxBytes, kOvertakeFenced, kOvertakeUnfenced};
  for (const MmaType type : kFloatTypes) {
    programs.push_back(product_program(precision_case(type), 1));
  }
  return programs;
}

Status measure_questions(GpuRuntime& runtime, std::vector<Measurement>& results) {
  FA3_RETURN_IF_ERROR(measure_precision(runtime, results));
  FA3_RETURN_IF_ERROR(measure_overtaking(runtime, results));
  FA3_RETURN_IF_ERROR(measure_shifted(runtime, results));
  return measure_boxes(runtime, results);
}

}  // namespace fa3::selftest
