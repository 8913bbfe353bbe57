#include "server/worker_request.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "pipeline/options.hpp"

namespace rocm_sd::server {
namespace {

using nlohmann::json;
using LoadPairs = std::vector<std::pair<std::string, std::string>>;

void invert(Image& mask) {
  for (uint8_t& value : mask.rgb) value = static_cast<uint8_t>(255 - value);
  for (uint8_t& value : mask.alpha) value = static_cast<uint8_t>(255 - value);
}

// An option whose value are one or several of the job's files.
void set_files(OptionTargets& targets, const std::vector<json>& files, std::string_view bytes) {
  std::vector<std::unique_ptr<MemoryFile>> held;
  std::string paths;
  for (const json& file : files) {
    held.push_back(std::make_unique<MemoryFile>(
        bytes.substr(file.at("offset").get<size_t>(), file.at("size").get<size_t>())));
    paths += (paths.empty() ? "" : ",") + held.back()->path();
  }
  const std::string name = files.front().at("option");
  try {
    set_option(targets, name, paths);
  } catch (const Error& e) {  // without the path, which says nothing to a client
    std::string message = e.what();
    for (const auto& memory : held)
      if (const size_t at = message.find(memory->path() + ": "); at != message.npos)
        message.erase(at, memory->path().size() + 2);
    throw UsageError(message.starts_with(name) ? message : concat(name, ": ", message));
  }
}

}  // namespace

MemoryFile::MemoryFile(std::string_view bytes) : descriptor_(memfd_create("rocm-sd", MFD_CLOEXEC)) {
  require<FileError>(descriptor_ >= 0, "cannot make a file in memory");
  while (!bytes.empty()) {
    const ssize_t put = ::write(descriptor_, bytes.data(), bytes.size());
    require<FileError>(put > 0, "cannot write a file in memory");
    bytes.remove_prefix(static_cast<size_t>(put));
  }
}
MemoryFile::~MemoryFile() { ::close(descriptor_); }

GenerateRequest read_order(GenerateRequest request, const json& head, std::string_view bytes) {
  OptionTargets targets{nullptr, &request};
  for (const auto& [name, value] : head.at("options").get<LoadPairs>()) set_option(targets, name, value);
  const json& files = head.at("files");
  for (size_t i = 0, next = 0; i < files.size(); i = next) {
    next = i + 1;
    while (next < files.size() && files[next].at("joins").get<bool>()) ++next;
    std::vector<json> own;
    for (size_t k = i; k < next; ++k) own.push_back(files[k]);
    set_files(targets, own, bytes);
  }
  if (head.value("invert_mask", false) && request.mask) invert(*request.mask);
  return request;
}

bool is_partial(int step, int total, int partials) {
  for (int k = 1; k <= partials; ++k)
    if (step < total && step == std::max(1, k * total / (partials + 1))) return true;
  return false;
}

ImageFormat format_named(const std::string& name) {
  return name == "jpeg" ? ImageFormat::kJpeg : name == "webp" ? ImageFormat::kWebp : ImageFormat::kPng;
}

Image middle_of(const Image& image, int width, int height) {
  width = std::min(width, image.width);
  height = std::min(height, image.height);
  const int left = (image.width - width) / 2, top = (image.height - height) / 2;
  Image out{width, height, {}, {}};
  for (int y = top; y < top + height; ++y) {
    const auto at = [&](int channels) { return channels * (ptrdiff_t{y} * image.width + left); };
    out.rgb.insert(out.rgb.end(), image.rgb.begin() + at(3), image.rgb.begin() + at(3) + 3 * width);
    if (!image.alpha.empty())
      out.alpha.insert(out.alpha.end(), image.alpha.begin() + at(1), image.alpha.begin() + at(1) + width);
  }
  return out;
}

}  // namespace rocm_sd::server
