// Fuzzes files of textual inversion and the names of them in prompts: any bytes give vectors that are finite,
// or an Error; any prompt gives whole chunks whose vectors lie together.
#include <cmath>
#include <cstring>
#include <string>

#include "base/error.hpp"
#include "text/chunks.hpp"
#include "text_fuzzing.hpp"
#include "weights/embedding_file.hpp"

namespace {

using namespace rocm_sd;

constexpr const char* kKeys[] = {"emb_params", "clip_l", "clip_g", "<cat>", "*", "x"};

struct Bytes {
  const unsigned char* at;
  size_t left;
  unsigned char next() { return left == 0 ? 0 : (--left, *at++); }
};

void fuzz_file(Bytes& bytes) {
  static std::vector<float> values(4096, 0.5f);
  std::vector<MemoryTensor> tensors;
  values[0] = bytes.next() % 8 == 0 ? NAN : 0.5f;
  for (int count = bytes.next() % 4; count > 0; --count) {
    std::vector<int64_t> dims;
    const char* key = kKeys[bytes.next() % std::size(kKeys)];
    const DType type = static_cast<DType>(bytes.next() % 12);
    for (int rank = bytes.next() % 4; rank > 0; --rank) dims.push_back(bytes.next() % 8);
    tensors.push_back({key, type, Shape(std::span<const int64_t>(dims)), values.data()});
  }
  const auto file = EmbeddingFile::of(*SafetensorsFile::of_memory("fuzz", tensors));
  const Component encoder = bytes.next() % 2 ? Component::kTextEncoder2 : Component::kTextEncoder;
  const EmbeddingMatrix& matrix = file->of_encoder(encoder, bytes.next() % 8, bytes.next() % 2 == 0);
  check(matrix.vectors >= 1 && static_cast<int64_t>(matrix.values.size()) == matrix.vectors * matrix.width);
  for (const float v : matrix.values) check(std::isfinite(v));
}

void fuzz_names(std::string_view text, Bytes bytes) {
  const size_t cut = std::min<size_t>(bytes.next() % 16, text.size());
  const int vectors = 1 + bytes.next() % 80;
  const EmbeddingNames names(shipped_tokenizer(), {std::string(text.substr(0, cut)), "cat", "my cat"},
                             [&](size_t i) { return i == 0 ? vectors : 3; });
  const ChunkOptions options{.embeddings = &names};
  for (const PromptChunk& chunk : chunk_prompt(shipped_tokenizer(), text, options).chunks) {
    int last = -1, vector = -1;
    for (const InsertedVector& inserted : chunk.inserted) {
      check(inserted.position > last && inserted.position < chunk.eos_position);
      check(chunk.ids[inserted.position] == 0);
      check(inserted.vector == 0 || (inserted.position == last + 1 && inserted.vector == vector + 1));
      last = inserted.position;
      vector = inserted.vector;
    }
  }
  plain_tokens(shipped_tokenizer(), text, options);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, size_t size) {
  Bytes bytes{data, size};
  try {
    if (bytes.next() % 2)
      fuzz_file(bytes);
    else
      fuzz_names({reinterpret_cast<const char*>(bytes.at), bytes.left}, bytes);
  } catch (const Error&) {  // a refusal is a right answer
  }
  return 0;
}
