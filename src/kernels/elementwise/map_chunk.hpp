// The host's elementwise loops over contiguous elements. Compiled per instruction set (map_chunk_isa.cpp);
// nothing here may have an inline function.
#pragma once

#include <cstdint>

namespace rocm_sd {

struct MapChunk {
  int map;  // a Map
  const void* a;
  const void* b;
  void* y;
  bool a_bf16, b_bf16, y_bf16;  // else f32 (for kRgb8 y is u8)
  int64_t count;
  float p0, p1;
  int64_t part_stride;  // kSplit's
  int parts;
};

struct MapKernels {
  void (*map)(const MapChunk&);
};

namespace isa_baseline {
extern const MapKernels kMapKernels;
}
namespace isa_v3 {
extern const MapKernels kMapKernels;
}
namespace isa_v4 {
extern const MapKernels kMapKernels;
}

}  // namespace rocm_sd
