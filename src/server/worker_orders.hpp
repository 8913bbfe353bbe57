// What a supervisor tells its worker to do, and how the worker's failures are told to clients.
#pragma once

#include <string>

#include "server/job_store.hpp"

namespace rocm_sd::server {

struct Order {
  std::string json, bytes;  // of a frame
};
// To draw a job. model: its path. preview: ServerOptions::preview.
Order job_order(const Work& work, const std::string& model, const std::string& preview);

// code: an ExitCode.
JobError job_error(int code, const std::string& message);

}  // namespace rocm_sd::server
