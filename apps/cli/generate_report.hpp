// What rocm-sd generate prints about the model, the plan and each result, on the standard error.
#pragma once

#include <string>

#include "rocm_sd/multi.hpp"

namespace rocm_sd::cli {

void print_model(const MultiPipeline& pipeline);
// device: whose plan it is; empty where there is one.
void print_plan(const MemoryPlan& plan, const std::string& device);
void print_times(const GenerateResult& result);

}  // namespace rocm_sd::cli
