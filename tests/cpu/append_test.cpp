// SPDX-License-Identifier: BSD-3-Clause
// append_test.cpp — new keys that a forward appends to its cache, rotated or not, on the host's
// backends: right results, the bits of attention on what is there afterwards, a loop of steps, and
// values that are refused before anything is written.
#include "tools/verify/append.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <vector>

#include "tests/kit/context.h"
#include "tests/kit/run.h"
#include "tests/kit/thorough.h"

namespace fa3 {
namespace {

using kit::expect_right;
using testing::ContainsRegex;
using testing::HasSubstr;
using verify::Config;
using verify::Tensors;

// A step of decoding: two new keys behind 0, 1, 47 and 98.
Config step(int32_t dtype) {
  Config c;
  c.dtype = dtype;
  c.batch = 4;
  c.heads_q = 6, c.heads_kv = 2;
  c.head_dim_qk = 40, c.head_dim_v = 24;
  c.seqlen_q = 2, c.seqlen_kv = 100;
  c.seqused_kv = {2, 3, 49, 100};
  c.append = {2, 2, 2, 2};
  return c;
}

// Prompts and tokens, packed; one sequence has nothing new.
Config packed(int32_t dtype) {
  Config c = step(dtype);
  c.varlen_q = {2, 1, 30, 7}, c.spare_q = 1;
  c.append = {2, 0, 30, 100};
  c.packed_new = true;
  c.mask = FA3_MASK_CAUSAL;
  return c;
}

class HostAppend : public testing::TestWithParam<std::tuple<fa3_backend, int32_t>> {
 protected:
  HostAppend() {
    fa3_context_options options = kit::default_options();
    options.backend = std::get<0>(GetParam());
    context_ = kit::make_context(options);
  }
  int32_t dtype() const { return std::get<1>(GetParam()); }
  void expect(const Config& c) { expect_right(c, context_.get()); }

  kit::Context context_;
};

TEST_P(HostAppend, EveryCache_AndRotation) {
  for (Config c : {step(dtype()), packed(dtype())}) {
    for (const int64_t page_size : {0, 1, 3, 16}) {
      for (const int64_t rotary_dim : {0, 2, 10, 40}) {
        c.page_size = page_size;
        c.rotary_dim = rotary_dim;
        c.numbers["rotary_layout"] = rotary_dim > 0 && c.seed % 3 == 0 ? 1 : 0;
        c.kv_begin = c.seed % 2 == 1;
        c.layout = c.seed % 5 == 3 ? verify::Layout::kHeadsFirst : verify::Layout::kDense;
        expect(c);
        ++c.seed;
      }
    }
    c.page_size = 0;
    c.kv_slots = 7;
    c.mask = FA3_MASK_WINDOW, c.left = 20, c.right = 1;
    expect(c);
    c.with = {"sinks"};
    c.alibi = true;
    c.softcap = 5;
    expect(c);
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, HostAppend,
                         testing::Combine(testing::Values(FA3_BACKEND_CPU, FA3_BACKEND_REFERENCE),
                                          testing::Values(FA3_F32, FA3_F16, FA3_BF16)),
                         [](const auto& p) {
                           return std::string(verify::backend_name(std::get<0>(p.param))) + "_" +
                                  verify::dtype_text(std::get<1>(p.param));
                         });

// The same bits as those of attention on what there is afterwards; and with masks that are tensors.
TEST(Append, BitsAreThoseOfAttentionAfterwards) {
  const auto context = kit::make_context();
  for (Config c : {step(FA3_BF16), packed(FA3_F32)}) {
    c.rotary_dim = 32;
    c.attn_mask = c.varlen_q.empty() ? FA3_BOOL : 0;
    for (c.page_size = 0; c.page_size <= 7; c.page_size += 7) {
      const Tensors t = verify::make_tensors(c);
      const fa3_forward_args args = verify::forward_args(c, t);
      ASSERT_EQ(fa3_forward(context.get(), &args, nullptr), FA3_OK) << fa3_last_error();
      const auto o = kit::bytes_of(args.o), lse = kit::bytes_of(args.lse);
      const fa3_forward_args after = verify::after_appending(args, t);
      ASSERT_EQ(fa3_forward(context.get(), &after, nullptr), FA3_OK) << fa3_last_error();
      EXPECT_EQ(kit::bytes_of(args.o), o);
      EXPECT_EQ(kit::bytes_of(args.lse), lse);
    }
  }
}

// 64 steps that append a key each, against one forward of all queries on all keys: a token sees
// itself and those before.
TEST(Append, StepsAreRowsOfOneForward) {
  constexpr int64_t kSteps = 64;
  const auto context = kit::make_context();
  for (const int64_t page_size : {0, 16}) {
    Config all;
    all.dtype = FA3_F32;
    all.batch = 2;
    all.heads_q = 4, all.heads_kv = 2;
    all.seqlen_q = all.seqlen_kv = kSteps;
    all.mask = FA3_MASK_CAUSAL;
    all.page_size = page_size;
    all.rotary_dim = 32;
    all.append = {kSteps, kSteps};
    const Tensors t = verify::make_tensors(all);
    const fa3_forward_args whole = verify::forward_args(all, t);
    ASSERT_EQ(fa3_forward(context.get(), &whole, nullptr), FA3_OK) << fa3_last_error();
    const Tensors empty = verify::make_tensors(all);
    for (int64_t i = 0; i < kSteps; ++i) {
      fa3_forward_args one = verify::forward_args(all, empty);
      for (fa3_tensor* const x : {&one.q, &one.o, &one.k_new, &one.v_new}) {
        x->data = static_cast<float*>(x->data) + i * x->stride[1];
        x->shape[1] = 1;
      }
      one.lse.data = static_cast<float*>(one.lse.data) + i;
      one.lse.shape[2] = 1;
      if (one.rotary_position.rank > 0)
        for (int64_t b = 0; b < 2 && i > 0; ++b)
          verify::set(one.rotary_position, {b}, verify::get(one.rotary_position, {b}) + 1);
      for (int64_t b = 0; b < 2; ++b) verify::set(one.seqused_kv, {b}, static_cast<double>(i));
      ASSERT_EQ(fa3_forward(context.get(), &one, nullptr), FA3_OK) << fa3_last_error();
    }
    double worst = 0;
    verify::for_each_row(t.o.view, [&](const verify::Index& start, void*) {
      verify::Index at = start;
      for (at[3] = 0; at[3] < all.head_dim_v; ++at[3])
        worst =
            std::max(worst, std::abs(verify::get(t.o.view, at) - verify::get(empty.o.view, at)));
    });
    EXPECT_LT(worst, 2e-6) << page_size;
    for (const auto& result : verify::compare_appended(all, empty))
      EXPECT_TRUE(result.ok) << verify::to_text(result);
  }
}

// Keys that nobody asks anything of yet.
TEST(Append, WithoutQueries) {
  for (const fa3_backend backend : {FA3_BACKEND_CPU, FA3_BACKEND_REFERENCE}) {
    fa3_context_options options = kit::default_options();
    options.backend = backend;
    const auto context = kit::make_context(options);
    Config c = step(FA3_BF16);
    c.seqlen_q = 0;
    c.rotary_dim = 16;
    expect_right(c, context.get());
  }
}

// ---- One memory --------------------------------------------------------------------------------

// K and V as pages of one memory: 2·i is page i of K, 2·i + 1 that of V. Views of both begin a page
// apart and share all others.
struct OneMemory {
  explicit OneMemory(fa3_forward_args& args)
      : page(args.k.shape[1] * args.k.shape[2] * args.k.shape[3]),
        memory(static_cast<size_t>(2 * args.k.shape[0] * page)) {
    float* const places[] = {memory.data(), memory.data() + page};
    fa3_tensor* const tensors[] = {&args.k, &args.v};
    for (int i = 0; i < 2; ++i) {
      fa3_tensor& t = *tensors[i];
      const float* const from = static_cast<const float*>(t.data);
      for (int64_t at = 0; at < t.shape[0]; ++at)
        std::copy_n(from + at * page, page, places[i] + 2 * at * page);
      t.data = places[i];
      t.shape[0] = 2 * t.shape[0] - 1;
    }
    for (int64_t b = 0; b < args.page_table.shape[0]; ++b) {
      for (int64_t i = 0; i < args.page_table.shape[1]; ++i) {
        const double at = verify::get(args.page_table, {b, i});  // beyond the keys anything
        if (at >= 0 && at < static_cast<double>(args.k.shape[0]))
          verify::set(args.page_table, {b, i}, 2 * at);
      }
    }
  }

  int64_t page;
  std::vector<float> memory;
};

Config in_pages() {
  Config c = step(FA3_F32);
  c.page_size = 16;
  c.head_dim_v = c.head_dim_qk;
  return c;
}

TEST(Append, PagesOfOneMemory) {
  const auto context = kit::make_context();
  const Config c = in_pages();
  const Tensors t = verify::make_tensors(c), same = verify::make_tensors(c);
  const fa3_forward_args args = verify::forward_args(c, t);
  fa3_forward_args shared = verify::forward_args(c, same);
  const OneMemory one(shared);
  ASSERT_EQ(fa3_forward(context.get(), &args, nullptr), FA3_OK) << fa3_last_error();
  ASSERT_EQ(fa3_forward(context.get(), &shared, nullptr), FA3_OK) << fa3_last_error();
  EXPECT_EQ(kit::bytes_of(shared.o), kit::bytes_of(args.o));
  EXPECT_EQ(kit::bytes_of(shared.lse), kit::bytes_of(args.lse));
  fa3_forward_args after = args;
  const OneMemory want(after);
  // Bits: rows that nobody names are NaN.
  EXPECT_EQ(std::memcmp(one.memory.data(), want.memory.data(), sizeof(float) * one.memory.size()),
            0);
}

// ---- What is refused ---------------------------------------------------------------------------

class BadAppend : public testing::TestWithParam<fa3_backend> {
 protected:
  // The message of a call that `change` has changed; nothing may be written.
  template <class Change>
  std::string refusal(const Config& c, const Change& change) {
    fa3_context_options options = kit::default_options();
    options.backend = GetParam();
    const auto context = kit::make_context(options);
    const Tensors t = verify::make_tensors(c);
    fa3_forward_args args = verify::forward_args(c, t);
    change(args);
    const auto o = t.o.storage->snapshot(), k = t.k.storage->snapshot(),
               v = t.v.storage->snapshot();
    EXPECT_NE(fa3_forward(context.get(), &args, nullptr), FA3_OK);
    EXPECT_EQ(t.o.storage->snapshot(), o);
    EXPECT_EQ(t.k.storage->snapshot(), k);
    EXPECT_EQ(t.v.storage->snapshot(), v);
    return fa3_last_error();
  }
};

TEST_P(BadAppend, Values) {
  Config c = step(FA3_F32);
  c.rotary_dim = 8;
  EXPECT_THAT(refusal(c, [](auto& a) { verify::set(a.seqused_kv, {3}, 99); }),
              HasSubstr("sequence 3 has seqused_kv=99 keys and 2 new ones, need at most 100"));
  EXPECT_THAT(refusal(c, [](auto& a) { verify::set(a.seqused_kv, {3}, -1); }),
              HasSubstr("seqused_kv[3]=-1"));
  EXPECT_THAT(refusal(c, [](auto& a) { a.rotary_cos.shape[0] = a.rotary_sin.shape[0] = 99; }),
              HasSubstr("sequence 3 has 2 rows from position 98 on, but rotary_cos holds positions "
                        "0…98"));
  c.seed = 1;  // positions of their own
  EXPECT_THAT(refusal(c, [](auto& a) { verify::set(a.rotary_position, {1}, -1); }),
              HasSubstr("from position -1 on"));
  c.kv_slots = 5;
  EXPECT_THAT(refusal(c,
                      [](auto& a) {
                        for (int64_t b = 2; b < 4; ++b) verify::set(a.kv_batch_idx, {b}, 1);
                        verify::set(a.seqused_kv, {2}, 97);
                      }),
              HasSubstr("sequences 2 and 3 both append to row 98 of entry 1"));
  EXPECT_THAT(refusal(c, [](auto& a) { verify::set(a.kv_batch_idx, {0}, 5); }),
              HasSubstr("kv_batch_idx[0]=5, need 0…4"));
  c.kv_begin = true;
  EXPECT_THAT(refusal(c, [](auto& a) { verify::set(a.kv_begin, {3}, 8); }),
              HasSubstr("kv_begin[3]=8 with 100 keys, new ones included"));
  c = packed(FA3_F32);
  c.page_size = 16;
  EXPECT_THAT(refusal(c,
                      [](auto& a) {
                        verify::set(a.page_table, {2, 2}, -1);
                      }),
              HasSubstr("page_table[2, 2]=-1 is needed by 49 keys"));
  EXPECT_THAT(refusal(c,
                      [](auto& a) {
                        const double page = verify::get(a.page_table, {2, 2});
                        verify::set(a.page_table, {3, 2}, page);
                      }),
              HasSubstr("sequences 2 and 3 both append to row 0 of entry"));
  EXPECT_THAT(refusal(c, [](auto& a) { verify::set(a.cu_seqlens_new, {1}, 40); }),
              HasSubstr("cu_seqlens_new[2]=2 is below cu_seqlens_new[1]=40"));
}

TEST_P(BadAppend, PagesOfOneMemoryThatMeet) {
  std::optional<OneMemory> one;
  const auto meet = [&](int64_t b, int64_t page, int64_t of) {
    return refusal(in_pages(), [&](auto& a) {
      one.emplace(a);
      verify::set(a.page_table, {b, page}, verify::get(a.page_table, {of, 0}) + 1);
    });
  };
  const int64_t written = 100 / 16;  // the page that sequence 3 appends to
  EXPECT_THAT(meet(3, written, 1), ContainsRegex("page [0-9]+ of k, which sequence 3 appends to, "
                                                 "are in memory rows of page [0-9]+ of v"));
}

TEST_P(BadAppend, Arguments) {
  Config c = step(FA3_F32);
  c.rotary_dim = 8;
  const fa3_tensor none{};
  EXPECT_THAT(refusal(c, [&](auto& a) { a.v_new = none; }),
              HasSubstr("k_new is given, but v_new is absent"));
  EXPECT_THAT(refusal(c, [&](auto& a) { a.k_new = a.v_new = none; }),
              HasSubstr("rotary_cos is given, but k_new is absent"));
  EXPECT_THAT(refusal(c, [&](auto& a) { a.rotary_sin = none; }),
              HasSubstr("rotary_cos is given, but rotary_sin is absent"));
  EXPECT_THAT(refusal(c, [&](auto& a) { a.rotary_cos = a.rotary_sin = none, a.rotary_layout = 1; }),
              HasSubstr("rotary_layout=1 without rotary_cos"));
  EXPECT_THAT(refusal(c, [&](auto& a) { a.rotary_layout = 2; }),
              HasSubstr("rotary_layout=2 is unknown"));
  EXPECT_THAT(refusal(c, [&](auto& a) { a.rotary_cos.shape[1] = a.rotary_sin.shape[1] = 21; }),
              HasSubstr("rotary_cos.shape[1]=21, need 1…20 pairs"));
  EXPECT_THAT(refusal(c, [&](auto& a) { a.seqused_kv = none; }),
              HasSubstr("k_new is given, but seqused_kv is absent"));
  EXPECT_THAT(refusal(c, [&](auto& a) { a.k_new.shape[1] = 1; }),
              HasSubstr("v_new.shape[1]=2 disagrees with seqlen_new=1"));
  EXPECT_THAT(refusal(c, [&](auto& a) { a.v_new.dtype = FA3_F16; }),
              HasSubstr("v_new.dtype=f16, need f32 as q"));
  EXPECT_THAT(refusal(c, [&](auto& a) { a.o.data = a.v.data; }), HasSubstr("shares elements"));
  EXPECT_THAT(refusal(c, [&](auto& a) { a.k_new.data = a.k.data; }), HasSubstr("k (bytes"));
  EXPECT_THAT(refusal(c, [&](auto& a) { a.k.stride[0] = 0; }),
              HasSubstr("k.stride[0]=0 with extent 4 would write elements onto each other"));
  c.seqused_kv = {100, 100, 100, 100};
  c.append = {100, 100, 100, 100};
  EXPECT_THAT(refusal(c, [&](auto& a) { a.k.shape[1] = a.v.shape[1] = 60; }),
              HasSubstr("k_new.shape[1]=100 new keys, need at most 60"));
}

INSTANTIATE_TEST_SUITE_P(Backends, BadAppend,
                         testing::Values(FA3_BACKEND_CPU, FA3_BACKEND_REFERENCE),
                         [](const auto& b) { return verify::backend_name(b.param); });

}  // namespace
}  // namespace fa3
