// From the names in a file to canonical names: one function per naming style.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weights/store.hpp"

namespace rocm_sd {

enum class NameStyle {
  kDiffusers,     // UNet2DConditionModel, AutoencoderKL, AutoencoderTiny
  kLdm,           // CompVis / Stability: input_blocks, middle_block; encoder.down, decoder.up
  kTransformers,  // CLIPTextModel, with or without "text_model."
  kOpenClip,      // transformer.resblocks, packed in_proj
  kSequentialDecoder,
  kSequentialEncoder,  // TAESD's nn.Sequential numbers
};
std::string_view name_style_name(NameStyle style);  // "diffusers", "ldm", ...

using WeightMap = std::map<std::string, StoredTensor, std::less<>>;

// A tensor with its name after the component's prefix.
struct NamedTensor {
  std::string_view name;
  TensorRef ref;
};

struct MappedNames {
  WeightMap weights;
  std::vector<std::string> unexpected, harmless;  // full names in the file
  std::vector<std::string> gaps;  // numbered blocks without any tensor below others that have some
};

// Maps a component's tensors. Factors of scaled fp8 are read and attached
// (scaled_fp8.hpp). Throws FormatError where two tensors of the file claim one canonical name, or where what
// stands beside scaled weights is malformed.
MappedNames map_names(Component component, NameStyle style, std::span<const NamedTensor> tensors);

// True for names outside every component that training tools leave behind (schedules, EMA copies, markers).
bool is_harmless_leftover(std::string_view file_name);

// The single maps; nothing for names they do not know.
// LDM UNet: the levels, blocks per level and places of attention come from the names present, so a mapper is
// made first.
class LdmUnetNames {
 public:
  explicit LdmUnetNames(std::span<const NamedTensor> tensors);
  std::optional<std::string> canonical(std::string_view name) const;
  const std::vector<std::string>& gaps() const { return gaps_; }  // "input_blocks.3", "middle_block.1"

 private:
  std::vector<std::string> gaps_;
  // "input_blocks.4.1" -> "down_blocks.1.attentions.0"
  std::map<std::string, std::string, std::less<>> modules_;
};
class LdmVaeNames {
 public:
  explicit LdmVaeNames(std::span<const NamedTensor> tensors);
  std::optional<std::string> canonical(std::string_view name) const;

 private:
  int decoder_levels_ = 0;
};
std::optional<std::string> diffusers_vae_name(std::string_view name);
std::optional<std::string> transformers_clip_name(std::string_view name);
std::optional<std::string> sequential_tiny_vae_name(std::string_view name, bool decoder);
// OpenCLIP: packed tensors give three weights; the text projection is transposed. False for unknown names.
bool add_open_clip_weights(const NamedTensor& tensor, WeightMap& weights);

// The places of "a.b.3.rest": head, number and rest, for the maps. Nothing where there is no number below
// 10,000 there.
struct Numbered {
  int number = 0;
  std::string_view rest;  // after the number and its dot; empty at the end
};
std::optional<Numbered> numbered(std::string_view name, std::string_view head);

}  // namespace rocm_sd
