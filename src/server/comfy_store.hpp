// What ComfyUI's API remembers beside the jobs: graphs, names of files, uploads, and who listens.
// Thread-safe.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "server/comfy_request.hpp"
#include "server/http.hpp"
#include "server/job_store.hpp"

namespace rocm_sd::server {

// A graph that was accepted, and the job that it became.
struct ComfyPrompt {
  int64_t number = 0;
  std::string id, job, client;  // client: of /ws, or ""
  std::shared_ptr<const nlohmann::json> graph, extra;
  std::vector<ComfyOutput> outputs;
  std::vector<std::pair<std::string, std::string>> stages;  // as ComfyJob's
  std::shared_ptr<const nlohmann::json> files;              // of each output node: {"images": [...]}
  // How far its listeners have been told.
  bool started = false, ended = false;
  std::string at_node;

  std::string node_of(const std::string& stage) const;
};

// Where a file of a name lies.
struct ComfyFile {
  std::string job;
  size_t index = 0;
};

class ComfyStore {
 public:
  // -- Uploads: "name" or "folder/name"; at most 128 files and 256 MiB, the oldest go first.
  // The name that it got: another one where a file of that name has other bytes and may not be overwritten.
  // Throws RequestError for a name that is no plain one.
  std::string add_upload(const std::string& folder, const std::string& name, std::string bytes,
                         bool overwrite);
  std::shared_ptr<const std::string> upload(const std::string& name) const;
  std::vector<std::string> upload_names() const;

  // -- Graphs.
  // Remembers it and names its files; `images`: how many each output has.
  std::shared_ptr<ComfyPrompt> add(ComfyPrompt prompt, size_t images);
  bool contains(const std::string& id) const;
  std::shared_ptr<const ComfyPrompt> find(const std::string& id) const;
  std::vector<std::shared_ptr<const ComfyPrompt>> all() const;  // in the order of their numbers
  void forget(const std::string& id);
  std::optional<ComfyFile> file(const std::string& type, const std::string& folder,
                                const std::string& name) const;

  // -- Listeners of /ws.
  void listen(const std::string& client, std::shared_ptr<Socket> socket);
  void unlisten(const std::string& client, const Socket* socket);
  // A job's event, as JobStore's watchers get it: told to the prompt's client.
  void tell(const std::shared_ptr<ComfyPrompt>& prompt, const std::string& what, const std::string& job_json);
  // A preview of it, as a binary message.
  void tell_preview(const ComfyPrompt& prompt, const JobPreview& preview);
  bool listens(const std::string& client) const;
  // How many prompts wait or run, to all.
  void tell_queue(size_t remaining);

 private:
  void send(const std::string& client, const char* type, const nlohmann::json& data);
  void enter(ComfyPrompt& prompt, const std::string& node);
  void tell_progress(ComfyPrompt& prompt, const nlohmann::json& job);
  void tell_end(ComfyPrompt& prompt, const nlohmann::json& job);
  void drop_old();

  mutable std::mutex mutex_;
  int64_t next_number_ = 0;
  std::map<std::string, size_t> counters_;  // of file names, by type, folder and prefix
  std::map<std::string, std::shared_ptr<ComfyPrompt>> prompts_;
  std::deque<std::string> order_;
  std::map<std::string, ComfyFile> files_;  // "output/folder/name"
  std::map<std::string, std::shared_ptr<const std::string>> uploads_;
  std::deque<std::string> upload_order_;
  size_t upload_bytes_ = 0;
  std::map<std::string, std::shared_ptr<Socket>> sockets_;
};

// {"node_id", ...} as ComfyUI names an error of an execution.
nlohmann::json comfy_failure(const ComfyPrompt& prompt, const std::string& message, const std::string& type);
int64_t milliseconds_now();

}  // namespace rocm_sd::server
