// The reading of length-prefixed prompts as JSON lines, for comparison with the Python references.
// Usage: prompt [--pad ID]   Standard input as for tokenize_main.cpp.
// Standard output, a line per prompt: {"pieces": [[text, weight], ...], "chunks": [{"ids", "weights"}, ...],
// "count"}, chunked with special tokens recognised, or {"error": text}.
#include <cstdint>
#include <cstdio>
#include <exception>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.hpp"
#include "text/chunks.hpp"

namespace {

nlohmann::json read(const rocm_sd::ClipTokenizer& tokenizer, const std::string& prompt,
                    const rocm_sd::ChunkOptions& options) {
  nlohmann::json out;
  try {
    const auto pieces = rocm_sd::parse_prompt_attention(prompt);
    for (const auto& piece : pieces) out["pieces"].push_back({piece.text, piece.weight});
    const auto chunked = rocm_sd::chunk_prompt(tokenizer, prompt, options);
    for (const auto& chunk : chunked.chunks)
      out["chunks"].push_back({{"ids", chunk.ids}, {"weights", chunk.weights}});
    out["count"] = chunked.token_count;
  } catch (const rocm_sd::UsageError& e) {
    out = {{"error", e.what()}};
  }
  return out;
}

}  // namespace

int main(int argc, char** argv) try {
  using namespace rocm_sd;
  ChunkOptions options{.special_tokens = SpecialTokens::kRecognise};
  if (argc == 3 && std::string(argv[1]) == "--pad") options.pad_id = std::stoi(argv[2]);
  const ClipTokenizer tokenizer = ClipTokenizer::shipped();
  uint32_t length = 0;
  std::string prompt;
  while (std::fread(&length, sizeof(length), 1, stdin) == 1) {
    prompt.resize(length);
    if (std::fread(prompt.data(), 1, length, stdin) != length) return 3;
    std::printf("%s\n", read(tokenizer, prompt, options).dump().c_str());
  }
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "prompt: %s\n", e.what());
  return 1;
}
