// Regional prompts: parts of the picture with prompts of their own. Each prompt is a condition of the UNet's
// batch, and their predictions are averaged pixel by pixel (Bar-Tal et al., "MultiDiffusion", 2023
// (2302.08113), section 4.2, with one call for all regions), so that guidance sees one prediction.
#pragma once

#include <string>
#include <vector>

#include "pipeline/request.hpp"

namespace rocm_sd {

constexpr size_t kMaxRegions = 8;

// "0,0,0.5,1: a cat" (left, top, width, height), "mask.png: a cat", or a prompt alone, which lies where
// GenerateRequest::region_split says. Reads the mask's file. Throws UsageError, FileError.
RegionUse parse_region(const std::string& text);

// Fills resolved.region_shares and region_base_part from the request's regions. Throws UsageError naming the
// option.
void resolve_regions(ResolvedRequest& resolved);

// The prompts that the conditions behind the negative one read: where there are regions, `prompt` first, if
// any pixel has a share of it, then the regions'.
std::vector<std::string> region_prompts(const ResolvedRequest& resolved, const std::string& prompt);

// Between a denoiser that knows one prompt and a UNet's stage whose batch has one for each region.
class RegionBlend {
 public:
  // images: of the batch. The conditions before the prompts' (one or none) are resolved.first_part().
  RegionBlend(Device& device, const ResolvedRequest& resolved, int64_t images);

  // [(first_part+1)*N,h,w,C] -> [(first_part+parts)*N,h,w,C]: the first images again for each condition.
  Tensor spread(Exec& ex, const Tensor& input) const;
  // [(first_part+parts)*N,h,w,4] f32 -> [(first_part+1)*N,h,w,4].
  Tensor average(Exec& ex, const Tensor& predicted) const;

 private:
  int64_t images_, negatives_;
  std::vector<Tensor> shares_;  // [N,h,w,4] f32: of each part in the average of it and those before it
};

}  // namespace rocm_sd
