// How a server is to run: addresses, limits, models.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "server/access.hpp"
#include "server/job_store.hpp"

namespace rocm_sd::server {

struct HttpLimits {
  uint64_t body_bytes = 32u << 20;        // of most requests
  uint64_t image_body_bytes = 64u << 20;  // of those that bring pictures
  uint32_t header_bytes = 16u << 10;
  size_t header_fields = 100;
  size_t target_bytes = 8u << 10;
  size_t connections = 256;
  std::chrono::seconds header_time{10};  // from the connection on, or from the first byte of a later request
  std::chrono::seconds idle_time{30};    // between the requests of a connection
};

struct DrawLimits {
  int64_t pixels = int64_t{4096} * 4096;  // of one image
  int batch = 8;                          // images in one UNet call
  int images = 16;                        // of one request
  int steps = 1000;
  int join =
      0;  // images of several jobs that share the UNet's calls; 1: none do; 0: as many as the device likes
};

using LoadPairs = std::vector<std::pair<std::string, std::string>>;  // options of loading, by name

struct ServerOptions {
  std::vector<std::string> models;  // files and folders; the first is loaded at once
  std::string models_folder;        // more of them: every .safetensors file and Diffusers folder in it
  std::string lora_folder, embedding_folder;
  std::string control_folder;        // ControlNets
  std::string upscaler_folder;       // networks that enlarge pictures
  std::vector<std::string> devices;  // one worker each; empty: "auto"
  LoadPairs load;                    // "dtype", "weights", "vram-budget", ... for every model
  std::string lora_mode = "merge";   // GenerateRequest::lora_mode of requests that name none
  int threads = 0;                   // CPU threads of each worker; 0: all cores

  std::string address = "127.0.0.1";
  uint16_t port = 7860;
  bool insecure = false;  // another address than this machine's without a key
  AccessRules access;
  HttpLimits http;
  DrawLimits draw;
  JobLimits jobs;
  std::chrono::milliseconds step_time{60'000};   // without a sign of life while drawing
  std::chrono::milliseconds load_time{600'000};  // the same while loading
  std::chrono::seconds grace{10};                // for running jobs at the end
  // What a look at an unfinished picture is (PreviewUse::mode). Looks take at most 2 % of the time, but for
  // those that OpenAI's clients ask for by number.
  std::string preview = "proj";
  std::string journal;  // file of jobs that outlive the server; empty: none do
  bool page = true;
  bool log_prompts = false;
};

}  // namespace rocm_sd::server
