// SPDX-License-Identifier: BSD-3-Clause
#include "array.h"

#include <array>
#include <cstring>
#include <unordered_map>

namespace fa3::python {
namespace {

struct Name {
  const char* name;
  std::int32_t dtype;
};
constexpr Name kNames[] = {
    {"float32", FA3_F32},           {"float16", FA3_F16}, {"bfloat16", FA3_BF16},
    {"float8_e4m3fn", FA3_F8_E4M3}, {"int8", FA3_I8},     {"int32", FA3_I32},
    {"float64", FA3_F64},           {"bool", FA3_BOOL},
};
constexpr std::int32_t kReading8 = -1, kReading16 = -2;

// NumPy's array interface, version 3, as __array_struct__ hands it out.
struct ArrayInterface {
  int two;
  int rank;
  char kind;
  int item_bytes;
  int flags;
  Py_intptr_t* shape;
  Py_intptr_t* strides;  // in bytes
  void* data;
};
constexpr int kAligned = 0x100, kNativeOrder = 0x200, kWriteable = 0x400;

[[noreturn]] void type_error(const std::string& what) { throw nb::type_error(what.c_str()); }
[[noreturn]] void value_error(const std::string& what) { throw nb::value_error(what.c_str()); }

std::string dtype_text(nb::handle array) {
  nb::object dtype = array.attr("dtype");
  return nb::str(nb::handle(dtype)).c_str();
}

constexpr const char* kNeed =
    "need float32, float16, bfloat16, float8_e4m3fn, int8 or, where it holds lengths or ids, "
    "int32; masks also bool";

std::int32_t resolve(const char* name, std::int32_t dtype, Reading how) {
  if (dtype > 0) return dtype;
  const bool wide = dtype == kReading16;
  const std::int32_t held = wide ? how.in16 : how.in8;
  if (held != FA3_DTYPE_NONE) return held;
  type_error(std::string(name) + ": dtype uint" + (wide ? "16" : "8") + ", " + kNeed +
             "; say what its bits are: dtype=\"" + (wide ? "bfloat16" : "float8_e4m3fn") + "\"");
}

void check_rank(const char* name, long rank) {
  if (rank <= FA3_MAX_RANK) return;
  value_error(std::string(name) + ": " + std::to_string(rank) + " dimensions, need at most " +
              std::to_string(FA3_MAX_RANK));
}

// Rank 0 stands for an absent tensor in the C interface. A number that is the same for all elements
// is an array of one; other arguments have dimensions.
void check_present(const char* name, fa3_tensor* tensor) {
  static constexpr const char* kBroadcast[] = {"q_scale", "k_scale", "v_scale", "attn_mask",
                                               "dattn_mask"};
  if (tensor->rank != 0) return;
  for (const char* broadcast : kBroadcast) {
    if (std::strcmp(name, broadcast) != 0) continue;
    tensor->rank = 1;
    tensor->shape[0] = tensor->stride[0] = 1;
    return;
  }
  value_error(std::string(name) + ": 0 dimensions, need at least 1; pass " + name +
              ".reshape(1) if it holds one element");
}

void check_written(const char* name, bool written, bool writeable) {
  if (written && !writeable) {
    value_error(std::string(name) + ": a read-only array, need one that can be written");
  }
}

// A type of DLPack cannot lend this object, and has raised an error that says why, at length.
[[noreturn]] void refuse_loan(const char* name, const nb::python_error& error) {
  const std::string why = nb::str(error.value()).c_str();
  type_error(std::string(name) + ": " + why.substr(0, why.find('\n')) +
             "; need a dense tensor on the CPU or a CUDA GPU");
}

// How the objects of a type lend their memory, looked up once for each type.
enum class Way { kNumpy, kExchange, kDlpack, kNone };
struct TypeInfo {
  Way way = Way::kNone;
  const dlpack::Exchange* exchange = nullptr;
  bool is_torch = false;
};

TypeInfo look_up(nb::handle type) {
  TypeInfo info;
  info.is_torch = nb::hasattr(type, "requires_grad") && nb::hasattr(type, "is_neg");
  if (nb::hasattr(type, "harden_mask")) return info;  // NumPy's masked arrays: nobody reads masks
  if (nb::hasattr(type, "__dlpack_c_exchange_api__")) {
    nb::object capsule = type.attr("__dlpack_c_exchange_api__");
    void* table = PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api");
    if (table == nullptr) PyErr_Clear();
    const auto* exchange = static_cast<const dlpack::Exchange*>(table);
    while (exchange != nullptr && exchange->version.major > 1) exchange = exchange->older;
    if (exchange != nullptr && exchange->borrow != nullptr) {
      info.way = Way::kExchange;
      info.exchange = exchange;
      return info;
    }
  }
  if (nb::hasattr(type, "__array_struct__")) {
    info.way = Way::kNumpy;
  } else if (nb::hasattr(type, "__dlpack__") && nb::hasattr(type, "__dlpack_device__")) {
    info.way = Way::kDlpack;
  }
  return info;
}

const TypeInfo& info_of(nb::handle object) {
  static auto& known = *new std::unordered_map<PyTypeObject*, TypeInfo>;
  PyTypeObject* type = Py_TYPE(object.ptr());
  if (auto it = known.find(type); it != known.end()) return it->second;
  TypeInfo info = look_up(nb::handle(reinterpret_cast<PyObject*>(type)));
  Py_INCREF(reinterpret_cast<PyObject*>(type));  // its address stays its own
  return known.emplace(type, info).first->second;
}

Device device_from(const char* name, const dlpack::Tensor& t) {
  switch (t.device_type) {
    case dlpack::kCpu:
    case dlpack::kCudaHost:
      return {FA3_DEVICE_CPU, 0};
    case dlpack::kCuda:
    case dlpack::kCudaManaged:
      return {FA3_DEVICE_CUDA, t.device_id};
    default:
      value_error(std::string(name) + ": on a device of DLPack's type " +
                  std::to_string(t.device_type) + ", need the CPU (1) or a CUDA GPU (2)");
  }
}

std::int32_t dtype_from(const char* name, const dlpack::Tensor& t) {
  if (t.lanes == 1) {
    if (t.code == dlpack::kFloat && t.bits == 32) return FA3_F32;
    if (t.code == dlpack::kFloat && t.bits == 64) return FA3_F64;
    if (t.code == dlpack::kFloat && t.bits == 16) return FA3_F16;
    if (t.code == dlpack::kBfloat && t.bits == 16) return FA3_BF16;
    if (t.code == dlpack::kE4m3) return FA3_F8_E4M3;
    if (t.code == dlpack::kInt && t.bits == 32) return FA3_I32;
    if (t.code == dlpack::kInt && t.bits == 8) return FA3_I8;
    if (t.code == dlpack::kBool && t.bits == 8) return FA3_BOOL;
    if (t.code == dlpack::kUInt && t.bits == 16) return kReading16;
    if (t.code == dlpack::kUInt && t.bits == 8) return kReading8;
  }
  const char* kind = t.code == dlpack::kInt ? "int" : t.code == dlpack::kFloat ? "float" : "";
  type_error(std::string(name) + ": dtype " +
             (*kind != 0 ? kind + std::to_string(t.bits)
                         : "of DLPack's code " + std::to_string(t.code) + ", " +
                               std::to_string(t.bits) + " bits") +
             ", " + kNeed);
}

}  // namespace

Device device_of(const std::string& name) {
  if (name == "cpu") return {FA3_DEVICE_CPU, 0};
  if (name == "cuda") return {FA3_DEVICE_CUDA, 0};
  if (name.rfind("cuda:", 0) == 0 && name.size() > 5 && name.size() < 9 &&
      name.find_first_not_of("0123456789", 5) == std::string::npos) {
    return {FA3_DEVICE_CUDA, std::stoi(name.substr(5))};
  }
  value_error("device: \"" + name + "\", need \"cpu\", \"cuda\" or \"cuda:1\"");
}

std::string name_of(Device device) {
  if (device.type != FA3_DEVICE_CUDA) return "cpu";
  return "cuda:" + std::to_string(device.id);
}

std::int32_t dtype_of(const char* name) {
  for (const Name& n : kNames) {
    if (std::strcmp(n.name, name) == 0) return n.dtype;
  }
  return FA3_DTYPE_NONE;
}

const char* name_of_dtype(std::int32_t dtype) {
  for (const Name& n : kNames) {
    if (n.dtype == dtype) return n.name;
  }
  return "none";
}

void Reader::read(const char* name, nb::handle object, bool written, fa3_tensor* out) {
  const TypeInfo& info = info_of(object);
  if (info.is_torch && nb::cast<bool>(object.attr("is_neg")())) {
    value_error(std::string(name) + ": a view that is to be negated; need " + name +
                ".resolve_neg()");
  }
  if (info.is_torch && !how_.recorded && nb::cast<bool>(object.attr("requires_grad"))) {
    value_error(std::string(name) + ": requires a gradient, which this function does not record; " +
                "use fa3.torch, or " + name + ".detach()");
  }
  switch (info.way) {
    case Way::kNumpy:
      return numpy(name, object, written, out);
    case Way::kExchange: {
      dlpack::Tensor tensor = {};
      if (info.exchange->borrow(object.ptr(), &tensor) != 0) refuse_loan(name, nb::python_error());
      lent(name, tensor, how_, out);
      if (device_.type == FA3_DEVICE_CUDA && !has_stream_) {
        const int failed = info.exchange->current_stream(dlpack::kCuda, tensor.device_id, &stream_);
        if (failed != 0) throw nb::python_error();
        has_stream_ = true;
      }
      return;
    }
    case Way::kDlpack:
      later_.push_back({name, object, written, out});
      return;
    case Way::kNone:
      break;
  }
  if (const Spec* s = nullptr; nb::try_cast(object, s) && s != nullptr) return spec(name, *s, out);
  const nb::object kind = object.type().attr("__name__");
  type_error(std::string(name) + ": " + nb::cast<std::string>(kind) +
             ", need an array: of NumPy, PyTorch, or anything with __dlpack__ and "
             "__dlpack_device__");
}

void Reader::at(const char* name, Device device) {
  if (first_ == nullptr) {
    first_ = name;
    device_ = device;
  } else if (device != device_) {
    value_error(std::string(name) + ": on " + name_of(device) + ", need " + name_of(device_) +
                " as " + first_ + "; arrays of a call are on one device");
  }
}

void Reader::numpy(const char* name, nb::handle object, bool written, fa3_tensor* out) {
  nb::object capsule = object.attr("__array_struct__");
  const auto* a = static_cast<const ArrayInterface*>(PyCapsule_GetPointer(capsule.ptr(), nullptr));
  if (a == nullptr) throw nb::python_error();
  held_.push_back(capsule);  // it may own the memory
  check_rank(name, a->rank);
  check_written(name, written, (a->flags & kWriteable) != 0);
  std::int32_t dtype = FA3_DTYPE_NONE;
  if ((a->flags & kNativeOrder) != 0) {
    const int bytes = a->item_bytes;
    switch (a->kind) {
      case 'f':
        dtype = bytes == 4 ? FA3_F32 : bytes == 2 ? FA3_F16 : bytes == 8 ? FA3_F64 : 0;
        break;
      case 'i':
        dtype = bytes == 4 ? FA3_I32 : bytes == 1 ? FA3_I8 : 0;
        break;
      case 'u':
        dtype = bytes == 2 ? kReading16 : bytes == 1 ? kReading8 : 0;
        break;
      case 'b':
        dtype = FA3_BOOL;
        break;
      default:
        dtype = dtype_of(dtype_text(object).c_str());
    }
  }
  if (dtype == FA3_DTYPE_NONE) {
    type_error(std::string(name) + ": dtype " + dtype_text(object) + ", " + kNeed);
  }
  if ((a->flags & kAligned) == 0) {
    value_error(std::string(name) + ": its elements are not aligned; copy it: " + name + ".copy()");
  }
  at(name, {FA3_DEVICE_CPU, 0});
  *out = {};
  out->data = a->data;
  out->dtype = resolve(name, dtype, how_);
  out->rank = a->rank;
  for (int d = 0; d < a->rank; ++d) {
    out->shape[d] = a->shape[d];
    if (a->strides[d] % a->item_bytes != 0) {
      value_error(std::string(name) + ": stride of " + std::to_string(a->strides[d]) +
                  " bytes in dimension " + std::to_string(d) + ", need whole elements of " +
                  std::to_string(a->item_bytes));
    }
    out->stride[d] = a->strides[d] / a->item_bytes;
  }
  check_present(name, out);
}

void Reader::spec(const char* name, const Spec& spec, fa3_tensor* out) {
  at(name, spec.device);
  const auto rank = static_cast<std::int32_t>(spec.shape.size());
  *out = fa3_dense(nullptr, static_cast<fa3_dtype>(spec.dtype), rank, spec.shape.data());
  for (std::size_t d = 0; d < spec.strides.size(); ++d) out->stride[d] = spec.strides[d];
  check_present(name, out);
  if (without_data_ == nullptr) without_data_ = name;
}

void Reader::lent(const char* name, const dlpack::Tensor& tensor, const Reading& how,
                  fa3_tensor* out) {
  check_rank(name, tensor.ndim);
  at(name, device_from(name, tensor));
  const std::int32_t dtype = resolve(name, dtype_from(name, tensor), how);
  char* data = static_cast<char*>(tensor.data);
  if (data != nullptr) data += tensor.byte_offset;
  *out = fa3_dense(data, static_cast<fa3_dtype>(dtype), tensor.ndim, tensor.shape);
  for (int d = 0; d < tensor.ndim && tensor.strides != nullptr; ++d) {
    out->stride[d] = tensor.strides[d];
  }
  check_present(name, out);
}

void Reader::capsule(const Later& array, std::optional<std::int64_t> stream) {
  nb::object object = nb::borrow(array.object);
  Reading how = how_;
  const bool is_torch = info_of(object).is_torch;
  if (is_torch && dtype_text(object) == "torch.float8_e4m3fn") {  // which old ones do not lend
    object = object.attr("view")(nb::module_::import_("torch").attr("uint8"));
    how.in8 = FA3_F8_E4M3;
  }
  const auto asked = [&](auto ask) {
    try {
      return nb::object(ask());
    } catch (nb::python_error& error) {
      if (is_torch && !error.matches(PyExc_TypeError)) refuse_loan(array.name, error);
      throw;
    }
  };
  const nb::object device = asked([&] { return object.attr("__dlpack_device__")(); });
  nb::dict options;
  if (nb::cast<int>(device[0]) == dlpack::kCuda && stream.has_value()) {
    options["stream"] = *stream;
  }
  const nb::object lend = object.attr("__dlpack__");
  nb::object capsule;
  try {
    nb::dict versioned;
    versioned.update(options);
    versioned["max_version"] = nb::make_tuple(1, 0);
    capsule = asked([&] { return lend(**versioned); });
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_TypeError)) throw;
    capsule = asked([&] { return lend(**options); });  // DLPack before 1.0
  }
  held_.push_back(capsule);
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor_versioned")) {
    const auto* lent_tensor = static_cast<const dlpack::VersionedTensor*>(
        PyCapsule_GetPointer(capsule.ptr(), "dltensor_versioned"));
    check_written(array.name, array.written, (lent_tensor->flags & dlpack::kReadOnly) == 0);
    return lent(array.name, lent_tensor->tensor, how, array.out);
  }
  const void* plain = PyCapsule_GetPointer(capsule.ptr(), "dltensor");
  if (plain == nullptr) throw nb::python_error();
  lent(array.name, *static_cast<const dlpack::Tensor*>(plain), how, array.out);
}

Spec spec_of(const std::string& name, nb::handle object) {
  Reader reader({FA3_BF16, FA3_F8_E4M3, true});
  fa3_tensor tensor = {};
  reader.read(name.c_str(), object, false, &tensor);
  reader.finish({});
  return {{tensor.shape, tensor.shape + tensor.rank},
          {tensor.stride, tensor.stride + tensor.rank},
          tensor.dtype,
          reader.device()};
}

void Reader::finish(std::optional<std::int64_t> stream) {
  if (stream.has_value()) {
    if (*stream == 0 || *stream < -1) {
      value_error("stream: " + std::to_string(*stream) +
                  ", need 1 (the legacy default stream), 2 (each thread's), the pointer of a CUDA "
                  "stream, or -1");
    }
    stream_ = *stream == -1 ? nullptr : reinterpret_cast<void*>(*stream);
    has_stream_ = true;
  }
  if (!later_.empty()) {
    const auto current = reinterpret_cast<std::int64_t>(stream_);
    for (const Later& array : later_) {
      capsule(array, stream.has_value() ? stream : current == 0 ? 1 : current);
    }
    later_.clear();
  }
  if (device_.type != FA3_DEVICE_CUDA) {
    if (stream.has_value()) value_error("stream: given for arrays on the CPU, need None");
    stream_ = nullptr;
  }
}

}  // namespace fa3::python
