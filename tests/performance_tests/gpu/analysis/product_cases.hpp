// Products and attention: by hand, in tiles, by matrix units, and as the library does them; and what fusing
// saves.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "kernels/attention/attention.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "kernels/gemm/linear.hpp"
#include "kernels/norm/norm.hpp"
#include "params.hpp"
#include "performance_tests/gpu/analysis/lab.hpp"

namespace rocm_sd::analysis {

using bench::random_on;

class ProductCases {
 public:
  explicit ProductCases(Lab& lab) : lab_(lab) {}

  void run() {
    for (const int64_t side :
         lab_.emulated() ? std::vector<int64_t>{128} : std::vector<int64_t>{512, 1024, 2048, 4096})
      products(side);
    for (const int64_t tokens :
         lab_.emulated() ? std::vector<int64_t>{128} : std::vector<int64_t>{1024, 2048, 4096, 8192})
      attentions(tokens);
    if (!lab_.emulated()) fusions();
  }

 private:
  static constexpr float kUnit = 1.7320508f;  // uniform values of this spread have variance 1

  static int launches_for(double flops, double rate) {
    return static_cast<int>(std::clamp(2e-2 * rate / flops, 1.0, 20.0));
  }
  void naive(const ProductParams& p, uint32_t batch) {
    const int64_t elements = static_cast<int64_t>(p.rows) * p.columns;
    lab_.launch("analysis_product_naive",
                {static_cast<uint32_t>((elements + kThreads - 1) / kThreads), batch}, kThreads, 0, p);
  }
  void matrix(const ProductParams& p, uint32_t batch) {
    GemmParams<Half> g{};
    g.x = p.x;
    g.w = p.w;
    g.x_stride = p.x_stride;
    g.w_stride = p.w_column;
    g.x_batch = p.x_batch;
    g.w_batch = p.w_batch;
    g.y_batch = p.y_batch;
    g.depth = g.split_steps = p.depth;
    g.splits = 1;
    g.aligned = true;
    g.epilogue.y = p.y;
    g.epilogue.y_stride = p.y_stride;
    g.epilogue.rows = p.rows;
    g.epilogue.channels = p.columns;
    g.epilogue.rows_per_image = 1;
    const auto tiles = [](int32_t extent, int block) {
      return static_cast<uint32_t>((extent + block - 1) / block);
    };
    lab_.launch("analysis_product_matrix",
                {tiles(p.rows, MatrixCfg::kBlockM) * tiles(p.columns, MatrixCfg::kBlockN), batch},
                static_cast<uint32_t>(MatrixCfg::kWaves * lab_.demo.traits().lanes), MatrixCfg::kLdsBytes, g);
  }

  // ---- y = x w^T, all extents alike ----
  void products(int64_t n) {
    const float spread = kUnit / std::sqrt(static_cast<float>(n));
    const Tensor x = random_on(lab_.demo, {n, n}, DType::kF16, 1, kUnit),
                 w = random_on(lab_.demo, {n, n}, DType::kF16, 2, spread);
    const Tensor y = make_tensor(lab_.demo, {n, n}, DType::kF16);
    const std::vector<float> host_x = to_floats(lab_.demo, x), host_w = to_floats(lab_.demo, w);
    const auto error = [&](Device& device, const Tensor& result) {
      const std::vector<float> got = to_floats(device, result);
      double worst = 0;
      for (int64_t s = 0; s < 64; ++s) {
        const int64_t i = s * (n * n - 1) / 63, row = i / n, column = i % n;
        double sum = 0;
        for (int64_t k = 0; k < n; ++k)
          sum += static_cast<double>(host_x[static_cast<size_t>(row * n + k)]) *
                 static_cast<double>(host_w[static_cast<size_t>(column * n + k)]);
        const double off = std::fabs(static_cast<double>(got[static_cast<size_t>(i)]) - sum);
        if (!(off <= worst)) worst = off;
      }
      return worst;
    };
    const auto extent = static_cast<int32_t>(n);
    const ProductParams p{.x = x.as<Half>(),
                          .w = w.as<Half>(),
                          .y = y.as<Half>(),
                          .x_stride = n,
                          .w_column = n,
                          .w_depth = 1,
                          .y_stride = n,
                          .x_batch = 0,
                          .w_batch = 0,
                          .y_batch = 0,
                          .rows = extent,
                          .columns = extent,
                          .depth = extent};
    const double flops = 2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n);
    const ordered_json facts = {{"side", n}, {"flops", flops}, {"bytes", 6.0 * static_cast<double>(n * n)}};
    const auto one = [&](const char* name, double rate, const std::function<void(int)>& once) {
      lab_.demo.fill_zero(y.data(), y.bytes());
      const ordered_json measured = lab_.measure(launches_for(flops, rate), once);
      lab_.add("product", concat(name, " ", n), facts, measured, error(lab_.demo, y));
    };
    one("naive", 1e12, [&](int) { naive(p, 1); });
    one("tiled", 1e13, [&](int) {
      const auto tiles = static_cast<uint32_t>(n / kProductTile * (n / kProductTile));
      lab_.launch("analysis_product_tiled", {tiles}, kThreads, 2 * kProductDepth * (kProductTile + 4) * 4, p);
    });
    one("matrix units", 2e14, [&](int) { matrix(p, 1); });
    const Tensor library_x = random_on(lab_.library, {n, n}, DType::kF16, 1, kUnit);
    const LinearWeight weight{Weight(random_on(lab_.library, {n, n}, DType::kF16, 2, spread)),
                              random_on(lab_.library, {n}, DType::kF32, 3, 0)};
    const Tensor out = make_tensor(lab_.library, {n, n}, DType::kF16);
    const ordered_json measured =
        lab_.measure_op(launches_for(flops, 5e14), [&](Exec& ex) { linear(ex, library_x, weight); });
    Arena arena(lab_.library);
    Exec ex(arena);
    lab_.add("product", concat("library ", n), facts, measured,
             error(lab_.library, linear(ex, library_x, weight)));
  }

  // ---- softmax(q k^T / sqrt(d)) v, 16 heads of 40 as in SD 1.5 ----
  void attentions(int64_t n) {
    constexpr int64_t kHeads = 16, kDim = 40, kWidth = kHeads * kDim;
    const float scale = 1 / std::sqrt(static_cast<float>(kDim));
    const auto operand = [&](Device& device, uint32_t seed) {
      return random_on(device, {1, n, kWidth}, DType::kF16, seed, kUnit);
    };
    const Tensor q = operand(lab_.demo, 1), k = operand(lab_.demo, 2), v = operand(lab_.demo, 3);
    const Tensor y = make_tensor(lab_.demo, {n, kWidth}, DType::kF16);
    const Tensor scores = make_tensor(lab_.demo, {kHeads, n, n}, DType::kF16);
    const Tensor turned = make_tensor(lab_.demo, {kHeads, kDim, n}, DType::kF16);
    const auto tokens = static_cast<int32_t>(n);
    const ProductParams qk{.x = q.as<Half>(),
                           .w = k.as<Half>(),
                           .y = scores.as<Half>(),
                           .x_stride = kWidth,
                           .w_column = kWidth,
                           .w_depth = 1,
                           .y_stride = n,
                           .x_batch = kDim,
                           .w_batch = kDim,
                           .y_batch = n * n,
                           .rows = tokens,
                           .columns = tokens,
                           .depth = kDim};
    ProductParams pv{.x = scores.as<Half>(),
                     .w = v.as<Half>(),
                     .y = y.as<Half>(),
                     .x_stride = n,
                     .w_column = 1,
                     .w_depth = kWidth,
                     .y_stride = kWidth,
                     .x_batch = n * n,
                     .w_batch = kDim,
                     .y_batch = kDim,
                     .rows = tokens,
                     .columns = kDim,
                     .depth = tokens};
    const auto softmax = [&] {
      lab_.launch("analysis_softmax", {static_cast<uint32_t>(kHeads * n)}, kThreads, 2 * kThreads / 32 * 4,
                  SoftmaxParams{scores.as<Half>(), tokens, scale});
    };
    const double flops = 4.0 * static_cast<double>(kWidth) * static_cast<double>(n) * static_cast<double>(n);
    const ordered_json facts = {{"tokens", n},
                                {"heads", kHeads},
                                {"head_dim", kDim},
                                {"flops", flops},
                                {"bytes", 4.0 * static_cast<double>(q.bytes())}};
    const auto with_scores = [&](double bytes) {
      ordered_json all = facts;
      all["score_bytes"] = bytes;
      return all;
    };
    const double score_bytes = static_cast<double>(scores.bytes());
    const auto clear = [&] { lab_.demo.fill_zero(y.data(), y.bytes()); };
    clear();
    ordered_json measured = lab_.measure(1, [&](int) {
      naive(qk, kHeads);
      softmax();
      naive(pv, kHeads);
    });
    const std::vector<float> hq = to_floats(lab_.demo, q), hk = to_floats(lab_.demo, k),
                             hv = to_floats(lab_.demo, v);
    const auto error = [&](Device& device, const Tensor& result) {
      return attention_error(to_floats(device, result), hq, hk, hv, n, kHeads, kDim);
    };
    lab_.add("attention", concat("naive ", n), with_scores(score_bytes), measured, error(lab_.demo, y));
    clear();
    ProductParams pv_matrix = pv;
    pv_matrix.w = turned.as<Half>();
    pv_matrix.w_column = n;
    pv_matrix.w_depth = 1;
    pv_matrix.w_batch = kDim * n;
    measured = lab_.measure(launches_for(flops, 5e13), [&](int) {
      lab_.launch("analysis_turn", {static_cast<uint32_t>((kWidth * n + kThreads - 1) / kThreads)}, kThreads,
                  0, TurnParams{v.as<Half>(), turned.as<Half>(), tokens, kHeads, kDim});
      matrix(qk, kHeads);
      softmax();
      matrix(pv_matrix, kHeads);
    });
    lab_.add("attention", concat("matrix units ", n), with_scores(score_bytes), measured,
             error(lab_.demo, y));
    const Tensor lq = operand(lab_.library, 1), lk = operand(lab_.library, 2), lv = operand(lab_.library, 3);
    const AttentionArgs args{.heads = kHeads};
    measured = lab_.measure_op(launches_for(flops, 2e14), [&](Exec& ex) { attention(ex, lq, lk, lv, args); });
    Arena arena(lab_.library);
    Exec ex(arena);
    lab_.add("attention", concat("fused ", n), with_scores(0), measured,
             error(lab_.library, attention(ex, lq, lk, lv, args)));
  }

  static double attention_error(const std::vector<float>& got, const std::vector<float>& q,
                                const std::vector<float>& k, const std::vector<float>& v, int64_t n,
                                int64_t heads, int64_t dim) {
    const int64_t width = heads * dim;
    const auto at = [](const std::vector<float>& x, int64_t i) {
      return static_cast<double>(x[static_cast<size_t>(i)]);
    };
    double worst = 0;
    for (int64_t s = 0; s < 4; ++s) {
      const int64_t i = s * (n - 1) / 3, h = s * (heads - 1) / 3;
      std::vector<double> p(static_cast<size_t>(n)), want(static_cast<size_t>(dim));
      double highest = -INFINITY, sum = 0;
      for (int64_t j = 0; j < n; ++j) {
        double dot = 0;
        for (int64_t d = 0; d < dim; ++d)
          dot += at(q, i * width + h * dim + d) * at(k, j * width + h * dim + d);
        p[static_cast<size_t>(j)] = dot / std::sqrt(static_cast<double>(dim));
        highest = std::max(highest, p[static_cast<size_t>(j)]);
      }
      for (double& x : p) sum += x = std::exp(x - highest);
      for (int64_t d = 0; d < dim; ++d) {
        double value = 0;
        for (int64_t j = 0; j < n; ++j)
          value += p[static_cast<size_t>(j)] / sum * at(v, j * width + h * dim + d);
        const double off = std::fabs(at(got, i * width + h * dim + d) - value);
        if (!(off <= worst)) worst = off;
      }
    }
    return worst;
  }

  // ---- the same result in one launch and in two ----
  void fusions() {
    GpuDevice& device = lab_.library;
    const auto compare = [&](const char* what, double bytes, const std::function<Tensor(Exec&)>& apart,
                             const std::function<Tensor(Exec&)>& fused) {
      Arena arena(device);
      Exec ex(arena);
      const std::vector<float> a = to_floats(device, apart(ex)), b = to_floats(device, fused(ex));
      double worst = 0;
      for (size_t i = 0; i < a.size(); ++i) {
        const double off = std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
        if (!(off <= worst)) worst = off;
      }
      const ordered_json facts = {{"bytes_saved", bytes}};
      lab_.add("fusion", concat(what, ", apart"), facts, lab_.measure_op(20, apart), 0);
      lab_.add("fusion", concat(what, ", fused"), facts, lab_.measure_op(20, fused),
               worst);  // distance of the two
    };
    const auto weight = [&](int64_t out, int64_t in) {
      return LinearWeight{
          Weight(random_on(device, {out, in}, DType::kF16, 5, kUnit / std::sqrt(static_cast<float>(in)))),
          random_on(device, {out}, DType::kF32, 6, 1)};
    };
    {
      const Tensor x = random_on(device, {2048, 1280}, DType::kF16, 1, kUnit);
      const LinearWeight w = weight(10240, 1280);
      compare(
          "GEGLU 2048x10240x1280", 2.0 * 2 * 2048 * 10240,
          [&](Exec& ex) { return geglu(ex, linear(ex, x, w)); },
          [&](Exec& ex) { return linear_geglu(ex, x, w); });
    }
    {
      const Tensor x = random_on(device, {8192, 640}, DType::kF16, 1, kUnit),
                   residual = random_on(device, {8192, 640}, DType::kF16, 2, kUnit);
      const LinearWeight w = weight(640, 640);
      const Epilogue epilogue{.residual = &residual};
      compare(
          "linear 8192x640x640 + residual", 2.0 * 2 * 8192 * 640,
          [&](Exec& ex) { return add(ex, linear(ex, x, w), residual); },
          [&](Exec& ex) { return linear(ex, x, w, epilogue); });
    }
    {
      const Tensor x = random_on(device, {2, 128, 128, 320}, DType::kF16, 1, kUnit);
      const NormWeight w{random_on(device, {320}, DType::kF32, 2, 0.2f, 1),
                         random_on(device, {320}, DType::kF32, 3)};
      compare(
          "group norm + SiLU 2x128x128x320", 2.0 * 2 * 2 * 128 * 128 * 320,
          [&](Exec& ex) { return activate(ex, group_norm(ex, x, w), Activation::kSilu); },
          [&](Exec& ex) { return group_norm(ex, x, w, {.act = Activation::kSilu}); });
    }
  }

  Lab& lab_;
};

}  // namespace rocm_sd::analysis
