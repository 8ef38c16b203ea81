// SPDX-License-Identifier: BSD-3-Clause
// The pure parts of src/device/hopper against values computed by hand and against the rules by
// which the hardware reads: what wgmma fetches through a descriptor, how ldmatrix and stmatrix
// spread.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <vector>

#include "device/hopper/column_term.h"
#include "device/hopper/descriptor.h"
#include "device/hopper/operand.h"
#include "device/hopper/ring.h"
#include "device/hopper/swizzle.h"
#include "device/hopper/transpose8.h"
#include "device/warp/fragment.h"

namespace fa3 {
namespace {

TEST(Ring, WrapsAndFlipsPhase) {
  Ring<3> ring;
  for (u32 round = 0; round < 4; ++round) {
    for (u32 stage = 0; stage < 3; ++stage) {
      EXPECT_EQ(ring.stage, stage);
      EXPECT_EQ(ring.phase, round % 2);
      const Ring<3> next = ring.next();
      ring.advance();
      EXPECT_EQ(next.stage, ring.stage);
      EXPECT_EQ(next.phase, ring.phase);
    }
  }
}

TEST(Ring, ProducerIsOnePhaseAhead) {
  EXPECT_EQ(Ring<2>::producer().stage, 0u);
  EXPECT_EQ(Ring<2>::producer().phase, 1u);
  Ring<1> single = Ring<1>::producer();
  single.advance();
  EXPECT_EQ(single.stage, 0u);
  EXPECT_EQ(single.phase, 0u);
}

TEST(Swizzle, GoldenAddresses) {
  EXPECT_EQ(swizzled(0x080, Swizzle::k128), 0x090u);
  EXPECT_EQ(swizzled(0x100, Swizzle::k128), 0x120u);
  EXPECT_EQ(swizzled(0x380, Swizzle::k128), 0x3F0u);
  EXPECT_EQ(swizzled(0x3F0, Swizzle::k128), 0x380u);
  EXPECT_EQ(swizzled(0x080, Swizzle::k64), 0x090u);
  EXPECT_EQ(swizzled(0x200, Swizzle::k64), 0x200u);
  EXPECT_EQ(swizzled(0x080, Swizzle::k32), 0x090u);
  EXPECT_EQ(swizzled(0x100, Swizzle::k32), 0x100u);
  EXPECT_EQ(swizzled(0x3F0, Swizzle::kNone), 0x3F0u);
}

TEST(Swizzle, GoldenElements) {
  EXPECT_EQ(panel_offset(1, 0, Swizzle::k128), 0x90u);
  EXPECT_EQ(panel_offset(7, 126, Swizzle::k128), 0x38Eu);
  EXPECT_EQ(panel_offset(8, 0, Swizzle::k128), 0x400u);
}

TEST(Swizzle, EightRowsOfAChunkMeetAllBanks) {
  for (const Swizzle swizzle : {Swizzle::k128, Swizzle::k64, Swizzle::k32}) {
    for (u32 column = 0; column < static_cast<u32>(swizzle); column += 16) {
      std::set<u32> banks;
      for (u32 row = 0; row < 8; ++row) banks.insert(panel_offset(row, column, swizzle) / 16 % 8);
      EXPECT_EQ(banks.size(), 8u) << "width " << static_cast<u32>(swizzle);
    }
  }
}

TEST(Descriptor, GoldenBits) {
  using Q = KMajorTile<Swizzle::k128, 128 * 128>;
  EXPECT_EQ(Q::at(0x8000).step(0).bits, 0x4000'0040'0001'0800u);
  EXPECT_EQ(Q::at(0x8000).step(1).bits, 0x4000'0040'0001'0802u);
  using V = MnMajorTile<Swizzle::k128, 176 * 128>;
  EXPECT_EQ(V::at(0x10400).step(0).bits, 0x4000'0040'0580'1040u);
  EXPECT_EQ(V::at(0x10400).step(1).bits, 0x4000'0040'0580'10C0u);
  EXPECT_EQ((KMajorTile<Swizzle::k64, 64 * 64>::at(0).step(0).bits >> 32), 0x8000'0020u);
  EXPECT_EQ((KMajorTile<Swizzle::k32, 64 * 32>::at(0).step(0).bits >> 32), 0xC000'0010u);
  EXPECT_EQ((SmemDesc::make(0, 16, 128, Swizzle::kNone).bits >> 32), 0x0000'0008u);
}

// The address that wgmma reads element (mn, k) of an instruction's operand from.
u32 fetched(SmemDesc desc, bool transposed, u32 element_bytes, u32 mn, u32 k) {
  const u32 start = (desc.bits & 0x3FFF) << 4;
  const u32 leading = (desc.bits >> 16 & 0x3FFF) << 4;
  const u32 stride = (desc.bits >> 32 & 0x3FFF) << 4;
  const Swizzle modes[] = {Swizzle::kNone, Swizzle::k128, Swizzle::k64, Swizzle::k32};
  const Swizzle swizzle = modes[desc.bits >> 62];
  const u32 width = static_cast<u32>(swizzle);
  if (transposed) {
    const u32 atom = width / element_bytes;
    return swizzled(
        start + mn / atom * leading + mn % atom * element_bytes + k / 8 * stride + k % 8 * width,
        swizzle);
  }
  return swizzled(start + mn / 8 * stride + mn % 8 * width + k * element_bytes, swizzle);
}

template <Swizzle kSwizzle, u32 kRows>
void check_k_major(u32 k_bytes, u32 element_bytes) {
  constexpr u32 kWidth = static_cast<u32>(kSwizzle), kPanel = kRows * kWidth, kBase = 0x4000;
  const auto tile = KMajorTile<kSwizzle, kPanel>::at(kBase);
  for (u32 first = 0; first < kRows; first += 64) {
    for (u32 byte = 0; byte < k_bytes; byte += element_bytes) {
      for (u32 row = 0; row < 64; ++row) {
        const u32 want =
            kBase + byte / kWidth * kPanel + panel_offset(first + row, byte % kWidth, kSwizzle);
        const SmemDesc desc = tile.from_row(first).step(byte / 32);
        ASSERT_EQ(fetched(desc, false, element_bytes, row, byte % 32 / element_bytes), want)
            << "row " << first + row << ", byte " << byte << " of K, width " << kWidth;
      }
    }
  }
}

TEST(Descriptor, KMajorTileIsWhatWgmmaReads) {
  check_k_major<Swizzle::k128, 128>(512, 2);
  check_k_major<Swizzle::k64, 192>(192, 2);
  check_k_major<Swizzle::k32, 64>(160, 2);
  check_k_major<Swizzle::k128, 64>(256, 1);
}

template <Swizzle kSwizzle, u32 kRows>
void check_mn_major(u32 columns) {
  constexpr u32 kWidth = static_cast<u32>(kSwizzle), kPanel = kRows * kWidth, kBase = 0x2000;
  const auto tile = MnMajorTile<kSwizzle, kPanel>::at(kBase);
  for (u32 first = 0; first < columns; first += kWidth / 2) {
    for (u32 k = 0; k < kRows; ++k) {
      for (u32 column = 0; first + column < columns; ++column) {
        const u32 byte = 2 * (first + column);
        const u32 want = kBase + byte / kWidth * kPanel + panel_offset(k, byte % kWidth, kSwizzle);
        const SmemDesc desc = tile.from_row(first).step(k / 16);
        ASSERT_EQ(fetched(desc, true, 2, column, k % 16), want)
            << "K row " << k << ", column " << first + column << ", width " << kWidth;
      }
    }
  }
}

TEST(Descriptor, MnMajorTileIsWhatWgmmaReads) {
  check_mn_major<Swizzle::k128, 176>(128);
  check_mn_major<Swizzle::k128, 80>(256);
  check_mn_major<Swizzle::k64, 144>(96);
  check_mn_major<Swizzle::k32, 64>(80);
}

TEST(Fragment, GoldenPlaces) {
  const u32 thread = 2 * 32 + 5;
  EXPECT_EQ(accumulator_place(thread, 6), (Place{41, 10}));
  EXPECT_EQ(a16_place(thread, 3, 1), (Place{41, 11}));
  EXPECT_EQ(a8_place(thread, 2, 3), (Place{33, 23}));
}

TEST(Fragment, EveryElementHasOneOwner) {
  std::set<std::array<u32, 2>> accumulator, a16, a8;
  for (u32 thread = 0; thread < 128; ++thread) {
    for (u32 i = 0; i < 16; ++i) {
      const Place place = accumulator_place(thread, i);
      accumulator.insert({place.row, place.column});
    }
    for (u32 r = 0; r < 4; ++r) {
      for (u32 half = 0; half < 2; ++half) {
        a16.insert({a16_place(thread, r, half).row, a16_place(thread, r, half).column});
      }
      for (u32 byte = 0; byte < 4; ++byte) {
        a8.insert({a8_place(thread, r, byte).row, a8_place(thread, r, byte).column});
      }
    }
  }
  EXPECT_EQ(accumulator.size(), 64u * 32);
  EXPECT_EQ(a16.size(), 64u * 16);
  EXPECT_EQ(a8.size(), 64u * 32);
}

TEST(Fragment, Permutations) {
  const u32 kSigma[] = {0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15};
  const u32 kTau[] = {0, 8, 2, 10, 4, 12, 6, 14, 1, 9, 3, 11, 5, 13, 7, 15};
  for (u32 i = 0; i < 64; ++i) {
    EXPECT_EQ(sigma(i), (i & ~15u) + kSigma[i % 16]);
    EXPECT_EQ(tau(i), (i & ~15u) + kTau[i % 16]);
    EXPECT_EQ(tau_inverse(tau(i)), i);
  }
}

TEST(Operand, RegistersOf16BitsAreTheThreadsOwn) {
  for (u32 thread = 0; thread < 128; ++thread) {
    for (int s = 0; s < 4; ++s) {
      for (int r = 0; r < 4; ++r) {
        for (int half = 0; half < 2; ++half) {
          Place want = a16_place(thread, r, half);
          want.column += 16 * s;
          EXPECT_EQ(accumulator_place(thread, operand16_source(s, r) + half), want);
        }
      }
    }
  }
}

TEST(Operand, RegistersOf8BitsHoldSigma) {
  for (u32 thread = 0; thread < 128; ++thread) {
    for (int s = 0; s < 3; ++s) {
      for (int r = 0; r < 4; ++r) {
        for (int byte = 0; byte < 4; ++byte) {
          Place want = a8_place(thread, r, byte);
          want.column = 32 * s + sigma(want.column);
          const int i = operand8_source(s, r) + byte % 2 + 4 * (byte / 2);
          EXPECT_EQ(accumulator_place(thread, i), want);
        }
      }
    }
  }
}

u32 permuted(u32 a, u32 b, u32 selector) {
  const u64 bytes = u64(b) << 32 | a;
  u32 out = 0;
  for (u32 i = 0; i < 4; ++i) out |= u32(bytes >> 8 * (selector >> 4 * i & 7) & 0xFF) << 8 * i;
  return out;
}

TEST(Operand, QuadExchangeRestoresTheOrder) {
  // A byte is 16 (row half) + column, of the 16 columns that a quad holds.
  std::array<u32, 4> x, y;
  for (u32 q = 0; q < 4; ++q) {
    for (u32* word : {&x[q], &y[q]}) {
      *word = 0;
      for (u32 i = 0; i < 4; ++i) {
        const Place place = accumulator_place(q, i + (word == &y[q] ? 4 : 0));
        *word |= (2 * place.row + place.column) << 8 * i;  // row 0 or 8
      }
    }
  }
  for (u32 q = 0; q < 4; ++q) {
    const QuadExchange quad = QuadExchange::of(q);
    const auto sent_first = [&](u32 lane) {
      return QuadExchange::of(lane).outer ? x[lane] : y[lane];
    };
    const auto sent_second = [&](u32 lane) {
      return QuadExchange::of(lane).outer ? y[lane] : x[lane];
    };
    const u32 first = sent_first(quad.from_first), second = sent_second(quad.from_second);
    for (u32 r = 0; r < 2; ++r) {
      u32 want = 0;
      for (u32 byte = 0; byte < 4; ++byte) {
        const Place place = a8_place(q, r, byte);
        want |= (2 * place.row + place.column) << 8 * byte;
      }
      EXPECT_EQ(permuted(first, second, r == 0 ? quad.row0 : quad.row8), want) << "lane " << q;
    }
  }
}

// What ones times both halves of K make of it, in any order: parts are multiples of the last one.
double sum_of_term(float term) {
  double sum = 0;
  const ColumnTermVec words = column_term(term);
  for (int i = 0; i < 4; ++i)
    for (int half = 0; half < 2; ++half)
      sum += 2 * double{std::bit_cast<float>(words[i] >> (16 * half) << 16)};
  return sum;
}

TEST(ColumnTerm, PartsAreTheWholeTerm) {
  for (const float x :
       {0.f, -0.f, 1.f, -1.f, 3.14159274f, 1e-30f, -0x1.FFFFFEp127f, 0x1.FFFFFEp-100f})
    EXPECT_EQ(sum_of_term(x), x);
  std::mt19937 random(1);
  for (int i = 0; i < 100000; ++i) {
    const float x = std::bit_cast<float>(static_cast<u32>(random()));
    if (!std::isfinite(x) || std::fabs(x) < 0x1p-100f) continue;
    ASSERT_EQ(sum_of_term(x), x) << std::bit_cast<u32>(x);
  }
}
TEST(ColumnTerm, WhatIsNotFiniteStaysSo) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(sum_of_term(kInf), kInf);
  EXPECT_EQ(sum_of_term(-kInf), -kInf);
  for (const u32 nan : {0x7F800001u, 0xFF800001u, 0x7FFFFFFFu, 0xFFC00000u})
    EXPECT_TRUE(std::isnan(sum_of_term(std::bit_cast<float>(nan)))) << nan;
}

TEST(Transpose8, BlockArrivesInOrderSigmaAndTau) {
  u8 v[16][32], stored[32][16];
  for (u32 kv = 0; kv < 16; ++kv) {
    for (u32 d = 0; d < 32; ++d) v[kv][d] = static_cast<u8>(16 * d + kv);
  }
  // ldmatrix.trans: lane l gets bytes (2l%8, l/4) as 16-bit elements of matrix j.
  const auto source = [&](u32 matrix, u32 row) { return transpose8_source(8 * matrix + row); };
  for (u32 lane = 0; lane < 32; ++lane) {
    u32 loaded[4];
    for (u32 j = 0; j < 4; ++j) {
      loaded[j] = 0;
      for (u32 half = 0; half < 2; ++half) {
        const Place place = source(j, 2 * (lane % 4) + half);
        const u8* pair = &v[place.row][place.column + 2 * (lane / 4)];
        loaded[j] |= (pair[0] | u32(pair[1]) << 8) << 16 * half;
      }
    }
    const u32 words[] = {
        permuted(loaded[0], loaded[1], kGatherEven), permuted(loaded[0], loaded[1], kGatherOdd),
        permuted(loaded[2], loaded[3], kGatherEven), permuted(loaded[2], loaded[3], kGatherOdd)};
    for (u32 j = 0; j < 4; ++j) {  // stmatrix: row l/4 of matrix j, bytes 4 (l%4)…
      u8* to = &stored[transpose8_target(8 * j + lane / 4)][4 * (lane % 4)];
      for (u32 i = 0; i < 4; ++i) to[i] = static_cast<u8>(words[j] >> 8 * i);
    }
  }
  for (u32 n = 0; n < 32; ++n) {
    for (u32 k = 0; k < 16; ++k) EXPECT_EQ(stored[n][k], v[sigma(k)][tau(n)]) << n << ", " << k;
  }
}

TEST(Transpose8, StoresMeetNoBankTwice) {
  for (u32 matrix = 0; matrix < 4; ++matrix) {
    std::set<u32> banks;
    for (u32 row = 0; row < 8; ++row) {
      banks.insert(panel_offset(transpose8_target(8 * matrix + row), 0, Swizzle::k128) / 16 % 8);
    }
    EXPECT_EQ(banks.size(), 8u);
  }
}

}  // namespace
}  // namespace fa3
