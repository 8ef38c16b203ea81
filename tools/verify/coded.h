// SPDX-License-Identifier: BSD-3-Clause
// coded.h — 8-bit tensors of a problem: drawing codes, and scales for them.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/verify/axis.h"
#include "tools/verify/problem.h"
#include "tools/verify/scales.h"
#include "tools/verify/tensor.h"

namespace fa3::verify {

// Which row of which sequence each row of a tensor is.
class Places {
 public:
  struct Place {
    int64_t sequence = -1, row = 0;  // −1 = none: beyond seqused too
  };

  Places(const Config& c, const Axis& axis) : varlen_(axis.is_varlen()), rows_(axis.rows()) {
    const int64_t batch = batch_of(c);
    places_.resize(varlen_ ? rows_ : batch * rows_);
    int64_t begin = 0;
    for (int64_t b = 0; b < batch; ++b) {
      const int64_t capacity = varlen_ ? axis.varlen[b] : axis.seqlen;
      const int64_t used = axis.seqused.empty() ? capacity : axis.seqused[b];
      for (int64_t i = 0; i < used; ++i) places_[begin + i] = {b, i};
      begin += capacity;
    }
  }

  bool varlen() const { return varlen_; }
  // at: of an element of a tensor (batch, rows, …) or, varlen, (rows, …).
  const Place& of(const Index& at) const {
    return places_[varlen_ ? at[0] : at[0] * rows_ + at[1]];
  }

 private:
  bool varlen_;
  int64_t rows_;
  std::vector<Place> places_;  // [b · rows + i] of dense and [i] of varlen tensors
};

// Sets the elements of a tensor's innermost run.
void fill_row(const fa3_tensor& t, void* row, double value);

// An 8-bit tensor with what its codes mean.
struct Coded {
  const Tensor &codes, &scale, &offset;  // the last two may be absent
  fa3_scale_block block;
  const Places& places;
};

// Draws values of a deviation; then scales, and codes for the values less their offsets.
void draw_coded(const Coded& x, Random values, Random factors, double deviation);

}  // namespace fa3::verify
