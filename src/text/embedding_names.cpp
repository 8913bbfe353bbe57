#include "text/embedding_names.hpp"

#include <algorithm>
#include <set>

#include "base/error.hpp"
#include "base/text.hpp"
#include "base/utf8.hpp"
#include "text/unicode.hpp"

namespace rocm_sd {
namespace {

constexpr std::string_view kReference = "embedding:";

std::u32string normalize(std::string_view text) {
  return unicode::lower(unicode::collapse_spaces(unicode::nfc(unicode::decode(text))));
}

std::string to_utf8(std::u32string_view text) {
  std::string out;
  for (const char32_t c : text) append_utf8(out, c);
  return out;
}

bool is_word_byte(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte >= 0x80 || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         c == '_';
}

// Whether "embedding:NAME" begins at text[at]: a word's beginning, and a name right behind the colon.
bool is_reference(std::string_view text, size_t at) {
  const size_t name = at + kReference.size();
  return text.substr(at).starts_with(kReference) && (at == 0 || !is_word_byte(text[at - 1])) &&
         name < text.size() && std::string_view(" \t\r\n,:").find(text[name]) == text.npos;
}

}  // namespace

EmbeddingNames::EmbeddingNames(const ClipTokenizer& tokenizer, std::vector<std::string> names,
                               CountVectors count)
    : tokenizer_(tokenizer), names_(std::move(names)), count_(std::move(count)) {
  std::set<std::vector<int32_t>> known;
  for (size_t i = 0; i < names_.size(); ++i) {
    std::vector<int32_t> ids = tokenizer_.encode(names_[i], SpecialTokens::kAsText);
    if (!ids.empty() && known.insert(ids).second)
      phrases_.push_back({std::move(ids), normalize(names_[i]), i});
  }
  std::stable_sort(phrases_.begin(), phrases_.end(),
                   [](const Phrase& a, const Phrase& b) { return a.ids.size() > b.ids.size(); });
  for (size_t i = 0; i < phrases_.size(); ++i) {
    by_first_[phrases_[i].ids.front()].push_back(i);
    if (!phrases_[i].normalized.empty()) by_letter_[phrases_[i].normalized.front()].push_back(i);
  }
  for (auto& [letter, list] : by_letter_)
    std::stable_sort(list.begin(), list.end(), [this](size_t a, size_t b) {
      return phrases_[a].normalized.size() > phrases_[b].normalized.size();
    });
}

bool EmbeddingNames::is_vocabulary_word(size_t name) const {
  return tokenizer_.encode(names_[name], SpecialTokens::kAsText).size() == 1;
}

void EmbeddingNames::add_tokens(std::string_view text, SpecialTokens special,
                                std::vector<PromptUnit>& out) const {
  const std::vector<int32_t> ids = tokenizer_.encode(text, special);
  for (size_t i = 0; i < ids.size();) {
    const auto candidates = by_first_.find(ids[i]);
    const Phrase* found = nullptr;
    if (candidates != by_first_.end())
      for (const size_t k : candidates->second) {
        const Phrase& phrase = phrases_[k];
        if (phrase.ids.size() > ids.size() - i ||
            !std::equal(phrase.ids.begin(), phrase.ids.end(), ids.begin() + static_cast<ptrdiff_t>(i)))
          continue;
        found = &phrase;
        break;
      }
    out.push_back(found ? unit(found->name) : PromptUnit{.id = ids[i]});
    i += found ? found->ids.size() : 1;
  }
}

// The name that `rest` begins with, and how many bytes of it that takes.
size_t EmbeddingNames::referred_name(std::string_view rest, size_t& length) const {
  size_t best = names_.size();
  length = 0;
  for (size_t i = 0; i < names_.size(); ++i) {
    const std::string& name = names_[i];
    const bool ends =
        rest.size() == name.size() || (rest.size() > name.size() && !is_word_byte(rest[name.size()]));
    if (name.size() > length && rest.starts_with(name) && ends) {
      best = i;
      length = name.size();
    }
  }
  if (best < names_.size()) {
    for (const std::string_view ending : {".safetensors", ".ckpt", ".pth", ".pt", ".bin"})
      if (rest.substr(length).starts_with(ending)) length += ending.size();
    return best;
  }
  const std::string_view word = rest.substr(0, rest.find_first_of(" \t\r\n,"));
  require<UsageError>(!names_.empty(), "embedding:", printable(word, 80),
                      ": no such embedding: neither --embedding nor --embedding-dir names any");
  throw UsageError(concat("embedding:", printable(word, 80), ": none of the ", names_.size(),
                          " embeddings has this name; did you mean \"", printable(nearest_name(word, names_)),
                          "\"?"));
}

// The longest name in angle brackets that `rest` begins with.
std::optional<size_t> EmbeddingNames::angle_name(std::string_view rest) const {
  std::optional<size_t> best;
  for (size_t i = 0; i < names_.size(); ++i)
    if (names_[i].starts_with('<') && names_[i].ends_with('>') && rest.starts_with(names_[i]) &&
        (!best || names_[i].size() > names_[*best].size()))
      best = i;
  return best;
}

std::optional<EmbeddingNames::Found> EmbeddingNames::next_in_text(std::string_view text, size_t from) const {
  for (size_t at = text.find_first_of("<e", from); at != text.npos; at = text.find_first_of("<e", at + 1)) {
    const std::string_view rest = text.substr(at);
    if (rest[0] == '<') {
      if (const auto name = angle_name(rest)) return Found{at, at + names_[*name].size(), *name};
    } else if (is_reference(text, at)) {
      size_t length = 0;
      const size_t name = referred_name(rest.substr(kReference.size()), length);
      return Found{at, at + kReference.size() + length, name};
    }
  }
  return std::nullopt;
}

std::vector<PromptUnit> EmbeddingNames::units(std::string_view text, SpecialTokens special) const {
  std::vector<PromptUnit> out;
  for (size_t begin = 0;;) {
    const auto found = next_in_text(text, begin);
    add_tokens(text.substr(begin, found ? found->begin - begin : text.npos), special, out);
    if (!found) return out;
    out.push_back(unit(found->name));
    begin = found->end;
  }
}

std::vector<PromptUnit> EmbeddingNames::plain_units(std::string_view text) const {
  std::vector<PromptUnit> out;
  const auto add_text = [&](std::string_view part) {
    for (const int32_t id : tokenizer_.encode(part, SpecialTokens::kRecognise)) out.push_back({.id = id});
  };
  if (phrases_.empty()) {
    add_text(text);
    return out;
  }
  const std::u32string normalized = normalize(text);
  const std::u32string_view view = normalized;
  size_t begin = 0;
  for (size_t i = 0; i < view.size();) {
    const auto candidates = by_letter_.find(view[i]);
    const Phrase* found = nullptr;
    if (candidates != by_letter_.end())
      for (const size_t k : candidates->second)
        if (view.substr(i).starts_with(phrases_[k].normalized)) {
          found = &phrases_[k];
          break;
        }
    if (!found) {
      ++i;
      continue;
    }
    add_text(to_utf8(view.substr(begin, i - begin)));
    out.push_back(unit(found->name));
    begin = i += found->normalized.size();
  }
  add_text(to_utf8(view.substr(begin)));
  return out;
}

}  // namespace rocm_sd
