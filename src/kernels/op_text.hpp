// A problem's text both ways. An op names the parts of its text once, in `static void text(auto& p, auto&
// t)`; a TextWriter prints them from a problem, a TextReader sets them in one.
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/dtype.hpp"
#include "base/error.hpp"
#include "kernels/epilogue.hpp"

namespace rocm_sd {

inline constexpr DType kActivationTypes[] = {DType::kF32, DType::kF16, DType::kBF16};
inline constexpr DType kEightBitTypes[] = {DType::kI8, DType::kF8E4M3};
inline constexpr DType kOnlyF32[] = {DType::kF32};
inline constexpr DType kOnlyBf16[] = {DType::kBF16};
using TypeSpan = std::span<const DType>;

class TextWriter {
 public:
  using This = TextWriter;

  This& word(std::string_view word) {
    text_ += word;
    return *this;
  }
  This& extent(int64_t value, int64_t = 0) { return word(std::to_string(value)); }
  // Where it is not 0: after the prefix.
  This& optional_extent(std::string_view prefix, int64_t value) {
    return value == 0 ? *this : word(prefix).extent(value);
  }
  This& number(float value);  // the shortest decimal that reads as the same float
  This& type(DType type, TypeSpan = kActivationTypes) { return word(dtype_name(type)); }
  // Where there is one: after the prefix.
  This& optional_type(std::string_view prefix, std::optional<DType> type, TypeSpan) {
    return type ? word(prefix).word(dtype_name(*type)) : *this;
  }
  This& flag(std::string_view word, bool set) { return set ? this->word(word) : *this; }
  This& activation(Activation act) {
    return act == Activation::kNone ? *this : word(" ").word(activation_name(act));
  }
  // One of the names, which count from 0 as the enumerator does.
  template <class Enum>
  This& name(Enum value, std::span<const std::string_view> names) {
    return word(names[static_cast<size_t>(value)]);
  }
  void set(int64_t, int64_t) {}
  void check(bool, std::string_view) {}
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// Throws UsageError with the place where the text is not understood.
class TextReader {
 public:
  using This = TextReader;
  TextReader(std::string_view op, std::string_view text) : op_(op), text_(text), rest_(text) {}

  This& word(std::string_view word);
  template <std::integral Int>
  This& extent(Int& value, int64_t least = 0) {
    value =
        static_cast<Int>(read_extent(least, std::min<int64_t>(kMaxExtent, std::numeric_limits<Int>::max())));
    return *this;
  }
  This& optional_extent(std::string_view prefix, int64_t& value) {
    value = take(prefix) ? read_extent(1, kMaxExtent) : 0;
    return *this;
  }
  This& number(float& value);
  This& type(DType& type, TypeSpan types = kActivationTypes);
  This& optional_type(std::string_view prefix, std::optional<DType>& type, TypeSpan types);
  This& flag(std::string_view word, bool& set) {
    set = take(word);
    return *this;
  }
  This& activation(Activation& act);
  template <class Enum>
  This& name(Enum& value, std::span<const std::string_view> names) {
    value = static_cast<Enum>(read_name(names));
    return *this;
  }
  // Of what follows from the parts.
  void set(int64_t& value, int64_t to) { value = to; }
  // For what the parts must be beside each other.
  void check(bool ok, std::string_view expected) const {
    if (!ok) fail(std::string(expected));
  }
  void end() const { check(rest_.empty(), "expected the end"); }

 private:
  static constexpr int64_t kMaxExtent = int64_t{1} << 31;

  bool take(std::string_view word);
  int64_t read_extent(int64_t least, int64_t most);
  size_t read_name(std::span<const std::string_view> names);
  [[noreturn]] void fail(const std::string& what) const;

  std::string_view op_, text_, rest_;
};

template <class P>
std::string text_of(const P& problem) {
  TextWriter out;
  P::text(problem, out);
  return out.text();
}
// Its pointers are null. Throws UsageError.
template <class P>
P problem_from(std::string_view text) {
  P problem;
  TextReader in(P::kOp, text);
  P::text(problem, in);
  in.end();
  return problem;
}

}  // namespace rocm_sd
