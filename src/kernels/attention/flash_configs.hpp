// The configurations of flash attention that are compiled, per family; launcher and kernels read the same
// rows.
#pragma once

namespace rocm_sd {

// X(head_dim, queries of a wave, keys of a tile, waves, stages, workgroups that a multiprocessor should hold)
#define ROCM_SD_FLASH_NVIDIA(X) \
  X(40, 32, 64, 4, 2, 3)        \
  X(40, 32, 32, 4, 3, 4)        \
  X(40, 48, 32, 4, 3, 3)        \
  X(40, 64, 32, 4, 3, 2)        \
  X(40, 16, 64, 4, 2, 4)        \
  X(64, 32, 64, 4, 2, 3)        \
  X(64, 32, 32, 4, 3, 3)        \
  X(64, 48, 32, 4, 3, 2)        \
  X(64, 16, 64, 4, 2, 4)        \
  X(80, 32, 64, 4, 2, 2)        \
  X(80, 32, 32, 4, 3, 2)        \
  X(80, 16, 64, 4, 2, 3)        \
  X(128, 16, 64, 4, 2, 3)       \
  X(128, 32, 32, 4, 2, 2)       \
  X(160, 16, 64, 4, 2, 2)       \
  X(160, 16, 32, 4, 2, 2)

#define ROCM_SD_FLASH_RDNA3(X) \
  X(40, 16, 64, 8, 2, 1)       \
  X(40, 32, 32, 8, 2, 1)       \
  X(40, 16, 32, 4, 2, 1)       \
  X(64, 16, 64, 8, 2, 1)       \
  X(64, 32, 32, 8, 2, 1)       \
  X(64, 16, 32, 4, 2, 1)       \
  X(80, 16, 64, 8, 2, 1)       \
  X(80, 16, 32, 4, 2, 1)       \
  X(128, 16, 64, 8, 1, 1)      \
  X(128, 16, 32, 8, 2, 1)      \
  X(160, 16, 32, 8, 2, 1)

#define ROCM_SD_FLASH_RDNA4(X) ROCM_SD_FLASH_RDNA3(X)

#define ROCM_SD_FLASH_CDNA3(X) \
  X(40, 32, 64, 4, 2, 1)       \
  X(40, 16, 64, 4, 2, 1)       \
  X(64, 32, 64, 4, 2, 1)       \
  X(64, 16, 64, 4, 2, 1)       \
  X(80, 32, 64, 4, 1, 1)       \
  X(80, 16, 64, 4, 1, 1)       \
  X(128, 16, 64, 4, 1, 1)      \
  X(128, 32, 32, 4, 1, 1)      \
  X(160, 16, 64, 4, 1, 1)      \
  X(160, 16, 32, 4, 1, 1)

}  // namespace rocm_sd
