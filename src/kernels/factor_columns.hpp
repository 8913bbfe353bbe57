// The second operand of a product that changes a weight by up down, as a LoRA at run time does.
#pragma once

#include "composable_kernels/fused/conv_layout.hpp"
#include "kernels/weight.hpp"

namespace rocm_sd {

// The factor `down` [r,C,R,S] or [r,in] of a change as linear() takes a weight: its columns as rows
// [depth,r], in the order in which `layout` packs a filter; zeros for what only the padding has.
class FactorColumns final : public Weight::Pack {
 public:
  // plain: contiguous, on the device. Made on the host.
  FactorColumns(Device& device, const Tensor& plain, const FilterLayout& layout);
  // Of a matrix, in its own order.
  FactorColumns(Device& device, const Tensor& plain);

  size_t bytes() const override { return columns_.stored_bytes(); }
  Tensor unpack() const override;
  const Weight& columns() const { return columns_; }  // [depth,r]

 private:
  int64_t plain_at(int64_t k) const;  // within a row of the plain factor; -1: padding

  Device& device_;
  Shape shape_;
  FilterLayout layout_;
  Weight columns_;
};

}  // namespace rocm_sd
