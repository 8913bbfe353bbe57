#include "text/prompt.hpp"

#include <charconv>
#include <cmath>
#include <optional>

#include "base/error.hpp"
#include "base/utf8.hpp"
#include "text/unicode.hpp"

namespace rocm_sd {
namespace {

constexpr double kStep = 1.1;  // what one pair of brackets multiplies or divides by

// A number as the grammar has it: digits and points with an optional sign. Throws UsageError for "1.2.3" and
// "..".
double parse_weight(std::string_view number) {
  std::string_view digits = number;
  if (!digits.empty() && digits[0] == '+') digits.remove_prefix(1);
  double value = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, std::chars_format::fixed);
  require<UsageError>(error == std::errc() && end == digits.data() + digits.size() && std::isfinite(value),
                      "prompt: \"", printable(number, 40), "\" is not a number");
  return value;
}

// ":<number>)" at text[at]: the number, or nothing.
std::optional<std::string_view> weight_at(std::string_view text, size_t at) {
  size_t end = at + 1;
  if (end < text.size() && (text[end] == '+' || text[end] == '-')) ++end;
  const size_t digits = end;
  while (end < text.size() && (text[end] == '.' || (text[end] >= '0' && text[end] <= '9'))) ++end;
  if (end == digits || end >= text.size() || text[end] != ')') return std::nullopt;
  return text.substr(at + 1, end - at - 1);
}

bool is_word(char32_t c) {
  const auto kind = unicode::char_class(c);
  return c == U'_' || kind == unicode::CharClass::kLetter || kind == unicode::CharClass::kNumber;
}
bool is_space(char32_t c) { return unicode::char_class(c) == unicode::CharClass::kSpace; }

class AttentionParser {
 public:
  std::vector<PromptPiece> parse(std::string_view text) {
    for (size_t at = 0; at < text.size();) at = token(text, at);
    for (const size_t begin : round_) multiply(begin, kStep);
    for (const size_t begin : square_) multiply(begin, 1 / kStep);
    if (pieces_.empty()) pieces_.push_back({"", 1.0});
    return merged();
  }

 private:
  // Consumes one token and returns where the next begins.
  size_t token(std::string_view text, size_t at) {
    const char c = text[at];
    if (c == '\\') {
      const bool escaped =
          at + 1 < text.size() && std::string_view("()[]\\").find(text[at + 1]) != std::string_view::npos;
      pieces_.push_back({escaped ? std::string(1, text[at + 1]) : "", 1.0});
      return at + (escaped ? 2 : 1);
    }
    if (c == '(')
      round_.push_back(pieces_.size());
    else if (c == '[')
      square_.push_back(pieces_.size());
    else if (c == ')' && !round_.empty())
      close(round_, kStep);
    else if (c == ']' && !square_.empty())
      close(square_, 1 / kStep);
    else if (c == ':')
      return colon(text, at);
    else if (c == ')' || c == ']')
      plain(text.substr(at, 1));
    else {
      const size_t end = std::min(text.find_first_of("\\()[]:", at), text.size());
      plain(text.substr(at, end - at));
      return end;
    }
    return at + 1;
  }

  size_t colon(std::string_view text, size_t at) {
    const auto number = weight_at(text, at);
    if (!number) {
      plain(":");
      return at + 1;
    }
    const size_t end = at + number->size() + 2;
    if (round_.empty())
      plain(text.substr(at, end - at));
    else
      close(round_, parse_weight(*number));
    return end;
  }

  void close(std::vector<size_t>& brackets, double factor) {
    multiply(brackets.back(), factor);
    brackets.pop_back();
  }
  void multiply(size_t begin, double factor) {
    for (size_t i = begin; i < pieces_.size(); ++i) pieces_[i].weight *= factor;
  }

  // Text without syntax, divided at BREAK as a word; the spaces around it go with it.
  void plain(std::string_view text) {
    const std::u32string wide = unicode::decode(text);
    size_t begin = 0;
    for (size_t i = 0; i + 5 <= wide.size(); ++i) {
      const bool word = wide.compare(i, 5, U"BREAK") == 0 && (i == 0 || !is_word(wide[i - 1])) &&
                        (i + 5 == wide.size() || !is_word(wide[i + 5]));
      if (!word) continue;
      size_t left = i, right = i + 5;
      while (left > begin && is_space(wide[left - 1])) --left;
      while (right < wide.size() && is_space(wide[right])) ++right;
      append(std::u32string_view(wide).substr(begin, left - begin));
      pieces_.push_back({"BREAK", -1.0});
      begin = right;
      i = right - 1;
    }
    append(std::u32string_view(wide).substr(begin));
  }
  void append(std::u32string_view text) {
    PromptPiece& piece = pieces_.emplace_back();
    for (const char32_t c : text) append_utf8(piece.text, c);
  }

  std::vector<PromptPiece> merged() {
    std::vector<PromptPiece> out;
    for (PromptPiece& piece : pieces_) {
      require<UsageError>(std::fabs(piece.weight) <= kMaxPromptWeight, "prompt: the weight ", piece.weight,
                          " of \"", printable(piece.text, 40), "\" is outside -", kMaxPromptWeight, " to ",
                          kMaxPromptWeight);
      if (!out.empty() && out.back().weight == piece.weight)
        out.back().text += piece.text;
      else
        out.push_back(std::move(piece));
    }
    return out;
  }

  std::vector<PromptPiece> pieces_;
  std::vector<size_t> round_, square_;  // pieces before each open bracket
};

double tag_weight(std::string_view text, std::string_view tag) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool good = error == std::errc() && end == text.data() + text.size() && std::isfinite(value) &&
                    std::fabs(value) <= kMaxPromptWeight;
  require<UsageError>(good, "prompt: <", printable(tag, 80), ">: expected a weight from -", kMaxPromptWeight,
                      " to ", kMaxPromptWeight, ", got \"", printable(text, 40), "\"");
  return value;
}

LoraTag lora_tag(std::string_view tag, std::string_view fields) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t colon = fields.find(':');
    parts.push_back(fields.substr(0, colon));
    if (colon == std::string_view::npos) break;
    fields = fields.substr(colon + 1);
  }
  LoraTag out;
  out.name = parts[0];
  bool good = !out.name.empty() && out.name[0] != '.' && out.name.find_first_of("/\\") == std::string::npos;
  for (const char c : out.name) good = good && static_cast<unsigned char>(c) >= 0x20 && c != 0x7f;
  require<UsageError>(good, "prompt: <", printable(tag, 80), ">: expected a lora's name without folders");
  if (parts.size() == 2) out.te_weight = out.weight = tag_weight(parts[1], tag);
  if (parts.size() >= 3) {
    out.te_weight = tag_weight(parts[1], tag);
    out.weight = tag_weight(parts[2], tag);
  }
  return out;
}

// The end of a "<word:...>" tag that begins at text[at], or npos.
size_t tag_end(std::string_view text, size_t at) {
  size_t i = at + 1;
  while (i < text.size() &&
         is_word(static_cast<unsigned char>(text[i]) < 0x80 ? static_cast<char32_t>(text[i]) : U' '))
    ++i;
  if (i == at + 1 || i >= text.size() || text[i] != ':') return std::string_view::npos;
  const size_t end = text.find_first_of("<>", i);
  return end != std::string_view::npos && text[end] == '>' ? end : std::string_view::npos;
}

}  // namespace

std::vector<PromptPiece> parse_prompt_attention(std::string_view prompt) {
  size_t characters = 0;
  for (const char c : prompt) characters += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  require<UsageError>(characters <= kMaxPromptChars, "prompt: ", characters, " characters, at most ",
                      kMaxPromptChars, " are accepted");
  return AttentionParser().parse(prompt);
}

PromptTags extract_lora_tags(std::string_view prompt) {
  PromptTags out;
  for (size_t at = 0; at < prompt.size();) {
    const size_t end = prompt[at] == '<' ? tag_end(prompt, at) : std::string_view::npos;
    if (end == std::string_view::npos) {
      out.text += prompt[at++];
      continue;
    }
    const std::string_view tag = prompt.substr(at + 1, end - at - 1);
    const size_t colon = tag.find(':');
    const std::string_view kind = tag.substr(0, colon);
    if (kind == "lora" || kind == "lyco")
      out.loras.push_back(lora_tag(tag, tag.substr(colon + 1)));
    else
      out.unknown.emplace_back(tag);
    at = end + 1;
  }
  return out;
}

}  // namespace rocm_sd
