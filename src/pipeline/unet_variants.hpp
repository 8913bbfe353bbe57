// Bits of a call of the UNet: what acts beside it, and above these what the call leaves out or keeps.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rocm_sd::unet_variants {

inline constexpr size_t kMaxControls = 8;
// Variants of a step, above the bits of what acts beside the UNet.
inline constexpr uint32_t kGuests = (1u << 16) - 1;
inline constexpr uint32_t kOneSided = 1u << 16;   // without the first condition
inline constexpr uint32_t kShallow = 1u << 17;    // DeepCache: the deep layers' map of an earlier call
inline constexpr uint32_t kNotesText = 1u << 18;  // T-GATE: fills the means
inline constexpr uint32_t kGated = 1u << 19;      // and adds them
inline constexpr uint32_t kFirstOnly = 1u << 20;  // the first condition alone, whose attention is not noted
inline constexpr uint32_t kStale = 1u << 21;      // reads of the other ranks what they had in the call before

}  // namespace rocm_sd::unet_variants
