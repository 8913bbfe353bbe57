// Runs kernel bodies of composable_kernels on the host: the grid is a parallel loop over one-lane blocks.
#pragma once

#include "composable_kernels/arch/scalar.hpp"
#include "kernels/problem.hpp"

namespace rocm_sd {

// body(block) for a grid of one block per row.
template <class Body>
void for_each_block(int64_t rows, const Body& body) {
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < rows; ++i) body(Block<Scalar>{i, rows});
}

// Calls body with a value of the storage type: float, Bf16 or Half.
template <class Body>
void with_storage(DType type, const Body& body) {
  if (type == DType::kBF16) return body(Bf16{});
  if (type == DType::kF16) return body(Half{});
  body(float{});
}

template <class Storage>
struct StorageCfg {
  using T = Storage;
};

}  // namespace rocm_sd
