#include "kernels/op_text.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <vector>

namespace rocm_sd {
namespace {

// "a, b or c"
std::string alternatives(const std::vector<std::string_view>& names) {
  std::string out;
  for (size_t i = 0; i < names.size(); ++i)
    out += concat(i == 0 ? "" : i + 1 < names.size() ? ", " : " or ", names[i]);
  return out;
}
std::string alternatives(TypeSpan types) {
  std::vector<std::string_view> names;
  for (const DType type : types) names.push_back(dtype_name(type));
  return alternatives(names);
}

}  // namespace

TextWriter& TextWriter::number(float value) {
  std::array<char, 32> digits{};
  return word({digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr});
}

bool TextReader::take(std::string_view word) {
  if (!rest_.starts_with(word)) return false;
  rest_.remove_prefix(word.size());
  return true;
}

TextReader& TextReader::word(std::string_view word) {
  if (!take(word)) fail(concat("expected \"", word, "\""));
  return *this;
}

int64_t TextReader::read_extent(int64_t least, int64_t most) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
  if (error != std::errc() || value < least || value > most) fail(concat("expected a number from ", least));
  rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
  return value;
}

TextReader& TextReader::number(float& value) {
  const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
  if (error != std::errc() || !std::isfinite(value)) fail("expected a number");
  rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
  return *this;
}

TextReader& TextReader::type(DType& type, TypeSpan types) {
  for (const DType one : types)
    if (take(dtype_name(one))) {
      type = one;
      return *this;
    }
  fail(concat("expected ", alternatives(types)));
}

TextReader& TextReader::optional_type(std::string_view prefix, std::optional<DType>& type, TypeSpan types) {
  type.reset();
  return take(prefix) ? this->type(type.emplace(), types) : *this;
}

TextReader& TextReader::activation(Activation& act) {
  act = Activation::kNone;
  for (const Activation one :
       {Activation::kSilu, Activation::kGelu, Activation::kQuickGelu, Activation::kRelu})
    if (take(concat(" ", activation_name(one)))) {
      act = one;
      break;
    }
  return *this;
}

size_t TextReader::read_name(std::span<const std::string_view> names) {
  for (size_t i = 0; i < names.size(); ++i)
    if (take(names[i])) return i;
  fail(concat("expected ", alternatives({names.begin(), names.end()})));
}

void TextReader::fail(const std::string& what) const {
  throw UsageError(concat("problem of ", printable(op_), " \"", printable(text_), "\": ", what, " at \"",
                          printable(rest_, 40), "\""));
}

}  // namespace rocm_sd
