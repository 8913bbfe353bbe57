#include "text/wildcards.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <sstream>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/utf8.hpp"

namespace rocm_sd {
namespace {

constexpr int kMaxDepth = 32;
constexpr size_t kMaxPromptBytes = 32'000;
constexpr uint64_t kMaxFileBytes = 16u << 20;

// SplitMix64 (Steele, Lea and Flood 2014): the same numbers on every machine.
class Numbers {
 public:
  explicit Numbers(uint64_t seed) : state_(seed) {}
  double uniform() {  // [0, 1)
    state_ += 0x9e3779b97f4a7c15u;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-53;
  }
  size_t below(size_t count) {
    return std::min(count - 1, static_cast<size_t>(uniform() * static_cast<double>(count)));
  }

 private:
  uint64_t state_;
};

std::optional<double> number_in(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}
std::optional<int> count_in(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= 0 ? std::optional(value)
                                                                                : std::nullopt;
}

bool is_name_byte(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return std::isalnum(byte) || byte >= 0x80 || c == '-' || c == '_' || c == '/' || c == ' ' || c == '.';
}

// The length of "__name__" at the text's beginning, or 0.
size_t wildcard_length(std::string_view text) {
  if (!text.starts_with("__")) return 0;
  const size_t end = text.find("__", 3);
  if (end == text.npos) return 0;
  const std::string_view name = text.substr(2, end - 2);
  const bool plain = std::ranges::all_of(name, is_name_byte) && name.front() != ' ' && name.back() != ' ';
  return plain ? end + 2 : 0;
}

// Pieces of the inside of braces, by the bars that are in no braces of their own.
std::vector<std::string_view> alternatives(std::string_view text) {
  std::vector<std::string_view> out;
  int depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == '{') {
      ++depth;
    } else if (text[i] == '}') {
      --depth;
    } else if (text[i] == '|' && depth == 0) {
      out.push_back(text.substr(begin, i - begin));
      begin = i + 1;
    }
  }
  out.push_back(text.substr(begin));
  return out;
}

}  // namespace

class WildcardExpansion {
 public:
  WildcardExpansion(Wildcards& files, uint64_t seed) : files_(files), numbers_(seed) {}

  std::string run(std::string_view text, int depth = 0) {
    require<UsageError>(depth <= kMaxDepth, "prompt: choices are nested deeper than ", kMaxDepth,
                        " (a wildcard that names itself?)");
    std::string out;
    for (size_t i = 0; i < text.size();) {
      const size_t wildcard = wildcard_length(text.substr(i));
      if (text[i] == '\\' && i + 1 < text.size() &&
          std::string_view("{|}").find(text[i + 1]) != std::string_view::npos) {
        out += text[i + 1];
        i += 2;
      } else if (wildcard > 0) {
        const std::vector<std::string>& lines = files_.lines(std::string(text.substr(i + 2, wildcard - 4)));
        out += run(lines[numbers_.below(lines.size())], depth + 1);
        i += wildcard;
      } else if (text[i] == '{') {
        const size_t end = closing_brace(text, i);
        out += choose(text.substr(i + 1, end - i - 1), depth + 1);
        i = end + 1;
      } else {
        require<UsageError>(text[i] != '}', "prompt: \"", printable(text.substr(0, i + 1), 80),
                            "\": a closing brace without an opening one; write \\} for the character");
        out += text[i++];
      }
      require<UsageError>(out.size() <= kMaxPromptBytes, "prompt: more than ", kMaxPromptBytes,
                          " characters after its choices");
    }
    return out;
  }

 private:
  static size_t closing_brace(std::string_view text, size_t open) {
    int depth = 0;
    for (size_t i = open; i < text.size(); ++i) {
      if (text[i] == '\\')
        ++i;
      else if (text[i] == '{')
        ++depth;
      else if (text[i] == '}' && --depth == 0)
        return i;
    }
    throw UsageError(concat("prompt: \"", printable(text.substr(open), 80),
                            "\": an opening brace without a closing one; write \\{ for the character"));
  }

  struct Count {
    int least = 1, most = 1;
    std::string joint = ", ";
  };
  // "2$$", "1-2$$", "-2$$", "1-$$", each with "joint$$" behind it. Takes them from the text; of more than
  // there is to choose from, all.
  static Count take_count(std::string_view& text) {
    Count out;
    const size_t end = text.find("$$");
    if (end == text.npos || text.find_first_of("{|") < end) return out;
    const std::string_view range = text.substr(0, end);
    const size_t dash = range.find('-');
    const std::string_view low = range.substr(0, dash);
    const std::string_view high = dash == range.npos ? low : range.substr(dash + 1);
    const std::optional<int> least = low.empty() ? std::optional(0) : count_in(low);
    const std::optional<int> most = high.empty() ? std::optional(1'000'000) : count_in(high);
    require<UsageError>(least && most && *least <= *most, "prompt: \"",
                        printable(text.substr(0, end + 2), 80), "\": expected a count such as 2$$ or 1-3$$");
    out.least = *least;
    out.most = *most;
    text.remove_prefix(end + 2);
    if (const size_t joint = text.find("$$"); joint != text.npos && text.find_first_of("{|") > joint) {
      out.joint = text.substr(0, joint);
      text.remove_prefix(joint + 2);
    }
    return out;
  }

  std::string choose(std::string_view inside, int depth) {
    const Count count = take_count(inside);
    std::vector<std::pair<double, std::string_view>> left;
    for (std::string_view text : alternatives(inside)) {
      double weight = 1;
      if (const size_t end = text.find("::"); end != text.npos)
        if (const auto number = number_in(text.substr(0, end)); number && *number >= 0 && *number <= 1e9) {
          weight = *number;
          text.remove_prefix(end + 2);
        }
      left.emplace_back(weight, text);
    }
    const int most = std::min(count.most, static_cast<int>(left.size())), least = std::min(count.least, most);
    const int wanted = least == most
                           ? least
                           : least + static_cast<int>(numbers_.below(static_cast<size_t>(most - least + 1)));
    std::string out;
    for (int i = 0; i < wanted; ++i) {
      const size_t at = weighted(left);
      out += (i > 0 ? count.joint : "") + run(left[at].second, depth);
      left.erase(left.begin() + static_cast<ptrdiff_t>(at));
    }
    return out;
  }

  size_t weighted(const std::vector<std::pair<double, std::string_view>>& of) {
    double total = 0;
    for (const auto& [weight, text] : of) total += weight;
    if (total <= 0) return numbers_.below(of.size());
    double at = numbers_.uniform() * total;
    for (size_t i = 0; i < of.size(); ++i)
      if ((at -= of[i].first) < 0) return i;
    return of.size() - 1;
  }

  Wildcards& files_;
  Numbers numbers_;
};

std::string Wildcards::expand(std::string_view text, uint64_t seed) {
  return WildcardExpansion(*this, seed).run(text);
}

const std::vector<std::string>& Wildcards::lines(const std::string& name) {
  if (const auto known = files_.find(name); known != files_.end()) return known->second;
  require<UsageError>(!folder_.empty(), "prompt: __", printable(name),
                      "__ names a file of wildcards: give their folder");
  require<UsageError>(name.find("..") == name.npos && !name.starts_with('/'), "prompt: __", printable(name),
                      "__: expected a name below the folder of wildcards");
  const std::filesystem::path path = std::filesystem::path(folder_) / (name + ".txt");
  require<UsageError>(path_exists(path), "prompt: __", printable(name), "__: there is no ",
                      printable_path(path));
  std::string text = read_file(path, kMaxFileBytes);
  const std::string problem = utf8_problem(text);
  require<FormatError>(problem.empty(), printable_path(path), ": ", problem);
  std::istringstream in(std::move(text));
  std::vector<std::string> out;
  for (std::string line; std::getline(in, line);) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (!line.empty() && line[0] != '#') out.push_back(line);
  }
  require<FormatError>(!out.empty(), printable_path(path), ": no lines to choose from");
  return files_[name] = std::move(out);
}

bool has_choices(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i)
    if (text[i] == '{' || text[i] == '}' || wildcard_length(text.substr(i)) > 0) return true;
  return false;
}

}  // namespace rocm_sd
