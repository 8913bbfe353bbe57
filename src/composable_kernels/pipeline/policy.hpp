// The pipelines by name, and the one that an architecture has.
#pragma once

#include <type_traits>

#include "composable_kernels/arch/policies.hpp"
#include "composable_kernels/pipeline/product_async_copies.hpp"
#include "composable_kernels/pipeline/product_register_staged.hpp"

namespace rocm_sd {

template <class Arch>
using PipelineOf = std::conditional_t<Arch::kTileCopies == TileCopies::kAsync, AsyncCopies, RegisterStaged>;

}  // namespace rocm_sd
