// Canny's edges with the rules of OpenCV's cv::Canny (aperture 3, L1 norm), so that ControlNets see what they
// were trained on.
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "pipeline/control_image.hpp"

namespace rocm_sd {
namespace {

struct Gradient {
  int dx = 0, dy = 0;
  int size() const { return std::abs(dx) + std::abs(dy); }
};

enum class Edge : uint8_t { kNone, kWeak, kStrong };

class Canny {
 public:
  explicit Canny(const Image& image) : image_(image), width_(image.width), height_(image.height) {
    for (int y = 0; y < height_; ++y)
      for (int x = 0; x < width_; ++x) gradients_.push_back(gradient(x, y));
  }

  Image edges(double low, double high) {
    const int least = static_cast<int>(std::floor(low)), strong = static_cast<int>(std::floor(high));
    std::vector<Edge> kinds(gradients_.size(), Edge::kNone);
    std::vector<std::pair<int, int>> found;  // strong ones whose neighbours are yet to be looked at
    for (int y = 0; y < height_; ++y)
      for (int x = 0; x < width_; ++x) {
        const int size = size_at(x, y);
        if (size <= least || !is_ridge(x, y)) continue;
        kinds[index(x, y)] = size > strong ? Edge::kStrong : Edge::kWeak;
        if (size > strong) found.emplace_back(x, y);
      }
    while (!found.empty()) {
      const auto [x, y] = found.back();
      found.pop_back();
      for (int v = std::max(0, y - 1); v <= std::min(height_ - 1, y + 1); ++v)
        for (int u = std::max(0, x - 1); u <= std::min(width_ - 1, x + 1); ++u)
          if (kinds[index(u, v)] == Edge::kWeak) {
            kinds[index(u, v)] = Edge::kStrong;
            found.emplace_back(u, v);
          }
    }
    Image out{width_, height_, std::vector<uint8_t>(3 * kinds.size()), {}};
    for (size_t i = 0; i < out.rgb.size(); ++i) out.rgb[i] = kinds[i / 3] == Edge::kStrong ? 255 : 0;
    return out;
  }

 private:
  size_t index(int x, int y) const {
    return static_cast<size_t>(y) * static_cast<size_t>(width_) + static_cast<size_t>(x);
  }
  int value(int x, int y, size_t c) const {  // the border repeats
    return image_.rgb[3 * index(std::clamp(x, 0, width_ - 1), std::clamp(y, 0, height_ - 1)) + c];
  }
  // Sobel's of the channel where it is largest; the first of equal ones.
  Gradient gradient(int x, int y) const {
    Gradient best;
    for (size_t c = 0; c < 3; ++c) {
      const auto v = [&](int i, int j) { return value(x + i, y + j, c); };
      const Gradient g{v(1, -1) + 2 * v(1, 0) + v(1, 1) - v(-1, -1) - 2 * v(-1, 0) - v(-1, 1),
                       v(-1, 1) + 2 * v(0, 1) + v(1, 1) - v(-1, -1) - 2 * v(0, -1) - v(1, -1)};
      if (c == 0 || g.size() > best.size()) best = g;
    }
    return best;
  }
  int size_at(int x, int y) const {  // nothing lies outside
    return x < 0 || y < 0 || x >= width_ || y >= height_ ? 0 : gradients_[index(x, y)].size();
  }
  // Whether no neighbour along the gradient is larger. Its direction is one of four; of two equal neighbours
  // in a row or column the first counts, on a diagonal neither.
  bool is_ridge(int x, int y) const {
    constexpr int kShift = 15, kTan22 = 13573;  // tan(22.5 degrees) in 1/2^15
    const Gradient& g = gradients_[index(x, y)];
    const int m = g.size();
    const int64_t across = std::abs(g.dx), down = static_cast<int64_t>(std::abs(g.dy)) << kShift;
    const int64_t tan22 = across * kTan22;
    if (down < tan22) return m > size_at(x - 1, y) && m >= size_at(x + 1, y);
    const int64_t tan67 = tan22 + (across << (kShift + 1));
    if (down > tan67) return m > size_at(x, y - 1) && m >= size_at(x, y + 1);
    const int s = (g.dx ^ g.dy) < 0 ? -1 : 1;
    return m > size_at(x - s, y - 1) && m > size_at(x + s, y + 1);
  }

  const Image& image_;
  int width_, height_;
  std::vector<Gradient> gradients_;
};

}  // namespace

Image canny(const Image& image, double low, double high) { return Canny(image).edges(low, high); }

}  // namespace rocm_sd
