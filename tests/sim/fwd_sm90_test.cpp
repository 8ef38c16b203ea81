// SPDX-License-Identifier: BSD-3-Clause
// fwd_sm90_test.cpp — the forward kernel of Hopper in the simulator, through the C interface: every
// row of its table over the shapes that tiles make awkward, judged by the FP64 reference. The
// simulator looks for races, deadlocks and wrong byte counts as it goes.
//
// Each kind of problem runs on some rows; on all of them when RC_PARAMS is set, as in `make ci`. A
// tuning names the row, since many are chosen for thousands of queries, and few test as much.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "plan/sm90/fwd/variants.h"
#include "tests/kit/thorough.h"
#include "tests/sim/in_8_bits.h"
#include "tests/sim/simulator.h"

namespace fa3::sm90 {
namespace {

using testing::HasSubstr;
using verify::Config;
using verify::Layout;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

// A row of the table.
struct Row {
  const FwdRow* row;

  int64_t tile_q() const { return row->config.tile.q(); }
  int64_t tile_kv() const { return row->config.tile.kv; }
  bool few() const { return row->max_seqlen_q > 0 && row->max_seqlen_q <= 64; }
  // q queries; rows for short queries take at most 64.
  int64_t queries(int64_t q) const { return few() ? std::min<int64_t>(q, row->max_seqlen_q) : q; }
  // Into a second Q tile.
  int64_t beyond(int64_t by) const { return queries(tile_q() + by); }
  Config config() const {
    Config c;
    c.dtype = FA3_BF16;
    c.heads_q = 2;
    c.heads_kv = 1;
    c.head_dim_qk = row->config.tile.head_dim_qk;
    c.head_dim_v = row->config.tile.head_dim_v;
    c.seqlen_q = queries(tile_q());
    c.seqlen_kv = 2 * tile_kv();
    return c;
  }
  // Varlen, with sequences of none, one and many queries and keys.
  Config varlen() const {
    Config c = config();
    c.varlen_q = {beyond(3), 0, 1, 17, 5};
    c.varlen_kv = {tile_kv() + 5, 3, 0, 2 * tile_kv(), 40};
    c.spare_q = 9;
    c.spare_kv = 11;
    return c;
  }
};

std::vector<Row> rows() {
  std::vector<Row> rows;
  for (const FwdRow& row : kFwdRows)  // longer sums: SimFwdFlushed, and fwd/variants_test.cpp
    if (row.sums() == Sums::kShort) rows.push_back({&row});
  return rows;
}

// A kind of problem: the problem that it makes for a row.
struct Kind {
  const char* name;
  std::function<Config(const Row&)> of;
};

Config windowed(const Row& row, int64_t left, int64_t right) {
  Config c = row.config();
  c.seqlen_q = row.beyond(5);
  c.seqlen_kv = 2 * row.tile_kv() + 7;
  c.mask = FA3_MASK_WINDOW;
  c.left = left;
  c.right = right;
  return c;
}

Config with(Config c, const std::function<void(Config&)>& change) {
  change(c);
  return c;
}

const Kind kKinds[] = {
    {"Aligned", [](const Row& r) { return r.config(); }},
    {"OneMore",
     [](const Row& r) {
       return with(r.config(), [&](Config& c) {
         c.seqlen_q = r.beyond(1);
         c.seqlen_kv = 2 * r.tile_kv() + 1;
       });
     }},
    {"OneFewer",
     [](const Row& r) {
       return with(r.config(), [&](Config& c) {
         c.seqlen_q = r.beyond(-1);
         c.seqlen_kv = 2 * r.tile_kv() - 1;
       });
     }},
    {"OneQueryOneKey",
     [](const Row& r) {
       return with(r.config(), [&](Config& c) {
         c.seqlen_q = r.queries(1);
         c.seqlen_kv = 1;
       });
     }},
    {"ManyKeys",
     [](const Row& r) {
       return with(r.config(), [&](Config& c) { c.seqlen_kv = 7 * r.tile_kv() + 3; });
     }},
    {"Groups",  // and more Q tiles than CTAs
     [](const Row& r) {
       return with(r.config(), [&](Config& c) {
         c.heads_q = 6;
         c.heads_kv = 2;
         c.seqlen_kv = r.tile_kv() + 9;
       });
     }},
    {"Batches",
     [](const Row& r) {
       return with(r.config(), [&](Config& c) {
         c.batch = 2;
         c.seqlen_kv = 3 * r.tile_kv();
       });
     }},
    {"NarrowHeads",
     [](const Row& r) {
       return with(r.config(), [](Config& c) {
         c.head_dim_qk -= 8;
         c.head_dim_v -= 24;
       });
     }},
    {"Causal",
     [](const Row& r) {
       return with(r.config(), [&](Config& c) {
         c.seqlen_q = c.seqlen_kv = r.queries(2 * r.tile_q());
         c.mask = FA3_MASK_CAUSAL;
       });
     }},
    {"CausalMoreKeys",
     [](const Row& r) {
       return with(r.config(), [&](Config& c) {
         c.seqlen_q = r.beyond(9);
         c.seqlen_kv = c.seqlen_q + r.tile_kv() + 21;
         c.mask = FA3_MASK_CAUSAL;
       });
     }},
    {"CausalMoreQueries",  // the first rows, and with them whole tiles, see nothing
     [](const Row& r) {
       return with(r.config(), [&](Config& c) {
         c.seqlen_q = r.queries(2 * r.tile_q() + 9);
         c.seqlen_kv = r.few() ? 13 : r.tile_q() - 50;
         c.mask = FA3_MASK_CAUSAL;
       });
     }},
    {"Window0_0", [](const Row& r) { return windowed(r, 0, 0); }},
    {"Window20_3", [](const Row& r) { return windowed(r, 20, 3); }},
    {"WindowLeftOnly", [](const Row& r) { return windowed(r, 5, -1); }},
    {"WindowOfATile", [](const Row& r) { return windowed(r, r.tile_kv(), r.tile_kv() - 1); }},
    {"WindowMoreQueries",
     [](const Row& r) {
       return with(windowed(r, 30, 2), [&](Config& c) {
         c.seqlen_q = r.queries(3 * r.tile_q());
         c.seqlen_kv = r.few() ? 20 : r.tile_q();
       });
     }},
    {"Varlen", [](const Row& r) { return r.varlen(); }},
    {"VarlenCausal",
     [](const Row& r) {
       return with(r.varlen(), [](Config& c) { c.mask = FA3_MASK_CAUSAL, c.seed = 1; });
     }},
    {"VarlenWindow",
     [](const Row& r) {
       return with(r.varlen(), [](Config& c) {
         c.mask = FA3_MASK_WINDOW;
         c.left = 9;
         c.right = 40;
       });
     }},
    {"VarlenManySequences",  // the scheduler looks at 32 at a time
     [](const Row& r) {
       return with(r.config(), [&](Config& c) {
         for (int64_t b = 0; b < 70; ++b) c.varlen_q.push_back(b % 3), c.varlen_kv.push_back(b % 5);
         c.varlen_q[66] = r.queries(65);
         c.heads_q = c.heads_kv = 1;
         c.mask = FA3_MASK_CAUSAL;
       });
     }},
    {"VarlenKeysOnly",
     [](const Row& r) {
       return with(r.varlen(), [&](Config& c) {
         c.varlen_q.clear();
         c.spare_q = 0;
         c.seqlen_q = r.queries(20);
       });
     }},
    {"Seqused",
     [](const Row& r) {
       return with(r.config(), [&](Config& c) {
         c.batch = 3;
         c.seqused_q = {c.seqlen_q - 1, 0, 7};
         c.seqused_kv = {1, 50, r.tile_kv() + 3};
       });
     }},
    {"VarlenSeqused",
     [](const Row& r) {
       return with(r.varlen(), [&](Config& c) {
         c.seqused_q = {c.varlen_q[0] - 2, 0, 0, 17, 3};
         c.seqused_kv = {r.tile_kv(), 3, 0, 2 * r.tile_kv() - 70, 0};
         c.mask = FA3_MASK_CAUSAL;
       });
     }},
    {"NoKeys", [](const Row& r) { return with(r.config(), [](Config& c) { c.seqlen_kv = 0; }); }},
    {"Softcap", [](const Row& r) { return with(r.config(), [](Config& c) { c.softcap = 5; }); }},
    {"SoftcapCausal",
     [](const Row& r) {
       return with(r.config(), [](Config& c) {
         c.softcap = 30;
         c.softmax_scale = -0.5;
         c.mask = FA3_MASK_CAUSAL;
       });
     }},
    {"NegativeScale",
     [](const Row& r) {
       return with(r.config(), [](Config& c) {
         c.softmax_scale = -0.2;
         c.mask = FA3_MASK_CAUSAL;
       });
     }},
    {"LargeScores",
     [](const Row& r) { return with(r.config(), [](Config& c) { c.magnitude = 40; }); }},
    // |max·scale| far beyond 2^24, where its rounding alone could give any P.
    {"HugeScores",
     [](const Row& r) { return with(r.config(), [](Config& c) { c.magnitude = 1e9; }); }},
    {"HugeScoresCausal",
     [](const Row& r) {
       return with(r.config(), [&](Config& c) {
         c.magnitude = 1e7;
         c.mask = FA3_MASK_CAUSAL;
         c.seqlen_kv = c.seqlen_q + 3 * r.tile_kv();
       });
     }},
    {"HugeScoresF16",
     [](const Row& r) {
       return with(r.config(), [&](Config& c) {
         c.dtype = FA3_F16;
         c.magnitude = 1e4;
         c.seqlen_kv = 4 * r.tile_kv() + 1;
       });
     }},
    {"F16", [](const Row& r) { return with(r.config(), [](Config& c) { c.dtype = FA3_F16; }); }},
    {"F16Causal",
     [](const Row& r) {
       return with(r.config(), [](Config& c) {
         c.dtype = FA3_F16;
         c.mask = FA3_MASK_CAUSAL;
         c.seqlen_kv += 3;
       });
     }},
    {"Padded",
     [](const Row& r) { return with(r.config(), [](Config& c) { c.layout = Layout::kPadded; }); }},
    {"HeadsFirst",
     [](const Row& r) {
       return with(r.varlen(), [](Config& c) { c.layout = Layout::kHeadsFirst; });
     }},
    {"SeqFirst",
     [](const Row& r) {
       return with(r.config(), [](Config& c) { c.layout = Layout::kSeqFirst, c.batch = 2; });
     }},
    {"Interleaved",
     [](const Row& r) {
       return with(r.config(), [](Config& c) {
         c.layout = Layout::kInterleaved;
         c.head_dim_v = c.head_dim_qk = c.head_dim_v;
         c.seqlen_kv = c.seqlen_q;
         c.batch = 2;
       });
     }},
    {"Broadcast",
     [](const Row& r) {
       return with(r.config(), [](Config& c) { c.layout = Layout::kBroadcast, c.batch = 2; });
     }},
    {"SeqFirstSoftcap",
     [](const Row& r) {
       return with(r.config(), [](Config& c) {
         c.layout = Layout::kSeqFirst;
         c.batch = 3;
         c.softcap = 5;
         c.seqlen_kv += 3;
       });
     }},
    {"SeqFirstF16Causal",
     [](const Row& r) {
       return with(r.config(), [](Config& c) {
         c.layout = Layout::kSeqFirst;
         c.batch = 2;
         c.dtype = FA3_F16;
         c.mask = FA3_MASK_CAUSAL;
         c.seqlen_kv += 21;
       });
     }},
    {"BroadcastNegativeScale",
     [](const Row& r) {
       return with(r.config(), [](Config& c) {
         c.layout = Layout::kBroadcast;
         c.batch = 2;
         c.softmax_scale = -0.2;
       });
     }},
    {"NoLse", [](const Row& r) { return with(r.config(), [](Config& c) { c.lse = false; }); }},
};

// The rows that a kind runs on: some apart, so that each row gets its part of the kinds.
std::vector<Row> rows_of(size_t kind) {
  constexpr size_t kStep = 8;
  std::vector<Row> chosen;
  const std::vector<Row> all = rows();
  for (size_t r = 0; r < all.size(); ++r) {
    const FwdConfig& row = all[r].row->config;
    // Sanitizers look at the simulator, for which one head dim is enough.
    if (kit::kSanitized && row.tile.head_dim_qk != kit::kSanitizedHeadDim) continue;
    const size_t turn = r + kind;
    // Of 8 bits, the same code with other types, a third.
    if (row.types.scaled() ? turn % 3 == 0 && kit::due(turn / 3, kStep / 2) : kit::due(turn, kStep))
      chosen.push_back(all[r]);
  }
  return chosen;
}

class SimFwdSm90 : public testing::TestWithParam<size_t> {};

TEST_P(SimFwdSm90, IsRight) {
  for (const Row& row : rows_of(GetParam())) {
    SCOPED_TRACE(row.row->name);
    const Config c = in_8_bits(kKinds[GetParam()].of(row), row.row->config, GetParam());
    const kit::Context context = tuned_simulator(c, row.row->name);
    if (!explained(c, context.get(), "tuning_declined").empty()) continue;  // of another mask
    EXPECT_EQ(explained(c, context.get(), "row"), row.row->name);
    kit::expect_right(c, context.get());
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, SimFwdSm90, testing::Range(size_t{0}, std::size(kKinds)),
                         [](const auto& info) { return std::string(kKinds[info.param].name); });

// ---- NaN and Inf --------------------------------------------------------------------------------

// Judges a problem whose inputs `spoil` has changed.
void expect_right_after(const Config& c, const std::function<void(const verify::Tensors&)>& spoil) {
  const verify::Tensors t = verify::make_tensors(c);
  spoil(t);
  const fa3_forward_args args = verify::forward_args(c, t);
  ASSERT_EQ(fa3_forward(simulator(), &args, nullptr), FA3_OK) << fa3_last_error();
  for (const verify::OutputResult& r : verify::compare_forward(args))
    EXPECT_TRUE(r.ok) << verify::to_text(r);
}

void set_row(const fa3_tensor& t, verify::Index at, double value) {
  for (at[t.rank - 1] = 0; at[t.rank - 1] < t.shape[t.rank - 1]; ++at[t.rank - 1])
    verify::set(t, at, value);
}

void expect_finite(const fa3_tensor& t) {
  verify::for_each_row(t, [&](const verify::Index& row, void*) {
    verify::Index at = row;
    for (int64_t c = 0; c < t.shape[t.rank - 1]; ++c) {
      at[t.rank - 1] = c;
      ASSERT_TRUE(std::isfinite(verify::get(t, at))) << "row " << row[0] << ", column " << c;
    }
  });
}

// Rows that no sequence owns hold NaN (make_tensors), and none of them may reach O.
TEST(SimFwdSm90Nan, BeyondTheSequences_NothingIsRead) {
  for (const fa3_mask mask : {FA3_MASK_FULL, FA3_MASK_CAUSAL}) {
    Config c = causal();
    c.mask = mask;
    c.varlen_q = {7, 0, 70};
    c.varlen_kv = {65, 9, 130};
    c.seqused_q = {6, 0, 69};
    c.seqused_kv = {64, 1, 129};
    c.spare_q = c.spare_kv = 9;
    const verify::Tensors t = verify::make_tensors(c);
    const fa3_forward_args args = verify::forward_args(c, t);
    ASSERT_EQ(fa3_forward(simulator(), &args, nullptr), FA3_OK) << fa3_last_error();
    expect_finite(args.o);
  }
}

TEST(SimFwdSm90Nan, AnotherSequence_StaysClean) {
  Config c = causal();
  c.varlen_q = {10, 20, 30};
  c.varlen_kv = {11, 70, 30};
  expect_right_after(c, [](const verify::Tensors& t) {
    for (int64_t key = 11; key < 81; ++key) {
      set_row(t.k.view, {key, 0}, kNan);
      set_row(t.v.view, {key, 0}, kInf);
    }
  });
}

// Values of a tile that some row of it sees may reach the others (0 times NaN): keys may not.
TEST(SimFwdSm90Nan, InKey_ReachesExactlyTheRowsThatSeeIt) {
  for (const double bad : {kNan, kInf, -kInf}) {
    for (const int64_t key : {0, 70, 130, 199}) {
      expect_right_after(causal(), [&](const verify::Tensors& t) {
        verify::set(t.k.view, {0, key, 0, 3}, bad);
      });
    }
  }
}

TEST(SimFwdSm90Nan, InQuery_StaysInItsRow) {
  for (const double bad : {kNan, kInf}) {
    for (const int64_t row : {0, 64, 199}) {
      expect_right_after(causal(), [&](const verify::Tensors& t) {
        verify::set(t.q.view, {0, row, 1, 7}, bad);
      });
    }
  }
}

TEST(SimFwdSm90Nan, InVisibleValue_ReachesItsColumn) {
  Config c = causal();
  c.mask = FA3_MASK_FULL;
  for (const double bad : {kNan, kInf, -kInf}) {
    expect_right_after(c, [&](const verify::Tensors& t) {
      verify::set(t.v.view, {0, 150, 0, 5}, bad);
    });
  }
}

// q = 1 and k = −inf make every score −inf: in the first tiles or in all of them.
TEST(SimFwdSm90Nan, ScoresMinusInf_AreKeysOfNoWeight) {
  for (const int64_t keys : {3, 128, 200}) {
    Config c = causal();
    c.mask = FA3_MASK_FULL;
    expect_right_after(c, [&](const verify::Tensors& t) {
      verify::fill(t.q.view, 0.25);
      for (int64_t key = 0; key < keys; ++key) set_row(t.k.view, {0, key, 0}, -kInf);
    });
    expect_right_after(c, [&](const verify::Tensors& t) {  // loops run downwards
      verify::fill(t.q.view, 0.25);
      for (int64_t key = 200 - keys; key < 200; ++key) set_row(t.k.view, {0, key, 0}, -kInf);
    });
  }
}

// A scale that FP32 cannot hold: all scores are zero then, and masked ones stay −inf.
TEST(SimFwdSm90Nan, ScaleBelowFp32_GivesMeans) {
  for (const double scale : {1e-300, -1e-300, 1e-45}) {
    Config c = causal();
    c.softmax_scale = scale;
    kit::expect_right(c, simulator());
    c.softcap = 0x1p-126;  // the least that is taken
    kit::expect_right(c, simulator());
  }
}

}  // namespace
}  // namespace fa3::sm90
