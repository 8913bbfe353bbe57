// The parts of a pipeline: models whose weights come and go together. Each part has a stage that runs it.
#pragma once

#include <array>
#include <cstddef>

namespace rocm_sd {

enum class Part { kText, kUnet, kVae };
inline constexpr std::array kParts = {Part::kText, Part::kUnet, Part::kVae};

// One value for each part.
template <class T>
class PerPart {
 public:
  T& operator[](Part part) { return values_[static_cast<size_t>(part)]; }
  const T& operator[](Part part) const { return values_[static_cast<size_t>(part)]; }

 private:
  std::array<T, kParts.size()> values_{};
};

}  // namespace rocm_sd
