#include "server/comfy_graph.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.hpp"
#include "base/text.hpp"

namespace rocm_sd::server {
namespace {

using nlohmann::json;

constexpr size_t kMaxNodes = 500;

json error_json(const std::string& type, const std::string& message, const std::string& details, json extra) {
  return {{"type", type}, {"message", message}, {"details", details}, {"extra_info", std::move(extra)}};
}

std::string shown(const json& value) {
  constexpr size_t kMaxShown = 200;
  std::string text = value.is_string() ? value.get<std::string>()
                                       : value.dump(-1, ' ', false, json::error_handler_t::replace);
  if (text.size() > kMaxShown) text = text.substr(0, kMaxShown) + "...";
  return printable(text);
}

class Checker {
 public:
  Checker(const json& prompt, ComfyGraph& graph) : prompt_(prompt), graph_(graph) {}

  void run() {
    if (!prompt_.is_object()) refuse_graph("invalid_prompt", "Expected an object of nodes");
    if (prompt_.size() > kMaxNodes)
      refuse_graph("invalid_prompt", concat("At most ", kMaxNodes, " nodes are accepted"));
    for (const auto& [id, node] : prompt_.items()) {
      find_class(id, node);
      if (classes_.at(id)->is_output) graph_.outputs.push_back(id);
    }
    if (graph_.outputs.empty()) refuse_graph("prompt_no_outputs", "Prompt has no outputs");
    for (const std::string& output : graph_.outputs) {
      output_ = output;
      std::set<std::string> path;
      check(output, path);
    }
    if (errors_.empty()) return;
    std::string details;
    for (const auto& [id, one] : errors_.items())
      for (const json& error : one.at("errors"))
        details += concat(details.empty() ? "" : "\n", error.at("message").get<std::string>(), ": ",
                          error.at("details").get<std::string>());
    throw GraphError({{"error", error_json("prompt_outputs_failed_validation",
                                           "Prompt outputs failed validation", details, json::object())},
                      {"node_errors", errors_}});
  }

 private:
  void find_class(const std::string& id, const json& node) {
    const std::string place = concat("Node ID '#", printable(id), "'");
    if (!node.is_object() || !node.contains("class_type") || !node["class_type"].is_string())
      refuse_graph("invalid_prompt", "Cannot execute because a node is missing the class_type property.",
                   place);
    const std::string name = node["class_type"];
    const auto known = std::ranges::find(graph_.classes, name, &ComfyNodeClass::name);
    if (known == graph_.classes.end())
      refuse_graph("missing_node_type",
                   concat("Cannot execute because node ", printable(name), " does not exist."), place);
    classes_[id] = &*known;
  }

  void add(const std::string& id, const std::string& type, const std::string& message,
           const std::string& details, json extra) {
    json& one = errors_[id];
    if (one.is_null())
      one = {
          {"errors", json::array()}, {"dependent_outputs", {output_}}, {"class_type", classes_.at(id)->name}};
    one["errors"].push_back(error_json(type, message, details, std::move(extra)));
  }

  // `path`: the nodes that ask for this one.
  void check(const std::string& id, std::set<std::string>& path) {
    if (path.contains(id)) {
      add(id, "dependency_cycle", "Dependency cycle detected", concat("node ", printable(id)),
          json::object());
      return;
    }
    if (graph_.nodes.contains(id)) return;
    path.insert(id);
    ComfyNode node{id, classes_.at(id), {}, {}};
    const json& asked = prompt_.at(id);
    const json inputs =
        asked.contains("inputs") && asked["inputs"].is_object() ? asked["inputs"] : json::object();
    for (const ComfyInput& input : node.kind->inputs) {
      const auto value = inputs.find(input.name);
      if (value != inputs.end() && !value->is_null()) {
        check_input(node, input, *value, path);
      } else if (input.required) {
        add(id, "required_input_missing", "Required input is missing", input.name,
            {{"input_name", input.name}});
      }
    }
    path.erase(id);
    graph_.nodes.emplace(id, std::move(node));
  }

  json extra_of(const ComfyInput& input, const json& value) {
    json config = json::array({input.type == "COMBO" ? json(input.choices) : json(input.type)});
    if (input.config != nullptr) config.push_back(*input.config);
    return {{"input_name", input.name}, {"input_config", config}, {"received_value", value}};
  }

  void check_input(ComfyNode& node, const ComfyInput& input, const json& value, std::set<std::string>& path) {
    if (value.is_array()) return check_link(node, input, value, path);
    if (!input.is_value()) {
      add(node.id, "bad_linked_input", "Bad linked input, must be a length-2 list of [node_id, slot_index]",
          input.name, extra_of(input, value));
      return;
    }
    check_value(node, input, value);
  }

  void check_link(ComfyNode& node, const ComfyInput& input, const json& value, std::set<std::string>& path) {
    const bool is_link = value.size() == 2 && value[0].is_string() && value[1].is_number_unsigned() &&
                         classes_.contains(value[0]);
    if (!is_link || value[1].get<uint64_t>() >= classes_.at(value[0])->outputs.size()) {
      add(node.id, "bad_linked_input", "Bad linked input, must be a length-2 list of [node_id, slot_index]",
          input.name, extra_of(input, value));
      return;
    }
    const ComfyLink link{value[0], value[1].get<size_t>()};
    const std::string& type = classes_.at(link.node)->outputs[link.slot];
    if (type != input.type) {
      json extra = extra_of(input, value);
      extra["received_type"] = type;
      extra["linked_node"] = value;
      add(node.id, "return_type_mismatch", "Return type mismatch between linked nodes",
          concat(input.name, ", received_type(", type, ") mismatch input_type(", input.type, ")"), extra);
      return;
    }
    node.links[input.name] = link;
    check(link.node, path);
  }

  void check_value(ComfyNode& node, const ComfyInput& input, const json& value) {
    const json converted = convert(input, value);
    if (converted.is_null()) {
      json extra = extra_of(input, value);
      extra["exception_message"] = concat("invalid literal: ", shown(value));
      add(node.id, "invalid_input_type",
          concat("Failed to convert an input value to a ", input.type, " value"),
          concat(input.name, ", ", shown(value)), extra);
      return;
    }
    const bool is_number = input.type == "INT" || input.type == "FLOAT";
    const json bounds = input.settings();
    if (is_number && bounds.contains("min") && converted < bounds["min"])
      return add(node.id, "value_smaller_than_min",
                 concat("Value ", shown(value), " smaller than min of ", shown(bounds["min"])), input.name,
                 extra_of(input, value));
    if (is_number && bounds.contains("max") && converted > bounds["max"])
      return add(node.id, "value_bigger_than_max",
                 concat("Value ", shown(value), " bigger than max of ", shown(bounds["max"])), input.name,
                 extra_of(input, value));
    if (input.type == "COMBO" &&
        std::ranges::find(input.choices, converted.get<std::string>()) == input.choices.end())
      return add(node.id, "value_not_in_list", "Value not in list",
                 concat(input.name, ": '", shown(value), "' not in ", shown(input.choices)),
                 extra_of(input, value));
    store(node.values[input.name], input.type, converted);
  }

  template <class Value>
  static void store(Value& value, const std::string& type, const json& converted) {
    if (type == "FLOAT")
      value = converted.get<double>();
    else if (type != "INT")
      value = converted.get<std::string>();
    else if (converted.is_number_unsigned())
      value = converted.get<uint64_t>();
    else
      value = converted.get<int64_t>();
  }

  // As Python's int(), float() and str() have it; null: not to be converted.
  static json convert(const ComfyInput& input, const json& value) {
    if (input.type == "STRING" || input.type == "COMBO") return value.is_string() ? value : json();
    json number = value;
    if (value.is_string()) number = json::parse(value.get_ref<const std::string&>(), nullptr, false);
    if (!number.is_number()) return nullptr;
    if (input.type == "FLOAT") return number.get<double>();
    if (number.is_number_integer()) return number;
    const double whole = std::trunc(number.get<double>());
    return std::abs(whole) < 9e15 ? json(static_cast<int64_t>(whole)) : json();
  }

  const json& prompt_;
  ComfyGraph& graph_;
  std::map<std::string, const ComfyNodeClass*> classes_;
  std::string output_;
  json errors_ = json::object();
};

}  // namespace

GraphError::GraphError(const json& body) : body_(std::make_shared<const json>(body)) {}

uint64_t ComfyNode::whole(const std::string& input) const {
  const auto& value = values.at(input);
  if (const auto* number = std::get_if<int64_t>(&value)) return static_cast<uint64_t>(*number);
  return std::get<uint64_t>(value);
}

void refuse_graph(const std::string& type, const std::string& message, const std::string& details) {
  throw GraphError(
      {{"error", error_json(type, message, details, json::object())}, {"node_errors", json::object()}});
}

void ComfyGraph::refuse(const std::string& node, const std::string& input, const std::string& message) const {
  const std::string kind = nodes.at(node).kind->name;
  const std::string details = input.empty() ? message : concat(input, " - ", message);
  json one = {{"errors",
               {error_json("custom_validation_failed", "Custom validation failed for node", details,
                           {{"input_name", input}})}},
              {"dependent_outputs", outputs},
              {"class_type", kind}};
  throw GraphError(
      {{"error", error_json("prompt_outputs_failed_validation", "Prompt outputs failed validation",
                            concat(kind, ": ", details), json::object())},
       {"node_errors", {{node, one}}}});
}

ComfyGraph read_graph(const json& prompt, std::vector<ComfyNodeClass> classes) {
  ComfyGraph graph;
  graph.classes = std::move(classes);
  Checker(prompt, graph).run();
  return graph;
}

}  // namespace rocm_sd::server
