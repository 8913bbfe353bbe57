// Requests drawn by several threads at once, results handed over in the order of the requests.
#pragma once

#include "rocm_sd/multi.hpp"

namespace rocm_sd {

using DrawOne = std::function<GenerateResult(const GenerateRequest&, const Callbacks&)>;

// As MultiPipeline::generate_each, with so many threads. At most two results for each of them wait to be
// taken; then drawing waits, too.
void draw_in_order(size_t threads, const MultiPipeline::RequestAt& request, const DrawOne& draw,
                   const MultiPipeline::ResultTaker& take, const Callbacks& callbacks);

}  // namespace rocm_sd
