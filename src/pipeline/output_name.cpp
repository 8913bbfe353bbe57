#include "pipeline/output_name.hpp"

#include <filesystem>
#include <regex>

#include "base/error.hpp"
#include "base/format.hpp"
#include "rocm_sd/image.hpp"

namespace rocm_sd {
namespace {

std::string safe_file_part(const std::string& text) {
  std::string out = text;
  for (char& c : out)
    if (static_cast<unsigned char>(c) < 0x20 || c == '/' || c == '\\' || c == 0x7f) c = '_';
  return out;
}

struct Expansion {
  std::string text;
  bool unique = false;  // holds the index or the seed
};

Expansion expand(const std::string& pattern, const OutputName& values) {
  static const std::regex kPlaceholder(R"(\{([a-z]*)(?::0?(\d{1,2})d?)?\}|%0?(\d{1,2})?d)");
  Expansion out;
  size_t at = 0;
  for (auto it = std::sregex_iterator(pattern.begin(), pattern.end(), kPlaceholder);
       it != std::sregex_iterator(); ++it) {
    const std::smatch& match = *it;
    out.text += pattern.substr(at, static_cast<size_t>(match.position()) - at);
    at = static_cast<size_t>(match.position() + match.length());
    const std::string name = match[1].matched ? match[1].str() : "index";
    const std::string width = match[2].matched ? match[2].str() : match[3].str();
    const int digits = width.empty() ? 0 : std::stoi(width);
    if (name == "index")
      out.text += fmt::format("{:0{}}", values.index, digits);
    else if (name == "seed")
      out.text += fmt::format("{:0{}}", values.seed, digits);
    else if (name == "model")
      out.text += safe_file_part(values.model);
    else if (name == "input")
      out.text += safe_file_part(values.input);
    else
      throw UsageError(concat("output: unknown placeholder \"", printable(match.str()),
                              "\"; expected {index}, {seed}, {model} or {input}"));
    out.unique = out.unique || name == "index" || name == "seed";
  }
  out.text += pattern.substr(at);
  // A brace with anything else in it was meant as a placeholder, too.
  static const std::regex kBraces(R"(\{[^{}/]*\})");
  std::string rest = std::regex_replace(pattern, kPlaceholder, "");
  if (std::smatch match; std::regex_search(rest, match, kBraces))
    throw UsageError(concat(
        "output: \"", printable(match.str()),
        "\" is no placeholder; expected {index}, {seed}, {model} or {input}, with a width as in {index:05}"));
  return out;
}

}  // namespace

std::string output_name(const std::string& pattern, const OutputName& values) {
  const Expansion name = expand(pattern, values);
  std::filesystem::path path(name.text);
  image_format_of(name.text);  // refuses an unknown ending before any work is done
  if (!name.unique && values.count > 1 && values.index > 1)
    path.replace_filename(path.stem().string() + "_" + std::to_string(values.index) +
                          path.extension().string());
  std::error_code error;
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), error);
  require<FileError>(!error, printable(path.parent_path().string()), ": cannot make the folder (",
                     error.message(), ")");
  return path.string();
}

}  // namespace rocm_sd
