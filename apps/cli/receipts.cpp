#include "apps/cli/receipts.hpp"

#include <algorithm>
#include <filesystem>

#include "base/error.hpp"
#include "base/file.hpp"
#include "pipeline/adapters.hpp"
#include "pipeline/embeddings.hpp"
#include "pipeline/infotext.hpp"
#include "pipeline/options.hpp"

namespace rocm_sd::cli {
namespace {

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> out(1);
  for (const char c : list) c == ',' ? out.emplace_back().clear() : out.back().push_back(c);
  return out;
}

}  // namespace

std::vector<std::string> paths_in(const std::string& option, const std::string& value) {
  const auto rows = option_rows();
  const auto row = std::ranges::find_if(rows, [&](const OptionRow& r) { return r.name == option; });
  if (row == rows.end()) return {};
  const std::string_view kind = row->value;
  std::vector<std::string> candidates;
  if (option == "lora")
    candidates = {parse_lora_use(value).file};
  else if (option == "embedding")
    candidates = {parse_embedding_use(value).file};
  else if (kind.starts_with("FILE,") || kind == "FILE[,FILE]")
    candidates = path_exists(value) ? std::vector{value} : split(value);
  else if (kind == "FILE" || kind == "PATH")
    candidates = {value};
  std::erase_if(candidates, [](const std::string& path) { return path.empty() || !path_exists(path); });
  return candidates;
}

const ReceiptFile& Receipts::identified(const std::string& option, const std::string& path) {
  const auto [it, is_new] = files_.try_emplace({option, path});
  if (is_new) it->second = identify_file(option, path);
  return it->second;
}

Receipt Receipts::of(const std::vector<OptionValue>& options, const GenerateResult& result, int picture,
                     int quality) {
  Receipt out;
  out.version = version();
  out.device = result.device.empty() ? model_.device : concat(model_.device, " of ", result.device);
  out.driver = driver_;
  out.precision = model_.dtype;
  out.kernel_code = result.kernel_code;
  out.kernel_choices = result.kernel_choices;
  out.options = options;
  out.picture = picture;
  out.quality = quality;
  out.times = result.times;
  out.planned_bytes = result.plan.total();
  out.peak_bytes = result.device_peak;
  const Picture& first = result.pictures.front();
  out.options.emplace_back("seed", std::to_string(first.seed));
  const std::string variation = parse_infotext(first.parameters).get("Variation seed");
  if (!variation.empty()) out.options.emplace_back("variation-seed", variation);
  const std::lock_guard lock(mutex_);
  const auto add = [&](const ReceiptFile& file) {
    const auto same = [&](const ReceiptFile& known) { return known.path == file.path; };
    if (std::ranges::none_of(out.files, same)) out.files.push_back(file);
  };
  for (const auto& [name, value] : out.options)
    for (const std::string& path : paths_in(name, value)) add(identified(name, path));
  for (const UsedFile& file : result.files) add(identified(file.kind, file.path));
  return out;
}

}  // namespace rocm_sd::cli
