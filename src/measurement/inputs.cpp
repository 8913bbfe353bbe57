#include "measurement/inputs.hpp"

#include <algorithm>
#include <cmath>
#include <random>

namespace rocm_sd::measurement {
namespace {

using library::Operand;
using library::Slot;

constexpr int64_t kBlock = 1'048'573;  // values; a prime

struct Range {
  float middle, half;
};

// Weights: so that a sum over the depth has a variance of about 1. Queries: so that softmax has favourites.
Range range_of(const Operand& operand) {
  const Shape& shape = operand.shape;
  if (operand.slot == Slot::kWeight && shape.rank() == 1) return {1, 0.5f};  // a norm's gain
  if (operand.slot == Slot::kWeight)
    return {0, 3 / std::sqrt(static_cast<float>(
                       std::max<int64_t>(shape.numel() / std::max<int64_t>(shape[0], 1), 1)))};
  if (operand.slot == Slot::kQ) return {0, 4};
  if (operand.slot == Slot::kMask) return {-1, 1};
  return {0, 1};
}

std::vector<float> random_block(const Operand& operand, int64_t count, uint32_t seed) {
  std::mt19937 random(seed * 131 + static_cast<uint32_t>(operand.slot));
  const Range range = range_of(operand);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& v : values)
    v = range.middle + range.half * (static_cast<float>(random() >> 8) * 0x1p-23f - 1.0f);
  return values;
}

}  // namespace

Inputs::Inputs(Device& device, const library::Problem& problem, uint32_t seed) {
  for (const Operand& operand : problem.operands) {
    if (operand.output) continue;
    const auto count = static_cast<int64_t>(operand.bytes() / dtype_size(operand.dtype));
    std::vector<float> block = random_block(operand, std::clamp<int64_t>(count, 1, kBlock), seed);
    std::vector<char> stored(block.size() * dtype_size(operand.dtype));
    convert_elements(block.data(), DType::kF32, stored.data(), operand.dtype,
                     static_cast<int64_t>(block.size()));
    convert_elements(stored.data(), operand.dtype, block.data(), DType::kF32,
                     static_cast<int64_t>(block.size()));
    const Tensor memory = make_tensor(device, {count}, operand.dtype);
    for (size_t at = 0; at < memory.bytes(); at += stored.size())
      device.copy_to_device(static_cast<char*>(memory.data()) + at, stored.data(),
                            std::min(stored.size(), memory.bytes() - at));
    operands_.emplace(operand.slot, Tensor(memory.storage(), operand.shape, operand.strides, operand.dtype));
    blocks_.emplace(operand.slot, std::move(block));
  }
}

Weight Inputs::weight() const {
  const auto found = operands_.find(Slot::kWeight);
  return found == operands_.end() ? Weight() : Weight(found->second);
}

double Inputs::value(Slot slot, int64_t i) const {
  const std::vector<float>& block = blocks_.at(slot);
  return block[static_cast<size_t>(i) % block.size()];
}

}  // namespace rocm_sd::measurement
