// ComfyUI's API, as its clients use it: graphs of the nodes that comfy_nodes.cpp lists.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/text.hpp"
#include "pipeline/options.hpp"
#include "rocm_sd/pipeline.hpp"
#include "server/api.hpp"
#include "server/comfy_graph.hpp"
#include "server/comfy_request.hpp"
#include "server/comfy_store.hpp"
#include "server/multipart.hpp"

namespace rocm_sd::server {
namespace {

using nlohmann::json;
using PromptPtr = std::shared_ptr<const ComfyPrompt>;

constexpr size_t kMaxGraphBytes = 1u << 20, kMaxClientName = 200;

// A picture by the name that LoadImage has: an upload, or, with " [output]" behind it, one that was drawn.
std::shared_ptr<const std::string> picture_named(ApiContext& context, const std::string& name) {
  const size_t bracket = name.rfind(" [");
  const std::string plain = name.substr(0, bracket);
  const std::string type =
      bracket == name.npos ? "input" : name.substr(bracket + 2, name.size() - bracket - 3);
  if (type == "input") return context.comfy.upload(plain);
  const size_t slash = plain.rfind('/');
  const auto file = slash == plain.npos
                        ? context.comfy.file(type, "", plain)
                        : context.comfy.file(type, plain.substr(0, slash), plain.substr(slash + 1));
  if (!file) return nullptr;
  const auto job = context.jobs.view(file->job);
  if (!job || file->index >= job->images.size()) return nullptr;
  return {job->images[file->index], &job->images[file->index]->bytes};
}

// The names of pictures that a graph has and that there are: they come into LoadImage's list.
std::vector<std::string> known_pictures(ApiContext& context, const json& graph) {
  std::vector<std::string> names = context.comfy.upload_names();
  for (const auto& [id, node] : graph.items()) {
    if (!node.is_object() || !node.contains("inputs") || !node["inputs"].is_object()) continue;
    const auto image = node["inputs"].find("image");
    if (image == node["inputs"].end() || !image->is_string()) continue;
    if (std::ranges::find(names, image->get<std::string>()) == names.end() &&
        picture_named(context, image->get<std::string>()) != nullptr)
      names.push_back(image->get<std::string>());
  }
  return names;
}

std::vector<ComfyNodeClass> classes_of(ApiContext& context, std::vector<std::string> pictures) {
  ComfyNames names = comfy_names(context.catalog);
  names.images = std::move(pictures);
  return comfy_node_classes(names, context.options.draw);
}

size_t remaining(const ApiContext& context) {
  const JobCounts counts = context.jobs.counts();
  return counts.queued + counts.running;
}

std::string short_text(const json& body, const char* field) {
  const json value = body.value(field, json());
  if (value.is_null()) return "";
  if (!value.is_string() || value.get_ref<const std::string&>().size() > kMaxClientName)
    throw RequestError({400, "invalid_value",
                        concat(field, ": expected a text of at most ", kMaxClientName, " bytes"), field});
  return value;
}

// Watches the job for the prompt's listener.
void watch(ApiContext& context, const std::shared_ptr<ComfyPrompt>& prompt) {
  const bool is_known =
      context.jobs.watch(prompt->job, context.jobs.new_key(),
                         [&context, prompt](const std::string& what, const std::string& job, bool is_final) {
                           context.comfy.tell(prompt, what, job);
                           if (is_final)
                             context.post([&context] { context.comfy.tell_queue(remaining(context)); });
                         });
  if (!is_known) prompt->ended = true;
  if (context.comfy.listens(prompt->client))
    context.jobs.watch_previews(
        prompt->job, context.jobs.new_key(),
        [&context, prompt](const JobPreview& preview) { context.comfy.tell_preview(*prompt, preview); });
  context.comfy.tell_queue(remaining(context));
}

void submit(ApiContext& context, Exchange& exchange) {
  const json body = read_json_body(exchange.request->body);
  if (!body.is_object() || !body.contains("prompt"))
    refuse_graph("no_prompt", "No prompt provided", "No prompt provided");
  if (exchange.request->body.size() > kMaxGraphBytes)
    refuse_graph("invalid_prompt", concat("A graph of at most ", kMaxGraphBytes, " bytes is accepted"));
  if (!body.value("number", json()).is_null())
    throw RequestError({400, "invalid_value", "number: not supported: expected none, or front", "number"});
  const json front = body.value("front", json(false));
  if (!front.is_boolean())
    throw RequestError({400, "invalid_value", "front: expected true or false", "front"});
  ComfyPrompt prompt;
  prompt.client = short_text(body, "client_id");
  prompt.id = short_text(body, "prompt_id");
  prompt.graph = std::make_shared<const json>(body["prompt"]);
  prompt.extra = std::make_shared<const json>(body.value("extra_data", json::object()));
  const ComfyGraph graph =
      read_graph(*prompt.graph, classes_of(context, known_pictures(context, *prompt.graph)));
  ComfyJob job = compile_graph(
      graph, [&](const std::string& name) { return picture_named(context, name); }, context.catalog,
      context.options.draw);
  if (!prompt.id.empty() && context.comfy.contains(prompt.id))
    throw RequestError({400, "invalid_value", "prompt_id: there is one of that name", "prompt_id"});
  const size_t images = job.request.images();
  prompt.outputs = std::move(job.outputs);
  prompt.stages = std::move(job.stages);
  prompt.job = submit_job(context, std::move(job.request), exchange.request->client,
                          front == true ? QueuePlace::kFront : QueuePlace::kBack);
  if (prompt.id.empty()) prompt.id = prompt.job;
  const auto added = context.comfy.add(std::move(prompt), images);
  watch(context, added);
  exchange.reply->send(
      json_response({{"prompt_id", added->id}, {"number", added->number}, {"node_errors", json::object()}}));
}

void post_prompt(ApiContext& context, Exchange& exchange) {
  try {
    submit(context, exchange);
  } catch (const GraphError& e) {
    exchange.reply->send(json_response(e.body(), 400));
  }
}

void get_prompt(ApiContext& context, Exchange& exchange) {
  exchange.reply->send(json_response({{"exec_info", {{"queue_remaining", remaining(context)}}}}));
}

json item_json(const ComfyPrompt& prompt) {
  json outputs = json::array();
  for (const ComfyOutput& output : prompt.outputs) outputs.push_back(output.node);
  return {prompt.number, prompt.id, *prompt.graph, *prompt.extra, outputs};
}

// Those whose results were dropped are forgotten on the way.
std::vector<std::pair<PromptPtr, JobView>> prompts_with_jobs(ApiContext& context) {
  std::vector<std::pair<PromptPtr, JobView>> out;
  for (const PromptPtr& prompt : context.comfy.all()) {
    if (auto job = context.jobs.view(prompt->job))
      out.emplace_back(prompt, std::move(*job));
    else
      context.comfy.forget(prompt->id);
  }
  return out;
}

void get_queue(ApiContext& context, Exchange& exchange) {
  json running = json::array(), pending = json::array();
  for (const auto& [prompt, job] : prompts_with_jobs(context)) {
    if (job.state == JobState::kRunning) running.push_back(item_json(*prompt));
    if (job.state == JobState::kQueued) pending.push_back(item_json(*prompt));
  }
  exchange.reply->send(json_response({{"queue_running", running}, {"queue_pending", pending}}));
}

int64_t milliseconds(JobTime time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count();
}

json history_json(const ComfyPrompt& prompt, const JobView& job) {
  const auto at = [&](JobTime time) {
    return json{{"prompt_id", prompt.id}, {"timestamp", milliseconds(time)}};
  };
  json messages = json::array({{"execution_start", at(job.started)}});
  json outputs = json::object(), meta = json::object();
  if (job.state == JobState::kCompleted) {
    messages.push_back({"execution_success", at(job.finished)});
    outputs = *prompt.files;
    for (const auto& [node, files] : prompt.files->items())
      meta[node] = {
          {"node_id", node}, {"display_node", node}, {"parent_node", nullptr}, {"real_node_id", node}};
  } else {
    const bool failed = job.state == JobState::kFailed;
    messages.push_back({failed ? "execution_error" : "execution_interrupted",
                        comfy_failure(prompt, job.error.message, failed ? job.error.type : "")});
  }
  const bool success = job.state == JobState::kCompleted;
  return {{"prompt", item_json(prompt)},
          {"outputs", outputs},
          {"status",
           {{"status_str", success ? "success" : "error"}, {"completed", success}, {"messages", messages}}},
          {"meta", meta}};
}

size_t query_number(const HttpRequest& request, const char* name, size_t otherwise) {
  const auto found = request.query.find(name);
  if (found == request.query.end() || found->second == "-1") return otherwise;
  try {
    return static_cast<size_t>(parse_integer(found->second, 0, 1'000'000));
  } catch (const UsageError&) {
    throw RequestError({400, "invalid_value", concat(name, ": expected a whole number"), name});
  }
}

// A queued prompt that was deleted has no history, as there.
bool has_history(const JobView& job) { return is_final(job.state) && job.started != JobTime{}; }

void get_history(ApiContext& context, Exchange& exchange) {
  auto all = prompts_with_jobs(context);
  std::erase_if(all, [](const auto& one) { return !has_history(one.second); });
  const size_t most = query_number(*exchange.request, "max_items", all.size());
  const size_t offset = query_number(*exchange.request, "offset", all.size() - std::min(most, all.size()));
  json out = json::object();
  for (size_t i = offset; i < std::min(all.size(), offset + most); ++i)
    out[all[i].first->id] = history_json(*all[i].first, all[i].second);
  exchange.reply->send(json_response(out));
}

void get_history_of(ApiContext& context, Exchange& exchange) {
  json out = json::object();
  if (const PromptPtr prompt = context.comfy.find(exchange.part("id")))
    if (const auto job = context.jobs.view(prompt->job); job && has_history(*job))
      out[prompt->id] = history_json(*prompt, *job);
  exchange.reply->send(json_response(out));
}

// {"clear": true} or {"delete": [ids]}; what of a prompt is done decides `work`.
template <class Work>
void clear_or_delete(ApiContext& context, Exchange& exchange, const Work& work) {
  const json body = read_json_body(exchange.request->body);
  if (!body.is_object()) throw RequestError({400, "invalid_value", "expected an object", "body"});
  for (const auto& [field, value] : body.items())
    if ((field != "clear" || !value.is_boolean()) && (field != "delete" || !value.is_array()))
      throw RequestError({400, "invalid_value", "expected {\"clear\": true} or {\"delete\": [...]}", field});
  for (const auto& [prompt, job] : prompts_with_jobs(context)) {
    const json ids = body.value("delete", json::array());
    if (body.value("clear", false) || std::ranges::find(ids, json(prompt->id)) != ids.end())
      work(*prompt, job);
  }
  exchange.reply->send({200, "text/plain", "", {}});
}

void post_queue(ApiContext& context, Exchange& exchange) {
  clear_or_delete(context, exchange, [&](const ComfyPrompt& prompt, const JobView& job) {
    if (job.state == JobState::kQueued) context.jobs.cancel(prompt.job);
  });
}
void post_history(ApiContext& context, Exchange& exchange) {
  clear_or_delete(context, exchange, [&](const ComfyPrompt& prompt, const JobView& job) {
    if (is_final(job.state)) context.comfy.forget(prompt.id);
  });
}

void interrupt(ApiContext& context, Exchange& exchange) {
  std::string id;
  if (!exchange.request->body.empty()) {
    const json body = read_json_body(exchange.request->body);
    if (!body.is_object()) throw RequestError({400, "invalid_value", "expected an object", "body"});
    id = short_text(body, "prompt_id");
  }
  if (id.empty()) {
    context.jobs.cancel_running();
  } else if (const PromptPtr prompt = context.comfy.find(id)) {
    if (const auto job = context.jobs.view(prompt->job); job && job->state == JobState::kRunning)
      context.jobs.cancel(prompt->job);
  }
  exchange.reply->send({200, "text/plain", "", {}});
}

void view(ApiContext& context, Exchange& exchange) {
  const auto field = [&](const char* name, const char* otherwise) {
    const auto found = exchange.request->query.find(name);
    return found == exchange.request->query.end() ? std::string(otherwise) : found->second;
  };
  const std::string folder = field("subfolder", ""), name = field("filename", ""),
                    type = field("type", "output");
  if (field("channel", "rgba") != "rgba")
    throw RequestError({400, "invalid_value", "channel: not supported: expected rgba", "channel"});
  const auto bytes =
      picture_named(context, concat(folder.empty() ? "" : folder + "/", name, " [", type, "]"));
  if (bytes == nullptr)
    throw RequestError({404, "not_found", concat("no file ", printable(name)), "filename"});
  HttpResponse response;
  response.content_type = bytes->starts_with("\x89PNG") ? "image/png"
                          : bytes->starts_with("RIFF")  ? "image/webp"
                                                        : "image/jpeg";
  response.body = *bytes;
  exchange.reply->send(std::move(response));
}

void get_object_info(ApiContext& context, Exchange& exchange) {
  nlohmann::ordered_json out = nlohmann::ordered_json::object();
  const auto asked = exchange.parts.find("class");
  for (const ComfyNodeClass& node : classes_of(context, context.comfy.upload_names()))
    if (asked == exchange.parts.end() || asked->second == node.name) out[node.name] = object_info(node);
  HttpResponse response;
  response.body = out.dump();
  exchange.reply->send(std::move(response));
}

void upload_image(ApiContext& context, Exchange& exchange) {
  const std::string_view type = exchange.request->header("content-type");
  if (!type.starts_with("multipart/form-data"))
    throw RequestError({400, "invalid_value", "Content-Type: expected multipart/form-data", "Content-Type"});
  std::string name, folder, bytes;
  bool overwrite = false;
  for (FormField& field : parse_multipart(exchange.request->body, multipart_boundary(type))) {
    if (field.name == "image") {
      name = field.file_name;
      bytes = std::move(field.value);
    } else if (field.name == "subfolder") {
      folder = field.value;
    } else if (field.name == "overwrite") {
      overwrite = field.value == "true" || field.value == "1";
    } else if (field.name != "type" || field.value != "input") {
      throw RequestError(
          {400, "invalid_value", concat(printable(field.name), ": not supported"), field.name});
    }
  }
  if (name.empty()) throw RequestError({400, "invalid_value", "image: expected a file with a name", "image"});
  RequestBuilder(context.catalog, context.options.draw, 400)
      .set_image("image", "init-image", bytes);  // checks it
  const std::string stored = context.comfy.add_upload(folder, name, std::move(bytes), overwrite);
  exchange.reply->send(json_response({{"name", stored}, {"subfolder", folder}, {"type", "input"}}));
}

void plain_ws(ApiContext&, Exchange&) {
  throw RequestError({400, "invalid_request", "expected a request to upgrade to a WebSocket", ""});
}

void open_ws(ApiContext& context, const Exchange& exchange, std::shared_ptr<Socket> socket) {
  const auto asked = exchange.request->query.find("clientId");
  const bool is_named = asked != exchange.request->query.end() && !asked->second.empty() &&
                        asked->second.size() <= kMaxClientName;
  const std::string client = is_named ? asked->second : random_id();
  context.comfy.listen(client, socket);
  socket->on_gone([&context, client, raw = socket.get()] { context.comfy.unlisten(client, raw); });
  // Counted after it listens: a prompt that ends meanwhile is told.
  const json status = {
      {"type", "status"},
      {"data", {{"status", {{"exec_info", {{"queue_remaining", remaining(context)}}}}}, {"sid", client}}}};
  socket->send_text(status.dump(-1, ' ', false, json::error_handler_t::replace));
}

constexpr Route kRoutes[] = {
    {"POST", "/prompt", post_prompt, BodySize::kImages},
    {"GET", "/prompt", get_prompt},
    {"GET", "/queue", get_queue},
    {"POST", "/queue", post_queue},
    {"GET", "/history", get_history},
    {"GET", "/history/{id}", get_history_of},
    {"POST", "/history", post_history},
    {"GET", "/view", view},
    {"GET", "/object_info", get_object_info},
    {"GET", "/object_info/{class}", get_object_info},
    {"POST", "/upload/image", upload_image, BodySize::kImages},
    {"POST", "/interrupt", interrupt},
    {"GET", "/ws", plain_ws, BodySize::kSmall, open_ws},
};

}  // namespace

std::span<const Route> comfy_routes() { return kRoutes; }

}  // namespace rocm_sd::server
