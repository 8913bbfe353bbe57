#include "emulator/disassemble.hpp"

#include <algorithm>
#include <charconv>
#include <memory>

#include "base/error.hpp"
#include "emulator/llvm.hpp"

namespace rocm_sd::emu {

namespace {

std::string_view trimmed(std::string_view s) {
  while (!s.empty() && (s.front() == ' ' || s.front() == '\t')) s.remove_prefix(1);
  while (!s.empty() && (s.back() == ' ' || s.back() == '\t' || s.back() == '\n')) s.remove_suffix(1);
  return s;
}

// Splits at `separator` outside of brackets, parentheses and quotes.
std::vector<std::string_view> split(std::string_view s, char separator) {
  std::vector<std::string_view> out;
  int depth = 0;
  bool quoted = false;
  size_t begin = 0;
  for (size_t i = 0; i <= s.size(); ++i) {
    if (i < s.size()) {
      if (s[i] == '"') quoted = !quoted;
      if (s[i] == '[' || s[i] == '(') ++depth;
      if (s[i] == ']' || s[i] == ')') --depth;
      if (s[i] != separator || depth > 0 || quoted) continue;
    }
    const auto part = trimmed(s.substr(begin, i - begin));
    if (!part.empty()) out.push_back(part);
    begin = i + 1;
  }
  return out;
}

// A modifier is a bare word of this list or name:value; a register range has its bracket before the colon.
bool is_modifier(std::string_view word) {
  static constexpr std::string_view kBare[] = {
      "glc", "slc", "dlc", "nv",  "offen", "idxen", "clamp",      "sc0",
      "sc1", "nt",  "lds", "tfe", "gds",   "nw",    "row_mirror", "row_half_mirror"};
  if (std::find(std::begin(kBare), std::end(kBare), word) != std::end(kBare)) return true;
  const size_t colon = word.find(':'), bracket = word.find_first_of("[(");
  return colon != std::string_view::npos && (bracket == std::string_view::npos || colon < bracket);
}

}  // namespace

std::vector<Line> disassemble(std::span<const std::byte> code, const std::string& target) {
  const Llvm& llvm = Llvm::library();
  const auto open = [&](const char* features) {
    std::unique_ptr<void, decltype(llvm.dispose)> context(
        llvm.create("amdgcn-amd-amdhsa", target.c_str(), features, nullptr, 0, nullptr, nullptr),
        llvm.dispose);
    require<InternalError>(context != nullptr, "LLVM has no disassembler for ", target);
    return context;
  };
  const auto context = open("");
  // LLVM 19 does not know high halves of registers (v1.h) in short encodings unless it is asked to; newer
  // compilers write them. What it decodes without is left as it is.
  const auto halves = target.starts_with("gfx9") ? open("") : open("+real-true16");
  std::vector<Line> out;
  char text[512];
  for (uint64_t at = 0; at + 4 <= code.size();) {
    auto* bytes = reinterpret_cast<uint8_t*>(const_cast<std::byte*>(code.data() + at));
    size_t size = llvm.instruction(context.get(), bytes, code.size() - at, at, text, sizeof(text));
    if (size == 0) size = llvm.instruction(halves.get(), bytes, code.size() - at, at, text, sizeof(text));
    if (size == 0) {
      out.push_back({at, 4, {}});
      at += 4;
    } else {
      out.push_back({at, static_cast<uint32_t>(size), std::string(trimmed(text))});
      at += size;
    }
  }
  return out;
}

bool Assembly::has(std::string_view modifier) const {
  return std::find(modifiers.begin(), modifiers.end(), modifier) != modifiers.end();
}

std::string_view Assembly::value(std::string_view name) const {
  for (const auto m : modifiers)
    if (m.size() > name.size() && m.starts_with(name) && m[name.size()] == ':')
      return m.substr(name.size() + 1);
  return {};
}

Assembly take_apart(std::string_view text) {
  Assembly out;
  text = trimmed(text);
  const size_t space = text.find_first_of(" \t");
  out.mnemonic = text.substr(0, space);
  if (space == std::string_view::npos) return out;
  for (const auto piece : split(text.substr(space), ',')) {
    bool first = true;
    for (const auto word : split(piece, ' ')) {
      if (first && !is_modifier(word))
        out.operands.push_back(word);
      else
        out.modifiers.push_back(word);
      first = false;
    }
  }
  return out;
}

std::vector<int> list_of(std::string_view text) {
  std::vector<int> out;
  if (text.starts_with('[')) text.remove_prefix(1);
  if (text.ends_with(']')) text.remove_suffix(1);
  for (const auto item : split(text, ',')) {
    int value = 0;
    std::from_chars(item.data(), item.data() + item.size(), value);
    out.push_back(value);
  }
  return out;
}

}  // namespace rocm_sd::emu
