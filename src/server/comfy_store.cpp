#include "server/comfy_store.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/text.hpp"

namespace rocm_sd::server {
namespace {

using nlohmann::json;
using Lock = std::lock_guard<std::mutex>;

constexpr size_t kMaxUploads = 128, kMaxUploadBytes = 256u << 20, kMaxName = 200, kMaxPrompts = 512;

// Of parts that a file system would take, though none sees them.
bool is_plain_name(const std::string& name) {
  if (name.size() > kMaxName || name.starts_with('/')) return false;
  for (const unsigned char c : name)
    if (c < 0x20 || c == 0x7f || c == '\\') return false;
  for (size_t at = 0; at <= name.size();) {
    const size_t end = std::min(name.find('/', at), name.size());
    const std::string part = name.substr(at, end - at);
    if (part.empty() || part == "." || part == "..") return false;
    at = end + 1;
  }
  return true;
}

std::string key_of(const std::string& type, const std::string& folder, const std::string& name) {
  return concat(type, "/", folder, "/", name);
}

// "a/b/name" -> "a/b" and "name".
std::pair<std::string, std::string> split(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == path.npos) return {"", path};
  return {path.substr(0, slash), path.substr(slash + 1)};
}

}  // namespace

int64_t milliseconds_now() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string ComfyPrompt::node_of(const std::string& stage) const {
  for (const auto& [known, node] : stages)
    if (known == stage) return node;
  return at_node;
}

std::string ComfyStore::add_upload(const std::string& folder, const std::string& name, std::string bytes,
                                   bool overwrite) {
  std::string path = folder.empty() ? name : folder + "/" + name;
  if (name.find('/') != name.npos || !is_plain_name(path))
    throw RequestError(
        {400, "invalid_value", concat("filename: not a plain name: ", printable(path)), "image"});
  if (bytes.size() > kMaxUploadBytes / 4)
    throw RequestError({413, "body_too_large", "the picture is larger than is accepted here", "image"});
  const Lock lock(mutex_);
  const size_t dot =
      path.rfind('.') == path.npos || path.rfind('.') < path.rfind('/') + 1 ? path.size() : path.rfind('.');
  const std::string stem = path.substr(0, dot), ending = path.substr(dot);
  for (int i = 1; !overwrite && uploads_.contains(path) && *uploads_.at(path) != bytes; ++i)
    path = fmt::format("{} ({}){}", stem, i, ending);
  if (uploads_.contains(path)) {
    upload_bytes_ -= uploads_.at(path)->size();
    std::erase(upload_order_, path);
  }
  upload_bytes_ += bytes.size();
  uploads_[path] = std::make_shared<const std::string>(std::move(bytes));
  upload_order_.push_back(path);
  while (upload_order_.size() > kMaxUploads || upload_bytes_ > kMaxUploadBytes) {
    upload_bytes_ -= uploads_.at(upload_order_.front())->size();
    uploads_.erase(upload_order_.front());
    upload_order_.pop_front();
  }
  return split(path).second;
}

std::shared_ptr<const std::string> ComfyStore::upload(const std::string& name) const {
  const Lock lock(mutex_);
  const auto found = uploads_.find(name);
  return found == uploads_.end() ? nullptr : found->second;
}

std::vector<std::string> ComfyStore::upload_names() const {
  const Lock lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [name, bytes] : uploads_) names.push_back(name);
  return names;
}

std::shared_ptr<ComfyPrompt> ComfyStore::add(ComfyPrompt prompt, size_t images) {
  const Lock lock(mutex_);
  prompt.number = next_number_++;
  json files = json::object();
  for (const ComfyOutput& output : prompt.outputs) {
    const char* type = output.temporary ? "temp" : "output";
    const auto [folder, prefix] = split(is_plain_name(output.prefix) ? output.prefix : "ComfyUI");
    size_t& counter = counters_[key_of(type, folder, prefix)];
    json list = json::array();
    for (size_t i = 0; i < images; ++i) {
      const std::string name = fmt::format("{}_{:05}_.png", prefix, ++counter);
      files_[key_of(type, folder, name)] = {prompt.job, i};
      list.push_back({{"filename", name}, {"subfolder", folder}, {"type", type}});
    }
    files[output.node] = {{"images", list}};
  }
  prompt.files = std::make_shared<const json>(std::move(files));
  auto shared = std::make_shared<ComfyPrompt>(std::move(prompt));
  prompts_[shared->id] = shared;
  order_.push_back(shared->id);
  drop_old();
  return shared;
}

// Those that have ended; more than the queue holds cannot be at work.
void ComfyStore::drop_old() {
  while (order_.size() > kMaxPrompts) {
    const auto oldest =
        std::ranges::find_if(order_, [this](const std::string& id) { return prompts_.at(id)->ended; });
    if (oldest == order_.end()) return;
    std::erase_if(files_, [&](const auto& file) { return file.second.job == prompts_.at(*oldest)->job; });
    prompts_.erase(*oldest);
    order_.erase(oldest);
  }
}

bool ComfyStore::contains(const std::string& id) const {
  const Lock lock(mutex_);
  return prompts_.contains(id);
}

std::shared_ptr<const ComfyPrompt> ComfyStore::find(const std::string& id) const {
  const Lock lock(mutex_);
  const auto found = prompts_.find(id);
  return found == prompts_.end() ? nullptr : found->second;
}

std::vector<std::shared_ptr<const ComfyPrompt>> ComfyStore::all() const {
  const Lock lock(mutex_);
  std::vector<std::shared_ptr<const ComfyPrompt>> out;
  for (const std::string& id : order_) out.push_back(prompts_.at(id));
  return out;
}

void ComfyStore::forget(const std::string& id) {
  const Lock lock(mutex_);
  const auto found = prompts_.find(id);
  if (found == prompts_.end()) return;
  std::erase_if(files_, [&](const auto& file) { return file.second.job == found->second->job; });
  prompts_.erase(found);
  std::erase(order_, id);
}

std::optional<ComfyFile> ComfyStore::file(const std::string& type, const std::string& folder,
                                          const std::string& name) const {
  const Lock lock(mutex_);
  const auto found = files_.find(key_of(type, folder, name));
  if (found == files_.end()) return std::nullopt;
  return found->second;
}

void ComfyStore::listen(const std::string& client, std::shared_ptr<Socket> socket) {
  const Lock lock(mutex_);
  sockets_[client] = std::move(socket);  // a client that comes again takes its place
}

void ComfyStore::unlisten(const std::string& client, const Socket* socket) {
  const Lock lock(mutex_);
  const auto found = sockets_.find(client);
  if (found != sockets_.end() && found->second.get() == socket) sockets_.erase(found);
}

void ComfyStore::send(const std::string& client, const char* type, const json& data) {
  const auto found = sockets_.find(client);
  if (found == sockets_.end()) return;
  const json message = {{"type", type}, {"data", data}};
  found->second->send_text(message.dump(-1, ' ', false, json::error_handler_t::replace));
}

bool ComfyStore::listens(const std::string& client) const {
  const Lock lock(mutex_);
  return sockets_.contains(client);
}

// Two big-endian 32-bit numbers, the event (1: a preview) and the format (1: JPEG, 2: PNG), then the file.
void ComfyStore::tell_preview(const ComfyPrompt& prompt, const JobPreview& preview) {
  const Lock lock(mutex_);
  const auto found = sockets_.find(prompt.client);
  if (found == sockets_.end()) return;
  const char format = preview.bytes.starts_with("\x89PNG") ? 2 : 1;
  std::string message = {0, 0, 0, 1, 0, 0, 0, format};
  found->second->send_binary(message + preview.bytes);
}

void ComfyStore::tell_queue(size_t remaining) {
  const Lock lock(mutex_);
  for (const auto& [client, socket] : sockets_)
    send(client, "status", {{"status", {{"exec_info", {{"queue_remaining", remaining}}}}}});
}

void ComfyStore::enter(ComfyPrompt& prompt, const std::string& node) {
  if (prompt.at_node == node) return;
  prompt.at_node = node;
  send(prompt.client, "executing", {{"node", node}, {"display_node", node}, {"prompt_id", prompt.id}});
}

void ComfyStore::tell(const std::shared_ptr<ComfyPrompt>& prompt, const std::string& what,
                      const std::string& job_json) {
  const Lock lock(mutex_);
  if (prompt->ended || what == "queued") return;
  const json job = json::parse(job_json, nullptr, false);
  if (!job.is_object()) return;
  if (!std::exchange(prompt->started, true)) {
    const json place = {{"prompt_id", prompt->id}, {"timestamp", milliseconds_now()}};
    send(prompt->client, "execution_start", place);
    json cached = place;
    cached["nodes"] = json::array();
    send(prompt->client, "execution_cached", cached);
  }
  if (what == "progress") tell_progress(*prompt, job);
  if (what == "completed" || what == "failed" || what == "cancelled") tell_end(*prompt, job);
}

void ComfyStore::tell_progress(ComfyPrompt& prompt, const json& job) {
  const json& progress = job.at("progress");
  const std::string stage = progress.at("stage");
  enter(prompt, prompt.node_of(stage));
  if (stage != "sample") return;
  const json values = {
      {"value", progress.at("step")}, {"max", progress.at("total")}, {"prompt_id", prompt.id}};
  json one = values;
  one["node"] = prompt.at_node;
  send(prompt.client, "progress", one);
  json state = values;
  state.update({{"state", "running"},
                {"node_id", prompt.at_node},
                {"display_node_id", prompt.at_node},
                {"parent_node_id", nullptr},
                {"real_node_id", prompt.at_node}});
  send(prompt.client, "progress_state", {{"prompt_id", prompt.id}, {"nodes", {{prompt.at_node, state}}}});
}

void ComfyStore::tell_end(ComfyPrompt& prompt, const json& job) {
  prompt.ended = true;
  const std::string state = job.at("state");
  const json place = {{"prompt_id", prompt.id}, {"timestamp", milliseconds_now()}};
  if (state == "completed") {
    for (const ComfyOutput& output : prompt.outputs) {
      enter(prompt, output.node);
      send(prompt.client, "executed",
           {{"node", output.node},
            {"display_node", output.node},
            {"output", prompt.files->at(output.node)},
            {"prompt_id", prompt.id}});
    }
    send(prompt.client, "execution_success", place);
  } else {
    const json& error = job.at("error");
    json failure = comfy_failure(prompt, error.is_object() ? error.at("message") : "",
                                 error.is_object() ? error.at("type") : "");
    failure["timestamp"] = place["timestamp"];
    send(prompt.client, state == "failed" ? "execution_error" : "execution_interrupted", failure);
  }
  send(prompt.client, "executing", {{"node", nullptr}, {"prompt_id", prompt.id}});
}

json comfy_failure(const ComfyPrompt& prompt, const std::string& message, const std::string& type) {
  const std::string node = prompt.at_node.empty() ? prompt.node_of("sample") : prompt.at_node;
  json kind = "";
  if (prompt.graph->contains(node)) kind = prompt.graph->at(node).value("class_type", "");
  json out = {{"prompt_id", prompt.id}, {"node_id", node}, {"node_type", kind}, {"executed", json::array()}};
  if (!type.empty())
    out.update({{"exception_message", message},
                {"exception_type", type},
                {"traceback", json::array()},
                {"current_inputs", json::object()},
                {"current_outputs", json::array()}});
  return out;
}

}  // namespace rocm_sd::server
