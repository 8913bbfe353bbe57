// Names in a prompt that stand for vectors of textual inversion (Gal et al., "An Image is Worth One Word",
// 2022), where a vocabulary has no token for them.
//
// In the web UI's reading a name is found by its tokens, the longest name first, so that capitals do not
// count and "my-style" is found in "by my-style, red". Beyond it, ComfyUI's "embedding:my-style" is read, and
// must name one, and "<my-style>" is found as text, because the web UI's rule would not find it in
// "<my-style>,". In Diffusers' reading a name is a token added to the vocabulary: found in the normalised
// text, words or not.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/clip_tokenizer.hpp"

namespace rocm_sd {

// A token of the vocabulary, or what a name stands for.
struct PromptUnit {
  int32_t id = 0;   // 0 for a name
  int name = -1;    // index of the name, or -1
  int vectors = 1;  // places that it takes
};

class EmbeddingNames {
 public:
  // How many vectors a name stands for, 1 or more; asked where a prompt has the name. May throw.
  using CountVectors = std::function<int(size_t name)>;

  // tokenizer must outlive the result. Of equal names the first counts. Names without a token are left out.
  EmbeddingNames(const ClipTokenizer& tokenizer, std::vector<std::string> names, CountVectors count);

  const std::vector<std::string>& names() const { return names_; }
  // Whether the vocabulary has a token of its own for the name, which the name then replaces.
  bool is_vocabulary_word(size_t name) const;

  // Throws UsageError for "embedding:NAME" with a name that is not known, with the nearest one.
  std::vector<PromptUnit> units(std::string_view text, SpecialTokens special) const;
  // Diffusers' reading; special tokens are recognised.
  std::vector<PromptUnit> plain_units(std::string_view text) const;

 private:
  struct Phrase {
    std::vector<int32_t> ids;
    std::u32string normalized;
    size_t name;
  };
  void add_tokens(std::string_view text, SpecialTokens special, std::vector<PromptUnit>& out) const;
  // The next "embedding:NAME" or "<NAME>" at or behind `from`: where it begins and ends, and which it is.
  struct Found {
    size_t begin, end, name;
  };
  std::optional<Found> next_in_text(std::string_view text, size_t from) const;
  std::optional<size_t> angle_name(std::string_view rest) const;
  size_t referred_name(std::string_view rest, size_t& length) const;
  PromptUnit unit(size_t name) const { return {0, static_cast<int>(name), count_(name)}; }

  const ClipTokenizer& tokenizer_;
  std::vector<std::string> names_;
  CountVectors count_;
  std::vector<Phrase> phrases_;                                // longest first
  std::unordered_map<int32_t, std::vector<size_t>> by_first_;  // phrases by their first token, in that order
  std::unordered_map<char32_t, std::vector<size_t>>
      by_letter_;  // by their first character, longest text first
};

}  // namespace rocm_sd
