// The files of a Hugging Face tokenizer folder, read into one struct and checked: vocab.json, merges.txt,
// tokenizer.json, tokenizer_config.json, special_tokens_map.json. Everything in them is hostile until it got
// here.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/bpe.hpp"

namespace rocm_sd {

// A token that is found in a text before BPE (AddedToken in `tokenizers`).
struct AddedToken {
  std::string content;
  bool normalized = false;  // looked for in the normalised text rather than in the text as typed
  int32_t id = -1;
};

struct TokenizerFiles {
  std::string name;  // for messages
  Vocabulary vocabulary;
  std::vector<std::pair<std::string, std::string>> merges;
  std::vector<AddedToken>
      added;  // in the order in which the reference adds them; ids set by resolve_added_tokens
  std::string bos = "<|startoftext|>", eos = "<|endoftext|>", unknown = "<|endoftext|>",
              pad = "<|endoftext|>";
  int max_length = 77;
};

// Limits of what is read. CLIP has 49,408 tokens and 48,894 merges in 1.4 MB; larger vocabularies exist.
constexpr size_t kMaxVocabularyFile = 64u << 20;
constexpr size_t kMaxTokens = 1u << 20;  // tokens, merges, and the highest id
constexpr size_t kMaxTokenBytes = 4096;
constexpr size_t kMaxAddedTokens = 4096;

// All throw FormatError naming `name` (and the line or token) for malformed content.
void read_vocab_json(std::string_view text, std::string_view name, Vocabulary& vocabulary);
void read_merges(std::string_view text, std::string_view name,
                 std::vector<std::pair<std::string, std::string>>& merges);
TokenizerFiles read_tokenizer_json(std::string_view text, std::string_view name);

struct ConfigTexts {
  std::optional<std::string> tokenizer_config, special_tokens_map, added_tokens;
};
// tokenizer_config.json, and special_tokens_map.json and added_tokens.json where the former has no
// added_tokens_decoder.
void read_tokenizer_config(const ConfigTexts& texts, TokenizerFiles& files);

// CLIP's construction: 256 byte symbols, the same with "</w>", the merges' results, bos, eos.
Vocabulary vocabulary_from_merges(const std::vector<std::pair<std::string, std::string>>& merges,
                                  std::string_view name);

// Adds bos, eos, unknown and pad to files.added as the reference does, and gives every added token its id:
// that of the vocabulary or a new one behind it. Throws FormatError where bos, eos or the unknown token is
// not in the vocabulary.
void resolve_added_tokens(TokenizerFiles& files);

// The whole folder. Throws FileError for missing or unreadable files, FormatError as above.
TokenizerFiles read_tokenizer_folder(const std::filesystem::path& folder);

// A text file of at most max_bytes; nothing if it does not exist. Throws FileError for folders, devices and
// the like, FormatError for longer files and invalid UTF-8.
std::optional<std::string> read_text_file(const std::filesystem::path& file,
                                          size_t max_bytes = kMaxVocabularyFile);

}  // namespace rocm_sd
