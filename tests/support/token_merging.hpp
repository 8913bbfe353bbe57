// The ops of token merging once more in plain loops of doubles.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/token_merge/token_merge.hpp"

namespace rocm_sd::testing_support {

// Destinations in raster order, then sources.
inline std::vector<int64_t> sorted_tokens(const TokenGrid& grid) {
  std::vector<int64_t> destinations, sources;
  for (int64_t y = 0; y < grid.height; ++y)
    for (int64_t x = 0; x < grid.width; ++x) {
      const bool corner = y % 2 == 0 && x % 2 == 0 && y / 2 < grid.height / 2 && x / 2 < grid.width / 2;
      (corner ? destinations : sources).push_back(y * grid.width + x);
    }
  destinations.insert(destinations.end(), sources.begin(), sources.end());
  return destinations;
}

inline std::vector<double> unit_rows(const std::vector<double>& x, int64_t images, const TokenGrid& grid,
                                     int64_t channels) {
  std::vector<double> out;
  for (int64_t b = 0; b < images; ++b)
    for (const int64_t token : sorted_tokens(grid)) {
      const auto row = x.begin() + (b * grid.tokens() + token) * channels;
      const double length = std::sqrt(std::inner_product(row, row + channels, row, 0.0));
      for (int64_t c = 0; c < channels; ++c) out.push_back(row[c] / length);
    }
  return out;
}

inline std::vector<double> products(const std::vector<double>& a, const std::vector<double>& b,
                                    int64_t depth) {
  std::vector<double> out;
  for (auto i = a.begin(); i != a.end(); i += depth)
    for (auto j = b.begin(); j != b.end(); j += depth)
      out.push_back(std::inner_product(i, i + depth, j, 0.0));
  return out;
}

inline std::vector<double> greatest(const std::vector<double>& x, int64_t rows, int64_t cols) {
  std::vector<double> out;
  for (int64_t r = 0; r < rows; ++r) {
    const auto begin = x.begin() + r * cols, at = std::max_element(begin, begin + cols);
    out.push_back(*at);
    out.push_back(static_cast<double>(at - begin));
  }
  return out;
}

// Similarities and numbers of destinations. ties: of four similarities.
inline std::vector<float> random_matches(int64_t images, const TokenGrid& grid, uint64_t seed, bool ties) {
  std::mt19937_64 random(seed);
  std::vector<float> out;
  for (int64_t i = 0; i < images * grid.sources(); ++i) {
    const auto bits = static_cast<float>(random() % (ties ? 4 : 1 << 20));
    out.push_back(bits / (1 << 19) - 1);
    out.push_back(static_cast<float>(random() % static_cast<uint64_t>(grid.destinations())));
  }
  return out;
}

inline std::vector<double> places_of(const std::vector<float>& matches, int64_t images, const TokenGrid& grid,
                                     int64_t merged) {
  const std::vector<int64_t> tokens = sorted_tokens(grid);
  const int64_t kept = grid.destinations(), sources = grid.sources();
  std::vector<double> out(static_cast<size_t>(images * grid.tokens()));
  for (int64_t b = 0; b < images; ++b) {
    std::vector<int64_t> order(static_cast<size_t>(sources));
    std::iota(order.begin(), order.end(), 0);
    const auto of = [&](int64_t s, int64_t part) {
      return matches[static_cast<size_t>((b * sources + s) * 2 + part)];
    };
    std::ranges::stable_sort(order, [&](int64_t s, int64_t t) { return of(s, 0) > of(t, 0); });
    const auto place = [&](int64_t sorted) -> double& {
      return out[static_cast<size_t>(b * grid.tokens() + tokens[static_cast<size_t>(sorted)])];
    };
    for (int64_t d = 0; d < kept; ++d) place(d) = static_cast<double>(d);
    for (int64_t i = 0; i < sources; ++i) {
      const int64_t s = order[static_cast<size_t>(i)];
      place(kept + s) = i < merged ? static_cast<double>(of(s, 1)) : static_cast<double>(kept + i - merged);
    }
  }
  return out;
}

inline std::vector<double> means_of(const std::vector<double>& x, const std::vector<double>& places,
                                    int64_t images, int64_t groups, int64_t channels) {
  const int64_t tokens = static_cast<int64_t>(places.size()) / images;
  std::vector<double> out(static_cast<size_t>(images * groups * channels)),
      counts(static_cast<size_t>(images * groups));
  for (size_t t = 0; t < places.size(); ++t) {
    const size_t to =
        t / static_cast<size_t>(tokens) * static_cast<size_t>(groups) + static_cast<size_t>(places[t]);
    ++counts[to];
    for (size_t c = 0; c < static_cast<size_t>(channels); ++c)
      out[to * static_cast<size_t>(channels) + c] += x[t * static_cast<size_t>(channels) + c];
  }
  for (size_t i = 0; i < out.size(); ++i) out[i] /= std::max(counts[i / static_cast<size_t>(channels)], 1.0);
  return out;
}

inline std::vector<double> taken_apart(const std::vector<double>& x, const std::vector<double>& places,
                                       const std::vector<double>& residual, int64_t images,
                                       int64_t channels) {
  const size_t tokens = places.size() / static_cast<size_t>(images);
  const size_t groups = x.size() / static_cast<size_t>(images * channels),
               width = static_cast<size_t>(channels);
  std::vector<double> out = residual;
  for (size_t i = 0; i < out.size(); ++i) {
    const size_t token = i / width, from = token / tokens * groups + static_cast<size_t>(places[token]);
    out[i] += x[from * width + i % width];
  }
  return out;
}

}  // namespace rocm_sd::testing_support
