// SPDX-License-Identifier: BSD-3-Clause
// combine_call.h — calls of fa3_combine with memory of their own, and random ones.
#pragma once

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "tests/kit/property.h"
#include "tools/verify/combine.h"

namespace fa3::kit {

struct CombineCall : verify::CombineProblem, verify::CombineTensors {
  CombineCall() {
    batch = 2, seqlen = 5, heads = 3, dim = 16;
    alignment = 16;
    seed = 1;
  }

  void make() { static_cast<verify::CombineTensors&>(*this) = verify::make_combine(*this); }
  fa3_combine_args args() const { return verify::combine_args(*this, *this); }
  void run(fa3_context* context) {
    const fa3_combine_args a = args();
    ASSERT_EQ(fa3_combine(context, &a, nullptr), FA3_OK) << fa3_last_error();
  }

  // visit(b, i, h) for each row.
  template <class Visit>
  void for_each_row(Visit&& visit) const {
    for (int64_t b = 0; b < (packed ? 1 : batch); ++b)
      for (int64_t i = 0; i < seqlen; ++i)
        for (int64_t h = 0; h < heads; ++h) visit(b, i, h);
  }

  // Indices; part −1: of the outputs, which have none.
  verify::Index at_o(int64_t b, int64_t i, int64_t h, int64_t c, int64_t part = -1) const {
    return verify::combine_o_index(*this, part, b, i, h, c);
  }
  verify::Index at_lse(int64_t b, int64_t i, int64_t h, int64_t part = -1) const {
    return verify::combine_lse_index(*this, part, b, i, h);
  }

  // The outputs of a call that has run, in a property.
  void expect_right() const {
    for (const verify::OutputResult& result : verify::compare_combine(args()))
      if (!result.ok) RC_FAIL(verify::to_text(result));
    if (!o.storage->guards_intact() || !lse.storage->guards_intact())
      RC_FAIL("something was written between the rows");
  }
};

inline std::ostream& operator<<(std::ostream& out, const CombineCall& c) {
  return out << fmt::format(
             "parts {} batch {} seqlen {} heads {} dim {} packed {} in {} out {} lse {} order {} "
             "padding {} alignment {} by_rows {} hidden {} shift {} spread {} sinks {} seed {}",
             c.parts, c.batch, c.seqlen, c.heads, c.dim, c.packed, int{c.in}, int{c.out},
             c.wants_lse, fmt::join(c.order, ","), c.padding, c.alignment, c.by_rows, c.hidden,
             c.shift, c.spread, c.sink_dtype, c.seed);
}

// most_rows: about how many rows times parts a call may have.
inline rc::Gen<CombineCall> any_combine_call(int64_t most_rows) {
  return rc::gen::exec([most_rows] {
    CombineCall c;
    c.parts = *rc::gen::element<int64_t>(0, 1, 2, 3, 7, 8, 9, 17, 300);
    c.batch = *rc::gen::inRange<int64_t>(1, 4);
    c.heads = *rc::gen::inRange<int64_t>(1, 6);
    const int64_t most =
        std::max<int64_t>(most_rows / (c.batch * c.heads * std::max<int64_t>(c.parts, 1)), 1);
    c.seqlen = *rc::gen::inRange<int64_t>(0, std::min<int64_t>(most, 40) + 1);
    c.dim = *any_head_dim();
    c.packed = *rc::gen::arbitrary<bool>();
    c.in = *rc::gen::element(FA3_F32, FA3_F16, FA3_BF16);
    c.out = *rc::gen::element(FA3_F32, FA3_F16, FA3_BF16);
    c.wants_lse = *rc::gen::inRange(0, 4) != 0;
    c.sink_dtype = *rc::gen::element<int32_t>(0, FA3_F32, FA3_F16, FA3_BF16);
    if (*rc::gen::arbitrary<bool>()) {
      c.order = c.packed ? std::vector<int>{0, 1, 2} : std::vector<int>{0, 1, 2, 3};
      if (*rc::gen::arbitrary<bool>()) std::swap(c.order[0], c.order[1]);
      if (!c.packed && *rc::gen::arbitrary<bool>()) std::swap(c.order[1], c.order[2]);
    }
    c.padding = *rc::gen::element<int64_t>(0, 0, 1, 8);
    c.alignment = *rc::gen::element<int64_t>(0, 4, 16);
    c.by_rows = *rc::gen::arbitrary<bool>();
    c.hidden = *rc::gen::element(0.0, 0.2, 0.9);
    c.shift = *rc::gen::element(0.0, 80.0, -200.0, 1e6, -1e30);
    c.spread = *rc::gen::element(1.0, 5.0, 20.0, 61.0);
    c.seed = *rc::gen::arbitrary<uint32_t>();
    return c;
  });
}

inline void showValue(const CombineCall& c, std::ostream& os) { os << c; }

}  // namespace fa3::kit
