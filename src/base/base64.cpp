#include "base/base64.hpp"

#include <algorithm>
#include <array>
#include <cstdint>

namespace rocm_sd {
namespace {

constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr uint8_t kForeign = 255, kBreak = 254;

constexpr std::array<uint8_t, 256> make_values() {
  std::array<uint8_t, 256> values{};
  for (uint8_t& value : values) value = kForeign;
  for (size_t i = 0; i < kAlphabet.size(); ++i)
    values[static_cast<unsigned char>(kAlphabet[i])] = static_cast<uint8_t>(i);
  values['\n'] = values['\r'] = kBreak;
  return values;
}
constexpr std::array<uint8_t, 256> kValues = make_values();

// Two digits at once: 12 bits.
constexpr std::array<std::array<char, 2>, 4096> make_pairs() {
  std::array<std::array<char, 2>, 4096> pairs{};
  for (size_t i = 0; i < pairs.size(); ++i) pairs[i] = {kAlphabet[i >> 6], kAlphabet[i & 63]};
  return pairs;
}
constexpr std::array<std::array<char, 2>, 4096> kPairs = make_pairs();

}  // namespace

std::string encode_base64(std::string_view bytes) {
  std::string out;
  append_base64(out, bytes);
  return out;
}

void append_base64(std::string& out, std::string_view bytes) {
  const size_t begin = out.size();
  out.resize(begin + (bytes.size() + 2) / 3 * 4, '=');
  const auto byte = [&](size_t i) { return uint32_t{static_cast<unsigned char>(bytes[i])}; };
  char* to = out.data() + begin;
  size_t i = 0;
  for (; i + 3 <= bytes.size(); i += 3, to += 4) {
    const uint32_t group = byte(i) << 16 | byte(i + 1) << 8 | byte(i + 2);
    std::copy_n(kPairs[group >> 12].data(), 2, to);
    std::copy_n(kPairs[group & 4095].data(), 2, to + 2);
  }
  if (const size_t rest = bytes.size() - i; rest > 0) {
    const uint32_t group = byte(i) << 16 | (rest > 1 ? byte(i + 1) << 8 : 0);
    std::copy_n(kPairs[group >> 12].data(), 2, to);
    if (rest > 1) to[2] = kAlphabet[group >> 6 & 63];
  }
}

std::optional<std::string> decode_base64(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.remove_suffix(1);
  for (int padding = 0; padding < 2 && text.ends_with('='); ++padding) text.remove_suffix(1);
  std::string out;
  out.reserve(text.size() / 4 * 3 + 3);
  uint32_t bits = 0;
  int have = 0;
  size_t digits = 0;
  for (const char c : text) {
    const uint8_t value = kValues[static_cast<unsigned char>(c)];
    if (value == kBreak) continue;
    if (value == kForeign) return std::nullopt;
    bits = bits << 6 | value;
    have += 6;
    ++digits;
    if (have >= 8) {
      have -= 8;
      out += static_cast<char>(bits >> have & 255);
    }
  }
  const bool rest_is_zero = (bits & ((1u << have) - 1)) == 0;
  if (digits % 4 == 1 || !rest_is_zero) return std::nullopt;
  return out;
}

std::optional<std::string> decode_data_url(std::string_view text) {
  if (text.starts_with("data:")) {
    const size_t comma = text.find(',');
    if (comma == text.npos || !text.substr(0, comma).ends_with(";base64")) return std::nullopt;
    text.remove_prefix(comma + 1);
  }
  return decode_base64(text);
}

}  // namespace rocm_sd
