// SPDX-License-Identifier: BSD-3-Clause
// capi_fuzz.cpp — arguments of the C interface: a small valid problem, then a few fields spoilt.
//
// What must hold for every input: no sanitizer finds anything; a refusal has a message and leaves
// the outputs as they were; what is accepted and small is computed right, as judged by
// tools/verify; planning never touches data.
#include <fuzzer/FuzzedDataProvider.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fa3/fa3.h"
#include "tools/verify/append.h"
#include "tools/verify/compare.h"
#include "tools/verify/fields.h"
#include "tools/verify/problem.h"

namespace {

using namespace fa3::verify;

constexpr int64_t kArenaBytes = 1 << 16;  // behind every tensor, so that views may be stretched

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "capi_fuzz: %s\n", what.c_str());
  std::abort();
}

struct Destroy {
  void operator()(fa3_context* context) const { fa3_context_destroy(context); }
  void operator()(fa3_plan* plan) const { fa3_plan_destroy(plan); }
};

fa3_context* shared_context() {
  static const std::unique_ptr<fa3_context, Destroy> context = [] {
    fa3_context_options options{};
    options.struct_size = sizeof options;
    options.num_threads = 1;
    fa3_context* raw = nullptr;
    if (fa3_context_create(&options, &raw) != FA3_OK) fail(fa3_last_error());
    return std::unique_ptr<fa3_context, Destroy>(raw);
  }();
  return context.get();
}

// ---- A problem from bytes --------------------------------------------------------------------

std::vector<int64_t> lengths(FuzzedDataProvider& in, int64_t count) {
  std::vector<int64_t> all;
  for (int64_t i = 0; i < count; ++i) all.push_back(in.ConsumeIntegralInRange(0, 20));
  return all;
}

Config draw_config(FuzzedDataProvider& in) {
  Config c;
  c.backward = in.ConsumeBool();
  c.dtype = in.PickValueInArray<int32_t>({FA3_F32, FA3_F16, FA3_BF16});
  c.out_dtype = in.PickValueInArray<int32_t>({0, FA3_F32});
  c.batch = in.ConsumeIntegralInRange(0, 3);
  c.heads_kv = in.ConsumeIntegralInRange(1, 2);
  c.heads_q = c.heads_kv * in.ConsumeIntegralInRange(1, 3);
  c.seqlen_q = in.ConsumeIntegralInRange(0, 20);
  c.seqlen_kv = in.ConsumeIntegralInRange(0, 40);
  c.head_dim_qk = in.ConsumeIntegralInRange(1, 20);
  c.head_dim_v = in.ConsumeIntegralInRange(1, 20);
  const int64_t batch = std::max<int64_t>(c.batch, 1);
  if (in.ConsumeBool()) c.varlen_q = lengths(in, batch);
  if (in.ConsumeBool()) c.varlen_kv = lengths(in, batch);
  c.mask = in.PickValueInArray({FA3_MASK_FULL, FA3_MASK_CAUSAL, FA3_MASK_WINDOW});
  if (c.mask == FA3_MASK_WINDOW) {
    c.left = in.ConsumeIntegralInRange(-1, 30);
    c.right = in.ConsumeIntegralInRange(-1, 30);
  }
  if (in.ConsumeBool()) c.numbers["attention_chunk"] = in.ConsumeIntegralInRange(1, 40);
  c.softcap = in.PickValueInArray({0.0, 0.0, 2.0});
  c.lse = in.ConsumeBool();
  c.dlse = in.ConsumeBool();
  c.layout = in.PickValueInArray({Layout::kDense, Layout::kHeadsFirst, Layout::kSeqFirst,
                                  Layout::kPadded, Layout::kInterleaved, Layout::kBroadcast});
  c.alibi = in.ConsumeBool();
  c.sequence_ids = in.ConsumeIntegralInRange(0, 4);
  c.scattered_ids = c.sequence_ids > 0 && in.ConsumeBool();
  if (c.varlen_q.empty())
    c.attn_mask = in.PickValueInArray<int32_t>({0, FA3_BOOL, FA3_F32, c.dtype});
  c.mask_dims = in.PickValueInArray<std::string>({"bhqk", "qk", "bk", "k", ""});
  c.dattn_mask = c.backward && c.attn_mask != 0 && c.attn_mask != FA3_BOOL && in.ConsumeBool();
  c.top_left = in.ConsumeBool();
  c.seed = in.ConsumeIntegralInRange(0, 3);
  if (in.ConsumeBool()) c.with = {"sinks"};
  if (!c.backward && in.ConsumeBool()) c.with.push_back("max_logit");
  if (in.ConsumeBool()) {
    const size_t batch = c.varlen_q.empty() ? static_cast<size_t>(c.batch) : c.varlen_q.size();
    c.append.assign(batch, in.ConsumeIntegralInRange(0, 2));
    c.packed_new = in.ConsumeBool();
    c.rotary_dim = 2 * in.ConsumeIntegralInRange(0, 4);
    if (!contradiction(c).empty()) c.append = {}, c.packed_new = false, c.rotary_dim = 0;
  }
  if (!contradiction(c).empty()) c.layout = Layout::kDense;
  if (!c.backward && in.ConsumeBool()) c.kv_dtype = FA3_F8_E4M3;
  if (!contradiction(c).empty()) c.kv_dtype = 0;
  return c;
}

// ---- Spoiling --------------------------------------------------------------------------------

int64_t odd_number(FuzzedDataProvider& in) {
  return in.ConsumeBool()
             ? in.ConsumeIntegralInRange<int64_t>(-2, 70)
             : in.PickValueInArray<int64_t>({INT64_MIN, -1, 0, 1, 512, 513, 1 << 20, INT32_MAX,
                                             int64_t{1} << 32, int64_t{1} << 62, INT64_MAX});
}

double odd_real(FuzzedDataProvider& in) {
  return in.PickValueInArray(
      {0.0, -0.0, 1.0, -1.0, 1e-300, 1e300, 1e-45, 3e38, 1.0 / 0.0, 0.0 / 0.0});
}

template <class Args>
std::vector<fa3_tensor*> tensors_of(Args& args) {
  std::vector<fa3_tensor*> all;
  for_each_tensor(args, [&](const fa3_field&, fa3_tensor& t) { all.push_back(&t); });
  return all;
}

void spoil_tensor(FuzzedDataProvider& in, const std::vector<fa3_tensor*>& all, fa3_tensor& t) {
  const int at = in.ConsumeIntegralInRange(0, FA3_MAX_RANK - 1);
  switch (in.ConsumeIntegralInRange(0, 8)) {
    case 0:
      t.dtype = in.ConsumeIntegralInRange<int32_t>(-1, 10);
      break;
    case 1:
      t.rank = in.ConsumeIntegralInRange<int32_t>(-1, 6);
      break;
    case 2:
      t.shape[at] = odd_number(in);
      break;
    case 3:
      t.stride[at] = odd_number(in);
      break;
    case 4:
      t.data = nullptr;
      break;
    case 5:
      t.data = in.PickValueInArray({all[0], all[1], all[2], all[3]})->data;
      break;  // overlap
    case 6:
      t = *all[in.ConsumeIntegralInRange<size_t>(0, all.size() - 1)];
      break;
    case 7:
      t = fa3_tensor{};
      break;
    case 8:  // a value of an index array
      if (t.dtype == FA3_I32 && t.data != nullptr)
        static_cast<int32_t*>(t.data)[in.ConsumeIntegralInRange(0, 3)] =
            in.PickValueInArray<int32_t>({INT32_MIN, -1, 0, 1, 5, 1000, INT32_MAX});
      break;
  }
}

template <class Args>
void spoil_scalar(FuzzedDataProvider& in, const fa3_field& f, Args& args) {
  switch (f.kind) {
    case FA3_FIELD_I32:
      member<int32_t>(args, f) = in.ConsumeIntegralInRange<int32_t>(-1, 4);
      break;
    case FA3_FIELD_RESERVED:
      member<int32_t>(args, f) = in.ConsumeIntegralInRange<int32_t>(0, 1);
      break;
    case FA3_FIELD_I64:
    case FA3_FIELD_U64:
      member<int64_t>(args, f) = odd_number(in);
      break;
    case FA3_FIELD_F64:
      member<double>(args, f) = odd_real(in);
      break;
    case FA3_FIELD_BLOCK:
      member<fa3_scale_block>(args, f) = {in.ConsumeIntegralInRange<int32_t>(-1, 40),
                                          in.ConsumeIntegralInRange<int32_t>(-1, 40)};
      break;
  }
}

// A scalar, or as often a tensor.
template <class Args>
void spoil(FuzzedDataProvider& in, Args& args) {
  if (in.ConsumeBool()) {
    std::vector<fa3_field> scalars;
    for (const fa3_field& f : fields(op_of<Args>()))
      if (!is_tensor(f)) scalars.push_back(f);
    spoil_scalar(in, scalars[in.ConsumeIntegralInRange<size_t>(0, scalars.size() - 1)], args);
    return;
  }
  const std::vector<fa3_tensor*> all = tensors_of(args);
  spoil_tensor(in, all, *all[in.ConsumeIntegralInRange<size_t>(0, all.size() - 1)]);
}

// ---- Running ---------------------------------------------------------------------------------

// May a run touch it? Elements inside the arena that its data points into, and few enough to
// compute.
bool touchable(const fa3_tensor& t, const std::vector<std::vector<std::byte>>& arenas) {
  if (t.rank <= 0 || t.rank > FA3_MAX_RANK || t.data == nullptr) return true;  // refused or absent
  if ((t.dtype < FA3_F32 || t.dtype > FA3_I32) && t.dtype != FA3_BOOL) return true;  // refused
  __int128 last = 0, count = 1;
  for (int d = 0; d < t.rank; ++d) {
    if (t.shape[d] < 0) return true;  // refused
    count *= t.shape[d];
    if (count > 100'000) return false;
  }
  if (count == 0) return true;
  for (int d = 0; d < t.rank; ++d) {
    if (t.shape[d] > 1 && t.stride[d] < 0) return true;  // refused
    last += __int128{t.shape[d] - 1} * t.stride[d];
  }
  for (const auto& arena : arenas) {
    const int64_t offset = static_cast<std::byte*>(t.data) - arena.data();
    if (offset < 0 || offset >= kArenaBytes) continue;
    return offset + (last + 1) * element_bytes(t.dtype) <= kArenaBytes;
  }
  return false;
}

template <class Args>
fa3_status make_plan(fa3_context* context, const void* args, fa3_plan** plan) {
  if constexpr (std::is_same_v<Args, fa3_forward_args>)
    return fa3_plan_forward(context, static_cast<const Args*>(args), plan);
  else
    return fa3_plan_backward(context, static_cast<const Args*>(args), plan);
}

// The questions, and a plan, with data pointers that must not be followed.
template <class Args>
void ask(fa3_context* context, Args args) {
  for (fa3_tensor* t : tensors_of(args))
    if (t->data != nullptr) t->data = reinterpret_cast<void*>(uintptr_t{64});
  constexpr fa3_op kOp = std::is_same_v<Args, fa3_forward_args> ? FA3_OP_FORWARD : FA3_OP_BACKWARD;
  const char* reason = nullptr;
  const fa3_status supported = fa3_supported(context, kOp, &args, &reason);
  if (reason == nullptr || *reason == '\0') fail("fa3_supported gave no reason");
  size_t needed = 0;
  if (fa3_explain(context, kOp, &args, nullptr, 0, &needed) == FA3_OK) {
    std::vector<char> text(needed);
    if (fa3_explain(context, kOp, &args, text.data(), needed, nullptr) != FA3_OK)
      fail("fa3_explain");
    if (text.back() != '\0' || std::strlen(text.data()) + 1 != needed) fail("fa3_explain's size");
  }
  fa3_plan* plan = nullptr;
  const fa3_status planned = make_plan<Args>(context, &args, &plan);
  if ((plan != nullptr) != (planned == FA3_OK)) fail("a plan handle and its status disagree");
  if (planned != supported) fail("fa3_supported and the plan disagree");
  fa3_plan_destroy(plan);
}

template <class Args>
void judge(const Args& args) {
  std::vector<OutputResult> results;
  if constexpr (std::is_same_v<Args, fa3_forward_args>)
    results = compare_forward(args);
  else
    results = compare_backward(args);
  for (const OutputResult& r : results)
    if (!r.ok) fail(to_text(r));
}

// Of a mask, whose columns may be one element; −inf hides.
bool tame_mask(const fa3_tensor& t) {
  if (t.rank != 4 || t.data == nullptr) return true;
  bool small = true;
  for_each_row(t, [&](const Index& row, void*) {
    Index at = row;
    for (at[3] = 0; at[3] < t.shape[3]; ++at[3]) {
      const double value = get(t, at);
      small = small && (value == -1.0 / 0.0 || std::abs(value) <= 100);
    }
  });
  return small;
}

// Whether a tensor holds numbers that scores are made of; o and lse are made of them.
bool is_drawn(const fa3_field& f, const fa3_tensor& t) {
  const fa3_field* const forward = find_field(FA3_OP_FORWARD, f.name);
  const bool computed = is_output(f) || (forward != nullptr && is_output(*forward));
  return !computed && !has_pairs(f) && t.rank != 0 && t.data != nullptr && t.dtype != FA3_I32;
}

// Inputs that FP32 can handle; extremes are for other tests, and so are forwards by way of 8 bits.
template <class Args>
bool tame(const Args& args) {
  if constexpr (requires { args.precision; })
    if (args.precision != FA3_PRECISION_DEFAULT) return false;
  if (std::abs(args.softmax_scale) > 10) return false;
  if (args.softmax_scale != 0 && std::abs(args.softmax_scale) < 1e-6) return false;
  if (args.softcap != 0 && (args.softcap < 1e-3 || args.softcap > 1e3)) return false;
  bool small = true;
  for_each_tensor(args, [&](const fa3_field& f, const fa3_tensor& t) {
    if (!is_drawn(f, t)) return;
    for_each_row(t, [&](const Index&, void* row) {
      const int64_t bytes = element_bytes(t.dtype);
      for (int64_t c = 0; c < t.shape[t.rank - 1]; ++c)
        small =
            small && !(std::abs(decode(t.dtype, static_cast<std::byte*>(row) + c * bytes)) > 100);
    });
  });
  return small && tame_mask(args.attn_mask);
}

// Writes o and lse of a spoilt backward problem anew; false when its forward is refused.
bool refresh(const fa3_backward_args& from) {
  fa3_forward_args args{};
  args.struct_size = sizeof args;
  for (const fa3_field& f : fields(FA3_OP_FORWARD)) {
    const fa3_field* const same = find_field(FA3_OP_BACKWARD, f.name);
    if (same != nullptr)
      std::memcpy(&member<char>(args, f), &member<const char>(from, *same), bytes_of(f));
  }
  return fa3_forward(shared_context(), &args, nullptr) == FA3_OK;
}

// The call that a call is judged as: one that appends as one on what there is then. nullopt: of a
// spoilt call nobody knows what its queries are when they are rotated. unspoilt: what the arguments
// were made of; nullptr where they are spoilt. lengths: for those after appending.
std::optional<fa3_forward_args> judged_as(fa3_forward_args args, const Tensors* unspoilt,
                                          Tensor* lengths) {
  if (args.k_new.rank == 0) return args;
  if (unspoilt != nullptr) return after_appending(args, *unspoilt);
  if (args.rotary_cos.rank != 0) return std::nullopt;
  const fa3_tensor &used = args.seqused_kv, &cuts = args.cu_seqlens_new;
  *lengths = make_tensor(FA3_I32, {used.shape[0]});
  for (int64_t b = 0; b < used.shape[0]; ++b) {
    const double fresh = cuts.rank == 0 ? static_cast<double>(args.k_new.shape[1])
                                        : get(cuts, {b + 1}) - get(cuts, {b});
    set(lengths->view, {b}, get(used, {b}) + fresh);
  }
  args.seqused_kv = lengths->view;
  args.k_new = args.v_new = args.cu_seqlens_new = {};
  return args;
}
std::optional<fa3_backward_args> judged_as(const fa3_backward_args& args, const Tensors*, Tensor*) {
  return args;
}

template <class Args>
void run(FuzzedDataProvider& in, Args args, const std::vector<std::vector<std::byte>>& arenas,
         const Tensors* unspoilt) {
  fa3_context* context = shared_context();
  args.struct_size = sizeof args;
  ask(context, args);
  for (const fa3_tensor* t : tensors_of(args))
    if (!touchable(*t, arenas)) return;
  bool judged = true;
  if constexpr (std::is_same_v<Args, fa3_backward_args>) judged = refresh(args);

  // In memory of exactly struct_size bytes: the bytes after it must not be read.
  const int64_t size = sizeof args + (in.ConsumeBool() ? 0 : in.ConsumeIntegralInRange(-40, 40));
  args.struct_size = static_cast<size_t>(size);
  auto memory = std::make_unique<std::byte[]>(size);
  std::memcpy(memory.get(), &args, std::min<size_t>(size, sizeof args));
  if (size > static_cast<int64_t>(sizeof args) && in.ConsumeBool()) memory[size - 1] = std::byte{1};
  const auto* sized = reinterpret_cast<const Args*>(memory.get());

  const std::vector<std::vector<std::byte>> before = arenas;
  fa3_status status;
  if constexpr (std::is_same_v<Args, fa3_forward_args>)
    status = fa3_forward(context, sized, nullptr);
  else
    status = fa3_backward(context, sized, nullptr);
  if (status == FA3_INTERNAL) fail(fa3_last_error());
  if (status != FA3_OK) {
    if (*fa3_last_error() == '\0') fail("a refusal without a message");
    if (before != arenas) fail("a refusal after something was written");
    return;
  }
  if (!judged || size != sizeof args || !tame(args)) return;
  Tensor lengths;
  if (const auto as = judged_as(args, unspoilt, &lengths)) judge(*as);
}

// Moves a tensor into an arena of its own, so that its view may be stretched. Tensors that share
// memory keep to it.
class Mover {
 public:
  explicit Mover(std::vector<std::vector<std::byte>>* arenas) : arenas_(arenas) {}
  void move(const Tensor& tensor, fa3_tensor* view) {
    if (!tensor.storage) return;
    const std::vector<std::byte> bytes = tensor.storage->snapshot();
    size_t i = 0;
    while (i < seen_.size() && seen_[i] != tensor.storage.get()) ++i;
    if (i == seen_.size()) {
      seen_.push_back(tensor.storage.get());
      arenas_->emplace_back(kArenaBytes, std::byte{0});
      if (bytes.size() > kArenaBytes) fail("an arena is too small");
      std::copy(bytes.begin(), bytes.end(), arenas_->back().begin());
    }
    const auto offset = static_cast<std::byte*>(tensor.view.data) - tensor.storage->data();
    view->data = (*arenas_)[i].data() + offset;
  }

 private:
  std::vector<std::vector<std::byte>>* arenas_;
  std::vector<const Storage*> seen_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzedDataProvider in(data, size);
  const Config c = draw_config(in);
  const Tensors t = make_tensors(c);
  std::vector<std::vector<std::byte>> arenas;
  arenas.reserve(40);
  Mover mover(&arenas);
  const auto move_all = [&](auto& args) {
    for_each_tensor(args, [&](const fa3_field& f, fa3_tensor& view) {
      if (const Tensor* const tensor = t.find(f.name)) mover.move(*tensor, &view);
    });
  };
  const int spoilt = in.ConsumeIntegralInRange(0, 3);
  fa3_forward_args forward = forward_args(c, t);
  move_all(forward);
  if (!c.backward) {
    for (int i = 0; i < spoilt; ++i) spoil(in, forward);
    run(in, forward, arenas, spoilt == 0 ? &t : nullptr);
    return 0;
  }
  if (fa3_forward(shared_context(), &forward, nullptr) != FA3_OK) fail(fa3_last_error());
  fa3_backward_args backward = backward_args(c, t);
  move_all(backward);
  for (int i = 0; i < spoilt; ++i) spoil(in, backward);
  run(in, backward, arenas, nullptr);
  return 0;
}
