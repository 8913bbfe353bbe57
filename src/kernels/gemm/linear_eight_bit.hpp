// linear on a GPU that multiplies 8-bit elements: what weights held in 8 bits take where they can.
#pragma once

#include <vector>

#include "composable_kernels/tile/config.hpp"
#include "kernels/gemm/linear_impl.hpp"
#include "runtime/gpu.hpp"

namespace rocm_sd {

// Tiles of `shape` with the depth cut into `splits` parts.
struct EightBitChoice {
  TileShape shape;
  int groups = 1;  // workgroups that a multiprocessor should hold
  int splits = 1;
};

// Whether the device's archive has products of this type: i8 or f8e4m3.
bool multiplies_eight_bit(GpuDevice& device, DType type);

// Every choice for the problem, and the one that is taken untuned.
std::vector<EightBitChoice> eight_bit_candidates(const GpuTraits& traits, const LinearProblem& p);
EightBitChoice eight_bit_default(const GpuTraits& traits, const LinearProblem& p);

// The weight is held in 8 bits, there are more than a few rows of 16-byte pieces, and the kernels are there.
// Activations are quantised in a kernel of their own, each row with its own scale.
Refusal linear_supports_eight_bit(const Exec& ex, const LinearProblem& p);
void linear_eight_bit(Exec& ex, const LinearProblem& p);
void linear_eight_bit_as(Exec& ex, const LinearProblem& p, const EightBitChoice& choice);

}  // namespace rocm_sd
