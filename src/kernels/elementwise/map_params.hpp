// The portable body's argument for a MapProblem.
#pragma once

#include "composable_kernels/fused/elementwise.hpp"
#include "kernels/elementwise/map.hpp"

namespace rocm_sd {

// Whether rows of `stride` elements from data on can be read in pieces of eight.
inline bool rows_aligned(const void* data, DType type, int64_t rows, int64_t stride) {
  const size_t size = dtype_size(type), unit = size * 8 < 16 ? size * 8 : 16;
  return reinterpret_cast<uintptr_t>(data) % unit == 0 &&
         (rows == 1 || static_cast<uint64_t>(stride) * size % unit == 0);
}

template <class A, class Y>
MapParams<A, Y> map_params(const MapProblem& p, int64_t workgroups) {
  const bool aligned = rows_aligned(p.a, p.a_type, p.rows, p.a_stride) &&
                       rows_aligned(p.b, p.b_type, p.rows, p.b_stride) &&
                       rows_aligned(p.y, p.y_type, p.rows, p.y_stride) && p.part_stride % 8 == 0;
  return {static_cast<const A*>(p.a),
          static_cast<const A*>(p.b),
          static_cast<Y*>(p.y),
          p.rows,
          p.cols,
          p.a_stride,
          p.b_stride,
          p.y_stride,
          p.part_stride,
          p.p0,
          p.p1,
          static_cast<uint32_t>(workgroups),
          aligned,
          p.parts,
          p.factors};
}

// Nothing unless the portable body cannot take the problem, else why not.
inline Refusal refuse_map_body(const MapProblem& p) {
  if (p.binary() && p.a_type != p.b_type) return "takes operands of one type";
  if (p.cols && p.rows > (int64_t{1} << 31) / ((p.cols + 7) / 8)) return "takes no more than 2^34 elements";
  return std::nullopt;
}

}  // namespace rocm_sd
