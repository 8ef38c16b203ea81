// SPDX-License-Identifier: BSD-3-Clause
// decode_lengths_test.cpp — the decode kernels on lengths that hold anything.
#include "sim/fwd/decode_kit.h"
#include "sim/invalid_lengths.h"

namespace fa3::sim {
namespace {

constexpr DecodeConfig kWide = wide(small_decode(true), 64);
constexpr DecodeConfig kWideRuns = wide(small_decode(KvSource::kRuns), 64);
constexpr DecodeConfig kWideRows = wide(small_decode(KvSource::kRows), 64);
constexpr DecodeConfig kClusters = with_clusters(small_decode(true));
const bool added =
    (add_decode<kClusters>(), add_decode<small_decode(true)>(),
     add_decode<small_decode(KvSource::kRuns)>(), add_decode<small_decode(KvSource::kRows)>(),
     add_decode<kWide>(), add_decode<kWideRuns>(), add_decode<kWideRows>(), true);

TEST(SimDecodeLengths, Invalid_AreHarmless) {
  TestRuntime runtime;
  DecodeRun run(runtime, with_lengths(), small_decode(true), 4);
  InvalidLengths lengths(runtime, run);
  lengths.expect_named_ones_harmless();
  lengths.expect_named_sequences_harmless();
  lengths.expect_random_ones_harmless(kSanitized ? 5 : 12);
}
TEST(SimDecodeLengths, InvalidOfManyRows_AreHarmless) {
  TestRuntime runtime;
  DecodeRun run(runtime, with_lengths(), kWide, 4);
  InvalidLengths(runtime, run).expect_random_ones_harmless(kSanitized ? 3 : 12);
}

TEST(SimDecodeLengths, InvalidOfOneSequence_AreHarmless) {
  TestRuntime runtime;
  verify::Config c = with_lengths();
  c.varlen_q = {8}, c.varlen_kv = {190}, c.seqused_q = {7}, c.seqused_kv = {180};
  DecodeRun run(runtime, c, kClusters, 4, 2);
  InvalidLengths lengths(runtime, run);
  lengths.expect_named_ones_harmless();
  lengths.expect_random_ones_harmless(kSanitized ? 5 : 12);
}

verify::Config in_pages(int64_t page_size) {
  verify::Config c;
  c.dtype = FA3_BF16;
  c.batch = 3;
  c.heads_q = 4, c.heads_kv = 2;
  c.seqlen_q = 2, c.seqlen_kv = 190;
  c.seqused_kv = {190, 64, 100};
  c.page_size = page_size;
  c.alignment = 16;
  return c;
}

const std::pair<int, DecodeConfig> kInPages[] = {{16, small_decode(KvSource::kRuns)},
                                                 {1, small_decode(KvSource::kRows)},
                                                 {16, kWideRuns},
                                                 {1, kWideRows}};

TEST(SimDecodeLengths, InvalidPages_AreHarmless) {
  for (const auto& [page_size, config] : kInPages) {
    TestRuntime runtime;
    DecodeRun run(runtime, in_pages(page_size), config, 4);
    InvalidLengths lengths(runtime, run);
    lengths.expect_named_ones_harmless();
    lengths.expect_named_sequences_harmless();
    lengths.expect_random_ones_harmless(kSanitized ? 3 : config.wide ? 8 : 20);
  }
}

// Slots and first rows that name nothing.
TEST(SimDecodeLengths, InvalidSlotsAndBegins_AreHarmless) {
  TestRuntime runtime;
  verify::Config c = in_pages(0);
  c.kv_slots = 5, c.kv_begin = true;
  DecodeRun run(runtime, c, small_decode(KvSource::kRuns), 4);
  InvalidLengths lengths(runtime, run);
  lengths.expect_named_ones_harmless();
  lengths.expect_random_ones_harmless(kSanitized ? 3 : 20);
}

// A page that does not exist, the last one of a sequence: as if the sequence ended before it.
TEST(SimDecodeLengths, KeysOfMissingPages_AreHidden) {
  for (const auto& [page_size, config] : kInPages) {
    for (const i32 missing : {-1, 1 << 20, INT_MIN}) {
      TestRuntime runtime;
      verify::Config c = in_pages(page_size);
      c.seqused_kv = {160, 64, 96};
      DecodeRun run(runtime, c, config, 4);
      const std::vector<i32> used = run.lengths(kSequsedKv);
      std::vector<i32> fewer = used, table = run.lengths(kPageTable);
      for (i32& keys : fewer) keys -= page_size;
      run.set_lengths(kSequsedKv, fewer);
      run.run();
      const std::vector<unsigned char> bits = run.bits();
      run.set_lengths(kSequsedKv, used);
      const size_t columns = table.size() / used.size();
      for (size_t b = 0; b < used.size(); ++b)
        table[b * columns + static_cast<size_t>(used[b] / page_size - 1)] = missing;
      run.set_lengths(kPageTable, table);
      run.run();
      EXPECT_EQ(run.bits(), bits) << "page " << missing << " of " << page_size;
    }
  }
}

// Of all of a sequence's: no row sees anything.
TEST(SimDecodeLengths, SequencesOfMissingPages_AreEmpty) {
  for (const auto& [page_size, config] : kInPages) {
    TestRuntime runtime;
    DecodeRun run(runtime, in_pages(page_size), config, 4);
    run.set_lengths(kSequsedKv, {0, 0, 0});
    run.run();
    const std::vector<unsigned char> bits = run.bits();
    run.set_lengths(kSequsedKv, {190, 64, 100});
    run.set_lengths(kPageTable, {-1});
    run.run();
    EXPECT_EQ(run.bits(), bits) << page_size;
  }
}

}  // namespace
}  // namespace fa3::sim
