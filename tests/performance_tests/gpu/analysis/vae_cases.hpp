// Decoding a picture of 1024 x 1024 (random weights): at once, in bands of rows with the whole picture's
// statistics, and in overlapping tiles that are blended, each decoded as a picture of its own.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "models/vae.hpp"
#include "performance_tests/gpu/analysis/lab.hpp"
#include "performance_tests/gpu/pool_source.hpp"
#include "runtime/exec.hpp"

namespace rocm_sd::analysis {

class VaeCases {
 public:
  explicit VaeCases(Lab& lab)
      : lab_(lab),
        model_(VaeDecoder::load(lab.library, configs::vae_sd(), bench::PoolSource(), DType::kF16)),
        latents_(bench::waves(lab.library, {1, kSide, kSide, 4}, DType::kF32)) {}

  void run() {
    const Tensor out = make_tensor(lab_.library, {1, 8 * kSide, 8 * kSide, 3}, DType::kF16);
    const ordered_json whole = time([&](Exec& ex) { copy_into(ex, model_(ex, latents_), out); });
    const std::vector<float> want = to_floats(lab_.library, out);
    lab_.add("vae", "whole", {{"pieces", 1}}, whole, 0);
    for (const int64_t bands : {2, 4, 8, 16, 32}) {
      const ordered_json measured = time([&](Exec& ex) {
        model_.decode_in_bands(ex, latents_, bands, [&](const Tensor& band, int64_t row) {
          copy_into(ex, band, out.narrow(1, row, band.dim(1)));
        });
      });
      add("bands", bands, measured, want, to_floats(lab_.library, out));
    }
    for (const int64_t tile : {64, 32}) tiles(tile, want);
  }

 private:
  static constexpr int64_t kSide = 128;  // of the latents

  ordered_json time(const Program::Forward& forward) {
    Arena arena(lab_.library);
    Program program("decode", arena, forward);
    program.run();
    program.run();
    const auto begin = lab_.library.make_event(), end = lab_.library.make_event();
    std::vector<double> times;
    for (int i = 0; i < 9; ++i) {
      begin->record();
      program.run();
      end->record();
      times.push_back(1000 * end->milliseconds_since(*begin));
    }
    std::sort(times.begin(), times.end());
    return {
        {"us", times[times.size() / 2]}, {"arena_bytes", program.arena_bytes()}, {"flops", program.flops()}};
  }

  // PSNR to the whole decoding, relative to the range of its values; random weights, but the statistics that
  // tiles lack are the same kind of loss.
  void add(const char* how, int64_t pieces, const ordered_json& measured, const std::vector<float>& want,
           const std::vector<float>& got) {
    double squares = 0, low = INFINITY, high = -INFINITY, worst = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      const double off = static_cast<double>(got[i]) - static_cast<double>(want[i]);
      squares += off * off;
      if (!(std::fabs(off) <= worst)) worst = std::fabs(off);
      low = std::min(low, static_cast<double>(want[i]));
      high = std::max(high, static_cast<double>(want[i]));
    }
    const double psnr = 10 * std::log10((high - low) * (high - low) * static_cast<double>(want.size()) /
                                        std::max(squares, 1e-30));
    lab_.add("vae", concat(how, " ", pieces), {{"pieces", pieces}, {"psnr_db", psnr}, {"range", high - low}},
             measured, worst);
  }

  // Tiles of `tile` latents that overlap by a quarter, cut off at the far edges; weights fall linearly to the
  // edges that another tile shares.
  void tiles(int64_t tile, const std::vector<float>& want) {
    struct Place {
      int64_t begin, count;
    };
    std::vector<Place> places;
    const int64_t overlap = tile / 4;
    for (int64_t at = 0; at < kSide; at += tile - overlap) {
      places.push_back({at, std::min(tile, kSide - at)});
      if (at + tile >= kSide) break;
    }
    std::vector<Tensor> inputs, outputs;
    const std::vector<float> latents = to_floats(lab_.library, latents_);
    for (const Place& y : places)
      for (const Place& x : places) {
        std::vector<float> piece;
        for (int64_t r = 0; r < y.count; ++r) {
          const auto from = latents.begin() + ((y.begin + r) * kSide + x.begin) * 4;
          piece.insert(piece.end(), from, from + x.count * 4);
        }
        inputs.push_back(tensor_from(lab_.library, {1, y.count, x.count, 4}, piece.data()));
        outputs.push_back(make_tensor(lab_.library, {1, 8 * y.count, 8 * x.count, 3}, DType::kF16));
      }
    const ordered_json measured = time([&](Exec& ex) {
      for (size_t i = 0; i < inputs.size(); ++i) copy_into(ex, model_(ex, inputs[i]), outputs[i]);
    });
    const auto ramp = [&](const Place& p, int64_t i) {  // of pixel i of a tile along one axis
      const double width = static_cast<double>(8 * overlap), from_begin = static_cast<double>(i) + 0.5,
                   from_end = static_cast<double>(8 * p.count - i) - 0.5;
      double weight = 1;
      if (p.begin > 0) weight = std::min(weight, from_begin / width);
      if (p.begin + p.count < kSide) weight = std::min(weight, from_end / width);
      return weight;
    };
    constexpr int64_t kPixels = 8 * kSide;
    std::vector<double> sum(want.size()), weights(want.size());
    for (size_t i = 0; i < outputs.size(); ++i) {
      const Place y = places[i / places.size()], x = places[i % places.size()];
      const std::vector<float> piece = to_floats(lab_.library, outputs[i]);
      for (int64_t r = 0; r < 8 * y.count; ++r)
        for (int64_t c = 0; c < 8 * x.count; ++c)
          for (int64_t k = 0; k < 3; ++k) {
            const auto to = static_cast<size_t>(((8 * y.begin + r) * kPixels + 8 * x.begin + c) * 3 + k);
            const double weight = ramp(y, r) * ramp(x, c);
            sum[to] +=
                weight * static_cast<double>(piece[static_cast<size_t>((r * 8 * x.count + c) * 3 + k)]);
            weights[to] += weight;
          }
    }
    std::vector<float> got(want.size());
    for (size_t i = 0; i < got.size(); ++i) got[i] = static_cast<float>(sum[i] / weights[i]);
    add("tiles", static_cast<int64_t>(inputs.size()), measured, want, got);
  }

  Lab& lab_;
  VaeDecoder model_;
  Tensor latents_;
};

}  // namespace rocm_sd::analysis
