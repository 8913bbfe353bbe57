// linear on a GPU that multiplies 8-bit elements: what weights stored in 8 bits take where they can.
#pragma once

#include <string>
#include <vector>

#include "composable_kernels/families/gemm_config.hpp"
#include "kernels/family/explanation.hpp"
#include "kernels/family/gemm_map.hpp"
#include "kernels/gemm/linear_impl.hpp"
#include "runtime/gpu.hpp"

namespace rocm_sd {

// Tiles of `config` with the depth cut into `splits` parts.
struct EightBitChoice {
  GemmConfig config;       // TMA: its depth counts pairs of elements
  int splits = 1;          // TMA: within a cluster
  int multicast_size = 1;  // TMA: workgroups of a cluster that share a tile of the weight

  bool tma() const { return uses_tma(config.algorithm); }
  int elements_per_step() const { return tma() ? 2 : 1; }                   // of config's depth
  int depth() const { return config.shape.block_k * elements_per_step(); }  // of a step
};

// Whether the device's archive has products of this type: i8 or f8e4m3.
bool multiplies_eight_bit(GpuDevice& device, DType type);

// Every choice for the problem, and the one that is taken untuned; both by p.stored_as(), i8 or f8e4m3.
std::vector<EightBitChoice> eight_bit_candidates(const GpuTraits& traits, const LinearProblem& p);
EightBitChoice eight_bit_default(const GpuTraits& traits, const LinearProblem& p);

// Why the choice takes the problem, and its estimated time.
struct EightBitReason {
  const GemmMapRow* row = nullptr;
  double cost = 0;
};
EightBitReason reason_of(const GpuTraits& traits, const LinearProblem& p, const EightBitChoice& choice);
Explanation eight_bit_explanation(const GpuTraits& traits, const LinearProblem& p);

// "gemm_i8_f16_128x128x64", "geglu_tma_f8e4m3_bf16_128x256x128".
std::string eight_bit_kernel_name(const EightBitChoice& choice, const LinearProblem& p);
// "128x128x64/3": 3 splits; "128x256x128b2": by TMA with 2 multicast_size.
std::string describe(const EightBitChoice& choice);

// The weight is stored in 8 bits and asks for such products, there are more than a few rows of 16-byte
// pieces, and the kernels are there. Activations are quantised in a kernel of their own, each row with its
// own scale.
Refusal linear_supports_eight_bit(const Exec& ex, const LinearProblem& p);
void linear_eight_bit(Exec& ex, const LinearProblem& p);
void linear_eight_bit_as(Exec& ex, const LinearProblem& p, const EightBitChoice& choice);
extern const Configs<LinearProblem> kLinearEightBitConfigs;  // by describe(choice)

}  // namespace rocm_sd
