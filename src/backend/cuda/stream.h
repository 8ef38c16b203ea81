// SPDX-License-Identifier: BSD-3-Clause
// stream.h — which CUDA context is current, and events on a stream.
#pragma once

#include "backend/cuda/driver.h"

namespace fa3::cuda {

// Makes a CUDA context current for the length of a scope, then the caller's again.
class ContextScope {
 public:
  ContextScope(const Driver& driver, CUcontext context);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  const Driver& driver_;
};

// A context of one GPU: the caller's, or the primary one, which CUDA's runtime and PyTorch use.
class Context {
 public:
  // The context that is current on the calling thread when it is one of that GPU, and then must
  // outlive this; else the primary one.
  static Context of(const Driver& driver, CUdevice device);
  Context(Context&& other) noexcept;
  ~Context();
  Context& operator=(Context&&) = delete;

  CUcontext get() const { return context_; }

 private:
  Context(const Driver& driver, CUdevice device, CUcontext context, bool retained)
      : driver_(&driver), device_(device), context_(context), retained_(retained) {}

  const Driver* driver_;
  CUdevice device_;
  CUcontext context_;
  bool retained_;  // the primary one, to be released
};

// Is a graph being captured there? The stream's context is current.
bool capturing(const Driver& driver, CUstream stream);

// An event on a stream.
class Event {
 public:
  // Records the event: it completes with all work that is on the stream now.
  Event(const Driver& driver, CUcontext context, CUstream stream);
  Event(Event&& other) noexcept;
  ~Event();
  Event& operator=(Event&&) = delete;

  // Later work on a stream, of any GPU, waits for the event. That stream's context is current.
  void delay(CUstream stream) const;
  // Waits for this event, then gives the time since an earlier one.
  double milliseconds_since(const Event& earlier) const;

 private:
  const Driver* driver_;
  CUcontext context_;
  CUevent event_ = nullptr;
};

}  // namespace fa3::cuda
