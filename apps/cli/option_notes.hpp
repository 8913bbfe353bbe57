// Options that were given and that have no effect in this run: each is worth a warning.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "rocm_sd/pipeline.hpp"

namespace rocm_sd::cli {

// given: names of options, as in the table of pipeline/options.hpp. One line each, for people.
std::vector<std::string> options_without_effect(const std::set<std::string>& given,
                                                const GenerateRequest& request, const ModelInfo& model);

}  // namespace rocm_sd::cli
