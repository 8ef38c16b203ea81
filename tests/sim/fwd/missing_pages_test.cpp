// SPDX-License-Identifier: BSD-3-Clause
// missing_pages_test.cpp — the forward kernel on page tables with entries that name no page: their
// keys are hidden, as if sequences did not have them, and their memory is not touched.
#include <climits>
#include <cmath>

#include "sim/fwd/configs.h"
#include "sim/fwd/kit.h"

namespace fa3::sim {
namespace {

constexpr FwdConfig small_cached(KvSource kv) {
  FwdConfig c = small(MaskKind::kFull, true);
  c.load.kv = kv;
  return c;
}
constexpr FwdConfig kRuns = small_cached(KvSource::kRuns), kRows = small_cached(KvSource::kRows);
const bool added = (add_fwd<kRuns>(), add_fwd<kRows>(), true);

// Whole Q tiles: rows that do not exist have a say in when O is rescaled.
constexpr i64 kRowsOfQ = 128;

struct Case {
  const char* name;
  i32 page_size;
  FwdConfig config;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class FwdMissingPages : public testing::TestWithParam<Case> {
 protected:
  static verify::Config problem() {
    verify::Config c;
    c.dtype = FA3_BF16;
    c.batch = 3;
    c.heads_q = 2;
    c.head_dim_qk = c.head_dim_v = 64;
    c.seqlen_q = kRowsOfQ, c.seqlen_kv = 192;
    c.seqused_kv = {192, 32, 112};
    c.page_size = GetParam().page_size;
    c.alignment = 16;
    return c;
  }
  i32 pages_of(i32 keys) const { return keys / GetParam().page_size; }
  i32& entry(std::vector<i32>& table, size_t batch, i32 page) const {
    return table[batch * (table.size() / used_.size()) + static_cast<size_t>(page)];
  }
  // Outputs with a table and lengths.
  std::vector<unsigned char> bits(const std::vector<i32>& table, const std::vector<i32>& used) {
    run_.set_lengths(kPageTable, table);
    run_.set_lengths(kSequsedKv, used);
    run_.run();
    return run_.bits();
  }
  // A table without pages [first, end) of a sequence.
  std::vector<i32> without(size_t batch, i32 first, i32 end) const {
    std::vector<i32> table = table_;
    for (i32 page = end; page < pages_of(used_[batch]); ++page)
      entry(table, batch, first + page - end) = entry(table, batch, page);
    return table;
  }

  TestRuntime runtime_;
  FwdRun run_{runtime_, problem(), GetParam().config};
  const std::vector<i32> used_ = run_.lengths(kSequsedKv), table_ = run_.lengths(kPageTable);
};

TEST_P(FwdMissingPages, TheLastOne_IsAsIfSequencesEndedBefore) {
  const i32 page = GetParam().page_size;
  std::vector<i32> fewer = used_;
  for (i32& keys : fewer) keys -= page;
  const std::vector<unsigned char> expected = bits(table_, fewer);
  for (const i32 missing : {-1, 1 << 20, INT_MIN}) {
    std::vector<i32> table = table_;
    for (size_t b = 0; b < used_.size(); ++b) entry(table, b, pages_of(used_[b]) - 1) = missing;
    EXPECT_EQ(bits(table, used_), expected) << "page " << missing;
  }
}

// Pages of a whole KV tile: what remains are the same tiles.
TEST_P(FwdMissingPages, OfAWholeTile_AreAsIfKeysBehindFollowed) {
  const i32 keys = GetParam().config.tile.kv;
  for (const i32 first : {0, keys, 4 * keys}) {
    const std::vector<unsigned char> expected = bits(
        without(0, pages_of(first), pages_of(first + keys)), {used_[0] - keys, used_[1], used_[2]});
    std::vector<i32> table = table_;
    for (i32 page = pages_of(first); page < pages_of(first + keys); ++page)
      entry(table, 0, page) = -1;
    EXPECT_EQ(bits(table, used_), expected) << "keys from " << first << " on";
  }
}

// A page within a tile: the same keys in other tiles.
TEST_P(FwdMissingPages, AmongOthers_AreHidden) {
  const i32 page = pages_of(48);
  bits(without(0, page, page + 1), {used_[0] - GetParam().page_size, used_[1], used_[2]});
  const verify::Tensors& t = run_.tensors();
  std::vector<double> o, lse;
  const auto every_row = [&](const auto& f) {
    for (i64 head = 0; head < 2; ++head)
      for (i64 row = 0; row < kRowsOfQ; ++row) f(head, row);
  };
  every_row([&](i64 head, i64 row) {
    lse.push_back(verify::get(t.lse.view, {0, head, row}));
    for (i64 i = 0; i < 64; ++i) o.push_back(verify::get(t.o.view, {0, row, head, i}));
  });
  std::vector<i32> table = table_;
  entry(table, 0, page) = -1;
  bits(table, used_);
  size_t at = 0;
  every_row([&](i64 head, i64 row) {
    EXPECT_NEAR(verify::get(t.lse.view, {0, head, row}), lse[at / 64], 1e-5);
    for (i64 i = 0; i < 64; ++i, ++at)
      EXPECT_NEAR(verify::get(t.o.view, {0, row, head, i}), o[at], 0x1p-8 * (1 + std::fabs(o[at])));
  });
}

TEST_P(FwdMissingPages, AllOfASequence_IsAsIfItWereEmpty) {
  const std::vector<unsigned char> expected = bits(table_, {used_[0], 0, used_[2]});
  std::vector<i32> table = table_;
  for (i32 page = 0; page < pages_of(used_[1]); ++page) entry(table, 1, page) = -1;
  EXPECT_EQ(bits(table, used_), expected);
  const verify::Tensors& t = run_.tensors();
  EXPECT_EQ(verify::get(t.o.view, {1, 5, 0, 7}), 0);
  EXPECT_EQ(verify::get(t.lse.view, {1, 0, 5}), -INFINITY);
}

INSTANTIATE_TEST_SUITE_P(Pages, FwdMissingPages,
                         testing::Values(Case{"of_16", 16, kRuns}, Case{"of_1", 1, kRows}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace fa3::sim
