// NVIDIA's tensor memory accelerator, TMA (sm_90): boxes of a matrix fetched into LDS in the 128-byte swizzle
// that warpgroup products read, counted by barriers in LDS, for one workgroup or for all of a cluster. PTX
// ISA 8, "cp.async.bulk.tensor", "mbarrier", "griddepcontrol", "setmaxnreg".
#pragma once

#include "composable_kernels/arch/nvidia.hpp"

namespace rocm_sd {

// A barrier in LDS whose phases end when all arrivals and all announced bytes have come.
struct TmaBarrier {
  uint32_t at;  // in LDS

  ROCM_SD_DEVICE explicit TmaBarrier(const void* lds)
      : at(static_cast<uint32_t>(__cvta_generic_to_shared(lds))) {}

  ROCM_SD_DEVICE void init(int arrivals) const {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(arrivals) : "memory");
  }
  // Arrives, and announces bytes that copies will bring.
  ROCM_SD_DEVICE void expect(int bytes) const {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
  }
  ROCM_SD_DEVICE void arrive() const {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
  }
  // Arrives at the barrier of this place in workgroup `rank` of the cluster. Orders nothing that this thread
  // wrote for other workgroups: that would cost a trip to memory.
  ROCM_SD_DEVICE void arrive_at(int rank) const {
    asm volatile(
        "{.reg .b32 there; mapa.shared::cluster.u32 there, %0, %1; "
        "mbarrier.arrive.shared::cluster.b64 _, [there];}" ::"r"(at),
        "r"(rank)
        : "memory");
  }
  // Until the phase of this parity has ended; a new barrier's last phase had parity 1.
  ROCM_SD_DEVICE void wait(uint32_t parity) const {
    asm volatile(
        "{.reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;}" ::"r"(at),
        "r"(parity)
        : "memory");
  }
};

struct Tma {
  // New barriers become visible to TMA and to the cluster, after its barrier.
  static ROCM_SD_DEVICE void publish_barriers() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  // Every thread of the cluster, each wave in whatever order. Orders no memory.
  static ROCM_SD_DEVICE void cluster_barrier() {
    asm volatile("barrier.cluster.arrive.relaxed; barrier.cluster.wait;" ::: "memory");
  }
  // Consumer groups of 128 threads in turn, at most 14: one waits until another has let it start.
  static ROCM_SD_DEVICE void wait_for_turn(int consumer) {
    asm volatile("bar.sync %0, 256;" ::"r"(consumer + 1) : "memory");
  }
  static ROCM_SD_DEVICE void let_consumer_start(int consumer) {
    asm volatile("bar.arrive %0, 256;" ::"r"(consumer + 1) : "memory");
  }
  // All that multiply.
  template <int kThreads>
  static ROCM_SD_DEVICE void consumers_barrier() {
    asm volatile("bar.sync 15, %0;" ::"n"(kThreads) : "memory");
  }
  static ROCM_SD_DEVICE void prefetch(const TensorMap& map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
  }

  // 128 bytes of global memory, into the last cache; and into the multiprocessor's own.
  static ROCM_SD_DEVICE void prefetch_far(const void* from) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
  }
  static ROCM_SD_DEVICE void prefetch_line(const void* from) {
    asm volatile("prefetch.global.L1 [%0];" ::"l"(from));
  }

  // The box [rows, 64 columns] whose first element is (row, column). Beyond the matrix it is zeros.
  static ROCM_SD_DEVICE void fetch(void* lds, const TensorMap& map, TmaBarrier barrier, int column, int row) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], "
        "[%2];" ::"r"(address(lds)),
        "l"(&map), "r"(barrier.at), "r"(column), "r"(row)
        : "memory");
  }
  // The box [rows, 64 channels] of a map of heads (HeadBoxes). Beyond the head or the image it is zeros.
  static ROCM_SD_DEVICE void fetch_head(void* lds, const TensorMap& map, TmaBarrier barrier, int channel,
                                        int head, int row, int image) {
    fetch_box(lds, map, barrier, channel, head, row, image);
  }
  // The box of an image's map: 64 channels of the pixels that follow (image, y, x) in the order of outputs,
  // each moved by (down, right).
  static ROCM_SD_DEVICE void fetch_pixels(void* lds, const TensorMap& map, TmaBarrier barrier, int channel,
                                          int x, int y, int image, uint16_t right, uint16_t down) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%3, "
        "%4, %5, %6}], [%2], {%7, %8};" ::"r"(address(lds)),
        "l"(&map), "r"(barrier.at), "r"(channel), "r"(x), "r"(y), "r"(image), "h"(right), "h"(down)
        : "memory");
  }
  // The box of an image's map whose boxes are columns by rows by images (ImageBoxes): 64 channels of the
  // pixels from (image, y, x) on. Beyond the images it is zeros.
  static ROCM_SD_DEVICE void fetch_box(void* lds, const TensorMap& map, TmaBarrier barrier, int channel,
                                       int x, int y, int image) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, "
        "%6}], [%2];" ::"r"(address(lds)),
        "l"(&map), "r"(barrier.at), "r"(channel), "r"(x), "r"(y), "r"(image)
        : "memory");
  }
  // The box of a map of permuted rows (MatrixBoxes::permuted) from block `block` of 32 rows on: to LDS of
  // this workgroup, or to the same place in all workgroups of `mask` and their barriers.
  static ROCM_SD_DEVICE void fetch_permuted(void* lds, const TensorMap& map, TmaBarrier barrier, int column,
                                            int block) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %5, %5, %5, %4}], [%2];" ::"r"(address(lds)),
        "l"(&map), "r"(barrier.at), "r"(column), "r"(block), "r"(0)
        : "memory");
  }
  static ROCM_SD_DEVICE void fetch_permuted_to(uint16_t mask, void* lds, const TensorMap& map,
                                               TmaBarrier barrier, int column, int block) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1, {%3, %5, %5, %5, %4}], [%2], %6;" ::"r"(address(lds)),
        "l"(&map), "r"(barrier.at), "r"(column), "r"(block), "r"(0), "h"(mask)
        : "memory");
  }

  // Four floats to the same place of workgroup `rank`'s LDS, counted by its barrier as 16 bytes.
  static ROCM_SD_DEVICE void store_at(int rank, float* lds, TmaBarrier barrier, float a, float b, float c,
                                      float d) {
    asm volatile(
        "{.reg .b32 there, counted; mapa.shared::cluster.u32 there, %0, %2; "
        "mapa.shared::cluster.u32 counted, %1, %2; "
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [there], {%3, %4, %5, %6}, "
        "[counted];}" ::"r"(address(lds)),
        "r"(barrier.at), "r"(rank), "f"(a), "f"(b), "f"(c), "f"(d)
        : "memory");
  }

  // Registers that a warpgroup gives up, or takes from those that others gave up; every wave of it.
  template <int kRegisters>
  static ROCM_SD_DEVICE void give_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
  }
  template <int kRegisters>
  static ROCM_SD_DEVICE void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
  }

 private:
  static ROCM_SD_DEVICE uint32_t address(const void* lds) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(lds));
  }
};

}  // namespace rocm_sd
