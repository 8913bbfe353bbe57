// UTF-8: what is accepted, what is refused, and how untrusted text is printed.
#include "base/utf8.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"

namespace rocm_sd {
namespace {

TEST(Utf8, RoundTripsEveryCodePoint) {
  for (char32_t c = 0; c <= 0x10ffff; ++c) {
    if (c >= 0xd800 && c <= 0xdfff) continue;
    std::string text;
    append_utf8(text, c);
    const Utf8Char got = decode_utf8(text, 0);
    ASSERT_TRUE(got.valid && got.code_point == c && got.length == text.size()) << static_cast<uint32_t>(c);
  }
}

TEST(Utf8, RefusesMalformedSequences) {
  for (const std::string bad :
       {"\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xff", "\x80", "\xe2\x82"})
    EXPECT_FALSE(is_valid_utf8(bad)) << printable(bad);
  EXPECT_EQ(sanitize_utf8("a\xff"
                          "b"),
            "a\xef\xbf\xbd"
            "b");
}

TEST(Printable, EscapesControlBytesAndCuts) {
  EXPECT_EQ(printable("a\nb\x1b[31m\xff"), "a\\x0ab\\x1b[31m\\xff");
  EXPECT_EQ(printable("grün"), "grün");
  EXPECT_EQ(printable(std::string(500, 'x')).size(), 203u);
}

}  // namespace
}  // namespace rocm_sd
