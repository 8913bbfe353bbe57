// Brownian motion over sigma, on the dyadic tree of torchsde's BrownianInterval (halfway_tree, tolerance
// 1e-6).
#include "schedulers/brownian.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <list>
#include <optional>

#include "base/error.hpp"

namespace rocm_sd {
namespace {

// NumPy's SeedSequence (O'Neill, "Developing a seed_seq Alternative", 2015), pool of 24 words: the first word
// of generate_state, which seeds a node's noise.
uint32_t seed_of_node(uint64_t entropy, std::optional<std::array<uint64_t, 2>> spawn_key) {
  constexpr size_t kPool = 24;
  std::vector<uint32_t> words;
  const auto append = [&](uint64_t value) {
    do {
      words.push_back(static_cast<uint32_t>(value));
      value >>= 32;
    } while (value != 0);
  };
  append(entropy);
  if (spawn_key) {
    words.resize(kPool);
    for (const uint64_t key : *spawn_key) append(key);
  }
  uint32_t hash = 0x43b0d7e5;
  const auto hash_mix = [&hash](uint32_t value) {
    value ^= hash;
    hash *= 0x931e8875;
    value *= hash;
    return value ^ (value >> 16);
  };
  const auto mix = [](uint32_t x, uint32_t y) {
    const uint32_t value = 0xca01f9dd * x - 0x4973f715 * y;
    return value ^ (value >> 16);
  };
  std::array<uint32_t, kPool> pool;
  for (size_t i = 0; i < kPool; ++i) pool[i] = hash_mix(i < words.size() ? words[i] : 0);
  for (size_t from = 0; from < kPool; ++from)
    for (size_t to = 0; to < kPool; ++to)
      if (from != to) pool[to] = mix(pool[to], hash_mix(pool[from]));
  for (size_t from = kPool; from < words.size(); ++from)
    for (size_t to = 0; to < kPool; ++to) pool[to] = mix(pool[to], hash_mix(words[from]));
  uint32_t out = pool[0] ^ 0x8b51f9dd;
  out *= 0x8b51f9dd * 0x58f38ded;
  return out ^ (out >> 16);
}

// To six decimal places, half to even on the exact binary value, as Python's round.
double round6(double value) {
  std::array<char, 400> text;
  const auto end =
      std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed, 6).ptr;
  double out = value;
  std::from_chars(text.data(), end, out);
  return out;
}

using Values = std::vector<float>;

}  // namespace

// One image's path: a node of the tree is an interval; its increment follows from its parent's and the noise
// of the parent's split.
class BrownianNoise::Tree {
 public:
  Tree(NoiseKind kind, uint64_t seed, size_t count, double start, double end)
      : kind_(kind), seed_(seed), count_(count), root_{round6(start), round6(end), 0, 0} {
    const float scale = static_cast<float>(std::sqrt(end - start));
    root_increment_ = noise(seed_of_node(seed_, std::nullopt));
    for (float& v : root_increment_) v *= scale;
  }

  // W(b) - W(a), a < b within the root, [C,H,W].
  Values increment(double a, double b) {
    Values sum;
    collect(root_, root_increment_, round6(a), round6(b), sum);
    if (sum.empty()) sum.assign(count_, 0.0f);
    return sum;
  }

 private:
  struct Node {
    double start, end;
    uint64_t key;  // path from the root, one bit a level
    uint64_t depth;
  };

  // Adds the increments of the largest dyadic nodes that make up [a, b], left to right.
  void collect(const Node& node, const Values& increment, double a, double b, Values& sum) {
    if (a >= b) return;
    if (a == node.start && b == node.end) {
      if (sum.empty()) {
        sum = increment;
      } else {
        for (size_t i = 0; i < count_; ++i) sum[i] += increment[i];
      }
      return;
    }
    const double middle = round6(0.5 * (node.end + node.start));
    const Values left = left_increment(node, middle, increment);
    if (a < middle)
      collect({node.start, middle, 2 * node.key, node.depth + 1}, left, a, std::min(b, middle), sum);
    if (b > middle) {
      Values right(count_);
      for (size_t i = 0; i < count_; ++i) right[i] = increment[i] - left[i];
      collect({middle, node.end, 2 * node.key + 1, node.depth + 1}, right, std::max(a, middle), b, sum);
    }
  }

  // Brownian bridge at `middle`; the arithmetic is PyTorch's on float tensors with scalars rounded to float.
  Values left_increment(const Node& node, double middle, const Values& increment) {
    const double reciprocal = 1 / (node.end - node.start);
    const double left = middle - node.start, right = node.end - middle;
    const float left_factor = static_cast<float>(left), scale = static_cast<float>(reciprocal);
    const float deviation = static_cast<float>(std::sqrt(left * right * reciprocal));
    Values out = noise(seed_of_node(seed_, std::array<uint64_t, 2>{node.key, node.depth}));
    for (size_t i = 0; i < count_; ++i) {
      const float mean = increment[i] * left_factor * scale;
      out[i] = mean + out[i] * deviation;
    }
    return out;
  }

  // Noises of recent splits: neighbouring steps share most of their path from the root.
  Values noise(uint32_t seed) {
    constexpr size_t kCached = 32;
    for (auto it = cache_.begin(); it != cache_.end(); ++it)
      if (it->first == seed) {
        cache_.splice(cache_.begin(), cache_, it);
        return it->second;
      }
    Values out(count_);
    make_noise_source(kind_, seed)->fill(out);
    cache_.emplace_front(seed, out);
    if (cache_.size() > kCached) cache_.pop_back();
    return out;
  }

  NoiseKind kind_;
  uint64_t seed_;
  size_t count_;
  Node root_;
  Values root_increment_;
  std::list<std::pair<uint32_t, Values>> cache_;  // most recent first
};

BrownianNoise::BrownianNoise(NoiseKind kind, std::vector<uint64_t> seeds, const Shape& shape,
                             double sigma_min, double sigma_max)
    : shape_(shape), sigma_min_(static_cast<float>(sigma_min)), sigma_max_(static_cast<float>(sigma_max)) {
  require<UsageError>(sigma_min >= 0 && round6(sigma_min_) < round6(sigma_max_) && std::isfinite(sigma_max),
                      "Brownian noise: needs 0 <= sigma_min < sigma_max, not ", sigma_min, " and ",
                      sigma_max);
  require(shape.rank() == 4 && static_cast<size_t>(shape[0]) == seeds.size(), "Brownian noise: expected [",
          seeds.size(), ",H,W,C], got ", shape);
  for (const uint64_t seed : seeds)
    trees_.push_back(std::make_unique<Tree>(kind, seed, static_cast<size_t>(shape.numel() / shape[0]),
                                            sigma_min_, sigma_max_));
}
BrownianNoise::~BrownianNoise() = default;
BrownianNoise::BrownianNoise(BrownianNoise&&) noexcept = default;

std::vector<float> BrownianNoise::between(double a, double b) {
  // k-diffusion's sigmas are floats.
  const float from = static_cast<float>(std::clamp(a, sigma_min_, sigma_max_));
  const float to = static_cast<float>(std::clamp(b, sigma_min_, sigma_max_));
  const float sign = from < to ? 1.0f : -1.0f;
  const float root = std::sqrt(std::fabs(to - from));
  const int64_t pixels = shape_[1] * shape_[2], channels = shape_[3];
  std::vector<float> out(static_cast<size_t>(shape_.numel()));
  for (size_t n = 0; n < trees_.size(); ++n) {
    const Values image = trees_[n]->increment(std::min(from, to), std::max(from, to));  // [C,H,W]
    float* const dst = out.data() + static_cast<int64_t>(n) * pixels * channels;        // [H,W,C]
    for (int64_t c = 0; c < channels; ++c)
      for (int64_t i = 0; i < pixels; ++i)
        dst[i * channels + c] = image[static_cast<size_t>(c * pixels + i)] * sign / root;
  }
  return out;
}

}  // namespace rocm_sd
