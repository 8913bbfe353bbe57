// The nodes of ComfyUI that graphs may have here: their inputs with types and bounds, their outputs. One
// table for what /object_info tells and what a graph is checked against.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "server/catalog.hpp"
#include "server/options.hpp"

namespace rocm_sd::server {

struct ComfyInput {
  std::string name;
  std::string type;  // of links "MODEL", "LATENT", ...; of values "INT", "FLOAT", "STRING", "COMBO"
  std::shared_ptr<const nlohmann::json> config = {};  // "default", "min", "max", as /object_info has them
  std::vector<std::string> choices = {};              // of COMBO
  bool required = true;

  bool is_value() const;
  nlohmann::json settings() const;  // of config, or an empty object
};

struct ComfyNodeClass {
  std::string name, display_name, category;
  std::vector<ComfyInput> inputs;
  std::vector<std::string> outputs;  // types
  bool is_output = false;            // a graph is drawn for these

  const ComfyInput* find(const std::string& input) const;
};

// What the lists of choices are made of, as ComfyUI names them: with the endings of files.
struct ComfyNames {
  std::vector<std::string> checkpoints, loras, controls, images, upscalers;
};
ComfyNames comfy_names(const Catalog& catalog);  // without images

std::vector<ComfyNodeClass> comfy_node_classes(const ComfyNames& names, const DrawLimits& limits);

// A class as /object_info tells it.
nlohmann::ordered_json object_info(const ComfyNodeClass& node);

// The engine's name of a sampler of ComfyUI.
std::string sampler_of_comfy(const std::string& name);

}  // namespace rocm_sd::server
