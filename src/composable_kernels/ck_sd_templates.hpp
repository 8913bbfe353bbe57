// The kernels of Stable Diffusion as templates for a user's own .hip file: docs/reference/templates.md has a
// page on them, and examples/kernels one file for each. A kernel is three lines:
//
//   using Gemm = rocm_sd::ck::BatchedGemm<rocm_sd::GpuArch,
//                                         rocm_sd::ck::ProductCfgOf<rocm_sd::Half, 64, 64, 32, 2, 2, 2>>;
//   ROCM_SD_KERNEL(my_gemm, Gemm::kThreads, 1, Gemm::Params) { rocm_sd::ck::run<Gemm>(p); }
//
// Every template has
//   Params                      the kernel's only argument, a plain struct (of pointers and extents)
//   kThreads, kLdsBytes         of a workgroup; NVIDIA's LDS is dynamic: the launch asks for kLdsBytes, AMD's
//   for none grid(params)                workgroups to launch; also on the host run(params, place, lds) the
//   work of the workgroup at a place of the grid
// <Arch, Cfg>: the architecture (GpuArch is the one being compiled for, Scalar the host with one lane, for
// tests) and a struct of constants: type, tile sizes, waves, stages.
#pragma once

#include <type_traits>

#if defined(__HIP__) || defined(__CUDACC__)
#include "composable_kernels/arch/target.hpp"
#endif
#include "composable_kernels/fused/conv_layout.hpp"
#include "composable_kernels/fused/conv_params.hpp"
#include "composable_kernels/fused/group_norm_whole.hpp"
#include "composable_kernels/fused/transformer_block.hpp"

namespace rocm_sd::ck {

// Workgroups of a grid, or a workgroup's place in it.
struct Grid {
  uint32_t x = 1, y = 1, z = 1;
};

ROCM_SD_DEVICE constexpr uint32_t divide_up(int64_t a, int64_t b) {
  return static_cast<uint32_t>((a + b - 1) / b);
}

#if defined(ROCM_SD_ON_GPU)
// The template's work for the workgroup that runs.
template <class Template>
ROCM_SD_DEVICE void run(const typename Template::Params& p) {
  using Arch = typename Template::Arch;
  Template::run(p, {Arch::group_x(), Arch::group_y(), Arch::group_z()},
                Arch::template lds<Template::kLdsBytes>());
}
#endif

// ---- products: batched GEMM and convolution ----

// T: Half, Bf16 or float. A workgroup computes rows x channels of the result, `depth` at a time, by waves_m x
// waves_n waves; stages: of tiles in LDS, at least 2 on NVIDIA, 1 or 2 elsewhere. Extents of 16, at least 16
// per wave.
template <class T, int rows, int channels, int depth, int waves_m, int waves_n, int stages>
using ProductCfgOf = ProductCfg<T, TileShape{rows, channels, depth, waves_m, waves_n, stages}>;

// y[b] = act(x[b] w[b]^T + bias + residual) for each matrix b of a batch.
// x [batch, rows, depth], w [batch, columns, depth], y and residual [batch, rows, columns]; bias [columns]
// f32. depth and the strides multiples of 16 bytes.
template <class T>
struct BatchedGemmParams {
  const T *x, *w, *residual;  // residual: or null
  const float* bias;          // or null
  T* y;
  int64_t x_stride, w_stride, y_stride;  // elements from row to row
  int64_t x_batch, w_batch, y_batch;     // from matrix to matrix; 0: all read the same
  int32_t batch, rows, columns, depth;
  EpilogueActivation act;
};

template <class Architecture, class Cfg>
struct BatchedGemm {
  using Arch = Architecture;
  using T = typename Cfg::T;
  using Params = BatchedGemmParams<T>;
  static constexpr int kThreads = Cfg::kWaves * Arch::lanes, kLdsBytes = Cfg::kLdsBytes;

  static ROCM_SD_DEVICE constexpr Grid grid(const Params& p) {
    return {divide_up(p.rows, Cfg::kBlockM) * divide_up(p.columns, Cfg::kBlockN),
            static_cast<uint32_t>(p.batch), 1};
  }
  static ROCM_SD_DEVICE void run(const Params& p, Grid at, char* lds) {
    GemmParams<T> g{};
    g.x = p.x;
    g.w = p.w;
    g.x_stride = p.x_stride;
    g.w_stride = p.w_stride;
    g.x_batch = p.x_batch;
    g.w_batch = p.w_batch;
    g.y_batch = p.y_batch;
    g.depth = p.depth;
    g.splits = 1;
    g.split_steps = p.depth;
    g.aligned = true;
    g.epilogue.y = p.y;
    g.epilogue.residual = p.residual ? p.residual + at.y * p.y_batch : nullptr;
    g.epilogue.bias = p.bias;
    g.epilogue.y_stride = p.y_stride;
    g.epilogue.rows = p.rows;
    g.epilogue.channels = p.columns;
    g.epilogue.rows_per_image = 1;
    g.epilogue.act = p.act;
    gemm_body<Arch, Cfg, false>(g, static_cast<int>(at.x), static_cast<int>(at.y), lds);
  }
};

// y = act(conv(x joined with second) + bias + shift + residual) on NHWC. Params from conv_params(); the
// filter as PackFilter writes it.
template <class Architecture, class Cfg>
struct Convolution {
  using Arch = Architecture;
  using T = typename Cfg::T;
  using Params = ConvParams<T>;
  static constexpr int kThreads = Cfg::kWaves * Arch::lanes, kLdsBytes = Cfg::kLdsBytes;

  static ROCM_SD_DEVICE constexpr Grid grid(const Params& p) {
    return {divide_up(p.image.pixels, Cfg::kBlockM) * divide_up(p.epilogue.channels, Cfg::kBlockN), 1, 1};
  }
  static ROCM_SD_DEVICE void run(const Params& p, Grid at, char* lds) {
    conv_body<Arch, Cfg>(p, static_cast<int>(at.x), 0, 0, lds);
  }
};

// A filter [out, in, h, w] in the layout that Convolution reads: once per weight. Params from
// filter_params().
template <class Architecture, class Storage>
struct PackFilter {
  using Arch = Architecture;
  using T = Storage;
  using Params = FilterParams<T>;
  static constexpr int kThreads = Arch::lanes == 1 ? 1 : 256, kLdsBytes = 16;

  static ROCM_SD_DEVICE constexpr Grid grid(const Params& p) {
    const int64_t pieces = p.layout.outputs * p.layout.depth() * static_cast<int64_t>(sizeof(T)) / 16;
    return {divide_up(pieces, kThreads), 1, 1};
  }
  static ROCM_SD_DEVICE void run(const Params& p, Grid at, char*) {
    conv_pack_body(p, static_cast<int64_t>(at.x) * kThreads + Arch::thread());
  }
};

// ---- attention ----

// A wave takes `queries` of them (16, 32 or 64), the workgroup waves times as many; tiles of `keys`.
// kAnyMask: also additive masks and causal ones.
template <class Storage, int head_dim, int queries, int keys, int waves, int stages, bool kAnyMask = false>
struct AttentionCfg {
  using T = Storage;
  static constexpr int kDim = head_dim, kQueryAtoms = queries / 16, kKeys = keys, kWaves = waves,
                       kStages = stages;
  static constexpr bool kGeneral = kAnyMask, kQueriesInLds = false;
};

// How tiles come to Arch's LDS.
template <class Arch, class Cfg>
struct StagedAttentionCfg : Cfg {
  using Pipeline = PipelineOf<Arch>;
  static constexpr bool kTransposed = Pipeline::kTransposesValues;
};

// y = softmax(scale q k^T + mask) v for each head, by online softmax. Params: FlashParams, as
// attention_params() fills it.
template <class Architecture, class Cfg>
struct FusedAttention {
  using Arch = Architecture;
  using T = typename Cfg::T;
  using Params = FlashParams<T>;
  using Body = FlashAttention<Arch, StagedAttentionCfg<Arch, Cfg>>;
  static constexpr int kThreads = Cfg::kWaves * Arch::lanes, kLdsBytes = 2 * Body::kLdsElements;

  static ROCM_SD_DEVICE constexpr Grid grid(const Params& p) {
    return {divide_up(p.queries, Body::kQueries), static_cast<uint32_t>(p.batch_heads), 1};
  }
  static ROCM_SD_DEVICE void run(const Params& p, Grid at, char* lds) {
    Body(p, reinterpret_cast<T*>(lds), {static_cast<int>(at.x), static_cast<int>(at.y), 0}).run();
  }
};

// q [batch, queries, heads * head_dim], k and v [batch, keys, heads * head_dim], dense, -> y as q. What lies
// otherwise (packed q, k, v; a mask; another scale) is set in the result.
template <class T>
ROCM_SD_DEVICE constexpr FlashParams<T> attention_params(const T* q, const T* k, const T* v, T* y, int batch,
                                                         int heads, int queries, int keys, int head_dim,
                                                         float scale) {
  FlashParams<T> p{};
  const int64_t row = static_cast<int64_t>(heads) * head_dim;
  p.q = {q, queries * row, row};
  p.k = {k, keys * row, row};
  p.v = {v, keys * row, row};
  p.y = y;
  p.heads = heads;
  p.batch_heads = batch * heads;
  p.queries = queries;
  p.keys = p.keys_per_split = keys;
  p.splits = 1;
  p.scale = scale * 1.44269504088896f;
  return p;
}

// ---- group norm + SiLU ----

// A thread takes `vec` channels of `packs` pixels: threads / (channels of a group / vec) * packs pixels at
// most.
template <class Storage, int vec, int threads, int packs>
struct GroupNormCfg {
  using T = Storage;
  static constexpr int kVec = vec, kThreads = threads, kPacks = packs;
};

// y = silu(norm(x) * gain + bias), a workgroup per group of one image, which it keeps in registers. Params:
// group_norm_silu_params().
template <class Architecture, class Cfg>
struct GroupNormSilu {
  using Arch = Architecture;
  using T = typename Cfg::T;
  using Params = GroupNormParams<T>;
  static constexpr int kThreads = Arch::lanes == 1 ? 1 : Cfg::kThreads, kWaves = kThreads / Arch::lanes;
  static constexpr int kLdsBytes = 4 * kWaves;
  struct Body : Cfg {
    static constexpr int kPasses = Cfg::kThreads / kThreads;
  };

  static ROCM_SD_DEVICE constexpr Grid grid(const Params& p) {
    return {static_cast<uint32_t>(p.images * p.groups), 1, 1};
  }
  static ROCM_SD_DEVICE void run(const Params& p, Grid at, char* lds) {
    if constexpr (Arch::lanes == 1)
      group_norm_whole_body<Arch, Body>(p, Block<Arch>{at.x, grid(p).x}, reinterpret_cast<float*>(lds));
    else
      group_norm_whole_body<Arch, Body>(p, Block<Arch>{1, kWaves}, reinterpret_cast<float*>(lds));
  }
};

// x and y [images, pixels, channels], gain and bias [channels].
template <class T>
ROCM_SD_DEVICE constexpr GroupNormParams<T> group_norm_silu_params(const T* x, const float* gain,
                                                                   const float* bias, T* y, int images,
                                                                   int pixels, int channels, int groups,
                                                                   float eps) {
  GroupNormParams<T> p{};
  p.x = x;
  p.gain = gain;
  p.bias = bias;
  p.y = y;
  p.images = images;
  p.pixels = pixels;
  p.channels = p.first = channels;
  p.groups = groups;
  p.eps = eps;
  p.silu = 1;
  return p;
}

// ---- transformer block ----

// Gemm: ProductCfgOf. Attention: AttentionCfg, of as many waves.
template <class Gemm, class Attention>
struct TransformerBlockCfg {
  using GemmCfg = Gemm;
  using FlashCfg = Attention;
};

// A whole block (self-attention, cross-attention, GEGLU feed-forward, with their norms) for images of few
// tokens: fused/transformer_block.hpp. Params: TransformerBlockParams.
template <class Architecture, class Cfg>
struct FusedTransformerBlock {
  using Arch = Architecture;
  using Body =
      TransformerBlock<Arch, typename Cfg::GemmCfg, StagedAttentionCfg<Arch, typename Cfg::FlashCfg>>;
  using T = typename Body::T;
  using Params = TransformerBlockParams<T>;
  static constexpr int kThreads = Body::kWaves * Arch::lanes, kLdsBytes = Body::kLdsBytes;

  static ROCM_SD_DEVICE constexpr Grid grid(const Params& p) {
    return {static_cast<uint32_t>(p.images), 1, 1};
  }
  static ROCM_SD_DEVICE void run(const Params& p, Grid at, char* lds) {
    Body(p, static_cast<int>(at.x), lds).run();
  }
};

}  // namespace rocm_sd::ck
