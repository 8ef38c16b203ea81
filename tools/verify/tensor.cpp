// SPDX-License-Identifier: BSD-3-Clause
// tensor.cpp — elements, views and guarded memory of tensors made for checks.
#include "tools/verify/tensor.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

#if defined(__SANITIZE_ADDRESS__)
#define FA3_VERIFY_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FA3_VERIFY_ASAN 1
#endif
#endif
#ifdef FA3_VERIFY_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace fa3::verify {
namespace {

constexpr std::byte kGuard{0xff};
constexpr size_t kGuardBytes = 64;  // before and after the elements

struct Format {
  int mantissa_bits;  // stored
  double min_normal;
  double max_finite;
};

Format format_of(int32_t dtype) {
  switch (dtype) {
    case FA3_F16:
      return {10, 0x1p-14, 65504};
    case FA3_BF16:
      return {7, 0x1p-126, 0x1.fep127};
    case FA3_F32:
      return {23, 0x1p-126, 0x1.fffffep127};
    case FA3_F8_E4M3:
      return {3, 0x1p-6, 448};
    default:
      throw std::invalid_argument("verify: not a floating-point dtype");
  }
}

// 1 sign, 4 exponent (bias 7), 3 mantissa bits; all ones below the sign is NaN, the only one.
double decode_e4m3(uint8_t bits) {
  const int exponent = bits >> 3 & 15, fraction = bits & 7;
  double value = exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, exponent - 10);
  if (exponent == 15 && fraction == 7) value = std::numeric_limits<double>::quiet_NaN();
  return bits >> 7 ? -value : value;
}

// x is a value of the type, or NaN.
uint8_t encode_e4m3(double x) {
  const double magnitude = std::abs(x);
  int field = 0x7f;  // NaN
  if (!std::isnan(x)) {
    const int exponent = magnitude < 0x1p-6 ? -6 : std::ilogb(magnitude);
    // Units of the last place, 8 … 15 when normal: the leading 1 adds 1 to the exponent.
    field = (exponent + 6) * 8 + static_cast<int>(std::ldexp(magnitude, 3 - exponent));
  }
  return static_cast<uint8_t>(field | (std::signbit(x) ? 0x80 : 0));
}

}  // namespace

// ---- Elements --------------------------------------------------------------------------------

int64_t element_bytes(int32_t dtype) {
  switch (dtype) {
    case FA3_F32:
    case FA3_I32:
      return 4;
    case FA3_F16:
    case FA3_BF16:
      return 2;
    case FA3_F8_E4M3:
    case FA3_I8:
    case FA3_BOOL:
      return 1;
    default:
      throw std::invalid_argument("verify: dtype without elements");
  }
}

const char* dtype_text(int32_t dtype) {
  switch (dtype) {
    case FA3_F32:
      return "f32";
    case FA3_F16:
      return "f16";
    case FA3_BF16:
      return "bf16";
    case FA3_I32:
      return "i32";
    case FA3_F8_E4M3:
      return "f8_e4m3";
    case FA3_I8:
      return "i8";
    case FA3_BOOL:
      return "bool";
    default:
      return "?";
  }
}

bool is_8_bit(int32_t dtype) { return dtype == FA3_F8_E4M3 || dtype == FA3_I8; }

double round_to(int32_t dtype, double x) {
  if (dtype == FA3_I32) return std::nearbyint(x);
  if (dtype == FA3_BOOL) return x != 0 ? 1 : 0;
  if (dtype == FA3_I8) return x >= -128 ? std::min(std::nearbyint(x), 127.0) : -128;
  if (dtype == FA3_F8_E4M3 && std::abs(x) > 448) return std::copysign(448, x);
  if (!std::isfinite(x) || x == 0) return x;
  const Format format = format_of(dtype);
  // The power of two at or below |x|, but for subnormals that of the smallest normal number.
  const double power = std::bit_cast<double>(std::bit_cast<uint64_t>(x) & 0x7ff0000000000000u);
  const double ulp = std::max(power, format.min_normal) * std::ldexp(1.0, -format.mantissa_bits);
  const double units = x / ulp;  // exact, below 2^24
  // Adding 1.5 · 2^52 leaves no bits for a fraction: the addition rounds to nearest even.
  const double rounded = (units + 0x1.8p52 - 0x1.8p52) * ulp;
  if (std::abs(rounded) > format.max_finite)
    return std::copysign(std::numeric_limits<double>::infinity(), x);
  return std::copysign(rounded, x);
}

double unit_roundoff(int32_t dtype) { return std::ldexp(1.0, -format_of(dtype).mantissa_bits - 1); }
double max_finite(int32_t dtype) { return format_of(dtype).max_finite; }
double min_normal(int32_t dtype) { return format_of(dtype).min_normal; }

double decode(int32_t dtype, const void* at) {
  if (dtype == FA3_I32) {
    int32_t value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  if (dtype == FA3_F32) {
    float value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  if (dtype == FA3_I8) return *static_cast<const int8_t*>(at);
  if (dtype == FA3_BOOL) return *static_cast<const uint8_t*>(at) != 0 ? 1 : 0;
  if (dtype == FA3_F8_E4M3) return decode_e4m3(*static_cast<const uint8_t*>(at));
  uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  if (dtype == FA3_BF16) return std::bit_cast<float>(uint32_t{bits} << 16);
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  double value = exponent == 0    ? std::ldexp(fraction, -24)
                 : exponent != 31 ? std::ldexp(1024 + fraction, exponent - 25)
                 : fraction != 0  ? std::numeric_limits<double>::quiet_NaN()
                                  : std::numeric_limits<double>::infinity();
  return bits >> 15 ? -value : value;
}

void encode(int32_t dtype, double value, void* at) {
  if (dtype == FA3_BOOL) {
    // Any byte but 0 is true: values up to 255 are kept, others become 1.
    const bool whole = value >= 0 && value <= 255 && value == std::nearbyint(value);
    *static_cast<uint8_t*>(at) = whole ? static_cast<uint8_t>(value) : 1;
    return;
  }
  const double x = round_to(dtype, value);
  if (dtype == FA3_I32) {
    const auto bits = static_cast<int32_t>(x);
    std::memcpy(at, &bits, sizeof bits);
    return;
  }
  if (dtype == FA3_I8) {
    *static_cast<int8_t*>(at) = static_cast<int8_t>(x);
    return;
  }
  if (dtype == FA3_F8_E4M3) {
    *static_cast<uint8_t*>(at) = encode_e4m3(x);
    return;
  }
  const uint32_t single = std::bit_cast<uint32_t>(static_cast<float>(x));
  if (dtype == FA3_F32) {
    std::memcpy(at, &single, sizeof single);
    return;
  }
  auto bits = static_cast<uint16_t>(single >> 16);
  if (dtype == FA3_F16) {
    const double magnitude = std::abs(x);
    int field = 0x7e00;  // NaN
    if (std::isinf(x)) field = 0x7c00;
    if (std::isfinite(x)) {
      const int exponent = magnitude < 0x1p-14 ? -14 : std::ilogb(magnitude);
      // Units of the last place, 1024 … 2047 when normal: the leading 1 adds 1 to the exponent.
      field = (exponent + 14) * 1024 + static_cast<int>(std::ldexp(magnitude, 10 - exponent));
    }
    bits = static_cast<uint16_t>(field | (std::signbit(x) ? 0x8000 : 0));
  }
  std::memcpy(at, &bits, sizeof bits);
}

// ---- Views -----------------------------------------------------------------------------------

int64_t element_count(const fa3_tensor& t) {
  if (t.rank == 0) return 0;
  int64_t count = 1;
  for (int d = 0; d < t.rank; ++d) count *= t.shape[d];
  return count;
}

namespace {

std::byte* address(const fa3_tensor& t, const Index& index) {
  int64_t offset = 0;
  for (int d = 0; d < t.rank; ++d) offset += index[d] * t.stride[d];
  return static_cast<std::byte*>(t.data) + offset * element_bytes(t.dtype);
}

}  // namespace

void for_each_row(const fa3_tensor& t, const std::function<void(const Index&, void*)>& visit) {
  if (element_count(t) == 0) return;
  Index index{};
  for (;;) {
    visit(index, address(t, index));
    int d = t.rank - 2;
    while (d >= 0 && ++index[d] == t.shape[d]) index[d--] = 0;
    if (d < 0) return;
  }
}

double get(const fa3_tensor& t, const Index& index) { return decode(t.dtype, address(t, index)); }

void set(const fa3_tensor& t, const Index& index, double value) {
  encode(t.dtype, value, address(t, index));
}

void fill(const fa3_tensor& t, double value) {
  generate(t, [value] { return value; });
}

void generate(const fa3_tensor& t, const std::function<double()>& next) {
  const int64_t size = t.rank == 0 ? 0 : element_bytes(t.dtype);
  for_each_row(t, [&](const Index&, void* row) {
    for (int64_t c = 0; c < t.shape[t.rank - 1]; ++c)
      encode(t.dtype, next(), static_cast<std::byte*>(row) + c * size);
  });
}

// ---- Owning ----------------------------------------------------------------------------------

Storage::Storage(size_t bytes) : bytes_(bytes, kGuard), claimed_(bytes, 0) { set_poison(true); }

Storage::~Storage() { set_poison(false); }

void Storage::claim(const fa3_tensor& view) {
  const int64_t row_bytes = view.shape[view.rank - 1] * element_bytes(view.dtype);
  for_each_row(view, [&](const Index&, void* row) {
    const int64_t begin = static_cast<std::byte*>(row) - bytes_.data();
    if (begin < 0 || begin + row_bytes > static_cast<int64_t>(bytes_.size()))
      throw std::logic_error("verify: a view leaves its storage");
    std::memset(claimed_.data() + begin, 1, static_cast<size_t>(row_bytes));
  });
  set_poison(true);
}

// The runs of bytes that no view has claimed.
template <class Visit>
void Storage::for_each_guard(const Visit& visit) const {
  const size_t size = claimed_.size();
  const auto next = [&](size_t from, int value) {
    const void* const at = std::memchr(claimed_.data() + from, value, size - from);
    return at == nullptr ? size
                         : static_cast<size_t>(static_cast<const uint8_t*>(at) - claimed_.data());
  };
  for (size_t begin = 0; (begin = next(begin, 0)) < size;) {
    const size_t end = next(begin, 1);
    visit(begin, end - begin);
    begin = end;
  }
}

bool Storage::guards_intact() const {
  set_poison(false);
  bool intact = true;
  for_each_guard([&](size_t begin, size_t bytes) {
    const auto guard = bytes_.begin() + static_cast<std::ptrdiff_t>(begin);
    intact = intact && std::all_of(guard, guard + static_cast<std::ptrdiff_t>(bytes),
                                   [](std::byte b) { return b == kGuard; });
  });
  set_poison(true);
  return intact;
}

std::vector<std::byte> Storage::snapshot() const {
  set_poison(false);
  std::vector<std::byte> copy = bytes_;
  set_poison(true);
  return copy;
}

// Under AddressSanitizer: makes the guards unreadable, or everything readable.
void Storage::set_poison([[maybe_unused]] bool on) const {
#ifdef FA3_VERIFY_ASAN
  ASAN_UNPOISON_MEMORY_REGION(bytes_.data(), bytes_.size());
  if (!on) return;
  for_each_guard(
      [&](size_t begin, size_t bytes) { ASAN_POISON_MEMORY_REGION(bytes_.data() + begin, bytes); });
#endif
}

Tensor make_tensor(int32_t dtype, const std::vector<int64_t>& shape, const MemoryOrder& memory) {
  const int rank = static_cast<int>(shape.size());
  std::vector<int> order = memory.order;
  for (int d = static_cast<int>(order.size()); d < rank; ++d) order.push_back(d);
  Tensor tensor;
  fa3_tensor& view = tensor.view;
  view.dtype = dtype;
  view.rank = rank;
  std::copy(shape.begin(), shape.end(), view.shape);
  const int64_t size = element_bytes(dtype);
  const int64_t alignment = std::max(memory.alignment, size);
  const int64_t unit = alignment / size;
  const int64_t padding = (memory.padding + unit - 1) / unit * unit;
  int64_t stride = 1;
  for (int at = rank - 1; at >= 0; --at) {
    const int d = order[at];
    const bool broadcast =
        std::find(memory.broadcast.begin(), memory.broadcast.end(), d) != memory.broadcast.end();
    view.stride[d] = broadcast ? 0 : stride;
    if (!broadcast) stride *= std::max<int64_t>(shape[d], 1);
    if (at == rank - 1) stride += padding;
  }
  tensor.storage =
      std::make_shared<Storage>(kGuardBytes + 2 * alignment + stride * size + kGuardBytes);
  const auto begin = reinterpret_cast<uintptr_t>(tensor.storage->data()) + kGuardBytes;
  // Aligned as asked for, not more.
  const uintptr_t step = 2 * static_cast<uintptr_t>(alignment);
  const uintptr_t at = (begin + step - 1) / step * step - static_cast<uintptr_t>(alignment);
  view.data = tensor.storage->data() + kGuardBytes + ((at < begin ? at + step : at) - begin);
  tensor.storage->claim(view);
  return tensor;
}

std::vector<Tensor> make_interleaved(int32_t dtype, std::vector<int64_t> shape, int dim,
                                     const std::vector<int64_t>& extents, int64_t alignment) {
  shape[dim] = 0;
  for (const int64_t extent : extents) shape[dim] += extent;
  const Tensor whole = make_tensor(dtype, shape, {{}, 0, {}, alignment});
  std::vector<Tensor> parts;
  auto* data = static_cast<std::byte*>(whole.view.data);
  for (const int64_t extent : extents) {
    Tensor part = whole;
    part.view.data = data;
    part.view.shape[dim] = extent;
    parts.push_back(part);
    data += extent * whole.view.stride[dim] * element_bytes(dtype);
  }
  return parts;
}

}  // namespace fa3::verify
