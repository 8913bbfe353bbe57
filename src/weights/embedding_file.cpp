#include "weights/embedding_file.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/utf8.hpp"
#include "weights/file_hash.hpp"

namespace rocm_sd {
namespace {

std::string title(const SafetensorsFile& file) { return printable(file.path().string()); }

EmbeddingMatrix read_matrix(const SafetensorsFile& file, const TensorEntry& entry) {
  const auto named = [&] { return concat(title(file), ": ", printable(entry.name)); };
  const bool real = entry.dtype == DType::kF32 || entry.dtype == DType::kF16 || entry.dtype == DType::kBF16 ||
                    entry.dtype == DType::kF64;
  require<FormatError>(real, named(), ": expected vectors in F32, F16 or BF16, found ", entry.dtype);
  require<FormatError>((entry.shape.rank() == 1 || entry.shape.rank() == 2) && entry.numel() > 0, named(),
                       " ", entry.shape, ": expected vectors [n,width] with n of 1 to ",
                       kMaxEmbeddingVectors);
  EmbeddingMatrix out;
  out.key = entry.name;
  out.vectors = entry.shape.rank() == 1 ? 1 : entry.shape[0];
  out.width = entry.shape[entry.shape.rank() - 1];
  constexpr int64_t kMaxWidth = 65536;
  require<FormatError>(out.vectors <= kMaxEmbeddingVectors && out.width <= kMaxWidth, named(), " ",
                       entry.shape, ": expected at most ", kMaxEmbeddingVectors, " vectors of at most ",
                       kMaxWidth, " numbers");
  std::vector<char> bytes(entry.bytes);
  file.read(entry, 0, entry.bytes, bytes.data());
  out.values.resize(static_cast<size_t>(entry.numel()));
  convert_elements(bytes.data(), entry.dtype, out.values.data(), DType::kF32, entry.numel());
  const auto bad =
      std::count_if(out.values.begin(), out.values.end(), [](float v) { return !std::isfinite(v); });
  require<FormatError>(bad == 0, named(), ": ", bad, " of ", out.values.size(), " values are not finite");
  return out;
}

// Of A1111's and the original repository's .pt files, which hold counters and a token's number besides.
constexpr std::string_view kA1111Prefix = "string_to_param.";

// The entry whose name begins with the prefix, if it is one alone.
const TensorEntry* only_below(const SafetensorsFile& file, std::string_view prefix) {
  const TensorEntry* found = nullptr;
  for (const TensorEntry& entry : file.entries()) {
    if (!entry.name.starts_with(prefix)) continue;
    if (found) return nullptr;
    found = &entry;
  }
  return found;
}

// A1111's and training tools' names of the tensor, which are no token.
bool is_plain_key(std::string_view key) {
  for (const std::string_view plain :
       {"emb_params", "*", "clip_l", "clip_g", "text_encoders_0", "text_encoders_1", "weight", "embedding"})
    if (key == plain) return true;
  return false;
}

std::string list_names(const SafetensorsFile& file) {
  constexpr size_t kNamed = 5;
  std::string names;
  const auto& entries = file.entries();
  for (size_t i = 0; i < std::min(kNamed, entries.size()); ++i)
    names += concat(i ? ", " : "", printable(entries[i].name, 80));
  return entries.size() > kNamed ? concat(names, ", ...") : names;
}

}  // namespace

std::shared_ptr<const EmbeddingFile> EmbeddingFile::of(const SafetensorsFile& file) {
  const std::shared_ptr<EmbeddingFile> out(new EmbeddingFile);
  out->path_ = file.path();
  const auto either = [&](const char* name, const char* other) {
    const TensorEntry* found = file.find(name);
    return found ? found : file.find(other);
  };
  const TensorEntry *only = file.find("emb_params"), *clip_l = either("clip_l", "text_encoders_0"),
                    *clip_g = either("clip_g", "text_encoders_1");
  const bool pair = clip_l && clip_g;
  if (!only && !pair) only = only_below(file, kA1111Prefix);
  if (!only && !pair && file.entries().size() == 1) only = &file.entries().front();
  const bool alone = only && (file.entries().size() == 1 || only->name.starts_with(kA1111Prefix));
  require<FormatError>(alone || (pair && file.entries().size() == 2), title(file),
                       ": no textual inversion: expected one tensor, or clip_l and clip_g, found ",
                       file.entries().size(), " (", list_names(file), ")");
  out->first_ = read_matrix(file, pair ? *clip_l : *only);
  if (!pair) {
    std::string_view token = only->name;
    if (token.starts_with(kA1111Prefix)) token.remove_prefix(kA1111Prefix.size());
    if (!is_plain_key(token)) out->token_ = token;
    return out;
  }
  out->take_second(read_matrix(file, *clip_g));
  return out;
}

void EmbeddingFile::take_second(EmbeddingMatrix second) {
  require<FormatError>(second.vectors == first_.vectors, printable(path_.string()), ": ",
                       printable(first_.key), " has ", first_.vectors, " vectors, ", printable(second.key),
                       " ", second.vectors, "; expected the same number");
  clip_g_ = std::move(second);
}

bool EmbeddingFile::are_halves(const EmbeddingFile& a, const EmbeddingFile& b) {
  return !a.is_sdxl() && !b.is_sdxl() && a.first_.width != b.first_.width;
}

std::shared_ptr<const EmbeddingFile> EmbeddingFile::joined(const EmbeddingFile& a, const EmbeddingFile& b) {
  const bool in_order = a.first_.width < b.first_.width;
  const std::shared_ptr<EmbeddingFile> out(new EmbeddingFile(in_order ? a : b));
  out->take_second((in_order ? b : a).first_);
  return out;
}

std::shared_ptr<const EmbeddingFile> EmbeddingFile::open(const std::filesystem::path& path) {
  const auto file = SafetensorsFile::open(path);
  const auto out = std::const_pointer_cast<EmbeddingFile>(of(*file));
  out->hash_ = sha256_of_file(path);
  return out;
}

const EmbeddingMatrix& EmbeddingFile::of_encoder(Component encoder, int64_t width, bool sdxl) const {
  const std::string name = printable(path_.string());
  require<ShapeError>(is_sdxl() || !sdxl, name, ": ", printable(first_.key), " [", first_.vectors, ",",
                      first_.width,
                      "] alone: expected clip_l and clip_g, or two files of one token, as SDXL's two text "
                      "encoders need; was it trained on another base model?");
  require<ShapeError>(!is_sdxl() || sdxl, name, ": clip_l [", first_.vectors, ",", first_.width,
                      "] and clip_g: trained on SDXL; this model has one text encoder, of width ", width);
  const EmbeddingMatrix& out = encoder == Component::kTextEncoder2 && clip_g_ ? *clip_g_ : first_;
  require<ShapeError>(out.width == width, name, ": ", printable(out.key), " [", out.vectors, ",", out.width,
                      "]: this model's ", component_name(encoder), " takes vectors of ", width,
                      " numbers; was it trained on another base model?");
  return out;
}

}  // namespace rocm_sd
