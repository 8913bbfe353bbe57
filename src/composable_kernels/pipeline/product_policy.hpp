// Which pipeline the operands of a product take: the configuration's own, where it names one, else its
// family's.
#pragma once

#include "composable_kernels/pipeline/policy.hpp"
#include "composable_kernels/pipeline/product_async_copies.hpp"
#include "composable_kernels/pipeline/product_register_staged.hpp"

namespace rocm_sd {

template <class Arch, class Cfg, class Weights, class Rows>
struct ProductPipelineChoice {
  using Type = typename PipelineOf<Arch>::template Product<Arch, Cfg, Weights, Rows>;
};
template <class Arch, class Cfg, class Weights, class Rows>
  requires requires { typename Cfg::template Pipeline<Weights, Rows>; }
struct ProductPipelineChoice<Arch, Cfg, Weights, Rows> {
  using Type = typename Cfg::template Pipeline<Weights, Rows>;
};
template <class Arch, class Cfg, class Weights, class Rows>
using ProductPipeline = typename ProductPipelineChoice<Arch, Cfg, Weights, Rows>::Type;

}  // namespace rocm_sd
