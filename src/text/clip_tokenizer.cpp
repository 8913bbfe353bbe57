// The tokenizer's steps in order: special tokens, normalisation, words, BPE.
#include "text/clip_tokenizer.hpp"

#include <algorithm>
#include <array>
#include <mutex>
#include <unordered_map>

#include "base/error.hpp"
#include "base/paths.hpp"
#include "base/utf8.hpp"
#include "text/bpe.hpp"
#include "text/unicode.hpp"
#include "text/vocabulary_files.hpp"

namespace rocm_sd {
namespace {

using unicode::char_class;
using unicode::CharClass;

// Words found before are looked up instead of merged again; the size bounds memory on adversarial text.
constexpr size_t kMaxCachedWords = 1u << 16;
constexpr size_t kMaxCachedWordBytes = 64;

std::u32string normalize(std::u32string_view text) {
  return unicode::lower(unicode::collapse_spaces(unicode::nfc(text)));
}

// Added tokens to look for, longest first among those that begin alike ("leftmost-longest").
class TokenFinder {
 public:
  void add(std::u32string content, int32_t id) {
    if (!content.empty()) tokens_.emplace_back(std::move(content), id);
  }
  void finish() {
    std::stable_sort(tokens_.begin(), tokens_.end(),
                     [](const auto& a, const auto& b) { return a.first.size() > b.first.size(); });
    for (size_t i = 0; i < tokens_.size(); ++i) by_first_[tokens_[i].first[0]].push_back(i);
  }

  // Calls on_text(part) for the text between tokens, on_token(id) for tokens, in order.
  template <class OnText, class OnToken>
  void split(std::u32string_view text, OnText on_text, OnToken on_token) const {
    size_t begin = 0;
    for (size_t i = 0; i < text.size() && !tokens_.empty();) {
      const auto candidates = by_first_.find(text[i]);
      const std::pair<std::u32string, int32_t>* found = nullptr;
      if (candidates != by_first_.end()) {
        for (const size_t k : candidates->second) {
          if (!text.substr(i).starts_with(tokens_[k].first)) continue;
          found = &tokens_[k];
          break;
        }
      }
      if (found == nullptr) {
        ++i;
        continue;
      }
      if (i > begin) on_text(text.substr(begin, i - begin));
      on_token(found->second);
      begin = i += found->first.size();
    }
    if (begin < text.size()) on_text(text.substr(begin));
  }

 private:
  std::vector<std::pair<std::u32string, int32_t>> tokens_;
  std::unordered_map<char32_t, std::vector<size_t>> by_first_;
};

// Length of a contraction ('s 't 're 've 'm 'll 'd) or of a special token's spelling at the start of text,
// else 0.
size_t fixed_word(std::u32string_view text) {
  static constexpr std::u32string_view kWords[] = {
      U"<|startoftext|>", U"<|endoftext|>", U"'s", U"'t", U"'re", U"'ve", U"'m", U"'ll", U"'d"};
  if (text[0] != U'<' && text[0] != U'\'') return 0;
  for (const std::u32string_view word : kWords)
    if (text.starts_with(word)) return word.size();
  return 0;
}

// Calls on_word for each word of a normalised text: CLIP's pattern, and the byte-level step's own pattern
// after it, which parts a "<|startoftext|>" that is not taken for the special token into "<|", the letters
// and "|>".
template <class OnWord>
void split_words(std::u32string_view text, OnWord on_word) {
  for (size_t i = 0; i < text.size();) {
    const std::u32string_view rest = text.substr(i);
    const CharClass kind = char_class(text[i]);
    size_t length = 1;
    if (const size_t fixed = fixed_word(rest)) {
      if (text[i] == U'<') {
        on_word(rest.substr(0, 2));
        on_word(rest.substr(2, fixed - 4));
        on_word(rest.substr(fixed - 2, 2));
      } else {
        on_word(rest.substr(0, fixed));
      }
      i += fixed;
      continue;
    }
    if (kind == CharClass::kLetter || kind == CharClass::kOther)
      while (length < rest.size() && char_class(rest[length]) == kind) ++length;
    if (kind != CharClass::kSpace) on_word(rest.substr(0, length));
    i += length;
  }
}

std::string to_utf8(std::u32string_view text) {
  std::string out;
  for (const char32_t c : text) append_utf8(out, c);
  return out;
}

// What stands for each byte in vocab.json, backwards.
const std::unordered_map<char32_t, uint8_t>& bytes_of_symbols() {
  static const std::unordered_map<char32_t, uint8_t> kMap = [] {
    std::unordered_map<char32_t, uint8_t> map;
    const auto symbols = byte_symbols();
    for (int byte = 0; byte < 256; ++byte)
      map[decode_utf8(symbols[byte], 0).code_point] = static_cast<uint8_t>(byte);
    return map;
  }();
  return kMap;
}

}  // namespace

struct ClipTokenizer::State {
  explicit State(TokenizerFiles files);
  void encode_words(std::u32string_view normalized, std::vector<int32_t>& ids);

  Vocabulary vocabulary;
  std::unordered_map<int32_t, std::string> texts;
  Bpe bpe;
  TokenFinder as_typed, in_normalized;
  int32_t bos, eos, pad, vocab_size = 0;
  int max_length;

  std::mutex cache_mutex;
  std::unordered_map<std::string, std::vector<int32_t>> cache;
};

ClipTokenizer::State::State(TokenizerFiles files)
    : vocabulary(std::move(files.vocabulary)),
      bpe(vocabulary, files.merges, vocabulary.at(files.unknown), files.name),
      max_length(files.max_length) {
  for (const AddedToken& token : files.added) {
    vocabulary.emplace(token.content, token.id);
    const std::u32string content = unicode::decode(token.content);
    if (token.normalized)
      in_normalized.add(normalize(content), token.id);
    else
      as_typed.add(content, token.id);
  }
  as_typed.finish();
  in_normalized.finish();
  for (const auto& [token, id] : vocabulary) {
    texts.emplace(id, token);
    vocab_size = std::max(vocab_size, id + 1);
  }
  bos = vocabulary.at(files.bos);
  eos = vocabulary.at(files.eos);
  pad = vocabulary.at(files.pad);
}

void ClipTokenizer::State::encode_words(std::u32string_view normalized, std::vector<int32_t>& ids) {
  std::vector<int32_t> word_ids;
  split_words(normalized, [&](std::u32string_view part) {
    const std::string word = to_utf8(part);
    const bool cacheable = word.size() <= kMaxCachedWordBytes;
    if (cacheable) {
      const std::lock_guard lock(cache_mutex);
      if (const auto found = cache.find(word); found != cache.end()) {
        ids.insert(ids.end(), found->second.begin(), found->second.end());
        return;
      }
    }
    word_ids.clear();
    bpe.encode(word, word_ids);
    ids.insert(ids.end(), word_ids.begin(), word_ids.end());
    if (cacheable) {
      const std::lock_guard lock(cache_mutex);
      if (cache.size() >= kMaxCachedWords) cache.clear();
      cache.emplace(word, word_ids);
    }
  });
}

ClipTokenizer::ClipTokenizer(std::unique_ptr<State> state) : state_(std::move(state)) {}
ClipTokenizer::ClipTokenizer(ClipTokenizer&&) noexcept = default;
ClipTokenizer& ClipTokenizer::operator=(ClipTokenizer&&) noexcept = default;
ClipTokenizer::~ClipTokenizer() = default;

ClipTokenizer ClipTokenizer::shipped() {
  const auto file = share_path("vocab/clip/merges.txt");
  const auto merges = read_text_file(file);
  require<FileError>(merges.has_value(), printable(file.string(), 1024), ": not found");
  return from_merges(*merges, file.string());
}

ClipTokenizer ClipTokenizer::from_folder(const std::filesystem::path& folder) {
  return ClipTokenizer(std::make_unique<State>(read_tokenizer_folder(folder)));
}

ClipTokenizer ClipTokenizer::from_merges(std::string_view merges, std::string_view name) {
  TokenizerFiles files{.name = std::string(name)};
  read_merges(merges, name, files.merges);
  files.vocabulary = vocabulary_from_merges(files.merges, name);
  resolve_added_tokens(files);
  return ClipTokenizer(std::make_unique<State>(std::move(files)));
}

ClipTokenizer ClipTokenizer::from_vocab_and_merges(std::string_view vocab_json, std::string_view merges,
                                                   std::string_view name) {
  TokenizerFiles files{.name = std::string(name)};
  read_vocab_json(vocab_json, name, files.vocabulary);
  read_merges(merges, name, files.merges);
  resolve_added_tokens(files);
  return ClipTokenizer(std::make_unique<State>(std::move(files)));
}

ClipTokenizer ClipTokenizer::from_tokenizer_json(std::string_view tokenizer_json, std::string_view name) {
  TokenizerFiles files = read_tokenizer_json(tokenizer_json, name);
  resolve_added_tokens(files);
  return ClipTokenizer(std::make_unique<State>(std::move(files)));
}

std::vector<int32_t> ClipTokenizer::encode(std::string_view text, SpecialTokens special) const {
  require<UsageError>(text.size() <= kMaxTextBytes, "prompt: ", text.size(), " bytes; at most ",
                      kMaxTextBytes, " can be tokenised");
  std::vector<int32_t> ids;
  const auto take_id = [&](int32_t id) { ids.push_back(id); };
  const auto take_words = [&](std::u32string_view part) { state_->encode_words(part, ids); };
  const std::u32string characters = unicode::decode(text);
  if (special == SpecialTokens::kAsText) {
    take_words(normalize(characters));
    return ids;
  }
  state_->as_typed.split(
      characters,
      [&](std::u32string_view part) { state_->in_normalized.split(normalize(part), take_words, take_id); },
      take_id);
  return ids;
}

std::string ClipTokenizer::decode(std::span<const int32_t> ids) const {
  std::string out;
  for (const int32_t id : ids) {
    const auto found = state_->texts.find(id);
    if (found == state_->texts.end()) continue;
    std::string_view token = found->second;
    const bool ends_word = token.ends_with("</w>");
    if (ends_word) token.remove_suffix(4);
    for (const char32_t c : unicode::decode(token)) {
      const auto byte = bytes_of_symbols().find(c);
      if (byte != bytes_of_symbols().end())
        out += static_cast<char>(byte->second);
      else
        append_utf8(out, c);
    }
    if (ends_word) out += ' ';
  }
  out = sanitize_utf8(out);
  while (out.ends_with(' ')) out.pop_back();
  out.erase(0, out.find_first_not_of(' '));
  return out;
}

std::string ClipTokenizer::token(int32_t id) const {
  const auto found = state_->texts.find(id);
  return found == state_->texts.end() ? "" : found->second;
}

int32_t ClipTokenizer::bos_id() const { return state_->bos; }
int32_t ClipTokenizer::eos_id() const { return state_->eos; }
int32_t ClipTokenizer::pad_id() const { return state_->pad; }
int64_t ClipTokenizer::vocab_size() const { return state_->vocab_size; }
int ClipTokenizer::max_length() const { return state_->max_length; }

std::optional<int32_t> ClipTokenizer::token_id(std::string_view token) const {
  const auto found = state_->vocabulary.find(std::string(token));
  if (found == state_->vocabulary.end()) return std::nullopt;
  return found->second;
}

}  // namespace rocm_sd
