// rocm-sd serve: the server, and the hidden command of its workers.
#include "server/server.hpp"

#include <algorithm>
#include <filesystem>

#include "apps/cli/commands.hpp"
#include "apps/cli/values.hpp"
#include "base/error.hpp"
#include "base/file.hpp"
#include "server/worker_main.hpp"

namespace rocm_sd::cli {
namespace {

using server::ServerOptions;

constexpr uint64_t kMaxKeyFile = 4096;
constexpr size_t kLeastKey = 8;

// Seconds as the command line has them; the server counts milliseconds.
struct ServeCommand {
  ServerOptions options;
  std::string key_file;
  double step_seconds = 60, load_seconds = 600, keep_seconds = 600, grace_seconds = 10;
  int keep_megabytes = 256, body_megabytes = 32, image_body_megabytes = 64, port = 7860;
};

// Not from an option: others would see it in the list of processes.
std::string read_key(const std::string& path) {
  std::string key = read_file(path, kMaxKeyFile);
  while (!key.empty() && (key.back() == '\n' || key.back() == '\r' || key.back() == ' ')) key.pop_back();
  const bool printable_key = std::ranges::all_of(key, [](char c) { return c > 0x20 && c < 0x7f; });
  require<UsageError>(key.size() >= kLeastKey && printable_key, "api-key-file: ", printable(path),
                      ": expected one line of at least ", kLeastKey, " printable characters without blanks");
  return key;
}

template <class Duration>
Duration to_time(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

void add_models(CLI::App* sub, ServeCommand& c) {
  ServerOptions& o = c.options;
  sub->add_option("-m,--model", o.models,
                  "Diffusers folder or single .safetensors file; may be given several times, the first is "
                  "loaded at once")
      ->type_name("PATH")
      ->group("Models");
  add_text(sub, "--models-dir", o.models_folder, "offer every model in this folder, too")
      ->type_name("FOLDER")
      ->group("Models");
  add_text(sub, "--lora-dir", o.lora_folder, "offer the LoRAs in this folder and below")
      ->type_name("FOLDER")
      ->group("Models");
  add_text(sub, "--embedding-dir", o.embedding_folder, "offer the embeddings in this folder and below")
      ->type_name("FOLDER")
      ->group("Models");
  add_text(sub, "--control-dir", o.control_folder, "offer the ControlNets in this folder")
      ->type_name("FOLDER")
      ->group("Models");
  add_text(sub, "--upscaler-dir", o.upscaler_folder,
           "offer the upscalers (ESRGAN, SRVGG) in this folder and below")
      ->type_name("FOLDER")
      ->group("Models");
  sub->add_option("--device", o.devices, "device of a worker process; several make several workers [auto]")
      ->type_name("NAME")
      ->group("Models");
  for (const OptionRow& row : option_rows()) {
    const std::string name = row.name;
    if (std::string_view(row.group) != "Model" || name == "model" || name == "device" || name == "lora-dir" ||
        name == "embedding-dir" || name == "devices" || name == "split")
      continue;
    // Workers have a folder of their own as the current one.
    const std::string_view kind = row.value;
    const bool is_path = kind == "PATH" || kind == "FOLDER" || kind == "FILE";
    const auto take = [&o, name, is_path](const std::string& value) {
      o.load.emplace_back(name,
                          is_path && !value.empty() ? std::filesystem::absolute(value).string() : value);
    };
    if (row.value[0] == '\0')
      sub->add_flag_callback("--" + name, [take] { take("true"); }, row.help)->group("Models");
    else
      sub->add_option_function<std::string>("--" + name, take, row.help)
          ->type_name(row.value)
          ->group("Models");
  }
  add_text(sub, "--preview", o.preview,
           "what a look at an unfinished picture is: none, proj (a matrix, small), tae (with --taesd), vae; "
           "looks take 2 % of the time at most [proj]")
      ->type_name("MODE")
      ->group("Models");
  add_text(
      sub, "--lora-mode", o.lora_mode,
      "merge or runtime, for requests that name none: jobs with different LoRAs share the UNet's calls where "
      "they are not merged [merge]")
      ->type_name("MODE")
      ->group("Models");
  add_number(sub, "--threads", o.threads, "CPU threads of each worker [all cores]", 1, 1024)->group("Models");
}

void add_network(CLI::App* sub, ServeCommand& c) {
  ServerOptions& o = c.options;
  add_text(sub, "--listen", o.address, "IP address to listen on [127.0.0.1]")
      ->type_name("ADDRESS")
      ->group("Network");
  add_number(sub, "--port", c.port, "0: a free one [7860]", 0, 65535)->group("Network");
  add_text(sub, "--api-key-file", c.key_file, "file with the key that clients must give")
      ->type_name("FILE")
      ->group("Network");
  sub->add_flag("--insecure", o.insecure, "serve other machines without a key")->group("Network");
  sub->add_option("--allow-host", o.access.allowed_hosts, "name that browsers may use for this server")
      ->type_name("NAME")
      ->group("Network");
  sub->add_option("--cors-origin", o.access.cors_origins, "other web site whose pages may use this server")
      ->type_name("ORIGIN")
      ->group("Network");
  sub->add_flag_callback(
         "--no-page", [&o] { o.page = false; }, "APIs alone, without the page at /")
      ->group("Network");
}

void add_limits(CLI::App* sub, ServeCommand& c) {
  ServerOptions& o = c.options;
  add_number(sub, "--queue", o.jobs.queued, "jobs that may wait [64]", size_t{1}, size_t{100'000})
      ->group("Limits");
  add_number(sub, "--queue-per-client", o.jobs.queued_per_client, "of one address [8]", size_t{1},
             size_t{100'000})
      ->group("Limits");
  add_number(sub, "--max-pixels", o.draw.pixels, "of one image [16777216]", 64, int64_t{4096} * 4096)
      ->group("Limits");
  add_number(sub, "--max-batch", o.draw.batch, "images in one UNet call [8]", 1, 64)->group("Limits");
  add_number(
      sub, "--join", o.draw.join,
      "images of several jobs of one size and model that share the UNet's calls, at most; 1: one job at a "
      "time [8 on a GPU, 4 on the CPU]",
      1, 64)
      ->group("Limits");
  add_number(sub, "--max-images", o.draw.images, "images of one request [16]", 1, 1000)->group("Limits");
  add_number(sub, "--max-steps", o.draw.steps, "steps of one image [1000]", 1, 1000)->group("Limits");
  add_number(sub, "--max-connections", o.http.connections, "connections at a time [256]", size_t{1},
             size_t{100'000})
      ->group("Limits");
  add_number(sub, "--max-body", c.body_megabytes, "MiB of a request without pictures [32]", 1, 1024)
      ->group("Limits");
  add_number(sub, "--max-image-body", c.image_body_megabytes, "MiB of a request with pictures [64]", 1, 1024)
      ->group("Limits");
  add_text(
      sub, "--journal", o.journal,
      "file in which jobs outlive the server: queued and running ones go on, results are kept as long as "
      "ever")
      ->type_name("FILE")
      ->group("Limits");
  add_seconds(sub, "--keep", c.keep_seconds, "results for so long [600]")->group("Limits");
  add_number(sub, "--keep-size", c.keep_megabytes, "MiB of results [256]", 1, 1 << 20)->group("Limits");
  add_seconds(
      sub, "--step-timeout", c.step_seconds,
      "a worker without a sign of life for so long is restarted; slow steps get 20 times their median [60]")
      ->group("Limits");
  add_seconds(sub, "--load-timeout", c.load_seconds, "the same while a model is loaded [600]")
      ->group("Limits");
  add_seconds(sub, "--grace", c.grace_seconds, "for running jobs when the server ends [10]")->group("Limits");
}

void run(ServeCommand& c) {
  ServerOptions& o = c.options;
  o.port = static_cast<uint16_t>(c.port);
  if (!c.key_file.empty()) o.access.api_key = read_key(c.key_file);
  o.step_time = to_time<std::chrono::milliseconds>(std::max(0.1, c.step_seconds));
  o.load_time = to_time<std::chrono::milliseconds>(std::max(1.0, c.load_seconds));
  o.jobs.keep_results = to_time<std::chrono::seconds>(c.keep_seconds);
  o.jobs.keep_bytes = static_cast<uint64_t>(c.keep_megabytes) << 20;
  o.http.body_bytes = static_cast<uint64_t>(c.body_megabytes) << 20;
  o.http.image_body_bytes = static_cast<uint64_t>(std::max(c.body_megabytes, c.image_body_megabytes)) << 20;
  o.grace = to_time<std::chrono::seconds>(c.grace_seconds);
  LoadOptions scratch;  // a mistyped value fails here, not in every worker
  OptionTargets targets{&scratch, nullptr};
  for (const auto& [name, value] : o.load) set_option(targets, name, value);
  require<UsageError>(o.lora_mode == "merge" || o.lora_mode == "runtime",
                      "lora-mode: expected merge or runtime, got \"", printable(o.lora_mode), "\"");
  require<UsageError>(o.preview == "none" || o.preview == "proj" || o.preview == "vae" || o.preview == "tae",
                      "preview: expected none, proj, tae or vae, got \"", printable(o.preview), "\"");
  require<UsageError>(o.preview != "tae" || !scratch.taesd.empty(), "preview: tae needs --taesd");
  if (!o.journal.empty()) o.journal = std::filesystem::absolute(o.journal).string();
  server::serve(o);
}

}  // namespace

void add_serve(CLI::App& app) {
  auto command = std::make_shared<ServeCommand>();
  CLI::App* sub = app.add_subcommand("serve", "HTTP server: a page, AUTOMATIC1111's and OpenAI's APIs, jobs");
  add_models(sub, *command);
  add_network(sub, *command);
  add_limits(sub, *command);
  sub->callback([command] { run(*command); });
  // Started by the server alone, with a socket to it.
  CLI::App* worker = app.add_subcommand("serve-worker", "")->group("");
  worker->callback([] { std::exit(server::run_worker(server::kWorkerSocket)); });
}

}  // namespace rocm_sd::cli
