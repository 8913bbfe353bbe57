// The scalar architecture: the host as a device whose workgroup is one lane. Barriers vanish, a reduction
// over the wave is the identity, LDS is a stack buffer and the grid a parallel loop. It runs every portable
// body under the sanitizers.
#pragma once

#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "composable_kernels/arch/policies.hpp"
#include "composable_kernels/atom.hpp"
#include "composable_kernels/block.hpp"
#include "composable_kernels/pack.hpp"

namespace rocm_sd {

struct Scalar {
  static constexpr int lanes = 1;

  static constexpr int kFragmentsAhead = 1;
  static constexpr const char* kName = "scalar";
  static constexpr TileCopies kTileCopies = TileCopies::kThroughRegisters;
  static constexpr EpilogueCode kEpilogueCode = EpilogueCode::kUnrolled;
  static constexpr int kEpilogueLoads = 1;  // pieces whose loads an epilogue keeps under way together
  static constexpr bool kBufferLoads = false;
  static constexpr bool kTransposingLoads = false;
  static constexpr bool kFloatPairs = false;
  static constexpr bool kFoldsLate = true;
  static constexpr bool kFewSpecials = true;  // so that the host runs what must be right there
  static constexpr bool kChiplets = false;
  static constexpr bool kCutsWeights = false;
  // Workgroups that share a tile of a product sum its parts themselves (tile/tile_parts.hpp); else another
  // launch does.
  static constexpr bool kSumsParts = true;
  static constexpr bool kStagesHalves = false;  // the output's staging keeps a piece's channels in two halves
  // A GEGLU is gated where its accumulators lie.
  template <class T>
  static constexpr bool kGatesInRegisters = true;
  static constexpr bool kDeepAtoms = false;  // a lane reads 16 bytes of a row for two atoms at once

  template <class Params>
  static const Params& kernel_argument(const Params& p) {
    return p;
  }
  static int thread() { return 0; }
  static int lane() { return 0; }
  static int uniform(int x) { return x; }
  // LDS changes its type from phase to phase: the compiler must not move accesses across.
  static void barrier() { std::atomic_signal_fence(std::memory_order_seq_cst); }
  static void wave_barrier() { barrier(); }
  static int opaque(int x) { return x; }
  static int late(int x) { return x; }
  static void fence_schedule() {}
  // Clusters are of one workgroup.
  static void cluster_barrier() { barrier(); }
  static void cluster_arrive() {}
  static void cluster_wait() {}
  static Pack<float, 2> read_cluster(const Pack<float, 2>* lds, int) { return *lds; }
  static void copy_async(void* lds, const void* from, bool valid) {
    valid ? std::memcpy(lds, from, 16) : std::memset(lds, 0, 16);
  }
  static void copy_async_if(bool at_all, void* lds, const void* from) {
    if (at_all) copy_async(lds, from, true);
  }
  static void commit_copies() {}
  template <int>
  static void wait_copies() {}
  static bool any(bool x) { return x; }
  static uint32_t low_halves(uint32_t first, uint32_t second) { return (first & 0xffff) | second << 16; }
  static uint32_t high_halves(uint32_t first, uint32_t second) { return first >> 16 | (second & 0xffff0000); }

  static float max(float a, float b) { return a > b ? a : b; }
  static float abs(float x) { return std::fabs(x); }
  static float exp2(float x) { return std::exp2(x); }
  static float reciprocal(float x) { return 1.0f / x; }
  template <class Number>
  static Number shuffle_xor(Number x, int) {
    return x;
  }
  template <class Number>
  static Number wave_sum(Number x) {
    return x;
  }
  static float wave_max(float x) { return x; }
  static float exp(float x) { return std::exp(x); }
  static float log(float x) { return std::log(x); }
  static float round(float x) { return std::nearbyint(x); }  // half to even
  static float sqrt(float x) { return std::sqrt(x); }
  static float erfc(float x) { return std::erfc(x); }
  static float tanh(float x) { return std::tanh(x); }
  static float sin(float x) { return std::sin(x); }
  static float cos(float x) { return std::cos(x); }
  static double sqrt(double x) { return std::sqrt(x); }
};

template <>
struct Block<Scalar> {
  int64_t index = 0, count = 1;
  static constexpr int waves = 1;

  int64_t group() const { return index; }
  int thread() const { return 0; }
  int threads() const { return 1; }
  int lane() const { return 0; }
  int wave() const { return 0; }
  void barrier() const {}

  int64_t first_row() const { return index; }
  int64_t row_stride() const { return count; }
  int64_t first_item() const { return index; }
  int64_t item_stride() const { return count; }
};

// The one lane holds every element.
template <class T>
struct Atom<Scalar, T> {
  struct A {
    float x[16][16];  // [row][k]
  };
  struct B {
    float x[16][16];  // [column][k]
  };
  struct C {
    float x[256];  // x[16 row + column]
  };
  static constexpr int kColumns = 16;

  static int row(int i) { return i / 16; }
  static int column(int i) { return i % 16; }
  static constexpr int lane_column(int i) { return i % 16; }

  static A load(const T* tile, int ld, int skip = 0) { return gather<A>(tile, ld, 1, skip); }
  static B load_b(const T* tile, int ld) { return gather<B>(tile, ld, 1); }
  static A load_transposed(const T* tile, int ld) { return gather<A>(tile, 1, ld); }
  static void mma(C& c, const A& a, const B& b) {
    for (int i = 0; i < 256; ++i)
      for (int k = 0; k < 16; ++k) c.x[i] += a.x[i / 16][k] * b.x[i % 16][k];
  }
  static B as_b(const C& c) {
    B b;
    for (int i = 0; i < 256; ++i) {
      T rounded;
      store(rounded, c.x[i]);
      b.x[i % 16][i / 16] = to_float(rounded);
    }
    return b;
  }
  static void store_columns(T* tile, int ld, const C& c) {
    for (int i = 0; i < 256; ++i) store(tile[i % 16 * ld + i / 16], c.x[i]);
  }
  static float column_sum(float x) { return x; }
  static float column_max(float x) { return x; }

 private:
  template <class Fragment>
  static Fragment gather(const T* tile, int line, int step, int skip = 0) {
    Fragment f;
    for (int r = 0; r < 16; ++r)
      for (int k = 0; k < 16; ++k) f.x[r][k] = to_float(tile[r * line + r / 8 * skip + k * step]);
    return f;
  }
};

}  // namespace rocm_sd
