// Byte-pair encoding of one word over a vocabulary in CLIP's spelling: one symbol per byte, "</w>" on the
// last. Method: Sennrich et al. 2016; the merge of lowest rank first, the leftmost of equals, as in
// `tokenizers`.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace rocm_sd {

// Token texts, in vocab.json's spelling, to ids.
using Vocabulary = std::unordered_map<std::string, int32_t>;

// The character that stands for a byte in vocab.json, as UTF-8: printable Latin-1 for itself, the other bytes
// from U+0100 on (the rule of GPT-2's and CLIP's encoders).
std::array<std::string, 256> byte_symbols();
// The bytes in the order in which CLIP numbers them (printable ones first).
std::array<uint8_t, 256> byte_order();

class Bpe {
 public:
  // merges: pairs of token texts, best first. Throws FormatError, naming `name`, for a merge whose parts or
  // result are not in the vocabulary, and where bytes are missing from the vocabulary and unknown_id is -1.
  Bpe(const Vocabulary& vocabulary, const std::vector<std::pair<std::string, std::string>>& merges,
      int32_t unknown_id, std::string_view name);

  // Appends the ids of one word, given as UTF-8; a byte without a token becomes unknown_id. Empty words add
  // nothing.
  void encode(std::string_view word, std::vector<int32_t>& ids) const;

 private:
  struct Merge {
    int32_t rank, id;
  };
  const Merge* find(int32_t left, int32_t right) const;

  std::array<int32_t, 256> inner_{}, final_{};  // ids of the bytes inside and at the end of a word
  std::unordered_map<uint64_t, Merge> merges_;
};

}  // namespace rocm_sd
