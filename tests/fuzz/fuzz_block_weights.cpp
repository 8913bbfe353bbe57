// Fuzzing of LoRAs' block weights: any text gives 26 bounded factors, or a UsageError.
#include <cmath>
#include <cstdlib>
#include <string_view>

#include "base/error.hpp"
#include "weights/block_weights.hpp"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, size_t size) {
  using namespace rocm_sd;
  if (size == 0) return 0;
  const auto kind = static_cast<ModelKind>(data[0] % 4);
  const std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
  try {
    const BlockWeights weights = parse_block_weights(text, kind);
    if (weights.factors.size() != kLoraBlocks) std::abort();
    for (const double factor : weights.factors)
      if (!(std::abs(factor) <= 100)) std::abort();
  } catch (const UsageError&) {
  }
  const int block = lora_block(Component::kUnet, text);
  if (block < -1 || block >= kLoraBlocks) std::abort();
  return 0;
}
