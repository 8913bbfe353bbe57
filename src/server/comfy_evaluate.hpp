// Values of a ComfyUI graph's nodes.
#pragma once

#include <map>

#include "server/comfy_graph.hpp"
#include "server/comfy_request.hpp"
#include "server/comfy_values.hpp"

namespace rocm_sd::server {

// Each node once. Its functions throw GraphError.
class ComfyEvaluator {
 public:
  ComfyEvaluator(const ComfyGraph& graph, const ComfyPictures& pictures)
      : graph_(graph), pictures_(pictures) {}

  // What a node's input is linked to.
  template <class T>
  T input(const ComfyNode& node, const std::string& name) {
    const ComfyLink& link = node.links.at(name);
    return std::get<T>(value(link));
  }

 private:
  const ComfyValue& value(const ComfyLink& link);
  std::vector<ComfyValue> outputs_of(const ComfyNode& node);
  std::vector<ComfyValue> loader(const ComfyNode& node);
  std::vector<ComfyValue> condition(const ComfyNode& node);
  std::vector<ComfyValue> control(const ComfyNode& node);
  std::vector<ComfyValue> latent(const ComfyNode& node);
  std::vector<ComfyValue> image(const ComfyNode& node);
  std::vector<ComfyValue> patched(const ComfyNode& node);
  ComfyImage picture(const ComfyNode& node, const std::string& input);
  ComfyMask mask(const ComfyNode& node, bool alpha);

  const ComfyGraph& graph_;
  const ComfyPictures& pictures_;
  std::map<std::string, std::vector<ComfyValue>> values_;
};

// Whether a picture's file has transparency, by its head (PNG, WebP).
bool has_alpha(std::string_view file);

}  // namespace rocm_sd::server
