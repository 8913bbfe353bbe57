// A stack machine over the prompt's characters. A bracket counts when it closes, and only if what it holds is
// whole; a bracket that does not count makes all around it text, because those would hold a stray character.
#include "text/prompt_schedule.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <set>

#include "base/error.hpp"
#include "base/utf8.hpp"
#include "text/prompt.hpp"
#include "text/unicode.hpp"

namespace rocm_sd {
namespace {

using unicode::char_class;
using unicode::CharClass;

constexpr int kMaxDepth = 64;

// What Python's \w and \s match; the web UI's patterns are Python's.
bool is_word(char32_t c) {
  const CharClass kind = char_class(c);
  return kind == CharClass::kLetter || kind == CharClass::kNumber || c == U'_';
}
bool is_space(char32_t c) { return char_class(c) == CharClass::kSpace || (c >= 0x1c && c <= 0x1f); }
bool is_digit(char32_t c) { return c >= U'0' && c <= U'9'; }

std::u32string_view trimmed(std::u32string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

std::string to_utf8(std::u32string_view text) {
  std::string out;
  for (const char32_t c : text) append_utf8(out, c);
  return out;
}

// Plain decimal numbers; too large ones are infinite.
double value_of(std::u32string_view number) {
  std::string ascii = to_utf8(number);
  if (ascii.starts_with('+')) ascii.erase(0, 1);
  double value = 0;
  const auto [end, error] = std::from_chars(ascii.data(), ascii.data() + ascii.size(), value);
  if (error != std::errc::result_out_of_range) return value;
  return std::strtod(ascii.c_str(), nullptr);
}

// [sign] digits [. digits] or . digits, then, if allowed, an exponent: the length of it at the front of text,
// or 0.
size_t number_length(std::u32string_view text, bool exponent) {
  const auto digits = [&](size_t i) {
    while (i < text.size() && is_digit(text[i])) ++i;
    return i;
  };
  const size_t begin = !text.empty() && (text[0] == U'+' || text[0] == U'-') ? 1 : 0;
  size_t i = digits(begin);
  const bool whole = i > begin;
  if (i < text.size() && text[i] == U'.') {
    const size_t point = i;
    i = digits(point + 1);
    if (!whole && i == point + 1) return 0;
  } else if (!whole) {
    return 0;
  }
  if (!exponent || i == text.size() || (text[i] != U'e' && text[i] != U'E')) return i;
  const size_t sign = i + 1 < text.size() && (text[i + 1] == U'+' || text[i + 1] == U'-') ? 1 : 0;
  const size_t end = digits(i + 1 + sign);
  return end > i + 1 + sign ? end : i;
}

std::u32string checked_characters(std::string_view prompt) {
  require<UsageError>(prompt.size() <= 4 * kMaxPromptChars, "prompt: ", prompt.size(), " bytes; at most ",
                      kMaxPromptChars, " characters are accepted");
  std::u32string text = unicode::decode(prompt);
  require<UsageError>(text.size() <= kMaxPromptChars, "prompt: ", text.size(), " characters; at most ",
                      kMaxPromptChars, " characters are accepted");
  return text;
}

// "text : 0.5 " -> "text", 0.5
PromptPart weighed_part(std::u32string_view text) {
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  PromptPart part{to_utf8(text), 1};
  const size_t colon = text.rfind(U':');
  if (colon == text.npos) return part;
  const std::u32string_view number = trimmed(text.substr(colon + 1));
  if (number.empty() || number_length(number, false) != number.size()) return part;
  part.weight = value_of(number);
  std::u32string_view words = text.substr(0, colon);
  while (!words.empty() && is_space(words.back())) words.remove_suffix(1);
  part.text = to_utf8(words);
  require<UsageError>(std::abs(part.weight) <= kMaxPromptWeight, "prompt: the weight of \"",
                      printable(part.text, 60), "\" is ", part.weight, "; expected a number within +-",
                      kMaxPromptWeight);
  return part;
}

}  // namespace

std::vector<PromptPart> split_prompt_parts(std::string_view prompt) {
  constexpr std::u32string_view kAnd = U"AND";
  const std::u32string characters = checked_characters(prompt);
  const std::u32string_view text = characters;
  std::vector<PromptPart> parts;
  size_t begin = 0;
  for (size_t at = text.find(kAnd); at != text.npos; at = text.find(kAnd, at + kAnd.size())) {
    const size_t end = at + kAnd.size();
    if ((at > 0 && is_word(text[at - 1])) || (end < text.size() && is_word(text[end]))) continue;
    parts.push_back(weighed_part(text.substr(begin, at - begin)));
    begin = end;
  }
  parts.push_back(weighed_part(text.substr(begin)));
  require<UsageError>(parts.size() <= kMaxPromptParts, "prompt: ", parts.size(),
                      " parts joined by AND; at most ", kMaxPromptParts, " are drawn together");
  return parts;
}

class PromptSchedule::Parser {
 public:
  explicit Parser(PromptSchedule& out) : out_(out) {}

  // False: the prompt is text as it stands.
  bool parse(std::u32string_view text) {
    for (size_t i = 0; i < text.size(); ++i) {
      const char32_t c = text[i];
      if (c == U'\\') {
        if (i + 1 == text.size() || text[i + 1] == U'\n') return false;
        add_text(to_utf8(text.substr(i, 2)));
        ++i;
      } else if (c == U'(' || c == U'[') {
        frames_.push_back({static_cast<char>(c), {{}}, {}});
      } else if (c == U')' || c == U']') {
        if (!close(static_cast<char>(c))) spill(static_cast<char>(c));
      } else if (c == U'|' && frames_.empty()) {
        return false;
      } else if ((c == U':' || c == U'|') && !frames_.empty()) {
        frames_.back().segments.emplace_back();
        frames_.back().separators += static_cast<char>(c);
      } else {
        size_t end = i + 1;
        while (end < text.size() && std::u32string_view(U"\\()[]:|").find(text[end]) == text.npos) ++end;
        if (c == U':') end = i + 1;
        add_text(to_utf8(text.substr(i, end - i)));
        i = end - 1;
      }
    }
    spill(0);
    return !stray_bar_;
  }

 private:
  struct Frame {
    char open;
    std::vector<Items> segments;
    std::string separators;  // between them
  };

  Items& current() { return frames_.empty() ? out_.root_ : frames_.back().segments.back(); }
  static void append(Items& to, std::string_view text) {
    if (to.empty() || to.back().node >= 0)
      to.push_back({std::string(text)});
    else
      to.back().text += text;
  }
  static void append(Items& to, const Items& items) {
    for (const Item& item : items) {
      if (item.node >= 0)
        to.push_back(item);
      else
        append(to, item.text);
    }
  }
  void add_text(std::string_view text) { append(current(), text); }

  // The bracket that closes here, if it is one of the language's. False: it is not.
  bool close(char c) {
    if (frames_.empty() || frames_.back().open != (c == ')' ? '(' : '[')) return false;
    Frame& frame = frames_.back();
    const std::string& separators = frame.separators;
    if (separators.empty() || (c == ')' && separators == ":")) {
      Items inner;
      write(frame, inner);
      append(inner, std::string_view(&c, 1));
      frames_.pop_back();
      append(current(), inner);
      return true;
    }
    if (c == ')') return false;
    Node node;
    if (separators.find(':') == std::string::npos) {
      node.alternates = true;
      node.options = std::move(frame.segments);
    } else {
      if ((separators != ":" && separators != "::") || !read_when(frame.segments.back(), node)) return false;
      node.options.resize(2);
      if (separators == "::") node.options[0] = std::move(frame.segments[0]);
      node.options[1] = std::move(frame.segments[separators.size() - 1]);
    }
    for (const Items& option : node.options) node.depth = std::max(node.depth, 1 + out_.depth_of(option));
    require<UsageError>(node.depth <= kMaxDepth, "prompt: more than ", kMaxDepth,
                        " brackets of prompt editing within each other");
    frames_.pop_back();
    current().push_back({{}, static_cast<int>(out_.nodes_.size())});
    out_.nodes_.push_back(std::move(node));
    return true;
  }

  static bool read_when(const Items& items, Node& node) {
    if (items.size() != 1 || items[0].node >= 0) return false;
    const std::u32string text = unicode::decode(items[0].text);
    const std::u32string_view number = trimmed(text);
    if (number.empty() || number_length(number, true) != number.size()) return false;
    node.when = value_of(number);
    node.is_share = number.find(U'.') != number.npos;
    return true;
  }

  // The frame as text, without its closing bracket.
  static void write(const Frame& frame, Items& to) {
    append(to, std::string_view(&frame.open, 1));
    for (size_t i = 0; i < frame.segments.size(); ++i) {
      if (i > 0) append(to, std::string_view(&frame.separators[i - 1], 1));
      append(to, frame.segments[i]);
    }
  }

  // What is open is text, and so is the character that showed it.
  void spill(char stray) {
    for (const Frame& frame : frames_) {
      write(frame, out_.root_);
      stray_bar_ = stray_bar_ || frame.separators.find('|') != std::string::npos;
    }
    frames_.clear();
    if (stray) append(out_.root_, std::string_view(&stray, 1));
  }

  PromptSchedule& out_;
  std::vector<Frame> frames_;
  bool stray_bar_ = false;
};

PromptSchedule::PromptSchedule(std::string_view prompt) {
  const std::u32string text = checked_characters(prompt);
  if (Parser(*this).parse(text)) {
    if (depth_of(root_) > 0) return;
    nodes_.clear();  // of brackets that turned out to be text there are none
  } else {
    nodes_.clear();
  }
  root_ = {{to_utf8(text)}};
}

int PromptSchedule::depth_of(const Items& items) const {
  int depth = 0;
  for (const Item& item : items)
    if (item.node >= 0) depth = std::max(depth, nodes_[static_cast<size_t>(item.node)].depth);
  return depth;
}

int PromptSchedule::Node::end(int calls) const {
  const double steps = is_share ? when * calls : when;
  return static_cast<int>(std::clamp(std::trunc(steps), -1.0, static_cast<double>(calls)));
}

std::string PromptSchedule::text_at(const Items& items, int step, int calls) const {
  std::string out;
  for (const Item& item : items) {
    if (item.node < 0) {
      out += item.text;
      continue;
    }
    const Node& node = nodes_[static_cast<size_t>(item.node)];
    const auto turn = static_cast<size_t>(step - 1) % node.options.size();
    const size_t chosen = node.alternates ? turn : step <= node.end(calls) ? 0 : 1;
    out += text_at(node.options[chosen], step, calls);
  }
  return out;
}

std::vector<std::string> PromptSchedule::texts(int calls) const {
  // The steps at which a text ends: of alternating words every one.
  std::set<int> ends = {calls};
  for (const Node& node : nodes_) {
    if (!node.alternates && node.end(calls) >= 1) ends.insert(node.end(calls));
    for (int step = 1; node.alternates && step < calls; ++step) ends.insert(step);
  }
  std::vector<std::string> out;
  int written = -1;
  for (int call = 0; call < calls; ++call) {
    const int end = *ends.lower_bound(call);
    out.push_back(end == written ? out.back() : text_at(root_, end, calls));
    written = end;
  }
  return out;
}

}  // namespace rocm_sd
