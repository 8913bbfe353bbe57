// From canonical names to those of LDM single files: the inverse of name_map.hpp.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weights/store.hpp"

namespace rocm_sd {

// UNet: block numbers run through all levels, so they come from the names present.
class LdmUnetExport {
 public:
  using Has = std::function<bool(const std::string& canonical)>;
  explicit LdmUnetExport(const Has& has);
  explicit LdmUnetExport(const WeightStore& unet);
  std::optional<std::string> ldm_name(std::string_view canonical) const;  // without "model.diffusion_model."

 private:
  struct Level {
    int first = 0;  // number of its first block
    int resnets = 0;
    bool attention = false;
  };
  std::vector<Level> down_, up_;
  bool middle_attention_ = false;
};

// VAE: decoder levels are counted from the other end. levels: up blocks of the decoder.
std::optional<std::string> ldm_vae_name(std::string_view canonical, int levels);

// OpenCLIP: the name of the tensor that holds a canonical one, of which q, k and v are packed in one.
std::optional<std::string> open_clip_name(std::string_view canonical);

// One tensor of an OpenCLIP encoder: a whole canonical tensor, or q, k and v one below the other.
struct OpenClipTensor {
  std::string name;                  // without prefix
  std::vector<std::string> sources;  // one canonical name, or three
  bool transposed = false;           // to be written as [in,out]
};
std::vector<OpenClipTensor> open_clip_tensors(const WeightStore& text);

}  // namespace rocm_sd
