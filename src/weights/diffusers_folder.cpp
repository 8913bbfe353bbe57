#include "weights/diffusers_folder.hpp"

#include <algorithm>

#include "base/file.hpp"
#include "base/format.hpp"

namespace rocm_sd {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxListed = 10'000;

std::vector<fs::path> files_ending(const fs::path& folder, std::string_view ending) {
  std::vector<fs::path> out;
  std::error_code error;
  fs::directory_iterator it(folder, error);
  require<FileError>(!error, printable_path(folder), ": cannot list the folder: ", error.message());
  for (size_t seen = 0; it != fs::directory_iterator() && seen < kMaxListed; it.increment(error), ++seen)
    if (it->path().filename().native().ends_with(ending)) out.push_back(it->path());
  std::sort(out.begin(), out.end());
  return out;
}

// Weights that torch.save wrote: asked for only where there are no safetensors.
std::vector<fs::path> torch_candidates(const fs::path& folder, const std::string& base,
                                       const std::string& variant, const std::string& other) {
  std::vector<fs::path> plain = {folder / (base + ".bin"), folder / (base + ".bin.index.json")};
  std::vector<fs::path> varied = {folder / fmt::format("{}.{}.bin", base, other),
                                  folder / fmt::format("{}.bin.index.{}.json", base, other)};
  if (!variant.empty()) plain.swap(varied);
  plain.insert(plain.end(), varied.begin(), varied.end());
  std::erase_if(plain, [](const fs::path& path) { return !path_exists(path); });
  for (const std::string_view ending : {".bin", ".ckpt", ".pt", ".pth"})
    if (plain.empty()) plain = files_ending(folder, ending);
  return plain;
}

std::string names_of(const std::vector<fs::path>& paths) {
  std::string out;
  for (const fs::path& path : paths) out += (out.empty() ? "" : ", ") + printable(path.filename().native());
  return out;
}

}  // namespace

fs::path component_weights(const fs::path& folder, Component component, const std::string& variant,
                           std::vector<std::string>& notes) {
  const bool text = component == Component::kTextEncoder || component == Component::kTextEncoder2;
  const std::string base = text ? "model" : "diffusion_pytorch_model";
  const std::string other = variant.empty() ? "fp16" : variant;
  require<UsageError>(other.find_first_of("/\\") == other.npos, "variant \"", printable(other),
                      "\" must be a plain word such as fp16");
  std::vector<fs::path> plain = {folder / (base + ".safetensors"),
                                 folder / (base + ".safetensors.index.json")};
  std::vector<fs::path> varied = {folder / fmt::format("{}.{}.safetensors", base, other),
                                  folder / fmt::format("{}.safetensors.index.{}.json", base, other),
                                  folder / fmt::format("{}.{}.safetensors.index.json", base, other)};
  std::vector<fs::path> candidates = variant.empty() ? plain : varied;
  const std::vector<fs::path>& rest = variant.empty() ? varied : plain;
  candidates.insert(candidates.end(), rest.begin(), rest.end());
  std::erase_if(candidates, [](const fs::path& path) { return !path_exists(path); });
  if (candidates.empty()) candidates = files_ending(folder, ".safetensors");
  if (candidates.empty())
    candidates = torch_candidates(folder, text ? "pytorch_model" : base, variant, other);
  require<FormatError>(!candidates.empty(), printable_path(folder), ": no ", base,
                       ".safetensors in this folder");
  if (candidates.size() > 1) {
    const fs::path taken = candidates.front();
    candidates.erase(candidates.begin());
    notes.push_back(concat(component_name(component), ": took ", printable(taken.filename().native()),
                           ", left ", names_of(candidates)));
    return taken;
  }
  return candidates.front();
}

std::optional<fs::path> tokenizer_folder_in(const fs::path& folder, Component text_encoder,
                                            std::vector<std::string>& notes) {
  const fs::path path = folder / (text_encoder == Component::kTextEncoder2 ? "tokenizer_2" : "tokenizer");
  if (is_folder_path(path)) return path;  // its reader names what is missing
  notes.push_back(concat(printable_path(path), ": no such folder: the shipped vocabulary is used"));
  return std::nullopt;
}

}  // namespace rocm_sd
