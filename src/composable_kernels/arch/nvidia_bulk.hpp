// NVIDIA's copy engine (sm_90): boxes of a matrix fetched into LDS in the 128-byte swizzle that warpgroup
// products read, counted by barriers in LDS, for one workgroup or for all of a cluster. PTX ISA 8,
// "cp.async.bulk.tensor", "mbarrier".
#pragma once

#include "composable_kernels/arch/nvidia.hpp"

namespace rocm_sd {

// A barrier in LDS whose phases end when all arrivals and all announced bytes have come.
struct BulkBarrier {
  uint32_t at;  // in LDS

  ROCM_SD_DEVICE explicit BulkBarrier(const void* lds)
      : at(static_cast<uint32_t>(__cvta_generic_to_shared(lds))) {}

  ROCM_SD_DEVICE void init(int arrivals) const {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(arrivals) : "memory");
  }
  // Arrives, and announces bytes that copies will bring.
  ROCM_SD_DEVICE void expect(int bytes) const {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
  }
  // Arrives at the barrier of this place in workgroup `rank` of the cluster.
  ROCM_SD_DEVICE void arrive_at(int rank) const {
    asm volatile(
        "{.reg .b32 there; mapa.shared::cluster.u32 there, %0, %1; "
        "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there];}" ::"r"(at),
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
  // As wait(), for barriers at which other workgroups of the cluster arrive.
  ROCM_SD_DEVICE void wait_cluster(uint32_t parity) const {
    asm volatile(
        "{.reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;}" ::"r"(at),
        "r"(parity)
        : "memory");
  }
};

struct Bulk {
  // New barriers become visible to the copy engine and to the cluster, after its barrier.
  static ROCM_SD_DEVICE void publish_barriers() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  // Every thread of the cluster.
  static ROCM_SD_DEVICE void cluster_barrier() {
    asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::
                     : "memory");
  }
  // The box whose first element is (row, column): to LDS of this workgroup, or to the same place in all
  // workgroups of `mask` and their barriers. Beyond the matrix it is zeros.
  static ROCM_SD_DEVICE void fetch(void* lds, const TensorMap& map, BulkBarrier barrier, int column,
                                   int row) {
    const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(lds));
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], "
        "[%2];" ::"r"(to),
        "l"(&map), "r"(barrier.at), "r"(column), "r"(row)
        : "memory");
  }
  // The box of an image's map: 64 channels of the pixels that follow (image, y, x) in the order of outputs,
  // each moved by (down, right).
  static ROCM_SD_DEVICE void fetch_pixels(void* lds, const TensorMap& map, BulkBarrier barrier, int channel,
                                          int x, int y, int image, uint16_t right, uint16_t down) {
    const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(lds));
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%3, "
        "%4, %5, %6}], [%2], {%7, %8};" ::"r"(to),
        "l"(&map), "r"(barrier.at), "r"(channel), "r"(x), "r"(y), "r"(image), "h"(right), "h"(down)
        : "memory");
  }
  static ROCM_SD_DEVICE void fetch_all(void* lds, const TensorMap& map, BulkBarrier barrier, int column,
                                       int row, uint16_t mask) {
    const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(lds));
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1, {%3, %4}], [%2], %5;" ::"r"(to),
        "l"(&map), "r"(barrier.at), "r"(column), "r"(row), "h"(mask)
        : "memory");
  }
  // A barrier of the first `threads` threads only.
  static ROCM_SD_DEVICE void barrier_of(int threads) {
    asm volatile("bar.sync 1, %0;" ::"r"(threads) : "memory");
  }
};

}  // namespace rocm_sd
