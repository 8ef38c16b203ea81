// SPDX-License-Identifier: BSD-3-Clause
// memory.cpp — bulk copies and reductions, cp.async with zero fill, atomics.
#include "device/selftest/memory.cuh"

#include <fmt/core.h>

#include <algorithm>
#include <bit>

#include "conformance/cases/cases.h"
#include "conformance/model/addend.h"

namespace fa3::selftest {
namespace {

constexpr const char* kMemoryHeader = "device/selftest/memory.cuh";

// ---- Bulk copies --------------------------------------------------------------------------------

struct BulkRow {
  const char* name;
  BulkOp op;
  TmaType type;
};
constexpr BulkRow kBulkRows[] = {
    {"store", BulkOp::kStore, TmaType::kU8},     {"add/f32", BulkOp::kAddF32, TmaType::kF32},
    {"add/f16", BulkOp::kAddF16, TmaType::kF16}, {"add/bf16", BulkOp::kAddBf16, TmaType::kBf16},
    {"add/s32", BulkOp::kAddS32, TmaType::kI32}, {"add/u32", BulkOp::kAddU32, TmaType::kU32},
};

// From 16 bytes after the begin of one buffer to 32 after that of another, which is longer.
Experiment make_bulk(const BulkRow& row, size_t bytes, Random& random) {
  constexpr size_t kFrom = 16, kTo = 32, kAfter = 16;
  const size_t es = static_cast<size_t>(size_of(row.type));
  const Bytes from = random_addends(row.type, kFrom + bytes, random);
  const Bytes to = random_addends(row.type, kTo + bytes + kAfter, random);
  Bytes after = to;
  for (size_t i = 0; i < bytes; i += es) {
    uint64_t a = 0, b = 0;
    std::memcpy(&a, to.data() + kTo + i, es);
    std::memcpy(&b, from.data() + kFrom + i, es);
    const uint64_t element = row.op == BulkOp::kStore ? b : sum_of(row.type, a, b);
    std::memcpy(after.data() + kTo + i, &element, es);
  }
  Experiment experiment;
  experiment.shape.threads = 32;
  experiment.shape.smem_bytes = sizeof(BulkSmem);
  experiment.buffers = {{"from", from, {}}, {"to", to, Expected{size_of(row.type), after}}};
  experiment.args = [op = row.op, bytes](const Placed& placed) {
    return bytes_of(
        BulkArgs{placed.at<u8>(0) + kFrom, placed.at<u8>(1) + kTo, static_cast<u32>(bytes), op});
  };
  return experiment;
}

// ---- cp.async -----------------------------------------------------------------------------------

Experiment make_cp_async(Random& random) {
  constexpr size_t kCopies = 32 * kCpAsyncRounds;
  Bytes from(16 * kCopies), to(from.size());
  for (std::byte& b : from) b = static_cast<std::byte>(random.integer(1, 255));
  std::vector<u32> source_bytes(kCopies);
  for (size_t i = 0; i < kCopies; ++i) {
    source_bytes[i] = static_cast<u32>(random.integer(0, 16));
    std::memcpy(to.data() + 16 * (i ^ 1), from.data() + 16 * i, source_bytes[i]);
  }
  Experiment experiment;
  experiment.shape.threads = 32;
  experiment.shape.smem_bytes = sizeof(CpAsyncSmem);
  experiment.buffers = {{"from", from, {}},
                        {"source_bytes", to_bytes(source_bytes), {}},
                        {"to", Bytes(to.size()), Expected{1, to}}};
  experiment.args = [](const Placed& placed) {
    return bytes_of(CpAsyncArgs{placed.at<u8>(0), placed.at<u32>(1), placed.at<u8>(2)});
  };
  return experiment;
}

// ---- Atomics ------------------------------------------------------------------------------------

bool is_f32(AtomicRow row) {
  return row == AtomicRow::kAddF32 || row == AtomicRow::kRedF32 || row == AtomicRow::kRedV4F32 ||
         row == AtomicRow::kSharedAddF32;
}

bool returns_old(AtomicRow row) {
  return row < AtomicRow::kRedRelease || row > AtomicRow::kRedV4F32;
}

u32 combine(AtomicRow row, u32 old, u32 operand, size_t lane) {
  const auto as_signed = [](u32 word) { return static_cast<i32>(word); };
  switch (row) {
    case AtomicRow::kMaxU32:
    case AtomicRow::kSharedMaxU32:
      return std::max(old, operand);
    case AtomicRow::kMinU32:
      return std::min(old, operand);
    case AtomicRow::kMaxI32:
    case AtomicRow::kSharedMaxI32:
      return as_signed(old) > as_signed(operand) ? old : operand;
    case AtomicRow::kMinI32:
      return as_signed(old) < as_signed(operand) ? old : operand;
    case AtomicRow::kExchange:
    case AtomicRow::kExchangeAcqRel:
      return operand;
    case AtomicRow::kCas:
    case AtomicRow::kCasAcqRel:
      return lane % 2 == 0 ? operand : old;
    case AtomicRow::kRedOr:
      return old | operand;
    default:
      return static_cast<u32>(sum_of(is_f32(row) ? TmaType::kF32 : TmaType::kU32, old, operand));
  }
}

Experiment make_atomics(Random& random) {
  constexpr size_t kWords = 32 * kAtomicRows;
  std::vector<u32> word(kWords), operand(kWords), old(kWords), after(kWords);
  for (size_t at = 0; at < kWords; ++at) {
    const auto row = static_cast<AtomicRow>(at / 32);
    const auto draw = [&] {
      const float small = static_cast<float>(random.integer(-4000, 4000)) / 7.f;
      return is_f32(row) ? std::bit_cast<u32>(small) : random.word();
    };
    word[at] = draw();
    operand[at] = draw();
    after[at] = combine(row, word[at], operand[at], at % 32);
    old[at] = returns_old(row) ? word[at] : 0;
  }
  constexpr u32 kAdds = 32 * kAtomicCtas;
  constexpr float kNumbers = 31 * 16 * kAtomicCtas;  // 0 + 1 + … + 31 per CTA
  const std::vector<float> f32_sum{kNumbers, 0, 0, 0, kNumbers, kNumbers, kNumbers, kNumbers};
  Experiment experiment;
  experiment.shape.grid[0] = kAtomicCtas;
  experiment.shape.interacting = true;
  experiment.shape.threads = 32;
  experiment.shape.smem_bytes = sizeof(AtomicSmem);
  experiment.buffers = {
      {"word", to_bytes(word), Expected{4, to_bytes(after)}},
      {"operand", to_bytes(operand), {}},
      {"old", Bytes(4 * kWords), Expected{4, to_bytes(old)}},
      {"u32_sum", Bytes(4), Expected{4, bytes_of(kAdds)}},
      {"f32_sum", Bytes(4 * f32_sum.size()), Expected{4, to_bytes(f32_sum)}},
      {"u64_sum", Bytes(8), Expected{4, bytes_of(static_cast<u64>(kAdds) << 31)}}};
  experiment.args = [](const Placed& placed) {
    return bytes_of(AtomicArgs{placed.at<u32>(0), placed.at<u32>(1), placed.at<u32>(2),
                               placed.at<u32>(3), placed.at<float>(4), placed.at<u64>(5)});
  };
  return experiment;
}

}  // namespace

void add_memory_cases(std::vector<Case>& cases) {
  for (const BulkRow& row : kBulkRows) {
    for (const size_t bytes : {size_t{16}, size_t{1040}, size_t{kBulkMaxBytes}}) {
      cases.push_back({fmt::format("memory/bulk/{}/{}", row.name, bytes),
                       device_program(kMemoryHeader, "fa3::selftest::bulk"),
                       [=](Random& random) { return make_bulk(row, bytes, random); }});
    }
  }
  cases.push_back({"memory/cp.async", device_program(kMemoryHeader, "fa3::selftest::cp_async"),
                   &make_cp_async});
  cases.push_back(
      {"memory/atomics", device_program(kMemoryHeader, "fa3::selftest::atomics"), &make_atomics});
}

}  // namespace fa3::selftest
