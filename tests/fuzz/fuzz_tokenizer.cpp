// Fuzzing of the tokenizer's files and of encoding: any bytes give ids within the vocabulary or an Error.
// The first byte picks what the rest is; parts are separated by a byte 0xfe, which UTF-8 does not use.
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/log.hpp"
#include "text/vocabulary_files.hpp"
#include "text_fuzzing.hpp"

namespace {

using namespace rocm_sd;

void encode(const ClipTokenizer& tokenizer, std::string_view text) {
  for (const auto special : {SpecialTokens::kRecognise, SpecialTokens::kAsText}) {
    const auto ids = tokenizer.encode(text, special);
    for (const int32_t id : ids) check(id >= 0 && id < tokenizer.vocab_size());
    tokenizer.decode(ids);
  }
}

std::string_view take_part(std::string_view& rest) {
  const size_t end = std::min(rest.find('\xfe'), rest.size());
  const std::string_view part = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return part;
}

void fuzz(unsigned char kind, std::string_view rest) {
  const ClipTokenizer& shipped = shipped_tokenizer();
  switch (kind % 5) {
    case 0: return encode(shipped, rest);
    case 1: {
      const auto vocab = take_part(rest), merges = take_part(rest);
      return encode(ClipTokenizer::from_vocab_and_merges(vocab, merges, "fuzz"), rest);
    }
    case 2: {
      const auto json = take_part(rest);
      return encode(ClipTokenizer::from_tokenizer_json(json, "fuzz"), rest);
    }
    case 3: {
      const auto merges = take_part(rest);
      return encode(ClipTokenizer::from_merges(merges, "fuzz"), rest);
    }
    default: {
      TokenizerFiles files{.name = "fuzz", .vocabulary = vocabulary_from_merges({}, "fuzz")};
      ConfigTexts texts;
      for (auto* text : {&texts.tokenizer_config, &texts.special_tokens_map, &texts.added_tokens})
        if (!rest.empty()) *text = take_part(rest);
      read_tokenizer_config(texts, files);
      resolve_added_tokens(files);
      for (const AddedToken& token : files.added) check(token.id >= 0);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, size_t size) {
  if (size == 0) return 0;
  log().set_level(Log::Level::kOff);
  try {
    fuzz(data[0], {reinterpret_cast<const char*>(data) + 1, size - 1});
  } catch (const Error&) {  // a refusal is a right answer
  }
  return 0;
}
