// The scanner of AUTOMATIC1111's attention grammar and of its <word:...> tags; see prompt.hpp.
#include "text/prompt.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "base/error.hpp"
#include "base/utf8.hpp"
#include "text/unicode.hpp"

namespace rocm_sd {
namespace {

using unicode::char_class;
using unicode::CharClass;

constexpr double kRound = 1.1;
constexpr double kSquare = 1 / 1.1;

// What Python's \w and \s match; the web UI's patterns are Python's.
bool is_word(char32_t c) {
  const CharClass kind = char_class(c);
  return kind == CharClass::kLetter || kind == CharClass::kNumber || c == U'_';
}
bool is_space(char32_t c) { return char_class(c) == CharClass::kSpace || (c >= 0x1c && c <= 0x1f); }

std::string to_utf8(std::u32string_view text) {
  std::string out;
  for (const char32_t c : text) append_utf8(out, c);
  return out;
}

std::u32string checked_characters(std::string_view prompt) {
  // A character has at most four bytes: what is longer than that need not be decoded to be refused.
  std::u32string text;
  if (prompt.size() <= 4 * kMaxPromptChars) text = unicode::decode(prompt);
  const bool fits = prompt.size() <= 4 * kMaxPromptChars && text.size() <= kMaxPromptChars;
  require<UsageError>(fits, "prompt: ", text.empty() ? prompt.size() : text.size(),
                      text.empty() ? " bytes; at most " : " characters; at most ", kMaxPromptChars,
                      " characters are accepted");
  return text;
}

// A decimal number as Python's float() takes it, without infinities, NaN and underscores; too large ones are
// infinite.
std::optional<double> parse_number(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  if (text.starts_with("+-")) return std::nullopt;
  if (text.starts_with('+')) text.remove_prefix(1);
  if (text.find_first_not_of("0123456789.-eE+") != std::string_view::npos || text.starts_with('+'))
    return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end != text.data() + text.size()) return std::nullopt;
  if (error == std::errc::result_out_of_range)
    return std::strtod(std::string(text).c_str(), nullptr);  // 0 or infinity
  if (error != std::errc()) return std::nullopt;
  return value;
}

class AttentionParser {
 public:
  explicit AttentionParser(std::u32string_view text) : text_(text) {}

  std::vector<PromptPiece> parse() {
    for (size_t i = 0; i < text_.size();) i += take(text_.substr(i));
    for (const size_t start : round_) multiply_from(start, kRound);
    for (const size_t start : square_) multiply_from(start, kSquare);
    return merged();
  }

 private:
  // Consumes one lexeme at the front of rest; returns its length.
  size_t take(std::u32string_view rest) {
    const char32_t c = rest[0];
    switch (c) {
      case U'\\': {
        const bool escapes =
            rest.size() > 1 && std::u32string_view(U"()[]\\").find(rest[1]) != std::u32string_view::npos;
        add(escapes ? rest.substr(1, 1) : std::u32string_view(), 1.0);
        return escapes ? 2 : 1;
      }
      case U'(': round_.push_back(weights_.size()); return 1;
      case U'[': square_.push_back(weights_.size()); return 1;
      case U')':
        if (round_.empty()) break;
        multiply_from(pop(round_), kRound);
        return 1;
      case U']':
        if (square_.empty()) break;
        multiply_from(pop(square_), kSquare);
        return 1;
      case U':': {
        const auto [number, length] = find_weight(rest);
        if (!number.empty() && !round_.empty()) {
          multiply_from(pop(round_), weight(number, rest.substr(0, length)));
          return length;
        }
        add_with_breaks(rest.substr(0, length));
        return length;
      }
      default: {
        const size_t length = std::min(rest.find_first_of(U"\\()[]:"), rest.size());
        add_with_breaks(rest.substr(0, length));
        return length;
      }
    }
    add_with_breaks(rest.substr(0, 1));  // a closing bracket without its partner
    return 1;
  }

  struct Weight {
    std::u32string_view number;  // empty: something else
    size_t length = 1;           // of the lexeme
  };

  // ":<sign><digits and points>)" at the front of rest, with white space around the number at will. Any
  // script's digits.
  static Weight find_weight(std::u32string_view rest) {
    const auto skip_space = [&](size_t i) {
      while (i < rest.size() && is_space(rest[i])) ++i;
      return i;
    };
    const size_t begin = skip_space(1);
    size_t i = begin;
    if (i < rest.size() && (rest[i] == U'+' || rest[i] == U'-')) ++i;
    const size_t digits = i;
    while (i < rest.size() && (rest[i] == U'.' || unicode::digit_value(rest[i]) >= 0)) ++i;
    const size_t close = skip_space(i);
    if (i == digits || close == rest.size() || rest[close] != U')') return {};
    return {rest.substr(begin, i - begin), close + 1};
  }

  static double weight(std::u32string_view number, std::u32string_view lexeme) {
    std::string ascii;
    for (const char32_t c : number) {
      const int digit = unicode::digit_value(c);
      ascii += digit >= 0 ? static_cast<char>('0' + digit) : static_cast<char>(c);
    }
    const std::optional<double> value = parse_number(ascii);
    require<UsageError>(value.has_value(), "prompt: \"", printable(to_utf8(lexeme), 60),
                        "\" has a weight that is no number");
    return *value;
  }

  static size_t pop(std::vector<size_t>& stack) {
    const size_t top = stack.back();
    stack.pop_back();
    return top;
  }

  void add(std::u32string_view text, double weight) {
    texts_.push_back(text);
    weights_.push_back(weight);
  }

  // Text with each word BREAK, and the white space around it, as a piece of its own.
  void add_with_breaks(std::u32string_view text) {
    constexpr std::u32string_view kBreak = U"BREAK";
    size_t begin = 0;
    for (size_t at = text.find(kBreak); at != std::u32string_view::npos; at = text.find(kBreak, at)) {
      size_t end = at + kBreak.size();
      const bool whole = (at == 0 || !is_word(text[at - 1])) && (end == text.size() || !is_word(text[end]));
      if (!whole) {
        at = end;
        continue;
      }
      size_t before = at;
      while (before > begin && is_space(text[before - 1])) --before;
      while (end < text.size() && is_space(text[end])) ++end;
      add(text.substr(begin, before - begin), 1.0);
      add(kBreak, -1.0);
      begin = at = end;
    }
    add(text.substr(begin), 1.0);
  }

  // One multiplication per bracket and piece, in the order of the closing brackets, so that weights are the
  // web UI's to the last bit. Quadratic in the prompt, which kMaxPromptChars bounds at 10^8 products.
  void multiply_from(size_t start, double factor) {
    for (size_t i = start; i < weights_.size(); ++i) weights_[i] *= factor;
  }

  std::vector<PromptPiece> merged() const {
    std::vector<PromptPiece> pieces;
    for (size_t i = 0; i < weights_.size(); ++i) {
      const std::string text = to_utf8(texts_[i]);
      require<UsageError>(std::abs(weights_[i]) <= kMaxPromptWeight, "prompt: the weight of \"",
                          printable(text, 60), "\" is ", weights_[i], "; expected a number within +-",
                          kMaxPromptWeight);
      if (!pieces.empty() && pieces.back().weight == weights_[i])
        pieces.back().text += text;
      else
        pieces.push_back({text, weights_[i]});
    }
    if (pieces.empty()) pieces.push_back({});
    return pieces;
  }

  std::u32string_view text_;
  std::vector<std::u32string_view> texts_;
  std::vector<double> weights_;
  std::vector<size_t> round_, square_;  // pieces at which the open brackets began
};

std::vector<std::string> split_at_colons(std::u32string_view text) {
  std::vector<std::string> parts;
  for (size_t begin = 0;;) {
    const size_t end = std::min(text.find(U':', begin), text.size());
    parts.push_back(to_utf8(text.substr(begin, end - begin)));
    if (end == text.size()) return parts;
    begin = end + 1;
  }
}

double tag_weight(const std::string& text, std::string_view tag) {
  const std::optional<double> value = parse_number(text);
  require<UsageError>(value && std::abs(*value) <= kMaxPromptWeight, "prompt: \"", printable(tag, 80),
                      "\": expected a weight within +-", kMaxPromptWeight, ", found \"", printable(text, 40),
                      "\"");
  return *value;
}

LoraTag lora_tag(std::u32string_view arguments, std::string_view tag) {
  LoraTag lora;
  std::optional<double> te, unet, named_te, named_unet;
  size_t position = 0;
  for (const std::string& part : split_at_colons(arguments)) {
    if (part.starts_with("te=")) {
      named_te = tag_weight(part.substr(3), tag);
    } else if (part.starts_with("unet=")) {
      named_unet = tag_weight(part.substr(5), tag);
    } else if (part.starts_with("lbw=") || (position >= 2 && part.find(',') != std::string::npos)) {
      require<UsageError>(lora.blocks.empty() && part != "lbw=", "prompt: \"", printable(tag, 80),
                          "\": expected one list of block weights");
      lora.blocks = part.starts_with("lbw=") ? part.substr(4) : part;
    } else {
      require<UsageError>(position < 3 && part.find('=') == std::string::npos, "prompt: \"",
                          printable(tag, 80), "\": \"", printable(part, 40),
                          "\" is not understood; expected <lora:name:weight>");
      if (position == 0) lora.name = part;
      if (position == 1) te = tag_weight(part, tag);
      if (position == 2) unet = tag_weight(part, tag);
      ++position;
    }
  }
  bool safe = !lora.name.empty() && lora.name[0] != '.' && lora.name.size() <= 200;
  for (const char c : lora.name)
    safe = safe && c != '/' && c != '\\' && static_cast<unsigned char>(c) >= 32 && c != 127;
  require<UsageError>(safe, "prompt: \"", printable(tag, 80), "\": \"", printable(lora.name, 40),
                      "\" is no LoRA name; expected a file name without folders");
  lora.te_weight = named_te.value_or(te.value_or(1.0));
  lora.weight = named_unet.value_or(unet.value_or(lora.te_weight));
  return lora;
}

}  // namespace

std::vector<PromptPiece> parse_prompt_attention(std::string_view prompt) {
  const std::u32string text = checked_characters(prompt);
  return AttentionParser(text).parse();
}

PromptTags extract_lora_tags(std::string_view prompt) {
  const std::u32string text = checked_characters(prompt);
  const std::u32string_view view = text;
  PromptTags tags;
  size_t next_close = 0;  // position of the first '>' at or behind the last '<' looked at
  for (size_t i = 0; i < view.size();) {
    size_t colon = i + 1;
    if (view[i] == U'<')
      while (colon < view.size() && is_word(view[colon])) ++colon;
    const bool word = view[i] == U'<' && colon > i + 1 && colon < view.size() && view[colon] == U':';
    if (word && next_close < colon) next_close = std::min(view.find(U'>', colon), view.size());
    if (!word || next_close == view.size() || next_close == colon + 1) {
      append_utf8(tags.text, view[i++]);
      continue;
    }
    const std::string inside = to_utf8(view.substr(i + 1, next_close - i - 1));
    const std::u32string_view kind = view.substr(i + 1, colon - i - 1);
    if (kind == U"lora" || kind == U"lyco")
      tags.loras.push_back(lora_tag(view.substr(colon + 1, next_close - colon - 1), "<" + inside + ">"));
    else
      tags.unknown.push_back(inside);
    i = next_close + 1;
  }
  return tags;
}

}  // namespace rocm_sd
