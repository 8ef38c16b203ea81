// SPDX-License-Identifier: BSD-3-Clause
// function_ref.h — a function that is called during a call and kept no longer. Unlike
// std::function it allocates nothing.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

namespace fa3 {

template <class Signature>
class FunctionRef;

template <class R, class... Args>
class FunctionRef<R(Args...)> {
 public:
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef>)
      FunctionRef(F&& function)  // NOLINT: implicit by intent, a lambda is passed as it stands
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(function)))),
        call_([](void* object, Args... args) -> R {
          return (*static_cast<std::add_pointer_t<F>>(object))(std::forward<Args>(args)...);
        }) {}

  R operator()(Args... args) const { return call_(object_, std::forward<Args>(args)...); }

 private:
  void* object_;
  R (*call_)(void*, Args...);
};

}  // namespace fa3
