// SPDX-License-Identifier: BSD-3-Clause
// caches_test.cpp — keys in pages, in slots and at any row, on the cpu backend: right results, and
// nothing but the keys of a sequence is read.
#include <fmt/format.h>

#include <limits>

#include "tests/kit/context.h"
#include "tests/kit/run.h"
#include "tests/kit/thorough.h"

namespace fa3 {
namespace {

using kit::expect_right;
using verify::Config;
using verify::Layout;
using verify::Tensors;

// A step of decoding: lengths 0, 1, page − 1, page, page + 1 and the longest.
Config decode(int32_t dtype, int64_t page_size) {
  Config c;
  c.dtype = dtype;
  c.batch = 6;
  c.heads_q = 8;
  c.heads_kv = 2;
  c.head_dim_qk = 40;
  c.head_dim_v = 24;
  c.seqlen_q = 1;
  c.seqlen_kv = 150;
  c.page_size = page_size;
  c.seqused_kv = {0, 1, std::max<int64_t>(page_size - 1, 0), page_size, page_size + 1, 150};
  return c;
}

// A prefill of packed queries whose keys are in pages.
Config prefill(int32_t dtype, int64_t page_size) {
  Config c = decode(dtype, page_size);
  c.varlen_q = {1, 0, 40, 1, 3, 150};
  c.heads_q = 4;
  c.mask = FA3_MASK_CAUSAL;
  return c;
}

// Codes of E4M3 under queries of more bits, and of E4M3; scales of pages, heads, or one.
TEST(CpuCachesOfCodes, AreRight) {
  using Of = verify::Scales::Of;
  const auto expect_codes = [](Config c, int32_t q) {
    c.dtype = q, c.head_dim_v = 32;
    if (q != FA3_F8_E4M3) c.kv_dtype = FA3_F8_E4M3;
    expect_right(c);
    c.k_scale = {Of::kTensor}, c.v_scale = {Of::kNone};
    expect_right(c);
    if (c.page_size == 0) return;
    c.k_scale = c.v_scale = {Of::kPages};
    expect_right(c);
  };
  for (const int32_t q : {FA3_F32, FA3_F16, FA3_BF16, FA3_F8_E4M3}) {
    for (const int64_t page_size : {1, 16, 64}) {
      expect_codes(decode(q, page_size), q);
      expect_codes(prefill(q, page_size), q);
    }
    Config c = decode(q, 0);
    expect_codes(c, q);
    c.kv_slots = 7;
    expect_codes(c, q);
    c.kv_slots = 0, c.kv_begin = c.packed_kv = true, c.mask = FA3_MASK_CAUSAL, c.seqlen_q = 3;
    c.alibi = true;
    expect_codes(c, q);
  }
}

class CpuCaches : public ::testing::TestWithParam<int32_t> {};

TEST_P(CpuCaches, Pages_OfEverySize) {
  for (const int64_t page_size : {1, 3, 16, 64, 128}) {
    if (page_size == 128 && !kit::thorough()) continue;
    for (Config c : {decode(GetParam(), page_size), prefill(GetParam(), page_size)}) {
      for (c.seed = 1; c.seed < 3; ++c.seed) {
        c.kv_begin = c.seed % 2 == 0;
        expect_right(c);
      }
      c.layout = page_size == 3 ? Layout::kHeadsFirst : Layout::kPadded;
      expect_right(c);
    }
  }
}

TEST_P(CpuCaches, Pages_WithMasks) {
  for (const int64_t page_size : {1, 16}) {
    Config c = decode(GetParam(), page_size);
    for (const int64_t queries : {1, 4, 30}) {
      c.seqlen_q = queries;
      for (const fa3_mask mask : {FA3_MASK_FULL, FA3_MASK_CAUSAL, FA3_MASK_WINDOW}) {
        c.mask = mask;
        c.left = mask == FA3_MASK_WINDOW ? 20 : 0;
        c.right = mask == FA3_MASK_WINDOW ? 2 : 0;
        c.kv_begin = !c.kv_begin;
        c.alibi = mask != FA3_MASK_FULL;
        c.softcap = queries == 4 ? 5 : 0;
        c.attn_mask = queries == 30 ? (page_size == 1 ? int32_t{FA3_BOOL} : GetParam()) : 0;
        ++c.seed;
        expect_right(c);
      }
    }
  }
}

TEST_P(CpuCaches, SlotsAndBegins) {
  for (Config c : {decode(GetParam(), 5), prefill(GetParam(), 5)}) {
    c.page_size = 0;
    for (const int64_t slots : {6, 11, 3, 0}) {
      for (const bool begins : {false, true}) {
        c.kv_slots = slots;
        c.kv_begin = begins;
        ++c.seed;
        expect_right(c);
      }
    }
    c.packed_kv = true;
    for (c.seed = 0; c.seed < 4; ++c.seed) expect_right(c);
    c.attn_mask = c.varlen_q.empty() ? FA3_BOOL : 0;
    expect_right(c);
    c.seqused_kv = {};
    c.packed_kv = false;
    c.kv_begin = false;
    c.kv_slots = 9;
    expect_right(c);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, CpuCaches, ::testing::Values(FA3_F32, FA3_F16, FA3_BF16),
                         [](const auto& type) { return verify::dtype_text(type.param); });

// Where rows lie does not show in the bits.
TEST(Caches, SameBitsAsDense) {
  const auto context = kit::make_context();
  for (const int64_t queries : {1, 3, 70}) {
    Config dense;
    dense.dtype = FA3_BF16;
    dense.heads_q = 4;
    dense.heads_kv = 2;
    dense.seqlen_q = queries;
    dense.seqlen_kv = 2500;
    dense.seqused_kv = {2222};
    dense.mask = FA3_MASK_CAUSAL;
    dense.seed = 1;  // pages are bounded by max_seqlen_kv then
    const kit::OutputBits expected = kit::output_bits(dense, context.get());
    for (const int64_t page_size : {1, 20, 64}) {
      Config c = dense;
      c.page_size = page_size;
      EXPECT_EQ(kit::output_bits(c, context.get()), expected) << verify::replay_command(c);
      c.kv_begin = true;
      EXPECT_EQ(kit::output_bits(c, context.get()), expected) << verify::replay_command(c);
    }
    Config slots = dense;
    slots.kv_slots = 3;
    EXPECT_EQ(kit::output_bits(slots, context.get()), expected);
  }
}

// The cache of one engine: K and V are halves of one tensor (pages, heads, rows, 2·head_dim).
TEST(Caches, KAndVAsHalvesOfOneTensor) {
  Config c = decode(FA3_BF16, 16);
  c.head_dim_qk = c.head_dim_v = 32;
  const auto context = kit::make_context();
  const Tensors t = verify::make_tensors(c);
  fa3_forward_args args = verify::forward_args(c, t);
  ASSERT_EQ(fa3_forward(context.get(), &args, nullptr), FA3_OK) << fa3_last_error();
  const std::vector<std::byte> expected = kit::bytes_of(args.o);

  const fa3_tensor k = args.k;
  const verify::Tensor cache =
      verify::make_tensor(FA3_BF16, {k.shape[0], k.shape[2], k.shape[1], 2 * k.shape[3]});
  fa3_tensor halves[2] = {args.k, args.v};
  for (int i = 0; i < 2; ++i) {
    fa3_tensor& half = halves[i];
    const fa3_tensor from = half;
    const int64_t* const stride = cache.view.stride;
    half.data = static_cast<std::byte*>(cache.view.data) + i * 2 * k.shape[3];
    half.stride[0] = stride[0], half.stride[1] = stride[2], half.stride[2] = stride[1];
    verify::for_each_row(from, [&](const verify::Index& at, void*) {
      verify::Index to = at;
      for (to[3] = 0; to[3] < from.shape[3]; ++to[3]) verify::set(half, to, verify::get(from, to));
    });
  }
  args.k = halves[0], args.v = halves[1];
  verify::fill(args.o, std::numeric_limits<double>::quiet_NaN());
  ASSERT_EQ(fa3_forward(context.get(), &args, nullptr), FA3_OK) << fa3_last_error();
  EXPECT_EQ(kit::bytes_of(args.o), expected);
}

// ---- Values that are refused -----------------------------------------------------------------

class BadCache : public ::testing::TestWithParam<fa3_backend> {
 protected:
  fa3_context_options options() const {
    fa3_context_options options = kit::default_options();
    options.backend = GetParam();
    return options;
  }
  // The message with `tensor`[index] = value; nothing may be written.
  std::string refusal(const Config& c, verify::Tensor Tensors::*tensor, verify::Index index,
                      double value) {
    const auto context = kit::make_context(options());
    const Tensors t = verify::make_tensors(c);
    verify::set((t.*tensor).view, index, value);
    const fa3_forward_args args = verify::forward_args(c, t);
    const auto before = t.o.storage->snapshot();
    EXPECT_EQ(fa3_forward(context.get(), &args, nullptr), FA3_INVALID_ARGUMENT);
    EXPECT_EQ(t.o.storage->snapshot(), before);
    return fa3_last_error();
  }
};

TEST_P(BadCache, Values) {
  Config c = decode(FA3_F32, 16);
  const int64_t pages = verify::make_tensors(c).k.view.shape[0];
  EXPECT_EQ(refusal(c, &Tensors::page_table, {5, 3}, -1),
            fmt::format("forward: page_table[5, 3]=-1 is needed by 150 keys from row 0 on in pages "
                        "of 16, need 0…{}, the pages of k and v",
                        pages - 1));
  EXPECT_EQ(refusal(c, &Tensors::page_table, {4, 1}, static_cast<double>(pages)),
            fmt::format("forward: page_table[4, 1]={} is needed by 17 keys from row 0 on in pages "
                        "of 16, need 0…{}, the pages of k and v",
                        pages, pages - 1));
  EXPECT_EQ(refusal(c, &Tensors::seqused_kv, {2}, 10000),
            "forward: seqused_kv[2]=10000, need 0…176, the rows of that sequence");
  c.page_size = 0;
  c.kv_slots = 8;
  EXPECT_EQ(refusal(c, &Tensors::kv_batch_idx, {1}, 8),
            "forward: kv_batch_idx[1]=8, need 0…7, the slots of k and v");
  c.kv_begin = true;
  EXPECT_EQ(refusal(c, &Tensors::kv_begin, {5}, 8),
            "forward: kv_begin[5]=8 with 150 keys: those are not all among the 157 rows that the "
            "sequence may have, need 0…7");
  EXPECT_EQ(refusal(c, &Tensors::kv_begin, {5}, -1),
            "forward: kv_begin[5]=-1 with 150 keys: those are not all among the 157 rows that the "
            "sequence may have, need 0…7");
}

INSTANTIATE_TEST_SUITE_P(Backends, BadCache,
                         ::testing::Values(FA3_BACKEND_CPU, FA3_BACKEND_REFERENCE),
                         [](const auto& b) { return verify::backend_name(b.param); });

}  // namespace
}  // namespace fa3
