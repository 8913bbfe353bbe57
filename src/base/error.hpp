// Raising errors: require() and the rendering of untrusted text. The error types are public:
// rocm_sd/error.hpp.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>

#include "rocm_sd/error.hpp"

namespace rocm_sd {

// One argument of concat: a number, a text, an address, or a value of a type that has to_text() beside it
// (Shape, DType). Refers to what it was made from. Without fmt, which every file that raises an error would
// parse.
class MessagePart {
 public:
  enum class Kind : uint8_t { kSigned, kUnsigned, kFloat, kDouble, kBool, kChar, kText, kAddress, kOther };

  MessagePart(bool x) : kind_(Kind::kBool) { value_.number = x; }
  MessagePart(char x) : kind_(Kind::kChar) { value_.number = static_cast<unsigned char>(x); }
  MessagePart(float x) : kind_(Kind::kFloat) { value_.real = x; }
  MessagePart(double x) : kind_(Kind::kDouble) { value_.real = x; }
  MessagePart(std::string_view x) : kind_(Kind::kText), size_(x.size()) { value_.address = x.data(); }
  MessagePart(const std::string& x) : MessagePart(std::string_view(x)) {}
  MessagePart(const char* x) : MessagePart(std::string_view(x)) {}
  MessagePart(const void* x) : kind_(Kind::kAddress) { value_.address = x; }
  template <std::integral T>
  MessagePart(T x) : kind_(std::is_signed_v<T> ? Kind::kSigned : Kind::kUnsigned) {
    value_.number = static_cast<uint64_t>(static_cast<int64_t>(x));
  }
  template <class T>
    requires requires(const T& x) {
      { to_text(x) } -> std::convertible_to<std::string>;
    }
  MessagePart(const T& x) : kind_(Kind::kOther) {
    value_.address = &x;
    to_text_ = [](const void* p) -> std::string { return to_text(*static_cast<const T*>(p)); };
  }

  void append_to(std::string& out) const;

 private:
  Kind kind_;
  union {
    uint64_t number;
    double real;
    const void* address;
  } value_;
  union {
    size_t size_ = 0;
    std::string (*to_text_)(const void*);
  };
};

std::string concat_parts(std::initializer_list<MessagePart> parts);

// Concatenates the parts as fmt would print each of them.
template <class... Parts>
std::string concat(const Parts&... parts) {
  return concat_parts({MessagePart(parts)...});
}

// Throws E(concat(parts...)) unless ok. The parts are only formatted on failure.
template <class E = ShapeError, class... Parts>
void require(bool ok, const Parts&... parts) {
  if (!ok) [[unlikely]]
    throw E(concat(parts...));
}

// A text from a file or a user made safe to print on one line: control bytes and invalid UTF-8 as \xNN, cut
// at max_bytes.
std::string printable(std::string_view text, size_t max_bytes = 200);

}  // namespace rocm_sd
