// What rocm-sd generate prints about the model, the plan and each result, on the standard error.
#pragma once

#include <string>

#include "pipeline/picture_quality.hpp"
#include "rocm_sd/multi.hpp"

namespace rocm_sd::cli {

void print_model(const MultiPipeline& pipeline);
// device: whose plan it is; empty where there is one.
void print_plan(const MemoryPlan& plan, const std::string& device);
// "PSNR 31.20 dB, SSIM 0.95310, FLIP 0.04120"
std::string quality_text(const PictureQuality& quality);
void print_times(const GenerateResult& result);

}  // namespace rocm_sd::cli
