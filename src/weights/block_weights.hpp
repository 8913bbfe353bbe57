// Factors of a LoRA's strength for each block of the model, as the web UI's extension "LoRA Block Weight"
// (lbw=...) and kohya's scripts list them.
#pragma once

#include <string_view>
#include <vector>

#include "weights/component.hpp"

namespace rocm_sd {

// BASE (the text encoders), IN00 to IN11, MID, OUT00 to OUT11: LDM's blocks of the UNet. SDXL has nine of
// either kind.
constexpr int kLoraBlocks = 26;

// The block that a parameter belongs to, 0 to 25, or -1: the time embedding, the last convolution. ldm_name:
// the UNet's name in LDM's layout; not read for text encoders.
int lora_block(Component component, std::string_view ldm_name);

struct BlockWeights {
  std::vector<double> factors;  // kLoraBlocks of them; empty: 1 everywhere
  double of(int block) const {
    return factors.empty() || block < 0 ? 1.0 : factors[static_cast<size_t>(block)];
  }
  friend bool operator==(const BlockWeights&, const BlockWeights&) = default;
};

// "1,0,0.5,...": 17 (of LoRAs) or 26 numbers (of LyCORIS) for SD 1 and 2, 12 or 20 for SDXL; or the name of
// one of the extension's presets ("OUTALL"). Blocks that a shorter list leaves out get 0, as in the
// extension. Throws UsageError: another count, no number, a factor beyond +-100, a name that no preset has.
BlockWeights parse_block_weights(std::string_view text, ModelKind kind);

}  // namespace rocm_sd
