// NVIDIA (sm_80 and later): wave of 32, mma m16n8k16. The instruction's operands are swapped: our A is its
// (column-major) B and our C its transposed C, two instructions to an atom, so that a lane's elements of C
// are neighbours along A's rows as in the AMD families. Layouts: PTX ISA 8, "mma.m16n8k16".
#pragma once

#include <type_traits>

#include "composable_kernels/arch/policies.hpp"
#include "composable_kernels/atom.hpp"
#include "composable_kernels/pack.hpp"

namespace rocm_sd {

struct Nvidia {
  static constexpr const char* kName = "nvidia";
  static constexpr int lanes = 32;
  static constexpr int kFragmentsAhead = 2;  // read from LDS ahead of their use
  static constexpr TileCopies kTileCopies = TileCopies::kAsync;
  static constexpr EpilogueCode kEpilogueCode = EpilogueCode::kOnce;
  static constexpr int kEpilogueLoads = 5;  // pieces whose loads an epilogue keeps under way together
  static constexpr bool kBufferLoads = false;
  static constexpr bool kFloatPairs = false;  // two floats of neighbouring registers take one instruction
  static constexpr bool kFoldsLate =
      false;  // lanes exchange a softmax's maxima only where these move its base
  static constexpr bool kFewSpecials = true;  // exponentials and reciprocals: 16 a cycle, products 128
  static constexpr bool kChiplets = false;
  static constexpr bool kCutsWeights = false;
  // Workgroups that share a tile of a product sum its parts themselves (tile/tile_parts.hpp); else another
  // launch does.
  static constexpr bool kSumsParts = false;
  static constexpr bool kStagesHalves = false;  // the output's staging keeps a piece's channels in two halves
  // A GEGLU is gated where its accumulators lie.
  template <class T>
  static constexpr bool kGatesInRegisters = false;
  static constexpr bool kDeepAtoms = false;  // a lane reads 16 bytes of a row for two atoms at once

  // Waits until all that the kernel before wrote is there, which is so already where the launch did not ask
  // for an overlap. Every kernel does it at its entry, so what a kernel finds is what all kernels before it
  // left.
  static ROCM_SD_DEVICE void pdl_wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  }
  // After pdl_wait(): the next kernel may start where this one's workgroups leave room. What it does
  // before its own wait, and the launch itself, run beside this one.
  static ROCM_SD_DEVICE void pdl_launch_next() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
  }

  template <class Params>
  static ROCM_SD_DEVICE const Params& kernel_argument(const Params& p) {
    return p;
  }
  static ROCM_SD_DEVICE int thread() { return static_cast<int>(threadIdx.x); }
  static ROCM_SD_DEVICE int lane() { return thread() % lanes; }
  static ROCM_SD_DEVICE uint32_t group_x() { return blockIdx.x; }
  static ROCM_SD_DEVICE uint32_t groups_x() { return gridDim.x; }
  static ROCM_SD_DEVICE uint32_t group_y() { return blockIdx.y; }
  static ROCM_SD_DEVICE uint32_t group_z() { return blockIdx.z; }
  // No shuffle: it would wait for lanes that a branch keeps away.
  static ROCM_SD_DEVICE int uniform(int x) { return x; }
  static ROCM_SD_DEVICE void barrier() { __syncthreads(); }
  // What the wave's lanes wrote to LDS before, its lanes see after.
  static ROCM_SD_DEVICE void wave_barrier() { __syncwarp(); }
  // The workgroup's LDS, aligned to 16: dynamic, so that it may exceed 48 KiB; the launch asks for kBytes.
  template <int kBytes>
  static ROCM_SD_DEVICE char* lds() {
    extern __shared__ uint4 dynamic_lds[];
    return reinterpret_cast<char*>(dynamic_lds);
  }

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  // What the cluster's workgroups wrote to LDS before, all of them see after.
  static ROCM_SD_DEVICE void cluster_barrier() {
    cluster_arrive();
    cluster_wait();
  }
  static ROCM_SD_DEVICE void cluster_arrive() {
    __syncwarp();
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  }
  static ROCM_SD_DEVICE void cluster_wait() {
    __syncwarp();
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
  }
  // The pair that workgroup `rank` of the cluster keeps at this place of its LDS.
  static ROCM_SD_DEVICE Pack<float, 2> read_cluster(const Pack<float, 2>* lds, int rank) {
    const auto own = static_cast<uint32_t>(__cvta_generic_to_shared(lds));
    uint32_t at;
    Pack<float, 2> pair;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"(own), "r"(rank));
    asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];"
                 : "=f"(pair.x[0]), "=f"(pair.x[1])
                 : "r"(at)
                 : "memory");
    return pair;
  }
#endif

  // x, of which the compiler knows nothing before here: it cannot compute ahead from it.
  static ROCM_SD_DEVICE int opaque(int x) {
    asm volatile("" : "+r"(x));
    return x;
  }
  static ROCM_SD_DEVICE void fence_schedule() {}  // ptxas orders well by itself

  template <class Number>
  static ROCM_SD_DEVICE Number shuffle_xor(Number x, int mask) {
    return __shfl_xor_sync(~0u, x, mask);
  }
  template <class Number>
  static ROCM_SD_DEVICE Number wave_sum(Number x) {
    for (int mask = 16; mask > 0; mask /= 2) x += shuffle_xor(x, mask);
    return x;
  }
  static ROCM_SD_DEVICE float wave_max(float x) {
    for (int mask = 16; mask > 0; mask /= 2) x = max(x, shuffle_xor(x, mask));
    return x;
  }

  static ROCM_SD_DEVICE bool any(bool x) { return __any_sync(~0u, x); }

  static ROCM_SD_DEVICE float max(float a, float b) { return fmaxf(a, b); }
  static ROCM_SD_DEVICE float abs(float x) { return fabsf(x); }
  static ROCM_SD_DEVICE float exp2(float x) {  // ex2.approx: 2 ulp
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  }
  static ROCM_SD_DEVICE float exp(float x) { return exp2(x * 1.44269504088896f); }
  static ROCM_SD_DEVICE float log(float x) { return __logf(x); }
  static ROCM_SD_DEVICE float reciprocal(float x) {  // rcp.approx: 1 ulp; zero for what exceeds 2^126
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  }
  static ROCM_SD_DEVICE float round(float x) { return rintf(x); }  // half to even
  static ROCM_SD_DEVICE float sqrt(float x) { return sqrtf(x); }
  static ROCM_SD_DEVICE double sqrt(double x) { return ::sqrt(x); }
  static ROCM_SD_DEVICE float erfc(float x) { return erfcf(x); }
  static ROCM_SD_DEVICE float tanh(float x) { return tanhf(x); }
  static ROCM_SD_DEVICE float sin(float x) { return sinf(x); }
  static ROCM_SD_DEVICE float cos(float x) { return cosf(x); }

  // Copies 16 bytes from global memory to LDS without a register between; writes zeros (and reads nothing)
  // unless valid.
  static ROCM_SD_DEVICE void copy_async(void* lds, const void* from, bool valid) {
    const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(lds));
    const int bytes = valid ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
  }
  // The same, or nothing at all, without a branch.
  static ROCM_SD_DEVICE void copy_async_if(bool at_all, void* lds, const void* from) {
    const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(lds));
    asm volatile(
        "{.reg .pred p; setp.ne.b32 p, %2, 0; @p cp.async.cg.shared.global [%0], [%1], 16;}" ::"r"(to),
        "l"(from), "r"(static_cast<int>(at_all))
        : "memory");
  }
  // The same through the multiprocessor's own cache, for what it reads again soon.
  static ROCM_SD_DEVICE void copy_async_cached(void* lds, const void* from, bool valid) {
    const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(lds));
    const int bytes = valid ? 16 : 0;
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
  }
  static ROCM_SD_DEVICE void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
  // Waits until at most kPending of this thread's committed groups are under way.
  template <int kPending>
  static ROCM_SD_DEVICE void wait_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
  }
};

// Four matrices of 8 rows of 16 bytes from LDS, a register of each: lane 8m + l gives matrix m's row l.
ROCM_SD_DEVICE void load_matrices(uint32_t (&r)[4], const void* line) {
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(line));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(at)
               : "memory");
}

template <class T>
struct Atom<Nvidia, T> {
  struct A {
    uint32_t r[4];  // r[2h + j]: row 8h + lane / 4, k = 8j + lane % 4 * 2 and the next
  };
  struct B {
    uint32_t r[4];  // r[h + 2j]: column 8h + lane / 4, k = 8j + lane % 4 * 2 and the next
  };
  struct C {
    float x[8];  // x[4h + 2g + e]: row 8h + lane % 4 * 2 + e, column 8g + lane / 4
  };
  static constexpr int kColumns = 2;

  static ROCM_SD_DEVICE int row(int i) { return i / 4 * 8 + Nvidia::lane() % 4 * 2 + i % 2; }
  static ROCM_SD_DEVICE int column(int i) { return i / 2 % 2 * 8 + Nvidia::lane() / 4; }
  static ROCM_SD_DEVICE constexpr int lane_column(int i) { return i / 2 % 2; }

  static ROCM_SD_DEVICE A load(const T* tile, int ld) {
    const int matrix = Nvidia::lane() / 8, line = Nvidia::lane() % 8;
    A a;
    load_matrices(a.r, tile + (matrix / 2 * 8 + line) * ld + matrix % 2 * 8);
    return a;
  }
  static ROCM_SD_DEVICE B load_b(const T* tile, int ld) {
    const int matrix = Nvidia::lane() / 8, line = Nvidia::lane() % 8;
    B b;
    load_matrices(b.r, tile + (matrix % 2 * 8 + line) * ld + matrix / 2 * 8);
    return b;
  }
  static ROCM_SD_DEVICE A load_transposed(const T* tile, int ld) {
    const int matrix = Nvidia::lane() / 8, line = Nvidia::lane() % 8;
    const auto at =
        static_cast<uint32_t>(__cvta_generic_to_shared(tile + (matrix % 2 * 8 + line) * ld + matrix / 2 * 8));
    A a;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(a.r[0]), "=r"(a.r[1]), "=r"(a.r[2]), "=r"(a.r[3])
                 : "r"(at)
                 : "memory");
    return a;
  }
  static ROCM_SD_DEVICE void mma(C& c, const A& a, const B& b) {
    ROCM_SD_UNROLL
    for (int h = 0; h < 2; ++h) {
      float* x = c.x + 4 * h;
      if constexpr (std::is_same_v<T, Bf16>)
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
            "{%0,%1,%2,%3};"
            : "+f"(x[0]), "+f"(x[1]), "+f"(x[2]), "+f"(x[3])
            : "r"(b.r[0]), "r"(b.r[1]), "r"(b.r[2]), "r"(b.r[3]), "r"(a.r[2 * h]), "r"(a.r[2 * h + 1]));
      else
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
            "{%0,%1,%2,%3};"
            : "+f"(x[0]), "+f"(x[1]), "+f"(x[2]), "+f"(x[3])
            : "r"(b.r[0]), "r"(b.r[1]), "r"(b.r[2]), "r"(b.r[3]), "r"(a.r[2 * h]), "r"(a.r[2 * h + 1]));
    }
  }
  static ROCM_SD_DEVICE B as_b(const C& c) {
    B b;
    ROCM_SD_UNROLL
    for (int i = 0; i < 4; ++i) b.r[i] = pack(c.x[2 * i], c.x[2 * i + 1]);
    return b;
  }
  static ROCM_SD_DEVICE void store_columns(T* tile, int ld, const C& c) {
    ROCM_SD_UNROLL
    for (int i = 0; i < 8; i += 2)
      *reinterpret_cast<uint32_t*>(tile + column(i) * ld + row(i)) = pack(c.x[i], c.x[i + 1]);
  }
  static ROCM_SD_DEVICE float column_sum(float x) {
    x += Nvidia::shuffle_xor(x, 1);
    return x + Nvidia::shuffle_xor(x, 2);
  }
  static ROCM_SD_DEVICE float column_max(float x) {
    x = fmaxf(x, Nvidia::shuffle_xor(x, 1));
    return fmaxf(x, Nvidia::shuffle_xor(x, 2));
  }

  // Two floats as a word.
  static ROCM_SD_DEVICE uint32_t pack(float low, float high) {
    uint32_t bits;
    if constexpr (std::is_same_v<T, Bf16>)
      asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    else
      asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
  }
};

}  // namespace rocm_sd
