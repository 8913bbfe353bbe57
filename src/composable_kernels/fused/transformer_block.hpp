// A whole transformer block of the UNet for small images: one workgroup takes an image through all of it.
// Problem   x += attend(norm1(x)); x += attend(norm2(x), context); x += feed_forward(norm3(x)), in 16 bits,
//           with GEGLU in the feed-forward and biases on the way out, as BasicTransformerBlock has them
// Mapping   grid (images); phase by phase, a barrier between them; products tile by tile, attention head by
//           head
// Traffic   the weights once per image and tile of rows; what is between phases lies in the caller's work
//           memory, which stays in the last cache
// Numerics  as its parts: float accumulators and statistics, 16 bits between the phases
// Limits    channels = heads * head_dim, all widths multiples of 8; pays where an image has few tokens and
//           there are images enough to fill the device; large ones take a launch for each part
#pragma once

#include "composable_kernels/fused/flash_attention.hpp"
#include "composable_kernels/fused/gemm.hpp"

namespace rocm_sd {

template <class T>
struct TransformerBlockParams {
  struct Norm {
    const float *gain, *bias;  // [channels]
  };
  struct Linear {
    const T* weight;    // [out, in]
    const float* bias;  // [out], or null
  };
  T* x;              // [images, tokens, channels], in and out
  const T* context;  // [images, context_tokens, context_channels]
  Norm norm1, norm2, norm3;
  Linear qkv, out1;      // [3 channels, channels], [channels, channels]
  Linear q2, kv2, out2;  // [channels, channels], [2 channels, context_channels], [channels, channels]
  Linear widen, narrow;  // [8 channels, channels] values first, [channels, 4 channels]
  T* work;               // [images, transformer_block_work()]
  int32_t images, tokens, context_tokens, channels, context_channels, heads;
  float eps;
};

// Elements of work memory that one image takes.
ROCM_SD_DEVICE constexpr int64_t transformer_block_work(int64_t tokens, int64_t context_tokens,
                                                        int64_t channels) {
  return tokens * 5 * channels + context_tokens * 2 * channels;
}

// Gemm: a ProductCfg. Attention: Cfg of FlashAttention. Both of kWaves waves and one type.
template <class Arch, class Gemm, class Attention>
struct TransformerBlock {
  using T = typename Gemm::T;
  using Flash = FlashAttention<Arch, Attention>;
  using Params = TransformerBlockParams<T>;
  static constexpr int kWaves = Gemm::kWaves;
  static_assert(kWaves == Attention::kWaves);
  static constexpr int kFlashBytes = 2 * Flash::kLdsElements;
  static constexpr int kLdsBytes = Gemm::kLdsBytes > kFlashBytes ? Gemm::kLdsBytes : kFlashBytes;

  const Params& p;
  char* lds;
  T *x, *normed, *qkv, *attended, *hidden, *kv;
  const T* context;

  ROCM_SD_DEVICE TransformerBlock(const Params& params, int image, char* memory) : p(params), lds(memory) {
    const int64_t size = static_cast<int64_t>(p.tokens) * p.channels;
    x = p.x + image * size;
    context = p.context + static_cast<int64_t>(image) * p.context_tokens * p.context_channels;
    normed = p.work + image * transformer_block_work(p.tokens, p.context_tokens, p.channels);
    hidden = qkv = normed + size;  // the feed-forward begins when attention is through
    attended = qkv + 3 * size;
    kv = attended + size;
  }

  // One phase after the other in one loop, so that the code of each kind exists once.
  ROCM_SD_DEVICE void run() const {
    for (int phase = 0; phase < 12; ++phase) {
      switch (phase) {
        case 0:
        case 4:
        case 9: norm(phase == 0 ? p.norm1 : phase == 4 ? p.norm2 : p.norm3); break;
        case 2:
        case 7: attend(phase == 7); break;
        case 10: product<true>(linear(normed, p.channels, p.tokens, p.widen, hidden, 4 * p.channels)); break;
        default: product<false>(linear_of(phase)); break;
      }
      Arch::barrier();
    }
  }

 private:
  ROCM_SD_DEVICE GemmParams<T> linear_of(int phase) const {
    const int c = p.channels;
    switch (phase) {
      case 1: return linear(normed, c, p.tokens, p.qkv, qkv, 3 * c);
      case 3: return added(linear(attended, c, p.tokens, p.out1, x, c));
      case 5: return linear(normed, c, p.tokens, p.q2, qkv, c);
      case 6: return linear(context, p.context_channels, p.context_tokens, p.kv2, kv, 2 * c);
      case 8: return added(linear(attended, c, p.tokens, p.out2, x, c));
      default: return added(linear(hidden, 4 * c, p.tokens, p.narrow, x, c));
    }
  }
  ROCM_SD_DEVICE static GemmParams<T> linear(const T* from, int depth, int rows,
                                             const typename Params::Linear& w, T* to, int columns) {
    GemmParams<T> g{};
    g.x = from;
    g.w = w.weight;
    g.x_stride = g.w_stride = g.depth = depth;
    g.splits = 1;
    g.split_steps = depth;
    g.aligned = true;
    g.epilogue.y = to;
    g.epilogue.bias = w.bias;
    g.epilogue.y_stride = columns;
    g.epilogue.rows = rows;
    g.epilogue.channels = columns;
    g.epilogue.rows_per_image = 1;
    return g;
  }
  // An element of x is read and written by one thread.
  ROCM_SD_DEVICE static GemmParams<T> added(GemmParams<T> g) {
    g.epilogue.residual = g.epilogue.y;
    return g;
  }

  template <bool kGated>
  ROCM_SD_DEVICE void product(const GemmParams<T>& g) const {
    const int columns = kGated ? 2 * g.epilogue.channels : g.epilogue.channels;
    const int tiles = (g.epilogue.rows + Gemm::kBlockM - 1) / Gemm::kBlockM *
                      ((columns + Gemm::kBlockN - 1) / Gemm::kBlockN);
    for (int tile = 0; tile < tiles; ++tile) {
      gemm_body<Arch, Gemm, kGated>(g, tile, 0, lds);
      Arch::barrier();  // the next tile's copies overwrite what this one's waves still read
    }
  }

  ROCM_SD_DEVICE void attend(bool cross) const {
    const int64_t c = p.channels;
    FlashParams<T> f{};
    f.q = {qkv, 0, cross ? c : 3 * c};
    f.k = {cross ? kv : qkv + c, 0, cross ? 2 * c : 3 * c};
    f.v = {f.k.data + c, 0, f.k.row};
    f.y = attended;
    f.heads = f.batch_heads = p.heads;
    f.queries = p.tokens;
    f.keys = f.keys_per_split = cross ? p.context_tokens : p.tokens;
    f.splits = 1;
    f.scale = 1.44269504088896f * Arch::reciprocal(Arch::sqrt(static_cast<float>(Attention::kDim)));
    const int tiles = (p.tokens + Flash::kQueries - 1) / Flash::kQueries;
    for (int i = 0; i < tiles * p.heads; ++i) {
      Flash(f, reinterpret_cast<T*>(lds), {i % tiles, i / tiles, 0}).run();
      Arch::barrier();
    }
  }

  // A wave per row.
  ROCM_SD_DEVICE void norm(const typename Params::Norm& w) const {
    const int cols = p.channels;
    const float share = 1.0f / static_cast<float>(cols);
    const int wave = Arch::uniform(Arch::thread() / Arch::lanes);
    for (int row = wave; row < p.tokens; row += kWaves) {
      const T* from = x + static_cast<int64_t>(row) * cols;
      T* to = normed + static_cast<int64_t>(row) * cols;
      float sum = 0, squares = 0;
      for (int c = Arch::lane(); c < cols; c += Arch::lanes) sum += to_float(from[c]);
      const float mean = Arch::wave_sum(sum) * share;
      for (int c = Arch::lane(); c < cols; c += Arch::lanes) {
        const float d = to_float(from[c]) - mean;
        squares += d * d;
      }
      const float scale = 1.0f / Arch::sqrt(Arch::wave_sum(squares) * share + p.eps);
      for (int c = Arch::lane(); c < cols; c += Arch::lanes)
        store(to[c], (to_float(from[c]) - mean) * scale * w.gain[c] + w.bias[c]);
    }
  }
};

}  // namespace rocm_sd
