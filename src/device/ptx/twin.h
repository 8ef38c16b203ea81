// SPDX-License-Identifier: BSD-3-Clause
// twin.h — what the simulator offers to ptx/: one function per instruction or group of them, plus
// the state that registers carry there. Declared here, since device code includes nothing above it;
// defined in src/sim. Host only. Shared addresses are 32-bit window offsets as on the GPU; all
// sizes are in bytes.
#pragma once

#include "device/ptx/mma_types.h"
#include "device/tensor_map.h"
#include "device/types.h"

#if !FA3_GPU
namespace fa3::twin {

// ---- Threads and memory windows -----------------------------------------------------------------
struct Ids {
  u32 thread, block_threads;       // threadIdx.x, blockDim.x; blocks are one-dimensional
  u32 block[3], grid[3];           // blockIdx, gridDim
  u32 cluster_rank, cluster_size;  // %cluster_ctarank, %cluster_nctarank
};
const Ids& ids();

// Called with each named member of a shared-memory struct; `name` lives as long as the call. Index
// −1: the member itself, else element `index` of it.
struct SmemNames {
  void* context;
  void (*add)(void* context, const char* name, int index, const void* begin, u64 bytes);
};
// Shared memory of this CTA; its first use registers the members of the struct it is seen as.
void* smem_base(u64 bytes, u64 alignment, void (*describe)(void* base, const SmemNames& names),
                Where where);
u32 smem_address(const void* pointer, Where where);  // pointer into this CTA's shared memory
u32 map_to_rank(u32 address, u32 rank,
                Where where);  // mapa: the same place in a CTA of the cluster

// ---- Memory through the generic proxy -----------------------------------------------------------
// Pointers of the host; the size is that of one access of one thread: 1, 2, 4, 8 or 16.
void shared_load(void* to, const void* from, u32 bytes, Where where);
void shared_store(void* to, const void* from, u32 bytes, Where where);
void shared_load_cluster(void* to, u32 from, u32 bytes, Where where);
void shared_store_cluster(u32 to, const void* from, u32 bytes, Where where);

enum class Order : u8 { kWeak, kNonCoherent, kVolatile, kRelaxed, kAcquire, kRelease, kAcqRel };
enum class Scope : u8 { kCta, kCluster, kGpu, kSystem };
void global_load(void* to, const void* from, u32 bytes, Order order, Scope scope, Where where);
void global_store(void* to, const void* from, u32 bytes, Order order, Scope scope, Where where);

enum class AtomicOp : u8 { kAdd, kMin, kMax, kExchange, kCompareSwap, kAnd, kOr, kInc };
enum class ScalarType : u8 { kU32, kI32, kU64, kF16, kBf16, kF32 };
// One element; returns the old bits. `compare` counts for kCompareSwap.
u64 global_atomic(void* to, u64 operand, u64 compare, AtomicOp op, ScalarType type, Order order,
                  Scope scope, Where where);
u64 shared_atomic(void* to, u64 operand, u64 compare, AtomicOp op, ScalarType type, Where where);
// red.global.add of 1 or 4 neighbours, each an atomic of its own.
void global_reduce_add_f32(float* to, const float* values, u32 count, Where where);

void fence(Order order, Scope scope, Where where);  // fence.acq_rel, membar, __threadfence

// ---- mbarriers ----------------------------------------------------------------------------------
void mbar_init(u32 bar, u32 count, Where where);
void mbar_inval(u32 bar, Where where);
void fence_mbar_init(Where where);
// `cluster`: bar is an address of map_to_rank; the scope is that of release.
void mbar_arrive(u32 bar, u32 count, bool cluster, Scope scope, Where where);
void mbar_arrive_drop(u32 bar, Where where);
void mbar_expect_tx(u32 bar, u32 bytes, bool cluster, Where where);
void mbar_arrive_expect_tx(u32 bar, u32 bytes, bool cluster, Where where);
bool mbar_test_wait(u32 bar, u32 parity, Scope scope, Where where);
bool mbar_try_wait(u32 bar, u32 parity, Scope scope, Where where);
void mbar_wait(u32 bar, u32 parity, Scope scope, Where where);  // a loop of try_wait

// ---- Execution barriers -------------------------------------------------------------------------
void bar_sync(u32 id, u32 threads, Where where);
void bar_arrive(u32 id, u32 threads, Where where);
void cta_sync(Where where);
void warp_sync(u32 mask, Where where);
void cluster_arrive(bool release, Where where);
void cluster_wait(Where where);
void setmaxnreg(u32 count, bool increase, Where where);
void pdl_wait(Where where);
void pdl_launch(Where where);
[[noreturn]] void trap(const char* message, Where where);
void nanosleep(u32 ns, Where where);
u64 clock(Where where);  // the thread's own time, which says nothing about speed

// ---- Warp collectives ---------------------------------------------------------------------------
enum class Shuffle : u8 { kIndex, kXor, kUp, kDown };
u32 shuffle(u32 value, u32 operand, Shuffle kind, u32 width, u32 mask, Where where);
u32 ballot(bool predicate, u32 mask, Where where);
bool elect(u32 mask, Where where);
enum class Redux : u8 { kAdd, kMin, kMax, kAnd, kOr, kXor };
u32 redux(u32 value, Redux op, bool is_signed, u32 mask, Where where);
// matrices = 1, 2 or 4; registers[matrices]; row: this lane's row address (16 bytes).
void ldmatrix(u32* registers, const void* row, u32 matrices, bool transposed, Where where);
void stmatrix(void* row, const u32* registers, u32 matrices, bool transposed, Where where);
u32 movmatrix(u32 value, Where where);
// d += a·b of a warp; operands as mma.h says.
void mma_16x8x16(MmaType type, float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1, Where where);

// ---- Proxies, TMA, bulk copies, cp.async --------------------------------------------------------
enum class ProxySpace : u8 { kShared, kGlobal, kAll };
void fence_proxy_async(ProxySpace space, Where where);
void prefetch_tensor_map(const TensorMap& map, Where where);
// `multicast`: bit mask of CTAs in the cluster, 0 = this CTA only.
void tma_load(u32 to, const TensorMap& map, u32 bar, const i32* coordinate, u32 rank, u16 multicast,
              Where where);
void tma_store(const TensorMap& map, u32 from, const i32* coordinate, u32 rank, bool reduce_add,
               Where where);
void tma_prefetch(const TensorMap& map, const i32* coordinate, u32 rank, Where where);
void bulk_load(u32 to, const void* from, u32 bytes, u32 bar, u16 multicast, Where where);
void bulk_store(void* to, u32 from, u32 bytes, Where where);
void bulk_reduce_add(void* to, u32 from, u32 bytes, ScalarType type, Where where);
// st.async / shared-to-shared bulk copy into a CTA of the cluster, completing on its mbarrier.
void bulk_copy_to_cluster(u32 to, u32 from, u32 bytes, u32 bar, Where where);
void bulk_commit(Where where);
void bulk_wait(u32 pending, bool read_only, Where where);
void cp_async(u32 to, const void* from, u32 bytes, u32 source_bytes, Where where);
void cp_async_commit(Where where);
void cp_async_wait(u32 pending, Where where);  // ~0u: cp.async.wait_all
void cp_async_mbar_arrive(u32 bar, bool noinc, Where where);

// ---- wgmma --------------------------------------------------------------------------------------
// What the simulator remembers of a register array that wgmma uses. Constructed by the thread that
// owns it.
class RegisterState {
 public:
  RegisterState();
  RegisterState(const RegisterState& other);
  RegisterState& operator=(const RegisterState& other);
  ~RegisterState() {
    if (in_flight != 0) report_lost();
  }

  // An ordinary access to a register of the array.
  void touch(Where where) {
    if (in_flight != 0) report_in_flight(where);
    touched = *fences;
    touched_at = where;
    defined = true;
  }

  const u64* fences;  // wgmma.fence executed by the owner so far
  u64 touched;        // *fences at the last ordinary access
  Where touched_at;
  u64 mma_fences = 0;  // *fences at the last wgmma on these registers
  const WgmmaInstruction* last = nullptr;
  Where mma_at{};
  u32 in_flight = 0;  // wgmmas issued and not yet waited for
  bool defined = false;

 private:
  [[noreturn]] void report_in_flight(Where where) const;
  void report_lost() const noexcept;
};

// An index that knows the line it stands in.
struct Index {
  int value;
  Where where;
  constexpr Index(int value, Where where = Where::here()) : value(value), where(where) {}  // NOLINT
};

void wgmma_fence(Where where);
void wgmma_commit(Where where);
void wgmma_wait(u32 pending, Where where);
// d: this thread's accumulator, in the order of accumulator_slot(); a_state, a: 4 registers of A or
// null; a_desc counts when a is null.
void wgmma(const WgmmaInstruction& instruction, RegisterState& d_state, void* d,
           RegisterState* a_state, const u32* a, u64 a_desc, u64 b_desc, bool accumulate,
           Where where);

// Where register i of a 32-bit accumulator with n columns lies in the simulator's array: the two
// rows of a thread one after another, so that the simulator's inner loop runs over consecutive
// floats.
constexpr int accumulator_slot(int i, int n) {
  return ((i >> 1) & 1) * (n / 4) + 2 * (i >> 2) + (i & 1);
}

// ---- Numbers ------------------------------------------------------------------------------------
// Bit-exact conversions (round to nearest even unless said) and the approximations of the GPU.
u32 pack_f16(float low, float high);                    // cvt.rn.f16x2.f32
u32 pack_bf16(float low, float high);                   // cvt.rn.bf16x2.f32
u32 pack_e4m3(float v0, float v1, float v2, float v3);  // cvt.rn.satfinite.e4m3x2.f32, v0 lowest
u32 pack_e5m2(float v0, float v1, float v2, float v3);
i32 f32_to_i32(float x);
float f16_to_f32(u16 bits);
float bf16_to_f32(u16 bits);
u32 e4m3x2_to_f16x2(u16 bits);
u32 e5m2x2_to_f16x2(u16 bits);
float ex2(float x);           // ex2.approx.ftz.f32
float lg2(float x);           // lg2.approx.ftz.f32
float rcp(float x);           // rcp.approx.ftz.f32
float tanh(float x);          // tanh.approx.f32
float max(float a, float b);  // +0 is above −0; of a number and a NaN the number
float min(float a, float b);
float max_nan(float a, float b);  // the canonical NaN when either is one
u32 prmt(u32 a, u32 b, u32 selector);

}  // namespace fa3::twin
#endif  // !FA3_GPU
