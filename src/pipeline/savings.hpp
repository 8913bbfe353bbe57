// The savings of a request (rocm_sd/savings.hpp): what goes with them, and what they saved.
#pragma once

#include <string>
#include <vector>

#include "pipeline/request.hpp"
#include "pipeline/unet_stage.hpp"
#include "runtime/ranks.hpp"

namespace rocm_sd {

// Whether some calls of the UNet are to have no guidance.
bool leaves_guidance_out(const GenerateRequest& request);

// Sets resolved.drops_negative. Throws UsageError for numbers out of range and for what a saving, or tiling,
// does not go with.
void resolve_savings(ResolvedRequest& resolved, const Components& components);
// Throws UsageError where the image cannot be drawn together with these ranks as it is asked for.
void check_together(const GenerateRequest& request, const Ranks& ranks);

// A line for each saving at work, with the share of the operations that was computed; none without savings.
std::vector<std::string> describe_savings(const ResolvedRequest& resolved, const UnetCalls& calls);

}  // namespace rocm_sd
