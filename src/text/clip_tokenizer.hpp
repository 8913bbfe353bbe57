// CLIP's byte-level BPE tokenizer: a prompt in UTF-8 to token ids, the same ids as Hugging Face's
// `CLIPTokenizer` (transformers 5 on the Rust `tokenizers` library) for any string.
//
// Method: NFC -> runs of White_Space to one space -> per-character lower case -> split into contractions,
// letter runs, single numbers and runs of anything else -> UTF-8 bytes -> BPE with "</w>" at the end of a
// word (Radford et al. 2021, "Learning Transferable Visual Models From Natural Language Supervision";
// Sennrich et al. 2016). Differences that remain: invalid UTF-8 becomes U+FFFD here, byte by byte, where
// Python would refuse the string. OpenAI's own cleaning (ftfy, html.unescape) is not done, as transformers 5
// does not do it either.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rocm_sd {

// What "<|startoftext|>" and "<|endoftext|>" (and a pad token such as "!") inside a prompt mean.
enum class SpecialTokens {
  kRecognise,  // their own ids, as transformers does
  kAsText,     // ordinary characters, so that a typed "<|endoftext|>" cannot end the prompt
};

class ClipTokenizer {
 public:
  static constexpr size_t kMaxTextBytes =
      4u << 20;  // longest text that encode() takes; prompts are far below it

  // The shipped vocabulary of OpenAI's CLIP (49,408 tokens; share/vocab/clip). Pads with <|endoftext|>.
  static ClipTokenizer shipped();

  // A tokenizer folder in the Hugging Face layout: vocab.json + merges.txt, or tokenizer.json alone; bos,
  // eos, unk and pad tokens and model_max_length from tokenizer_config.json and special_tokens_map.json where
  // they are there. Throws FileError for a missing or unreadable file, FormatError for a malformed one; each
  // names the file.
  static ClipTokenizer from_folder(const std::filesystem::path& folder);

  // merges.txt's text alone; the vocabulary follows by CLIP's rule: 256 byte symbols, the same with "</w>",
  // one token per merge, <|startoftext|>, <|endoftext|>. `name` stands in for the file in errors.
  static ClipTokenizer from_merges(std::string_view merges, std::string_view name);

  // The texts of vocab.json and merges.txt; special tokens as in CLIP.
  static ClipTokenizer from_vocab_and_merges(std::string_view vocab_json, std::string_view merges,
                                             std::string_view name);

  // The text of a tokenizer.json (model.vocab, model.merges, added_tokens).
  static ClipTokenizer from_tokenizer_json(std::string_view tokenizer_json, std::string_view name);

  ClipTokenizer(ClipTokenizer&&) noexcept;
  ClipTokenizer& operator=(ClipTokenizer&&) noexcept;
  ~ClipTokenizer();

  // Token ids without bos, eos, padding or truncation. Safe to call from several threads.
  // Throws UsageError for a text above kMaxTextBytes.
  std::vector<int32_t> encode(std::string_view text, SpecialTokens special = SpecialTokens::kRecognise) const;

  // The text of the ids, "</w>" as a space, trimmed; unknown ids are left out. For messages, not for round
  // trips.
  std::string decode(std::span<const int32_t> ids) const;

  int32_t bos_id() const;
  int32_t eos_id() const;
  int32_t pad_id() const;      // of the tokenizer's configuration; SD1 49407, OpenCLIP-type folders 0 ("!")
  int64_t vocab_size() const;  // largest id + 1: the rows that the embedding table needs
  int max_length() const;      // model_max_length of the configuration, else 77; bos and eos included
  std::string token(int32_t id) const;  // the id's spelling in vocab.json; empty where there is none
  std::optional<int32_t> token_id(std::string_view token) const;  // in vocab.json's spelling, e.g. ",</w>"

 private:
  struct State;
  explicit ClipTokenizer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace rocm_sd
