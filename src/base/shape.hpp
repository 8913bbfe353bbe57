// Shape: up to eight dimensions, by value, printed as [2,64,64,320].
#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace rocm_sd {

class Shape {
 public:
  static constexpr int kMaxRank = 8;

  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) : Shape(std::span<const int64_t>(dims.begin(), dims.size())) {}
  explicit Shape(std::span<const int64_t> dims) : rank_(static_cast<int>(dims.size())) {
    assert(rank_ <= kMaxRank);
    for (int i = 0; i < rank_; ++i) dims_[i] = dims[i];
  }

  int rank() const { return rank_; }
  // Negative indices count from the end: dim(-1) is the last.
  int64_t operator[](int i) const { return dims_[i < 0 ? i + rank_ : i]; }
  int64_t& operator[](int i) { return dims_[i < 0 ? i + rank_ : i]; }
  int64_t numel() const {
    int64_t n = 1;
    for (int i = 0; i < rank_; ++i) n *= dims_[i];
    return n;
  }
  std::span<const int64_t> dims() const { return {dims_.data(), static_cast<size_t>(rank_)}; }
  const int64_t* begin() const { return dims_.data(); }
  const int64_t* end() const { return dims_.data() + rank_; }
  friend bool operator==(const Shape& a, const Shape& b) {
    return a.rank_ == b.rank_ && std::equal(a.begin(), a.end(), b.begin());
  }

 private:
  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

std::string to_text(const Shape& shape);  // "[2,64,64,320]"

}  // namespace rocm_sd
