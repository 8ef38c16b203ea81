// SPDX-License-Identifier: BSD-3-Clause
// module.cpp — fa3._fa3, the compiled part of the Python package: contexts, plans and runs over the
// C interface. What users call is written in Python, in python/fa3/.
#include <pthread.h>

#include <map>
#include <memory>
#include <utility>

#include "callbacks.h"
#include "fields.h"

namespace fa3::python {
namespace {

using Stream = std::optional<std::int64_t>;

// Forks of this process since the module was loaded: 0 but in children.
int forks = 0;

[[noreturn]] void raise(fa3_status status) {
  const std::string message = in_python(fa3_last_error());
  PyObject* type = PyExc_RuntimeError;
  switch (status) {
    case FA3_INVALID_ARGUMENT:
      type = PyExc_ValueError;
      break;
    case FA3_UNSUPPORTED:
      type = PyExc_NotImplementedError;
      break;
    case FA3_OUT_OF_MEMORY:
      type = PyExc_MemoryError;
      break;
    case FA3_IO_ERROR:
      type = PyExc_OSError;
      break;
    default:
      break;
  }
  PyErr_SetString(type, message.c_str());
  throw nb::python_error();
}

void check(fa3_status status) {
  if (status != FA3_OK) raise(status);
}

// Calls the library without the interpreter's lock; its errors stay with the thread.
template <class Call>
fa3_status unlocked(Call call) {
  nb::gil_scoped_release release;
  return call();
}

struct Options {
  std::string device = "cpu", backend = "auto";
  std::int32_t num_threads = 0;
  std::optional<std::string> cache_dir, kernel_pack;
  bool packed_only = false;
  std::optional<LogFunction> log;
  int log_level = 30;
  std::optional<ProgressFunction> progress;
};

std::int32_t backend_of(const std::string& name) {
  static constexpr const char* kBackends[] = {"auto", "cpu", "reference", "cuda", "sim"};
  for (std::int32_t i = 0; i < 5; ++i) {
    if (name == kBackends[i]) return i;
  }
  throw nb::value_error(("backend: \"" + name +
                         "\", need \"auto\", \"cpu\", \"reference\", "
                         "\"cuda\" or \"sim\"")
                            .c_str());
}

class Context {
 public:
  explicit Context(const Options& options) : device_(device_of(options.device)) {
    fa3_context_options o = {};
    o.struct_size = sizeof o;
    o.device_type = device_.type;
    o.device_id = device_.id;
    o.backend = backend_of(options.backend);
    o.num_threads = options.num_threads;
    o.kernel_source = options.packed_only ? FA3_KERNELS_PACKED : FA3_KERNELS_ANY;
    if (options.cache_dir) o.cache_dir = options.cache_dir->c_str();
    if (options.kernel_pack) o.kernel_pack = options.kernel_pack->c_str();
    if (options.log) {
      callbacks_.log = *options.log;
      o.log = Callbacks::on_log;
      o.log_user = &callbacks_;
      o.log_level = Callbacks::level_from(options.log_level);
    }
    if (options.progress) {
      callbacks_.progress = *options.progress;
      o.progress = Callbacks::on_progress;
      o.progress_user = &callbacks_;
    }
    python::check(unlocked([&] { return fa3_context_create(&o, &handle_); }));
  }
  Context(const Context&) = delete;
  ~Context() {
    // A child of fork() has neither the threads nor the GPU of its parent: nothing to be closed.
    if (handle_ != nullptr && forks == made_) {
      nb::gil_scoped_release release;  // a thread of it may be about to log
      fa3_context_destroy(handle_);
    }
  }

  // Raises what a call of the library on this context failed with.
  void check(fa3_status status) {
    if (status == FA3_CANCELLED) {
      if (const auto raised = callbacks_.take(fa3_last_error())) std::rethrow_exception(raised);
    }
    python::check(status);
  }
  Callbacks& callbacks() { return callbacks_; }

  fa3_context* get() const {
    if (forks != made_) {
      throw std::runtime_error(
          "context: made before fork(); make one in this process, or start processes by spawn");
    }
    return handle_;
  }
  Device device() const { return device_; }
  fa3_device_info info() const {
    fa3_device_info info = {};
    info.struct_size = sizeof info;
    python::check(fa3_get_device_info(get(), &info));
    return info;
  }

 private:
  Device device_;
  Callbacks callbacks_;
  fa3_context* handle_ = nullptr;
  int made_ = forks;
};
using ContextPtr = std::shared_ptr<Context>;

// The context of a device that calls without one share, made when it is first needed.
ContextPtr default_context(Device device) {
  struct Made {
    ContextPtr context;
    int forks;
  };
  static auto& made = *new std::map<std::pair<int, int>, Made>;  // outlives the interpreter
  Made& entry = made[{device.type, device.id}];
  if (entry.context == nullptr || entry.forks != forks) {
    Options options;
    options.device = name_of(device);
    entry = {std::make_shared<Context>(options), forks};
  }
  return entry.context;
}

ContextPtr context_for(const Reader& reader, ContextPtr given) {
  if (given == nullptr) return default_context(reader.device());
  if (given->device() != reader.device()) {
    throw nb::value_error(("context: of " + name_of(given->device()) + ", need one of " +
                           name_of(reader.device()) + " as the arrays")
                              .c_str());
  }
  return given;
}

void need_data(const Reader& reader) {
  if (reader.without_data() != nullptr) {
    throw nb::value_error(
        (std::string(reader.without_data()) + ": a Spec has no data; need an array to compute on")
            .c_str());
  }
}

// The arguments of one call and what keeps their memory.
struct Call {
  Call(int op, nb::dict fields, Reading how, Stream stream) : op(fa3_op(op)), reader(how) {
    fill(this->op, std::move(fields), stream, reader, &args);
  }
  fa3_op op;
  Reader reader;
  Arguments args;
};

class Plan {
 public:
  Plan(Call& call, ContextPtr context) : op_(call.op), context_(std::move(context)) {
    fa3_plan** plan = &handle_;
    fa3_context* c = context_->get();
    context_->check(unlocked([&] {
      if (call.op == FA3_OP_FORWARD) return fa3_plan_forward(c, &call.args.forward, plan);
      if (call.op == FA3_OP_BACKWARD) return fa3_plan_backward(c, &call.args.backward, plan);
      if (call.op == FA3_OP_COMBINE) return fa3_plan_combine(c, &call.args.combine, plan);
      return fa3_plan_quantize(c, &call.args.quantize, plan);
    }));
  }
  Plan(const Plan&) = delete;
  ~Plan() { close(); }
  void close() {
    if (handle_ != nullptr && forks == made_) fa3_plan_destroy(handle_);
    handle_ = nullptr;
    context_.reset();
  }
  const ContextPtr& context() const { return context_; }
  std::size_t workspace_bytes() const { return fa3_plan_workspace_bytes(handle_); }
  // Its shape; none where the plan has no image.
  nb::object v_image() const {
    fa3_tensor image = {};
    std::int32_t layout = 0;
    check(fa3_plan_v_image(handle_, &image, &layout));
    if (layout == FA3_V_IMAGE_NONE) return nb::none();
    nb::list shape;
    for (int d = 0; d < image.rank; ++d) shape.append(image.shape[d]);
    return nb::tuple(shape);
  }
  void run(nb::dict fields, Reading how, nb::handle workspace, Stream stream) const {
    Call call(op_, std::move(fields), how, stream);
    need_data(call.reader);
    context_for(call.reader, context_);
    run(call, workspace);
  }
  void run(Call& call, nb::handle workspace) const {
    if (context_ == nullptr) throw std::runtime_error("plan: collected; make another one");
    context_->get();
    fa3_tensor memory = {};
    Reader reader({FA3_I8, FA3_I8, true});
    std::size_t bytes = 0;
    if (!workspace.is_none()) {
      reader.read("workspace", workspace, true, &memory);
      reader.finish({});
      context_for(reader, context_);
      if (memory.dtype != FA3_I8 || memory.rank != 1 ||
          (memory.stride[0] != 1 && memory.shape[0] > 1)) {
        throw nb::value_error(
            "workspace: need a contiguous array of bytes (uint8), of 1 dimension");
      }
      bytes = std::size_t(memory.shape[0]);
    }
    context_->check(unlocked([&] {
      return fa3_plan_run(handle_, &call.args, memory.data, bytes, call.reader.stream());
    }));
  }

 private:
  fa3_op op_;
  ContextPtr context_;
  fa3_plan* handle_ = nullptr;
  int made_ = forks;
};

// allocate: called with the bytes of workspace, returns an array of them; none = the context's own.
void run(int op, nb::dict fields, Reading how, ContextPtr given, Stream stream,
         nb::object allocate) {
  Call call(op, std::move(fields), how, stream);
  need_data(call.reader);
  const ContextPtr context = context_for(call.reader, std::move(given));
  if (!allocate.is_none()) {
    const Plan plan(call, context);
    const std::size_t bytes = plan.workspace_bytes();
    return plan.run(call, bytes == 0 ? nb::none() : allocate(bytes));
  }
  fa3_context* c = context->get();
  context->check(unlocked([&] {
    if (call.op == FA3_OP_FORWARD) return fa3_forward(c, &call.args.forward, call.reader.stream());
    if (call.op == FA3_OP_BACKWARD) {
      return fa3_backward(c, &call.args.backward, call.reader.stream());
    }
    if (call.op == FA3_OP_COMBINE) return fa3_combine(c, &call.args.combine, call.reader.stream());
    return fa3_quantize(c, &call.args.quantize, call.reader.stream());
  }));
}

std::unique_ptr<Plan> plan(int op, nb::dict fields, Reading how, ContextPtr given) {
  Call call(op, std::move(fields), how, {});
  return std::make_unique<Plan>(call, context_for(call.reader, std::move(given)));
}

std::string explain(int op, nb::dict fields, Reading how, ContextPtr given) {
  Call call(op, std::move(fields), how, {});
  const ContextPtr context = context_for(call.reader, std::move(given));
  fa3_context* c = context->get();
  std::size_t bytes = 0;
  check(unlocked([&] { return fa3_explain(c, call.op, &call.args, nullptr, 0, &bytes); }));
  std::string text(bytes, '\0');
  check(unlocked([&] { return fa3_explain(c, call.op, &call.args, text.data(), bytes, nullptr); }));
  text.pop_back();  // the NUL
  return text;
}

std::pair<bool, std::string> supported(int op, nb::dict fields, Reading how, ContextPtr given) {
  Call call(op, std::move(fields), how, {});
  const ContextPtr context = context_for(call.reader, std::move(given));
  fa3_context* c = context->get();
  const char* reason = "";
  const fa3_status status =
      unlocked([&] { return fa3_supported(c, call.op, &call.args, &reason); });
  return {status == FA3_OK, in_python(reason)};
}

Spec make_spec(std::vector<std::int64_t> shape, const std::string& dtype,
               std::optional<std::vector<std::int64_t>> strides, const std::string& device) {
  const std::int32_t type = dtype_of(dtype.c_str());
  if (type == FA3_DTYPE_NONE) {
    throw nb::value_error(("dtype: \"" + dtype +
                           "\", need \"float32\", \"float16\", \"bfloat16\", "
                           "\"float8_e4m3fn\", \"int8\", \"int32\", \"float64\" or \"bool\"")
                              .c_str());
  }
  if (shape.size() > FA3_MAX_RANK || (strides && strides->size() != shape.size())) {
    throw nb::value_error("shape: need at most 5 dimensions, and as many strides or None");
  }
  return {std::move(shape), strides ? *strides : std::vector<std::int64_t>(), type,
          device_of(device)};
}

nb::dict describe(const Context& context) {
  static constexpr const char* kBackends[] = {"auto", "cpu", "reference", "cuda", "sim"};
  const fa3_device_info info = context.info();
  nb::dict d;
  d["device"] = name_of(context.device());
  d["backend"] = kBackends[info.backend];
  d["name"] = static_cast<const char*>(info.name);
  d["instruction_set"] = static_cast<const char*>(info.instruction_set);
  d["num_threads"] = info.num_threads;
  d["l1_bytes"] = info.l1_bytes;
  d["l2_bytes"] = info.l2_bytes;
  d["memory_bytes"] = info.memory_bytes;
  return d;
}

// Python's collector sees callbacks that refer to their context, and contexts of plans.
int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  const Callbacks& callbacks = nb::inst_ptr<Context>(self)->callbacks();
  Py_VISIT(callbacks.log.ptr());
  Py_VISIT(callbacks.progress.ptr());
  return 0;
}

int clear(PyObject* self) {
  if (!nb::inst_ready(self)) return 0;
  Callbacks& callbacks = nb::inst_ptr<Context>(self)->callbacks();
  callbacks.log.reset();
  callbacks.progress.reset();
  return 0;
}

PyType_Slot kContextSlots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse)},
                               {Py_tp_clear, reinterpret_cast<void*>(clear)},
                               {0, nullptr}};

int traverse_plan(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  const ContextPtr& context = nb::inst_ptr<Plan>(self)->context();
  if (context != nullptr) Py_VISIT(nb::find(context).ptr());
  return 0;
}

int clear_plan(PyObject* self) {
  if (nb::inst_ready(self)) nb::inst_ptr<Plan>(self)->close();
  return 0;
}

PyType_Slot kPlanSlots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse_plan)},
                            {Py_tp_clear, reinterpret_cast<void*>(clear_plan)},
                            {0, nullptr}};

}  // namespace

NB_MODULE(_fa3, m) {
  pthread_atfork(nullptr, nullptr, [] { ++forks; });
  nb::set_leak_warnings(false);  // PyTorch keeps its operators, and they this module, to the end

  nb::class_<Reading>(
      m, "Reading",
      "What arrays of uint16 and of uint8 hold, \"\" = they are refused; and whether "
      "tensors may require gradients.")
      .def(
          "__init__",
          [](Reading* self, const std::string& in16, const std::string& in8, bool recorded) {
            new (self) Reading{dtype_of(in16.c_str()), dtype_of(in8.c_str()), recorded};
          },
          nb::arg("in16") = "", nb::arg("in8") = "", nb::arg("recorded") = false);
  nb::class_<Spec>(
      m, "Spec",
      "A tensor without memory: for plans, explain() and supported().\n\n"
      "shape: extents. dtype: \"float32\", \"bfloat16\", …. strides: in elements, None "
      "= contiguous. device: \"cpu\", \"cuda\", \"cuda:1\".")
      .def(
          "__init__",
          [](Spec* self, std::vector<std::int64_t> shape, const std::string& dtype,
             std::optional<std::vector<std::int64_t>> strides, const std::string& device) {
            new (self) Spec(make_spec(std::move(shape), dtype, std::move(strides), device));
          },
          nb::arg("shape"), nb::arg("dtype") = "bfloat16", nb::arg("strides") = nb::none(),
          nb::arg("device") = "cpu")
      .def_prop_ro("shape", [](const Spec& s) { return nb::tuple(nb::cast(s.shape)); })
      .def_prop_ro("dtype", [](const Spec& s) { return name_of_dtype(s.dtype); })
      .def_prop_ro("device", [](const Spec& s) { return name_of(s.device); })
      .def_prop_ro("strides",
                   [](const Spec& s) -> nb::object {
                     if (s.strides.empty()) return nb::none();
                     return nb::tuple(nb::cast(s.strides));
                   })
      .def("__eq__",
           [](const Spec& a, nb::handle other) {
             const Spec* b = nullptr;
             return nb::try_cast(other, b) && b != nullptr && a.shape == b->shape &&
                    a.strides == b->strides && a.dtype == b->dtype && a.device == b->device;
           })
      .def("__hash__",
           [](const Spec& s) {
             const auto tuple = [](const auto& extents) { return nb::tuple(nb::cast(extents)); };
             return nb::hash(nb::make_tuple(tuple(s.shape), tuple(s.strides), s.dtype,
                                            s.device.type, s.device.id));
           })
      .def("__reduce__",
           [](nb::handle self) {
             return nb::make_tuple(self.type(),
                                   nb::make_tuple(self.attr("shape"), self.attr("dtype"),
                                                  self.attr("strides"), self.attr("device")));
           })
      .def_prop_ro("ndim", [](const Spec& s) { return s.shape.size(); })
      .def("__repr__", [](const Spec& s) {
        return std::string("fa3.Spec(") + nb::repr(nb::tuple(nb::cast(s.shape))).c_str() + ", \"" +
               name_of_dtype(s.dtype) + "\", device=\"" + name_of(s.device) + "\")";
      });
  nb::class_<Context>(
      m, "Context", nb::type_slots(kContextSlots),
      "A device, its threads and its kernels. Calls without one share one for each "
      "device.\n\n"
      "device: \"cpu\", \"cuda\", \"cuda:1\". backend: \"auto\" follows the device; "
      "\"reference\" computes in FP64; \"sim\" runs the GPU's kernels in a simulated "
      "GPU. num_threads: most threads of a run, 0 = FA3_NUM_THREADS, else all cores. "
      "cache_dir, kernel_pack: absolute paths of compiled kernels. packed_only: "
      "compile nothing.\n\n"
      "log: called with a level and a line, from any thread; levels are those of "
      "module logging, log_level (30, warning) is the lowest reported: "
      "log=logging.getLogger(\"fa3\").log. progress: called with how much of a run "
      "on the CPU is done, and the total, from any thread, one call at a time; an "
      "exception that it raises stops the run, and the call raises it. Without one Ctrl-C "
      "waits for the end of the call.\n\n"
      "Raises ValueError, and NotImplementedError for a device that is not there.")
      .def(
          "__init__",
          [](Context* self, std::string device, std::string backend, std::int32_t num_threads,
             std::optional<std::string> cache_dir, std::optional<std::string> kernel_pack,
             bool packed_only, std::optional<LogFunction> log, int log_level,
             std::optional<ProgressFunction> progress) {
            new (self) Context({std::move(device), std::move(backend), num_threads,
                                std::move(cache_dir), std::move(kernel_pack), packed_only,
                                std::move(log), log_level, std::move(progress)});
          },
          nb::arg("device") = "cpu", nb::kw_only(), nb::arg("backend") = "auto",
          nb::arg("num_threads") = 0, nb::arg("cache_dir") = nb::none(),
          nb::arg("kernel_pack") = nb::none(), nb::arg("packed_only") = false,
          nb::arg("log") = nb::none(), nb::arg("log_level") = 30, nb::arg("progress") = nb::none())
      .def("info", &describe, "What it computes on: device, backend, name, num_threads, …");
  nb::class_<Plan>(m, "Plan", nb::type_slots(kPlanSlots))
      .def_prop_ro("workspace_bytes", &Plan::workspace_bytes)
      .def_prop_ro("v_image", &Plan::v_image)
      .def("run", nb::overload_cast<nb::dict, Reading, nb::handle, Stream>(&Plan::run, nb::const_),
           nb::arg("fields"), nb::arg("how"), nb::arg("workspace").none(),
           nb::arg("stream").none());

  m.def("run", &run, nb::arg("op"), nb::arg("fields"), nb::arg("how"), nb::arg("context").none(),
        nb::arg("stream").none(), nb::arg("allocate") = nb::none());
  m.def("plan", &plan, nb::arg("op"), nb::arg("fields"), nb::arg("how"), nb::arg("context").none());
  m.def("explain", &explain, nb::arg("op"), nb::arg("fields"), nb::arg("how"),
        nb::arg("context").none());
  m.def("supported", &supported, nb::arg("op"), nb::arg("fields"), nb::arg("how"),
        nb::arg("context").none());
  m.def("spec_of", &spec_of, nb::arg("name"), nb::arg("array").none());
  m.def("arguments", [](int op) { return arguments(fa3_op(op)); });
  m.def("version", [] { return fa3_version(); });
  m.def("build_info", [] { return fa3_build_info(); });
}

}  // namespace fa3::python
