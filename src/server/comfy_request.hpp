// From a checked ComfyUI graph to a request of ours: one sampler, what it is given, and what is made of it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/comfy_graph.hpp"
#include "server/job_request.hpp"

namespace rocm_sd::server {

struct ComfyOutput {
  std::string node;
  std::string prefix;  // of file names
  bool temporary = false;
};

struct ComfyJob {
  JobRequest request;
  std::vector<ComfyOutput> outputs;
  // The node that each of the engine's stages belongs to: "load", "text", "encode", "sample", "decode".
  std::vector<std::pair<std::string, std::string>> stages;
};

// The bytes of a picture by the name that LoadImage has, or nothing.
using ComfyPictures = std::function<std::shared_ptr<const std::string>(const std::string& name)>;

// Throws GraphError with the node and the input where the graph says what a request cannot.
ComfyJob compile_graph(const ComfyGraph& graph, const ComfyPictures& pictures, const Catalog& catalog,
                       const DrawLimits& limits);

}  // namespace rocm_sd::server
