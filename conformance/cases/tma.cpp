// SPDX-License-Identifier: BSD-3-Clause
// tma.cpp — TMA tensor copies: ranks × swizzles × element types × boxes inside, across and
// beyond each end of the tensor; multicast; stores; reductions.
#include "device/selftest/tma.cuh"

#include <fmt/core.h>

#include <array>

#include "conformance/cases/cases.h"
#include "conformance/model/addend.h"
#include "conformance/model/operand.h"

namespace fa3::selftest {
namespace {

constexpr int kMaxRank = TensorMapSpec::kMaxRank;

// A tensor with gaps between its rows, a box, and where the box begins.
struct Box {
  TmaType type = TmaType::kBf16;
  int rank = 2;
  Swizzle swizzle = Swizzle::k128;
  std::array<int, kMaxRank> coordinate{};
};

constexpr std::array<u32, kMaxRank> kDimBytes = {320, 0, 0, 0, 0};  // of a row; others elements
constexpr std::array<u64, kMaxRank> kDim = {0, 21, 5, 3, 2};
constexpr std::array<u32, kMaxRank> kBox = {0, 12, 3, 2, 2};

// Elements of the innermost box dimension: the swizzle's width, or 48 bytes without one.
u32 inner_box(const Box& box) {
  const u32 bytes = box.swizzle == Swizzle::kNone ? 48 : static_cast<u32>(box.swizzle);
  return bytes / static_cast<u32>(size_of(box.type));
}

TensorMapSpec spec_of(const Box& box) {
  TensorMapSpec spec;
  spec.name = "tensor";
  spec.type = box.type;
  spec.rank = box.rank;
  spec.swizzle = box.swizzle;
  spec.dim[0] = kDimBytes[0] / static_cast<u32>(size_of(box.type));
  spec.box[0] = inner_box(box);
  u64 stride = kDimBytes[0] + 16;
  for (int i = 1; i < box.rank; ++i) {
    spec.dim[i] = kDim[static_cast<size_t>(i)];
    spec.box[i] = kBox[static_cast<size_t>(i)];
    spec.stride_bytes[i] = stride;
    stride = stride * spec.dim[i] + 32;
  }
  return spec;
}

size_t tensor_bytes(const TensorMapSpec& spec) {
  return static_cast<size_t>(spec.stride_bytes[spec.rank - 1] * spec.dim[spec.rank - 1]);
}

size_t box_bytes(const TensorMapSpec& spec) {
  size_t bytes = static_cast<size_t>(size_of(spec.type));
  for (int i = 0; i < spec.rank; ++i) bytes *= spec.box[i];
  return bytes;
}

// Calls visit(byte in the image, byte in the tensor or −1) for each element of a box.
template <class Visit>
void for_each_element(const TensorMapSpec& spec, const std::array<int, kMaxRank>& begin,
                      const Visit& visit) {
  const size_t es = static_cast<size_t>(size_of(spec.type));
  for (size_t linear = 0; linear < box_bytes(spec) / es; ++linear) {
    size_t rest = linear;
    int64_t offset = 0;
    bool inside = true;
    for (int i = 0; i < spec.rank; ++i) {
      const int64_t at = begin[static_cast<size_t>(i)] + static_cast<int64_t>(rest % spec.box[i]);
      rest /= spec.box[i];
      inside = inside && at >= 0 && at < static_cast<int64_t>(spec.dim[i]);
      offset += at * static_cast<int64_t>(i == 0 ? es : spec.stride_bytes[i]);
    }
    visit(selftest::swizzled(static_cast<u32>(linear * es), spec.swizzle), inside ? offset : -1);
  }
}

Bytes random_bytes(size_t count, Random& random) {
  Bytes bytes(count);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random.word() >> 24);
  return bytes;
}

void set_shape(Experiment& experiment) {
  experiment.shape.threads = kTmaThreads;
  experiment.shape.smem_bytes = sizeof(TmaSmem);
}

// The arguments of all kernels here; buffer 0 is the tensor, buffer 1 the image.
auto args_of(const Box& box, size_t bytes, int slice_step = 0) {
  return [=](const Placed& placed) {
    TmaArgs args{};
    args.map = placed.maps[0];
    args.image = placed.at<u8>(1);
    args.bytes = static_cast<u32>(bytes);
    for (size_t i = 0; i < kMaxRank; ++i) args.coordinate[i] = box.coordinate[i];
    args.slice_step = slice_step;
    return bytes_of(args);
  };
}

// ---- Loads --------------------------------------------------------------------------------------

void copy_box(const TensorMapSpec& spec, const Bytes& tensor,
              const std::array<int, kMaxRank>& begin, std::byte* image) {
  const size_t es = static_cast<size_t>(size_of(spec.type));
  for_each_element(spec, begin, [&](u32 to, int64_t from) {
    if (from < 0) {
      std::memset(image + to, 0, es);
    } else {
      std::memcpy(image + to, tensor.data() + from, es);
    }
  });
}

Experiment make_load(const Box& box, Random& random) {
  const TensorMapSpec spec = spec_of(box);
  const Bytes tensor = random_bytes(tensor_bytes(spec), random);
  Bytes image(box_bytes(spec));
  copy_box(spec, tensor, box.coordinate, image.data());
  Experiment experiment;
  set_shape(experiment);
  experiment.buffers = {{"tensor", tensor, {}},
                        {"image", random_bytes(image.size(), random),
                         Expected{size_of(spec.type) == 8 ? 4 : size_of(spec.type), image, {}}}};
  experiment.maps = {{spec, 0}};
  experiment.args = args_of(box, image.size());
  return experiment;
}

// Both CTAs hold both slices: the one that CTA 0 loads, then the one of CTA 1.
Experiment make_multicast(const Box& box, Random& random) {
  const TensorMapSpec spec = spec_of(box);
  const Bytes tensor = random_bytes(tensor_bytes(spec), random);
  const size_t bytes = box_bytes(spec);
  const int step = static_cast<int>(spec.box[1]);
  Bytes image(4 * bytes);
  for (size_t slice = 0; slice < 4; ++slice) {
    std::array<int, kMaxRank> begin = box.coordinate;
    begin[1] += static_cast<int>(slice % 2) * step;
    copy_box(spec, tensor, begin, image.data() + slice * bytes);
  }
  Experiment experiment;
  set_shape(experiment);
  experiment.shape.grid[0] = experiment.shape.cluster = 2;
  experiment.buffers = {
      {"tensor", tensor, {}},
      {"image", random_bytes(image.size(), random), Expected{size_of(spec.type), image, {}}}};
  experiment.maps = {{spec, 0}};
  experiment.args = args_of(box, bytes, step);
  return experiment;
}

// ---- Stores and reductions ----------------------------------------------------------------------

Experiment make_store(const Box& box, Random& random) {
  const TensorMapSpec spec = spec_of(box);
  const size_t es = static_cast<size_t>(size_of(spec.type));
  const Bytes before = random_bytes(tensor_bytes(spec), random);
  const Bytes image = random_bytes(box_bytes(spec), random);
  Bytes after = before;
  for_each_element(spec, box.coordinate, [&](u32 from, int64_t to) {
    if (to >= 0) std::memcpy(after.data() + to, image.data() + from, es);
  });
  Experiment experiment;
  set_shape(experiment);
  experiment.buffers = {{"tensor", before, Expected{es == 8 ? 4 : size_of(spec.type), after, {}}},
                        {"image", image, {}}};
  experiment.maps = {{spec, 0}};
  experiment.args = args_of(box, image.size());
  return experiment;
}

Experiment make_add(const Box& box, Random& random) {
  const TensorMapSpec spec = spec_of(box);
  const size_t es = static_cast<size_t>(size_of(spec.type));
  const Bytes before = random_addends(spec.type, tensor_bytes(spec), random);
  const Bytes image = random_addends(spec.type, box_bytes(spec), random);
  Bytes after = before;
  for_each_element(spec, box.coordinate, [&](u32 from, int64_t to) {
    if (to < 0) return;
    uint64_t a = 0, b = 0;
    std::memcpy(&a, before.data() + to, es);
    std::memcpy(&b, image.data() + from, es);
    const uint64_t sum = sum_of(spec.type, a, b);
    std::memcpy(after.data() + to, &sum, es);
  });
  Experiment experiment;
  set_shape(experiment);
  experiment.buffers = {{"tensor", before, Expected{es == 8 ? 4 : size_of(spec.type), after, {}}},
                        {"image", image, {}}};
  experiment.maps = {{spec, 0}};
  experiment.args = args_of(box, image.size());
  return experiment;
}

// ---- The table ----------------------------------------------------------------------------------

const char* type_name(TmaType type) {
  constexpr const char* kNames[] = {"u8", "u16", "u32", "i32", "u64", "f16", "bf16", "f32"};
  return kNames[static_cast<size_t>(type)];
}

struct Start {
  const char* name;
  // Dimension 0 in elements of 2 bytes; a multiple of 8, since a GPU refuses others.
  std::array<int, kMaxRank> coordinate;
};

constexpr Start kInside[] = {
    {"inside", {8, 3, 1, 1, 0}},
};
// Loads may begin before the tensor.
constexpr Start kBefore[] = {
    {"before-0", {-8, 2, 0, 0, 0}},
    {"before-1", {16, -7, 1, 1, 0}},
    {"before-last", {0, 3, -1, -1, -1}},
    {"wholly-before", {16, -12, 0, 0, 0}},
};
constexpr Start kBeyond[] = {
    {"beyond-0", {152, 4, 0, 0, 0}},
    {"beyond-1", {0, 14, 1, 0, 0}},
    {"beyond-last", {8, 20, 4, 2, 1}},
    {"wholly-beyond", {160, 30, 9, 9, 9}},
};

constexpr Swizzle kSwizzles[] = {Swizzle::k128, Swizzle::k64, Swizzle::k32, Swizzle::kNone};
constexpr TmaType kTypes[] = {TmaType::kU8,  TmaType::kU16, TmaType::kU32,  TmaType::kI32,
                              TmaType::kU64, TmaType::kF16, TmaType::kBf16, TmaType::kF32};
// In addition to BF16.
constexpr TmaType kAddTypes[] = {TmaType::kU32, TmaType::kI32, TmaType::kU64, TmaType::kF16,
                                 TmaType::kF32};

using Make = Experiment (*)(const Box&, Random&);

void add(std::vector<Case>& cases, const char* what, const std::string& expression, Make make,
         Box box, const Start& start) {
  box.coordinate = start.coordinate;
  box.coordinate[0] = box.coordinate[0] * 2 / size_of(box.type);
  cases.push_back({fmt::format("tma/{}/{}d/{}/swizzle{}/{}", what, box.rank, type_name(box.type),
                               static_cast<int>(box.swizzle), start.name),
                   device_program("device/selftest/tma.cuh", expression),
                   [=](Random& random) { return make(box, random); }});
}

}  // namespace

void add_tma_cases(std::vector<Case>& cases) {
  for (int rank = 2; rank <= kMaxRank; ++rank) {
    const std::string load = fmt::format("fa3::selftest::tma_load<{}>", rank);
    const std::string multicast = fmt::format("fa3::selftest::tma_multicast<{}>", rank);
    const std::string store = fmt::format("fa3::selftest::tma_store<{}, false>", rank);
    const std::string reduce = fmt::format("fa3::selftest::tma_store<{}, true>", rank);
    for (const Swizzle swizzle : kSwizzles) {
      const Box box{.rank = rank, .swizzle = swizzle};
      for (const Start& start : kInside) {
        add(cases, "load", load, make_load, box, start);
        add(cases, "multicast", multicast, make_multicast, box, start);
        add(cases, "store", store, make_store, box, start);
        add(cases, "add", reduce, make_add, box, start);
      }
      for (const Start& start : kBefore) add(cases, "load", load, make_load, box, start);
      for (const Start& start : kBeyond) {
        add(cases, "load", load, make_load, box, start);
        add(cases, "store", store, make_store, box, start);
      }
      add(cases, "multicast", multicast, make_multicast, box, kBefore[1]);
      add(cases, "multicast", multicast, make_multicast, box, kBeyond[1]);
      add(cases, "add", reduce, make_add, box, kBeyond[0]);
    }
  }
  for (const TmaType type : kTypes) {
    for (const Swizzle swizzle : {Swizzle::k128, Swizzle::kNone}) {
      const Box box{.type = type, .rank = 3, .swizzle = swizzle};
      if (type == TmaType::kBf16) continue;  // above
      add(cases, "load", "fa3::selftest::tma_load<3>", make_load, box, kBefore[0]);
      add(cases, "load", "fa3::selftest::tma_load<3>", make_load, box, kBeyond[0]);
      add(cases, "store", "fa3::selftest::tma_store<3, false>", make_store, box, kBeyond[0]);
    }
  }
  for (const TmaType type : kAddTypes) {
    const Box box{.type = type, .rank = 2, .swizzle = Swizzle::k64};
    add(cases, "add", "fa3::selftest::tma_store<2, true>", make_add, box, kBeyond[0]);
  }
}

}  // namespace fa3::selftest
