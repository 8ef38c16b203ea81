// SPDX-License-Identifier: BSD-3-Clause
// fa3.hpp — C++17 over fa3.h: owning handles, exceptions instead of status codes, tensors in one
// line. Header only.
//
//   fa3::Context context;
//   auto args = fa3::forward_args();
//   args.q = fa3::tensor(q.data(), {batch, seqlen_q, heads_q, head_dim});  // float: F32, dense
//   args.k = fa3::tensor(k, FA3_BF16, {batch, seqlen_kv, heads_kv, head_dim});  // others by name
//   …
//   args.mask = FA3_MASK_CAUSAL;
//   context.forward(args);
//
// What the fields mean, defaults and errors: fa3.h. Every function here throws fa3::Error where the
// C one fails.
#ifndef FA3_FA3_HPP_
#define FA3_FA3_HPP_

#include <fa3/fa3.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace fa3 {
inline namespace v0 {

// A refusal or failure. what() is fa3_last_error() of the call.
class Error : public std::runtime_error {
 public:
  Error(fa3_status status, const std::string& message)
      : std::runtime_error(message), status_(status) {}
  fa3_status status() const noexcept { return status_; }

 private:
  fa3_status status_;
};

// Throws Error unless status is FA3_OK. For the call just made on this thread.
inline void check(fa3_status status) {
  if (status != FA3_OK) throw Error(status, fa3_last_error());
}

// ---- Tensors -----------------------------------------------------------------------------------

using Extents = std::initializer_list<std::int64_t>;

// A view of the caller's memory. strides, in elements, one for each dimension; none = dense, as
// fa3_dense(). data may be NULL where only a plan is made. Inputs are never written through it.
inline fa3_tensor tensor(const void* data, fa3_dtype dtype, Extents shape, Extents strides = {}) {
  if (shape.size() > FA3_MAX_RANK || (strides.size() != 0 && strides.size() != shape.size())) {
    throw Error(FA3_INVALID_ARGUMENT, "tensor: " + std::to_string(shape.size()) + " extents and " +
                                          std::to_string(strides.size()) +
                                          " strides, need at most " + std::to_string(FA3_MAX_RANK) +
                                          " extents and as many strides or none");
  }
  fa3_tensor t = fa3_dense(data, dtype, static_cast<std::int32_t>(shape.size()), shape.begin());
  std::copy(strides.begin(), strides.end(), t.stride);
  return t;
}

// The same with the dtype from the pointer: float = F32, int32_t = I32, bool = BOOL. C++17 has no
// type for F16 and BF16.
template <class T>
fa3_tensor tensor(T* data, Extents shape, Extents strides = {}) {
  using Element = std::remove_const_t<T>;
  constexpr bool kBool = std::is_same_v<Element, bool>;
  static_assert(std::is_same_v<Element, float> || std::is_same_v<Element, std::int32_t> || kBool,
                "name the dtype: fa3::tensor(data, FA3_BF16, shape)");
  static_assert(!kBool || sizeof(bool) == 1, "FA3_BOOL is a byte");
  constexpr fa3_dtype kDtype = std::is_same_v<Element, float> ? FA3_F32
                               : kBool                        ? FA3_BOOL
                                                              : FA3_I32;
  return tensor(data, kDtype, shape, strides);
}

// ---- Arguments ---------------------------------------------------------------------------------

// Structs with struct_size set and everything else off.
inline fa3_forward_args forward_args() {
  fa3_forward_args args = {};
  args.struct_size = sizeof args;
  return args;
}
inline fa3_backward_args backward_args() {
  fa3_backward_args args = {};
  args.struct_size = sizeof args;
  return args;
}
inline fa3_quantize_args quantize_args() {
  fa3_quantize_args args = {};
  args.struct_size = sizeof args;
  return args;
}
inline fa3_combine_args combine_args() {
  fa3_combine_args args = {};
  args.struct_size = sizeof args;
  return args;
}
inline fa3_context_options context_options() {
  fa3_context_options options = {};
  options.struct_size = sizeof options;
  return options;
}
// Of a GPU, by its ordinal among those that the driver shows this process:
//   fa3::Context context(fa3::gpu_options(0));
// Tensors and workspaces are then in its memory. examples/gpu.cpp goes through all of it.
inline fa3_context_options gpu_options(std::int32_t ordinal = 0) {
  fa3_context_options options = context_options();
  options.device_type = FA3_DEVICE_CUDA;
  options.device_id = ordinal;
  return options;
}

// The fields of an operation's struct in its order, as far as this header's struct goes: a newer
// library may have more.
inline std::vector<fa3_field> fields(fa3_op op) {
  const std::size_t size = op == FA3_OP_FORWARD    ? sizeof(fa3_forward_args)
                           : op == FA3_OP_BACKWARD ? sizeof(fa3_backward_args)
                           : op == FA3_OP_QUANTIZE ? sizeof(fa3_quantize_args)
                                                   : sizeof(fa3_combine_args);
  std::vector<fa3_field> all;
  fa3_field field = {};
  field.struct_size = sizeof field;
  for (std::int32_t i = 0; fa3_fields(op, i, &field) == FA3_OK; ++i)
    if (field.offset < size) all.push_back(field);
  if (all.empty()) throw Error(FA3_INVALID_ARGUMENT, fa3_last_error());
  return all;
}

// ---- Handles -----------------------------------------------------------------------------------

// Owns an fa3_plan: checked arguments and how to compute them. Made by Context::plan; the context
// outlives it.
class Plan {
 public:
  explicit Plan(fa3_plan* handle) : handle_(handle) {}

  std::size_t workspace_bytes() const { return fa3_plan_workspace_bytes(get()); }
  // The v_image that it would take or writes, without data, and its layout; rank 0 and 0: none.
  fa3_tensor v_image(std::int32_t& layout) const {
    fa3_tensor image;
    check(fa3_plan_v_image(get(), &image, &layout));
    return image;
  }
  // args: the struct that the plan was made for, with data. stream: on a GPU the CUstream or
  // cudaStream_t to enqueue on, NULL = its default stream; on the CPU NULL.
  void run(const fa3_forward_args& args, void* workspace, std::size_t bytes,
           void* stream = nullptr) const {
    check(fa3_plan_run(get(), &args, workspace, bytes, stream));
  }
  void run(const fa3_backward_args& args, void* workspace, std::size_t bytes,
           void* stream = nullptr) const {
    check(fa3_plan_run(get(), &args, workspace, bytes, stream));
  }
  void run(const fa3_quantize_args& args, void* workspace, std::size_t bytes,
           void* stream = nullptr) const {
    check(fa3_plan_run(get(), &args, workspace, bytes, stream));
  }
  void run(const fa3_combine_args& args, void* workspace, std::size_t bytes,
           void* stream = nullptr) const {
    check(fa3_plan_run(get(), &args, workspace, bytes, stream));
  }
  fa3_plan* get() const noexcept { return handle_.get(); }

 private:
  struct Destroy {
    void operator()(fa3_plan* plan) const { fa3_plan_destroy(plan); }
  };
  std::unique_ptr<fa3_plan, Destroy> handle_;
};

// Owns an fa3_context: one device, its threads and callbacks.
class Context {
 public:
  Context() : Context(context_options()) {}
  explicit Context(const fa3_context_options& options) {
    fa3_context* context = nullptr;
    check(fa3_context_create(&options, &context));
    handle_.reset(context);
  }

  // Plan and run in one call; stream as in Plan::run.
  void forward(const fa3_forward_args& args, void* stream = nullptr) const {
    check(fa3_forward(get(), &args, stream));
  }
  void backward(const fa3_backward_args& args, void* stream = nullptr) const {
    check(fa3_backward(get(), &args, stream));
  }
  void quantize(const fa3_quantize_args& args, void* stream = nullptr) const {
    check(fa3_quantize(get(), &args, stream));
  }
  void combine(const fa3_combine_args& args, void* stream = nullptr) const {
    check(fa3_combine(get(), &args, stream));
  }

  Plan plan(const fa3_forward_args& args) const {
    fa3_plan* plan = nullptr;
    check(fa3_plan_forward(get(), &args, &plan));
    return Plan(plan);
  }
  Plan plan(const fa3_backward_args& args) const {
    fa3_plan* plan = nullptr;
    check(fa3_plan_backward(get(), &args, &plan));
    return Plan(plan);
  }
  Plan plan(const fa3_quantize_args& args) const {
    fa3_plan* plan = nullptr;
    check(fa3_plan_quantize(get(), &args, &plan));
    return Plan(plan);
  }
  Plan plan(const fa3_combine_args& args) const {
    fa3_plan* plan = nullptr;
    check(fa3_plan_combine(get(), &args, &plan));
    return Plan(plan);
  }

  // Would a plan be made? *reason, if given, says which backend would run, or why not.
  bool supported(const fa3_forward_args& args, std::string* reason = nullptr) const {
    return supported(FA3_OP_FORWARD, &args, reason);
  }
  bool supported(const fa3_backward_args& args, std::string* reason = nullptr) const {
    return supported(FA3_OP_BACKWARD, &args, reason);
  }
  bool supported(const fa3_quantize_args& args, std::string* reason = nullptr) const {
    return supported(FA3_OP_QUANTIZE, &args, reason);
  }
  bool supported(const fa3_combine_args& args, std::string* reason = nullptr) const {
    return supported(FA3_OP_COMBINE, &args, reason);
  }

  // The plan as JSON.
  std::string explain(const fa3_forward_args& args) const { return explain(FA3_OP_FORWARD, &args); }
  std::string explain(const fa3_backward_args& args) const {
    return explain(FA3_OP_BACKWARD, &args);
  }
  std::string explain(const fa3_quantize_args& args) const {
    return explain(FA3_OP_QUANTIZE, &args);
  }
  std::string explain(const fa3_combine_args& args) const { return explain(FA3_OP_COMBINE, &args); }

  fa3_device_info device_info() const {
    fa3_device_info info = {};
    info.struct_size = sizeof info;
    check(fa3_get_device_info(get(), &info));
    return info;
  }
  fa3_context* get() const noexcept { return handle_.get(); }

 private:
  bool supported(fa3_op op, const void* args, std::string* reason) const {
    const char* text = "";
    const fa3_status status = fa3_supported(get(), op, args, &text);
    if (reason != nullptr) *reason = text;
    return status == FA3_OK;
  }
  std::string explain(fa3_op op, const void* args) const {
    std::size_t bytes = 0;
    check(fa3_explain(get(), op, args, nullptr, 0, &bytes));
    std::string text(bytes, '\0');
    check(fa3_explain(get(), op, args, &text[0], bytes, nullptr));
    text.pop_back();  // the NUL
    return text;
  }

  struct Destroy {
    void operator()(fa3_context* context) const { fa3_context_destroy(context); }
  };
  std::unique_ptr<fa3_context, Destroy> handle_;
};

}  // namespace v0
}  // namespace fa3

#endif  // FA3_FA3_HPP_
