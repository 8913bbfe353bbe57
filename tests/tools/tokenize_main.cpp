// Token ids of length-prefixed texts, for comparison with the Python reference.
// Usage: tokenize [--as-text] [FOLDER]  (the shipped vocabulary without FOLDER)
// Standard input:  repeated [u32 length, little endian][length bytes of UTF-8].
// Standard output: per text one [u32 count][count x i32], little endian.
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "text/clip_tokenizer.hpp"
#include "text/unicode.hpp"

int main(int argc, char** argv) try {
  using namespace rocm_sd;
  auto special = SpecialTokens::kRecognise;
  std::string folder;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--as-text")
      special = SpecialTokens::kAsText;
    else
      folder = argument;
  }
  const ClipTokenizer tokenizer =
      folder.empty() ? ClipTokenizer::shipped() : ClipTokenizer::from_folder(folder);
  std::fprintf(stderr, "utf8proc Unicode %s, %lld ids, bos %d eos %d pad %d, max length %d\n",
               unicode::utf8proc_unicode().data(), static_cast<long long>(tokenizer.vocab_size()),
               tokenizer.bos_id(), tokenizer.eos_id(), tokenizer.pad_id(), tokenizer.max_length());
  uint32_t length = 0;
  std::string text;
  while (std::fread(&length, sizeof(length), 1, stdin) == 1) {
    text.resize(length);
    if (std::fread(text.data(), 1, length, stdin) != length) return 3;
    const std::vector<int32_t> ids = tokenizer.encode(text, special);
    const auto count = static_cast<uint32_t>(ids.size());
    std::fwrite(&count, sizeof(count), 1, stdout);
    std::fwrite(ids.data(), sizeof(int32_t), ids.size(), stdout);
  }
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "tokenize: %s\n", e.what());
  return 1;
}
