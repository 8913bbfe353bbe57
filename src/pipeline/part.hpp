// The parts of a pipeline: models whose weights come and go together. Each part has a stage that runs it.
#pragma once

#include <array>
#include <cstddef>

namespace rocm_sd {

// kImage: image encoders and IP-Adapters, where a request has any.
enum class Part { kText, kImage, kUnet, kVae };
inline constexpr std::array kParts = {Part::kText, Part::kImage, Part::kUnet, Part::kVae};

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
