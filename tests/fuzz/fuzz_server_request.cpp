// Fuzzing of what the server reads of requests: the first byte chooses among targets, base64, forms, frames
// of workers, and JSON of jobs and of the web UI. Any bytes give a value or an error that is known.
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.hpp"
#include "pipeline/options.hpp"
#include "server/base64.hpp"
#include "server/frame.hpp"
#include "server/http.hpp"
#include "server/job_request.hpp"
#include "server/multipart.hpp"
#include "server/web_ui_request.hpp"

namespace {

using namespace rocm_sd;
using namespace rocm_sd::server;

void check(bool ok) {
  if (!ok) std::abort();
}

const Catalog& catalog() {
  static const Catalog models({ROCM_SD_SOURCE_DIR "/models/demo"}, {});
  return models;
}

void check_job(const JobRequest& job, const DrawLimits& limits) {
  check(job.model == "demo" && job.batch >= 1 && job.batch <= limits.batch);
  check(job.rounds >= 1 && job.images() <= static_cast<size_t>(limits.images));
  for (const auto& [name, value] : job.options) check(name != "lora" && name != "model" && name != "device");
}

void fuzz(uint8_t kind, std::string_view text) {
  const DrawLimits limits;
  switch (kind % 6) {
    case 0: {
      HttpRequest request;
      if (parse_target(text, request))
        check(request.path.starts_with('/') && request.path.find("/../") == std::string::npos);
      return;
    }
    case 1:
      if (const auto bytes = decode_data_url(text)) check(decode_base64(encode_base64(*bytes)) == *bytes);
      return;
    case 2: {
      const size_t line = std::min(text.find('\n'), text.size());
      const std::string boundary = multipart_boundary(text.substr(0, line));
      for (const FormField& field : parse_multipart(text.substr(std::min(line + 1, text.size())), boundary))
        check(!field.name.empty());
      return;
    }
    case 3: {
      FrameReader reader;
      reader.append(text);
      while (reader.next()) {
      }
      return;
    }
    case 4: check_job(read_job(read_json_body(std::string(text)), catalog(), limits), limits); return;
    case 5:
      check_job(
          read_web_ui_request(read_json_body(std::string(text)), text.size() % 2 == 0, catalog(), limits).job,
          limits);
      return;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  try {
    fuzz(data[0], {reinterpret_cast<const char*>(data) + 1, size - 1});
  } catch (const Error&) {
  } catch (const RequestError&) {
  }
  return 0;
}
