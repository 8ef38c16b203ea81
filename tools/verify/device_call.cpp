// SPDX-License-Identifier: BSD-3-Clause
// device_call.cpp — images of tensors: guard bytes, elements, guard bytes.
#include "tools/verify/device_call.h"

#include <fmt/core.h>

#include <cstdint>
#include <cstring>
#include <utility>

#include "tools/verify/fields.h"
#include "tools/verify/tensor.h"

namespace fa3::verify {
namespace {

constexpr std::byte kGuard{0xff};     // NaN in every floating-point type; −1 in I8
constexpr size_t kGuardBytes = 1024;  // before and after the elements
constexpr size_t kAlignment = 256;    // of allocations
constexpr size_t kTma = 16;           // of what TMA reads

// Bytes from the first element to the end of the last.
size_t span_bytes(const fa3_tensor& t) {
  if (element_count(t) == 0) return 0;
  int64_t last = 0;
  for (int d = 0; d < t.rank; ++d) last += (t.shape[d] - 1) * t.stride[d];
  return static_cast<size_t>((last + 1) * element_bytes(t.dtype));
}

// visit(address of a run of elements, its offset from the first element, its bytes).
template <class Visit>
void for_each_run(const fa3_tensor& t, const Visit& visit) {
  const auto element = static_cast<int64_t>(element_bytes(t.dtype));
  const int64_t columns = t.shape[t.rank - 1], apart = t.stride[t.rank - 1];
  const int64_t of_run = apart == 1 ? columns : 1;  // LSE may lie with another dimension inside
  for_each_row(t, [&](const Index&, void* row) {
    for (int64_t c = 0; c < columns; c += of_run) {
      char* const at = static_cast<char*>(row) + c * apart * element;
      visit(at, static_cast<size_t>(at - static_cast<char*>(t.data)),
            static_cast<size_t>(of_run * element));
    }
  });
}

}  // namespace

DeviceTensor::DeviceTensor(Gpu& gpu, const fa3_tensor& host)
    : gpu_(&gpu), host_(host), view_(host) {
  const uintptr_t misaligned = reinterpret_cast<uintptr_t>(host.data) % kAlignment;
  offset_ = kGuardBytes + misaligned / kTma * kTma;
  bytes_ = offset_ + span_bytes(host) + kGuardBytes;
  memory_ = gpu.allocate(bytes_);
  view_.data = static_cast<std::byte*>(memory_) + offset_;
  send();
}

DeviceTensor::~DeviceTensor() {
  if (memory_ != nullptr) gpu_->release(memory_);
}

DeviceTensor::DeviceTensor(DeviceTensor&& other) noexcept
    : gpu_(other.gpu_),
      host_(other.host_),
      view_(other.view_),
      offset_(other.offset_),
      bytes_(other.bytes_),
      memory_(std::exchange(other.memory_, nullptr)) {}

std::vector<std::byte> DeviceTensor::image() const {
  std::vector<std::byte> bytes(bytes_, kGuard);
  for_each_run(host_, [&](const void* row, size_t at, size_t count) {
    std::memcpy(bytes.data() + offset_ + at, row, count);
  });
  return bytes;
}

void DeviceTensor::send() {
  const std::vector<std::byte> bytes = image();
  gpu_->upload(memory_, bytes.data(), bytes.size());
}

void DeviceTensor::fetch() {
  std::vector<std::byte> bytes(bytes_);
  gpu_->download(bytes.data(), memory_, bytes_);
  for_each_run(host_, [&](void* row, size_t at, size_t count) {
    std::memcpy(row, bytes.data() + offset_ + at, count);
  });
}

bool DeviceTensor::changed() const {
  std::vector<std::byte> bytes(bytes_);
  gpu_->download(bytes.data(), memory_, bytes_);
  return bytes != image();
}

void DeviceTensors::copy(Gpu& gpu, const fa3_field& field, bool written, fa3_tensor& t) {
  if (t.rank == 0) return;
  entries_.push_back({field.name, written, DeviceTensor(gpu, t)});
  t = entries_.back().tensor.view();
}

void DeviceTensors::send_outputs() {
  for (Entry& e : entries_)
    if (e.output) e.tensor.send();
}

void DeviceTensors::fetch_outputs() {
  for (Entry& e : entries_)
    if (e.output) e.tensor.fetch();
}

std::string DeviceTensors::damage() const {
  for (const Entry& e : entries_) {
    if (!e.tensor.changed()) continue;
    return e.output ? fmt::format("bytes beside the elements of {} were written on the GPU", e.name)
                    : fmt::format("input {} was changed on the GPU", e.name);
  }
  return "";
}

template <class Args>
DeviceCall<Args>::DeviceCall(Gpu& gpu, const Args& host) : DeviceTensors(&args_), args_(host) {
  for_each_tensor(args_,
                  [&](const fa3_field& f, fa3_tensor& t) { copy(gpu, f, is_written(host, f), t); });
}

template class DeviceCall<fa3_forward_args>;
template class DeviceCall<fa3_backward_args>;
template class DeviceCall<fa3_quantize_args>;
template class DeviceCall<fa3_combine_args>;

}  // namespace fa3::verify
