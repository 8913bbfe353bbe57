// A graph of ComfyUI's /prompt, checked against the table of nodes as ComfyUI checks it, with its errors.
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "server/comfy_nodes.hpp"

namespace rocm_sd::server {

// What is wrong with a graph: ComfyUI's answer, {"error", "node_errors"}.
class GraphError : public std::exception {
 public:
  explicit GraphError(const nlohmann::json& body);
  const char* what() const noexcept override { return "the graph is refused"; }
  const nlohmann::json& body() const { return *body_; }

 private:
  std::shared_ptr<const nlohmann::json> body_;
};

// Of the whole graph: {"type", "message", "details", "extra_info"} without errors of nodes.
[[noreturn]] void refuse_graph(const std::string& type, const std::string& message,
                               const std::string& details = "");

struct ComfyLink {
  std::string node;
  size_t slot = 0;
};

struct ComfyNode {
  std::string id;
  const ComfyNodeClass* kind = nullptr;
  std::map<std::string, std::variant<int64_t, uint64_t, double, std::string>> values;
  std::map<std::string, ComfyLink> links;

  // Of values within the bounds that the table has.
  const std::string& text(const std::string& input) const { return std::get<std::string>(values.at(input)); }
  double number(const std::string& input) const { return std::get<double>(values.at(input)); }
  int integer(const std::string& input) const { return static_cast<int>(whole(input)); }
  uint64_t whole(const std::string& input) const;
};

// Nodes that outputs depend on; others count for nothing, as there.
struct ComfyGraph {
  std::vector<ComfyNodeClass> classes;
  std::map<std::string, ComfyNode> nodes;
  std::vector<std::string> outputs;  // ids of SaveImage and the like

  // Refuses the graph for a node's input: what is legal in ComfyUI and not here.
  [[noreturn]] void refuse(const std::string& node, const std::string& input,
                           const std::string& message) const;
};

// Throws GraphError: no such node, no output, a missing input, a value or a link that the table does not
// allow, a cycle.
ComfyGraph read_graph(const nlohmann::json& prompt, std::vector<ComfyNodeClass> classes);

}  // namespace rocm_sd::server
