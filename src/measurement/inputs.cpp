#include "measurement/inputs.hpp"

#include <algorithm>
#include <cmath>
#include <random>

#include "kernels/eight_bit.hpp"

namespace rocm_sd::measurement {
namespace {

constexpr int64_t kBlock = 1'048'573;  // values; a prime

struct Range {
  float middle, half;
};

// Weights: so that a sum over the depth has a variance of about 1. Queries: so that softmax has favourites.
Range range_of(const Operand& operand) {
  const Shape& shape = operand.shape;
  if (operand.role == Role::kWeight && shape.rank() == 1) return {1, 0.5f};  // a norm's gain
  if (operand.role == Role::kWeight)
    return {0, 3 / std::sqrt(static_cast<float>(
                       std::max<int64_t>(shape.numel() / std::max<int64_t>(shape[0], 1), 1)))};
  if (operand.role == Role::kQ) return {0, 4};
  if (operand.role == Role::kMask) return {-1, 1};
  if (operand.low != operand.high)
    return {(operand.low + operand.high) / 2, (operand.high - operand.low) / 2};
  if (operand.dtype == DType::kI8) return {0, 100};
  return {0, 1};
}

std::vector<float> random_block(const Operand& operand, int64_t count, uint32_t seed) {
  std::mt19937 random(seed * 131 + static_cast<uint32_t>(operand.role));
  const Range range = range_of(operand);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& v : values)
    v = range.middle + range.half * (static_cast<float>(random() >> 8) * 0x1p-23f - 1.0f);
  return values;
}

// Rounds to what the type holds.
void round_to(std::vector<float>& values, DType type) {
  std::vector<char> stored(values.size() * dtype_size(type));
  const auto count = static_cast<int64_t>(values.size());
  convert_elements(values.data(), DType::kF32, stored.data(), type, count);
  convert_elements(stored.data(), type, values.data(), DType::kF32, count);
}

}  // namespace

Inputs::Inputs(Device& device, const Workload& workload, uint32_t seed) {
  DType weights = DType::kF32;
  for (const Operand& operand : workload.operands)
    if (operand.role == Role::kWeight && operand.shape.rank() > 1) {
      weights = operand.dtype;
      product_type_ = workload.dtype;  // as models have them: weights in 16 bits also for products in f32
    }
  for (const Operand& operand : workload.operands)
    if (!operand.output) fill(device, operand, weights, seed);
  if (workload.eight_bit_weight) quantise(device, *workload.eight_bit_weight, workload.eight_bit_products);
}

// weights: the type of the problem's weight.
void Inputs::fill(Device& device, const Operand& operand, DType weights, uint32_t seed) {
  const auto count = static_cast<int64_t>(operand.bytes() / dtype_size(operand.dtype));
  std::vector<float> block = random_block(operand, std::clamp<int64_t>(count, 1, kBlock), seed);
  // A layer's bias comes from the checkpoint that its weight comes from.
  if (operand.role == Role::kBias && dtype_size(weights) == 2) round_to(block, weights);
  std::vector<char> stored(block.size() * dtype_size(operand.dtype));
  convert_elements(block.data(), DType::kF32, stored.data(), operand.dtype,
                   static_cast<int64_t>(block.size()));
  convert_elements(stored.data(), operand.dtype, block.data(), DType::kF32,
                   static_cast<int64_t>(block.size()));
  const Tensor memory = make_tensor(device, {count}, operand.dtype);
  for (size_t at = 0; at < memory.bytes(); at += stored.size())
    device.copy_to_device(static_cast<char*>(memory.data()) + at, stored.data(),
                          std::min(stored.size(), memory.bytes() - at));
  operands_.emplace(operand.role, Tensor(memory.storage(), operand.shape, operand.strides, operand.dtype));
  blocks_.emplace(operand.role, std::move(block));
}

// The weight's block becomes all of its values.
void Inputs::quantise(Device& device, DType stored_as, bool products) {
  const Tensor& plain = operands_.at(Role::kWeight);
  const int64_t rows = plain.dim(0), columns = plain.numel() / std::max<int64_t>(rows, 1);
  std::vector<float> whole(static_cast<size_t>(plain.numel())), scales(static_cast<size_t>(rows));
  for (size_t i = 0; i < whole.size(); ++i)
    whole[i] = static_cast<float>(value(Role::kWeight, static_cast<int64_t>(i)));
  std::vector<char> bytes(whole.size());
  quantise_rows(whole.data(), rows, columns, stored_as, bytes.data(), scales.data());
  convert_elements(bytes.data(), stored_as, whole.data(), DType::kF32, plain.numel());
  for (size_t i = 0; i < whole.size(); ++i) whole[i] *= scales[i / static_cast<size_t>(columns)];
  eight_bit_ = {make_tensor(device, plain.shape(), stored_as), make_tensor(device, {rows}, DType::kF32),
                plain.dtype(), products};
  device.copy_to_device(eight_bit_.values.data(), bytes.data(), bytes.size());
  device.copy_to_device(eight_bit_.scales.data(), scales.data(), eight_bit_.scales.bytes());
  blocks_.at(Role::kWeight) = std::move(whole);
}

Weight Inputs::weight() const {
  if (eight_bit_.values) return Weight(eight_bit_);
  const auto found = operands_.find(Role::kWeight);
  if (found == operands_.end()) return {};
  StoredWeight stored(found->second);
  stored.dtype = product_type_.value_or(stored.dtype);
  return Weight(std::move(stored));
}

std::optional<DType> Inputs::rounded_to() const {
  return eight_bit_.products ? std::optional(eight_bit_.values.dtype()) : std::nullopt;
}

double Inputs::value(Role role, int64_t i) const {
  const std::vector<float>& block = blocks_.at(role);
  return block[static_cast<size_t>(i) % block.size()];
}

}  // namespace rocm_sd::measurement
