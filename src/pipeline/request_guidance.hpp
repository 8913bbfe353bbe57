// What of a request concerns guidance: which conditions the UNet sees, and how their predictions are joined.
#pragma once

#include "pipeline/request.hpp"

namespace rocm_sd {

// Throws UsageError, "NAME: expected a number from ...".
void require_range(double value, double least, double most, const char* name);
// The same of OPTION-start and OPTION-end, shares of the steps of which the first is below the second.
void require_part(double start, double end, const std::string& option);

// Throw UsageError that names the option.
void check_guidance_numbers(const GenerateRequest& r);
// How the scale of guidance acts on this model, and how many conditions the UNet sees.
void resolve_guidance(ResolvedRequest& out, const Components& c);

}  // namespace rocm_sd
