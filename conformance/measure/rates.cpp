// SPDX-License-Identifier: BSD-3-Clause
// rates.cpp — clocks of instructions, alone and many at once; of wgmma by columns; the time
// limit of try_wait; the lane that elect chooses.
#include "device/selftest/rates.cuh"

#include <fmt/core.h>

#include <algorithm>
#include <bit>

#include "conformance/cases/run.h"
#include "conformance/measure/measure.h"
#include "conformance/model/operand.h"

namespace fa3::selftest {
namespace {

constexpr const char* kRatesHeader = "device/selftest/rates.cuh";
constexpr u32 kRounds = 200;

struct Instruction {
  const char* name;
  const char* enumerator;
  int results;  // of one call, per thread
};
constexpr Instruction kInstructions[] = {
    {"fma", "kFma", 1},
    {"max", "kMax", 1},
    {"ex2", "kEx2", 1},
    {"cvt-bf16x2", "kPackBf16", 2},
    {"cvt-e4m3x2", "kPackE4m3", 4},
    {"shfl", "kShuffle", 1},
};

// Many: 8 chains in each of 16 warps. Alone: one chain in one warp.
constexpr int kManyChains = 8;
constexpr u32 kManyThreads = 512;

Program rate_program(const Instruction& instruction, int chains) {
  return device_program(kRatesHeader,
                        fmt::format("fa3::selftest::rate<fa3::selftest::RateOp::{}, {}>",
                                    instruction.enumerator, chains));
}

struct Tile {
  MmaType type;
  int n;
  bool a_in_registers;
  int groups;
};
std::vector<Tile> tiles() {
  std::vector<Tile> all;
  for (const MmaType type : {MmaType::kBf16, MmaType::kE4m3, MmaType::kS8}) {
    for (const int n : {8, 32, 64, 96, 128, 176, 192, 256}) {
      if (type == MmaType::kS8 && n != 128 && n != 256) continue;
      for (const bool a_in_registers : {false, true}) {
        for (const int groups : {1, 2}) all.push_back({type, n, a_in_registers, groups});
      }
    }
  }
  return all;
}

Program tile_program(const Tile& tile) {
  return device_program(
      kRatesHeader,
      fmt::format("fa3::selftest::wgmma_rate<fa3::selftest::WgmmaCase{{{0}, {0}, {1}, {2}, "
                  "false, false}}, {3}>",
                  enumerator(tile.type), tile.n, tile.a_in_registers ? "true" : "false",
                  tile.groups));
}

const Program kWaitLimit = device_program(kRatesHeader, "fa3::selftest::wait_limit");
const Program kElected = device_program(kRatesHeader, "fa3::selftest::elected_lanes");

std::vector<u64> words64(const Bytes& bytes) {
  std::vector<u64> words(bytes.size() / 8);
  std::memcpy(words.data(), bytes.data(), 8 * words.size());
  return words;
}

// Runs a program with RateArgs; clocks: pairs of begin and end.
Status timed(GpuRuntime& runtime, const Program& program, u32 threads, u32 smem_bytes, u32 rounds,
             size_t pairs, std::vector<u64>& clocks) {
  Experiment experiment;
  experiment.shape.threads = threads;
  experiment.shape.smem_bytes = smem_bytes;
  experiment.buffers = {{"clocks", Bytes(16 * pairs), {}},
                        {"sink", Bytes(size_t{4} * threads), {}}};
  experiment.args = [rounds](const Placed& placed) {
    return bytes_of(RateArgs{placed.at<u64>(0), placed.at<u32>(1), {0.75F, 1.25F}, rounds});
  };
  std::vector<Bytes> after;
  // The first run warms the instruction cache.
  FA3_RETURN_IF_ERROR(execute(runtime, program, experiment, after));
  FA3_RETURN_IF_ERROR(execute(runtime, program, experiment, after));
  clocks = words64(after[0]);
  return {};
}

// From the first warp's begin to the last one's end.
double elapsed(const std::vector<u64>& clocks) {
  u64 begin = ~u64{0}, end = 0;
  for (size_t i = 0; i < clocks.size(); i += 2) {
    begin = std::min(begin, clocks[i]);
    end = std::max(end, clocks[i + 1]);
  }
  return static_cast<double>(end - begin);
}

Status measure_instructions(GpuRuntime& runtime, std::vector<Measurement>& results) {
  std::vector<u64> clocks;
  for (const Instruction& instruction : kInstructions) {
    FA3_RETURN_IF_ERROR(timed(runtime, rate_program(instruction, kManyChains), kManyThreads, 0,
                              kRounds, kManyThreads / 32, clocks));
    const double calls = double{kRounds} * kRateUnrolled;
    results.push_back({fmt::format("instruction/{}/results-per-clock", instruction.name),
                       calls * kManyChains * kManyThreads * instruction.results / elapsed(clocks)});
    FA3_RETURN_IF_ERROR(timed(runtime, rate_program(instruction, 1), 32, 0, kRounds, 1, clocks));
    results.push_back(
        {fmt::format("instruction/{}/latency-clocks", instruction.name), elapsed(clocks) / calls});
  }
  return {};
}

Status measure_wgmma(GpuRuntime& runtime, std::vector<Measurement>& results) {
  std::vector<u64> clocks;
  for (const Tile& tile : tiles()) {
    const auto groups = static_cast<u32>(tile.groups);
    FA3_RETURN_IF_ERROR(timed(runtime, tile_program(tile), 128 * groups, sizeof(WgmmaRateSmem),
                              kRounds, size_t{4} * groups, clocks));
    results.push_back(
        {fmt::format("wgmma/{}/{}/n{}/{}-warpgroups/clocks", tile.a_in_registers ? "rs" : "ss",
                     short_name(tile.type), tile.n, tile.groups),
         elapsed(clocks) / (double{kRounds} * kRateSteps * tile.groups)});
  }
  return {};
}

Status measure_waits(GpuRuntime& runtime, std::vector<Measurement>& results) {
  constexpr u32 kWaits = 8;
  std::vector<u64> clocks;
  FA3_RETURN_IF_ERROR(
      timed(runtime, kWaitLimit, 32, sizeof(WaitLimitSmem), kWaits, kWaits, clocks));
  for (size_t i = 0; i < clocks.size(); i += 2) {
    results.push_back(
        {fmt::format("try_wait/{}/clocks", i / 2), static_cast<double>(clocks[i + 1] - clocks[i])});
  }
  return {};
}

Status measure_elect(GpuRuntime& runtime, std::vector<Measurement>& results) {
  const std::vector<u32> masks = {~0u, 0xFFFF0000, 0x80000000, 0x00000A50, 0xFFFFFFFE};
  Experiment experiment;
  experiment.shape.grid[0] = static_cast<u32>(masks.size());
  experiment.shape.threads = 32;
  experiment.buffers = {{"mask", to_bytes(masks), {}}, {"elected", Bytes(4 * masks.size()), {}}};
  experiment.args = [](const Placed& placed) {
    return bytes_of(ElectArgs{placed.at<u32>(0), placed.at<u32>(1)});
  };
  std::vector<Bytes> after;
  FA3_RETURN_IF_ERROR(execute(runtime, kElected, experiment, after));
  for (size_t i = 0; i < masks.size(); ++i) {
    u32 elected = 0;
    std::memcpy(&elected, after[1].data() + 4 * i, 4);
    results.push_back({fmt::format("elect/mask-{:08x}/lane", masks[i]),
                       elected == 0 ? -1.0 : static_cast<double>(std::countr_zero(elected))});
  }
  return {};
}

}  // namespace

std::vector<Program> rate_programs() {
  std::vector<Program> programs = {kWaitLimit, kElected};
  for (const Instruction& instruction : kInstructions) {
    programs.push_back(rate_program(instruction, kManyChains));
    programs.push_back(rate_program(instruction, 1));
  }
  for (const Tile& tile : tiles()) programs.push_back(tile_program(tile));
  return programs;
}

Status measure_rates(GpuRuntime& runtime, std::vector<Measurement>& results) {
  FA3_RETURN_IF_ERROR(measure_elect(runtime, results));
  FA3_RETURN_IF_ERROR(measure_instructions(runtime, results));
  FA3_RETURN_IF_ERROR(measure_wgmma(runtime, results));
  return measure_waits(runtime, results);
}

}  // namespace fa3::selftest
