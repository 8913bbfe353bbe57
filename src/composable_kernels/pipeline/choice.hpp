// Which pipeline a configuration's tiles take: its own, where it names one, else its family's.
#pragma once

#include "composable_kernels/pipeline/async_copy.hpp"
#include "composable_kernels/pipeline/register_staged.hpp"

namespace rocm_sd {

template <class Arch, class Cfg, class Weights, class Rows>
struct PipelineChoice {
  using Type = std::conditional_t<Arch::kTileCopies == TileCopies::kAsync, AsyncCopy<Arch, Cfg, Weights, Rows>,
                                  RegisterStaged<Arch, Cfg, Weights, Rows>>;
};
template <class Arch, class Cfg, class Weights, class Rows>
  requires requires { typename Cfg::template Pipeline<Weights, Rows>; }
struct PipelineChoice<Arch, Cfg, Weights, Rows> {
  using Type = typename Cfg::template Pipeline<Weights, Rows>;
};
template <class Arch, class Cfg, class Weights, class Rows>
using PipelineOf = typename PipelineChoice<Arch, Cfg, Weights, Rows>::Type;

}  // namespace rocm_sd
