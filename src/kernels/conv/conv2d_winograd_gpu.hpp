// conv2d of 3x3 filters on a GPU by Winograd's F(2x2, 3x3): the configuration "winograd" of the row "gpu".
#pragma once

#include "kernels/conv/conv2d_impl.hpp"
#include "runtime/gpu.hpp"

namespace rocm_sd {

inline constexpr const char* kWinogradConfig = "winograd";

// Nothing where the kernel takes the problem: f16 in and out, a 3x3 filter stored in f16, stride 1, one input
// as large as it is stored.
Refusal conv2d_refuses_winograd(const Exec& ex, const ConvProblem& p);
// Whether it is what the row "gpu" takes untuned: where the time model says that it is faster by a clear
// margin. Cheap.
bool conv2d_prefers_winograd(const Exec& ex, const ConvProblem& p);
void conv2d_winograd_gpu(Exec& ex, const ConvProblem& p);

// A filter [K,C,3,3] as WinogradFilter (composable_kernels/tile/winograd_sums.hpp) lies in memory: 16/9 of
// its bytes and what padding to whole workgroups and steps adds. The plain filter cannot be had back from it.
class GpuWinogradFilter final : public Weight::Pack {
 public:
  GpuWinogradFilter(GpuDevice& device, const Tensor& plain);
  size_t bytes() const override { return data_.bytes(); }
  Tensor unpack() const override;  // throws InternalError
  const Tensor& packed() const { return data_; }

 private:
  Tensor data_;  // [16, K / 16, C / 8, 16, 8], padded
};

}  // namespace rocm_sd
