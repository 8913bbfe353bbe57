// A map that is added to another one, by factors of its images or of its pixels.
#pragma once

#include "base/error.hpp"
#include "kernels/elementwise/elementwise.hpp"

namespace rocm_sd {

struct ScaledMap {
  Tensor map;      // [B,h,w,C] or [B,h*w,C]
  Tensor factors;  // [B] or [B*h*w] f32 in device memory, read when a launch runs
};

// target + factors * map, of the map's shape.
inline Tensor add_map(Exec& ex, const Tensor& target, const ScaledMap& added) {
  const int64_t count = added.factors.numel();
  require(added.map.shape() == target.shape() && count > 0 &&
              (count == target.dim(0) || count == target.numel() / target.dim(target.rank() - 1)),
          "add_map: a map ", added.map.shape(), " with ", count, " factors does not fit ", target.shape());
  const Shape rows{count, target.numel() / count};
  return add_scaled(ex, target.reshape(rows), added.map.reshape(rows), added.factors.reshape({count}))
      .reshape(target.shape());
}

}  // namespace rocm_sd
