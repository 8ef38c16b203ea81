// SPDX-License-Identifier: BSD-3-Clause
// parked.h — long sums of P·V: the tensor cores keep 13 bits of an E4M3 sum, so every few KV tiles
// a consumer adds its O to FP32 sums in shared memory and begins anew. Each thread has places of
// its own there, so that nobody is waited for.
#pragma once

#include "device/ptx/math.h"
#include "device/ptx/memory.h"
#include "device/ptx/registers.h"
#include "device/ptx/thread.h"
#include "device/ptx/vec.h"
#include "device/sm90/fwd/config.h"
#include "device/sm90/fwd/o_groups.h"
#include "device/types.h"
#include "device/warp/softmax.h"

namespace fa3::sm90 {

template <FwdConfig kCfg>
struct ParkedO : OGroups<kCfg> {
  using Groups = OGroups<kCfg>;
  using Groups::kGroup, Groups::kGroups;
  using typename Groups::Group, typename Groups::OAcc;

  PerRow scale;  // from the units of what is parked to those of O
  bool any;      // is anything parked?

  FA3_DEV void reset() {
    any = false;
    scale = {{1.f, 1.f}};
  }

  // O has been multiplied by that.
  FA3_DEV void rescale(const RowScale& by) {
    FA3_UNROLL
    for (int h = 0; h < 2; ++h) scale.row[h] *= by.row[h];
  }

  // O is added to what is parked, and begins anew.
  FA3_DEV void park(u8* bytes, OAcc& o) {
    Group* const at = place(bytes);
    FA3_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      if (any) add(at, g, o);
      ptx::st_shared(at + g * kWgThreads, Groups::group(o, g));
    }
    any = true;
    scale = {{1.f, 1.f}};
    o.zero();
  }

  // O becomes the whole sum.
  FA3_DEV void finish(u8* bytes, OAcc& o) const {
    if (!any) return;
    FA3_UNROLL
    for (int g = 0; g < kGroups; ++g) add(place(bytes), g, o);
  }

 private:
  // Of this thread; the next groups are kWgThreads further on each.
  FA3_DEV static Group* place(u8* bytes) {
    return reinterpret_cast<Group*>(bytes) + ptx::thread_index() % kWgThreads;
  }
  FA3_DEV void add(const Group* at, int g, OAcc& o) const {
    const Group x = ptx::ld_shared(at + g * kWgThreads);
    FA3_UNROLL
    for (int i = 0; i < kGroup; ++i)
      o[kGroup * g + i] = ptx::fma(x[i], scale[i / 2], o[kGroup * g + i]);
  }
};

}  // namespace fa3::sm90
