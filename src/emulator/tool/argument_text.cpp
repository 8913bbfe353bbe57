#include "emulator/tool/argument_text.hpp"

#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "base/checked.hpp"
#include "base/dtype.hpp"

namespace rocm_sd::emu {

namespace {

constexpr uint64_t kBufferLimit = uint64_t{64} << 30, kStructLimit = 1 << 16;
constexpr int kMaxDepth = 8;

struct NamedType {
  const char* name;
  NpyType npy;
};
constexpr NamedType kTypes[] = {{"f64", {'f', 8}}, {"f32", {'f', 4}}, {"f16", {'f', 2}}, {"bf16", {'V', 2}},
                                {"i64", {'i', 8}}, {"i32", {'i', 4}}, {"i16", {'i', 2}}, {"i8", {'i', 1}},
                                {"u64", {'u', 8}}, {"u32", {'u', 4}}, {"u16", {'u', 2}}, {"u8", {'u', 1}},
                                {"bool", {'b', 1}}};

template <class T>
std::vector<std::byte> bytes_of(T value, size_t count = sizeof(T)) {
  std::vector<std::byte> out(count);
  std::memcpy(out.data(), &value, count);
  return out;
}

template <class T>
std::optional<T> whole(std::string_view text, int base = 10) {
  T value{};
  const auto result = [&] {
    if constexpr (std::is_floating_point_v<T>)
      return std::from_chars(text.data(), text.data() + text.size(), value);
    else
      return std::from_chars(text.data(), text.data() + text.size(), value, base);
  }();
  if (text.empty() || result.ec != std::errc{} || result.ptr != text.data() + text.size()) return {};
  return value;
}

// 64 bits of an integer within the limits of its type: i8 takes -128 to 127, and 0x00 to 0xff as bits.
std::vector<std::byte> integer(const ElementType& type, std::string_view text, const std::string& all) {
  const uint32_t bits = type.npy.bytes * 8;
  const bool hex = text.starts_with("0x");
  const bool is_signed = type.npy.kind == 'i' && !hex;
  const uint64_t largest = type.npy.kind == 'b' ? 1 : ~uint64_t{0} >> (64 - bits + (is_signed ? 1 : 0));
  if (is_signed && text.starts_with('-')) {
    const auto value = whole<int64_t>(text);
    require<UsageError>(value && (bits == 64 || *value >= -(int64_t{1} << (bits - 1))), all, ": \"",
                        printable(text), "\" is no ", type.name);
    return bytes_of(*value, type.npy.bytes);
  }
  const auto value = whole<uint64_t>(hex ? text.substr(2) : text, hex ? 16 : 10);
  require<UsageError>(value && *value <= largest, all, ": \"", printable(text), "\" is no ", type.name);
  return bytes_of(*value, type.npy.bytes);
}

std::vector<std::byte> scalar(const ElementType& type, std::string_view text, const std::string& all) {
  if (type.npy.kind == 'b' && (text == "true" || text == "false")) text = text == "true" ? "1" : "0";
  if (type.npy.kind != 'f' && type.npy.kind != 'V') return integer(type, text, all);
  const auto value = whole<double>(text);
  require<UsageError>(value.has_value(), all, ": \"", printable(text), "\" is no ", type.name);
  if (type.name == "f64") return bytes_of(*value);
  const auto narrow = static_cast<float>(*value);
  require<UsageError>(std::isfinite(narrow) == std::isfinite(*value), all, ": \"", printable(text),
                      "\" is too large for ", type.name);
  if (type.name == "f32") return bytes_of(narrow);
  return bytes_of(type.name == "f16" ? float_to_f16(narrow) : float_to_bf16(narrow));
}

// "f32[2,3]" -> type and shape; the rest behind "]:" is the file.
void typed_buffer(ArgumentText& out, std::string_view text) {
  const size_t open = text.find('['), close = text.find(']');
  require<UsageError>(open != std::string_view::npos && close != std::string_view::npos && open < close,
                      out.text, ": expected TYPE[SHAPE] such as f32[2,3]");
  out.type = element_type(text.substr(0, open));
  std::string_view shape = text.substr(open + 1, close - open - 1);
  uint64_t bytes = out.type.npy.bytes;
  while (!shape.empty()) {
    const size_t comma = shape.find(',');
    const auto size = whole<uint64_t>(shape.substr(0, comma));
    require<UsageError>(size.has_value(), out.text, ": \"", printable(shape.substr(0, comma)),
                        "\" is no size");
    out.shape.push_back(*size);
    bytes = checked_mul(bytes, *size, out.text);
    shape = comma == std::string_view::npos ? "" : shape.substr(comma + 1);
  }
  require<UsageError>(bytes <= kBufferLimit, out.text, ": a buffer of ", bytes, " bytes, at most ",
                      kBufferLimit);
  const std::string_view rest = text.substr(close + 1);
  require<UsageError>(rest.empty() || (rest.size() > 1 && rest[0] == ':'), out.text,
                      ": expected \":FILE.npy\" after the shape, got \"", printable(rest), '"');
  if (!rest.empty()) out.to = rest.substr(1);
}

// The members between the braces, split at commas outside of brackets and braces.
std::vector<std::string_view> members_of(std::string_view text, const std::string& all) {
  std::vector<std::string_view> out;
  int depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    const char c = i < text.size() ? text[i] : ',';
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
    if (c != ',' || (depth > 0 && i < text.size())) continue;
    out.push_back(text.substr(begin, i - begin));
    begin = i + 1;
  }
  require<UsageError>(depth == 0, all, ": brackets do not pair");
  return out;
}

ArgumentText parse(std::string_view text, int depth) {
  ArgumentText out;
  out.text = printable(text);
  if (text.starts_with('{') && text.ends_with('}') && text.size() > 2) {
    require<UsageError>(depth < kMaxDepth, out.text, ": structs nest too deeply");
    out.kind = ArgumentText::Kind::kStruct;
    for (const auto member : members_of(text.substr(1, text.size() - 2), out.text))
      out.members.push_back(parse(member, depth + 1));
    return out;
  }
  if (text == "null") {
    out.value = bytes_of(uint64_t{0});
    return out;
  }
  const size_t colon = text.find(':');
  const std::string_view head = text.substr(0, colon);
  const std::string_view rest = colon == std::string_view::npos ? "" : text.substr(colon + 1);
  require<UsageError>(
      !rest.empty(), "argument \"", out.text,
      "\": expected in:FILE.npy, inout:FILE.npy[:TO.npy], out:TYPE[SHAPE][:TO.npy], zeros:..., "
      "TYPE:VALUE, null or {A,B,...}");
  if (head == "in" || head == "inout") {
    out.kind = ArgumentText::Kind::kBuffer;
    out.from = rest;
    if (head == "in") return out;
    const size_t second = rest.find(".npy:");
    out.from = second == std::string_view::npos ? rest : rest.substr(0, second + 4);
    out.to = second == std::string_view::npos ? rest : rest.substr(second + 5);
    require<UsageError>(!out.to.empty(), out.text, ": no file to write to");
  } else if (head == "out" || head == "zeros") {
    out.kind = ArgumentText::Kind::kBuffer;
    out.poisoned = head == "out";
    typed_buffer(out, rest);
  } else if (head == "pad") {
    out.kind = ArgumentText::Kind::kPadding;
    const auto bytes = whole<uint64_t>(rest);
    require<UsageError>(bytes && *bytes <= kStructLimit, out.text, ": expected a number of bytes");
    out.padding = *bytes;
  } else {
    out.type = element_type(head);
    out.value = scalar(out.type, rest, out.text);
  }
  return out;
}

}  // namespace

ElementType element_type(std::string_view name) {
  std::string known;
  for (const NamedType& t : kTypes) {
    if (t.name == name) return {t.name, t.npy};
    known += concat(known.empty() ? "" : " ", t.name);
  }
  throw UsageError(concat("no element type \"", printable(name), "\"; there are ", known));
}

ArgumentText parse_argument(std::string_view text) { return parse(text, 0); }

}  // namespace rocm_sd::emu
