#include "backend/cpu/cpu.h"
namespace fa3::cpu { void backward(const Plan&, const Buffers&, std::byte*, const Executor&) {} }
