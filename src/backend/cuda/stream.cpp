// SPDX-License-Identifier: BSD-3-Clause
// stream.cpp — contexts and events through the driver.
#include "backend/cuda/stream.h"

#include <utility>

namespace fa3::cuda {

// ---- Contexts -----------------------------------------------------------------------------------

ContextScope::ContextScope(const Driver& driver, CUcontext context) : driver_(driver) {
  driver.check(driver.cuCtxPushCurrent_v2(context), "cuCtxPushCurrent", "to use the GPU");
}

ContextScope::~ContextScope() {
  CUcontext popped = nullptr;
  driver_.cuCtxPopCurrent_v2(&popped);
}

Context Context::of(const Driver& driver, CUdevice device) {
  CUcontext context = nullptr;
  driver.check(driver.cuCtxGetCurrent(&context), "cuCtxGetCurrent", "to find the caller's context");
  if (context != nullptr) {
    CUdevice of_context = 0;
    driver.check(driver.cuCtxGetDevice(&of_context), "cuCtxGetDevice", "to find its GPU");
    if (of_context == device) return {driver, device, context, false};
  }
  driver.check(driver.cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain",
               "to use the GPU");
  return {driver, device, context, true};
}

Context::Context(Context&& other) noexcept
    : driver_(other.driver_),
      device_(other.device_),
      context_(other.context_),
      retained_(std::exchange(other.retained_, false)) {}

Context::~Context() {
  if (retained_) driver_->cuDevicePrimaryCtxRelease_v2(device_);
}

bool capturing(const Driver& driver, CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  driver.check(driver.cuStreamIsCapturing(stream, &status), "cuStreamIsCapturing",
               "to see whether a graph is being captured");
  return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

// ---- Events -------------------------------------------------------------------------------------

Event::Event(const Driver& driver, CUcontext context, CUstream stream)
    : driver_(&driver), context_(context) {
  const ContextScope scope(driver, context);
  driver.check(driver.cuEventCreate(&event_, CU_EVENT_DEFAULT), "cuEventCreate",
               "to mark a moment");
  const CUresult result = driver.cuEventRecord(event_, stream);
  if (result != CUDA_SUCCESS) driver.cuEventDestroy_v2(event_);
  driver.check(result, "cuEventRecord", "to mark a moment");
}

Event::Event(Event&& other) noexcept
    : driver_(other.driver_),
      context_(other.context_),
      event_(std::exchange(other.event_, nullptr)) {}

Event::~Event() {
  if (event_ != nullptr) driver_->cuEventDestroy_v2(event_);
}

void Event::delay(CUstream stream) const {
  driver_->check(driver_->cuStreamWaitEvent(stream, event_, 0), "cuStreamWaitEvent",
                 "to wait for other work");
}

double Event::milliseconds_since(const Event& earlier) const {
  const ContextScope scope(*driver_, context_);
  driver_->check(driver_->cuEventSynchronize(event_), "cuEventSynchronize", "to measure time");
  float elapsed = 0;
  driver_->check(driver_->cuEventElapsedTime(&elapsed, earlier.event_, event_),
                 "cuEventElapsedTime", "to measure time");
  return elapsed;
}

}  // namespace fa3::cuda
