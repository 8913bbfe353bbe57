// Fuzzing of the prompt language: any bytes give pieces with bounded weights and whole chunks, or a
// UsageError.
#include <algorithm>
#include <cmath>
#include <string_view>

#include "base/error.hpp"
#include "base/utf8.hpp"
#include "text/chunks.hpp"
#include "text/prompt_schedule.hpp"
#include "text_fuzzing.hpp"

namespace {

using namespace rocm_sd;

void fuzz(std::string_view prompt) {
  const ClipTokenizer& tokenizer = shipped_tokenizer();
  const PromptTags tags = extract_lora_tags(prompt);
  check(is_valid_utf8(tags.text));
  for (const LoraTag& lora : tags.loras) {
    check(!lora.name.empty() && lora.name.find_first_of("/\\") == std::string::npos);
    check(std::abs(lora.weight) <= kMaxPromptWeight && std::abs(lora.te_weight) <= kMaxPromptWeight);
  }
  for (const PromptPart& part : split_prompt_parts(tags.text)) {
    check(std::abs(part.weight) <= kMaxPromptWeight && is_valid_utf8(part.text));
    const PromptSchedule schedule(part.text);
    const auto texts = schedule.texts(5);
    check(texts.size() == 5);
    for (const std::string& text : texts) check(is_valid_utf8(text) && text.size() <= part.text.size());
    check(schedule.changes() || texts[4] == part.text);
  }
  const auto pieces = parse_prompt_attention(tags.text);
  check(!pieces.empty());
  for (const PromptPiece& piece : pieces)
    check(std::abs(piece.weight) <= kMaxPromptWeight && is_valid_utf8(piece.text));
  const ChunkedPrompt chunked = chunk_prompt(tokenizer, std::span<const PromptPiece>(pieces), {.pad_id = 0});
  check(!chunked.chunks.empty());
  for (const PromptChunk& chunk : chunked.chunks) {
    check(chunk.ids.size() == 77 && chunk.weights.size() == 77 && chunk.ids[0] == tokenizer.bos_id());
    check(chunk.ids[chunk.eos_position] == tokenizer.eos_id());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, size_t size) {
  constexpr size_t kMaxText = 600;  // several chunks; longer texts only take longer
  try {
    fuzz({reinterpret_cast<const char*>(data), std::min(size, kMaxText)});
  } catch (const UsageError&) {  // a refusal is a right answer
  }
  return 0;
}
