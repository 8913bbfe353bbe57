// Fuzzing of what the server reads of requests: the first byte chooses among targets, base64, forms, frames
// of workers, JSON of jobs, of the web UI and of its extras, and ComfyUI's graphs. Any bytes give a value or
// an error that is known.
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/base64.hpp"
#include "base/error.hpp"
#include "pipeline/options.hpp"
#include "server/comfy_graph.hpp"
#include "server/comfy_nodes.hpp"
#include "server/comfy_request.hpp"
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
  switch (kind % 8) {
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
    case 6: {
      const JobRequest job =
          read_extras(read_json_body(std::string(text)), text.size() % 2 == 0, catalog(), limits);
      check(job.model == "demo" && !job.files.empty() && !job.enlargement.upscaler.empty());
      return;
    }
    case 7: {
      static const std::vector<ComfyNodeClass> classes = comfy_node_classes(comfy_names(catalog()), limits);
      const nlohmann::json body = read_json_body(std::string(text));
      const auto no_picture = [](const std::string&) { return std::shared_ptr<const std::string>(); };
      check_job(compile_graph(read_graph(body, classes), no_picture, catalog(), limits).request, limits);
      return;
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  try {
    fuzz(data[0], {reinterpret_cast<const char*>(data) + 1, size - 1});
  } catch (const Error&) {
  } catch (const RequestError&) {
  } catch (const GraphError&) {
  }
  return 0;
}
