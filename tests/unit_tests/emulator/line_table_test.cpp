// Line tables made by hand: what they say, and that a damaged one ends the reading and nothing else.
#include "emulator/line_table.hpp"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace rocm_sd::emu {
namespace {

// Bytes of a section, little-endian.
struct Bytes {
  std::string text;
  Bytes& number(uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i));
    return *this;
  }
  Bytes& byte(int value) { return number(static_cast<uint64_t>(value), 1); }
  Bytes& uleb(uint64_t value) {
    do {
      byte(static_cast<int>(value & 127) | (value > 127 ? 128 : 0));
      value >>= 7;
    } while (value);
    return *this;
  }
  Bytes& string(const std::string& s) {
    text += s;
    return byte(0);
  }
  Bytes& add(const Bytes& other) {
    text += other.text;
    return *this;
  }
};
std::span<const std::byte> view(const std::string& s) { return std::as_bytes(std::span(s.data(), s.size())); }

// A unit: its length, version, header with the file tables given, and a program.
std::string unit(int version, const Bytes& tables, const Bytes& program, int line_range = 14,
                 int opcode_base = 13) {
  Bytes header;
  header.byte(4);                    // bytes of an instruction
  if (version >= 4) header.byte(1);  // operations of one
  header.byte(1).byte(-5).byte(line_range).byte(opcode_base);
  for (const int operands : {0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1}) header.byte(operands);
  header.add(tables);
  Bytes body;
  body.number(static_cast<uint64_t>(version), 2);
  if (version == 5) body.byte(8).byte(0);
  body.number(header.text.size(), 4).add(header).add(program);
  Bytes all;
  return all.number(body.text.size(), 4).add(body).text;
}
Bytes old_tables() {
  Bytes b;
  b.string("lib").byte(0);                                   // folders
  b.string("a.hip").uleb(0).uleb(0).uleb(0);                 // file 1
  return b.string("b.hpp").uleb(1).uleb(0).uleb(0).byte(0);  // file 2, in lib
}
Bytes new_tables() {  // folders by text, files by offset in .debug_line_str with an MD5 each
  Bytes b;
  b.byte(1).uleb(1).uleb(8).uleb(2).string(".").string("lib");
  b.byte(3).uleb(1).uleb(0x1f).uleb(2).uleb(0x0b).uleb(5).uleb(0x1e).uleb(2);
  b.number(0, 4).byte(0).number(1, 8).number(2, 8);
  return b.number(6, 4).byte(1).number(3, 8).number(4, 8);
}
const std::string kStrings = std::string("a.hip") + '\0' + "b.hpp" + '\0';

// Lines 10 at 0x100, 11 at 0x108, 7 of the other file at 0x110, end at 0x120.
Bytes program(int first_file, int other_file) {
  Bytes p;
  p.byte(0).uleb(9).byte(2).number(0x100, 8);  // address
  p.byte(4).uleb(static_cast<uint64_t>(first_file)).byte(3).uleb(9).byte(1);
  p.byte(13 + (1 + 5) + 14 * 2);  // special: two instructions on, one line on
  p.byte(4).uleb(static_cast<uint64_t>(other_file)).byte(3).byte(0x7c).byte(2).uleb(2).byte(1);  // four lines
                                                                                                 // back
  return p.byte(9).number(16, 2).byte(0).uleb(1).byte(1);
}

void check(const LineTable& t) {
  EXPECT_EQ(t.damage(), "");
  EXPECT_EQ(t.at(0xff).line, 0u);
  for (const uint64_t at : {0x100, 0x104, 0x107}) {
    EXPECT_EQ(t.at(at).file, "a.hip");
    EXPECT_EQ(t.at(at).line, 10u);
  }
  EXPECT_EQ(t.at(0x108).line, 11u);
  EXPECT_EQ(t.at(0x110).file, "lib/b.hpp");
  EXPECT_EQ(t.at(0x11f).line, 7u);
  EXPECT_EQ(t.at(0x120).line, 0u);
  EXPECT_EQ(t.addresses("b.hpp", 7), std::vector<uint64_t>{0x110});
  EXPECT_EQ(t.addresses("", 11), std::vector<uint64_t>{0x108});
  EXPECT_TRUE(t.addresses("b.hpp", 11).empty());
  EXPECT_TRUE(t.addresses("", 0).empty());
}

TEST(LineTables, EveryVersion) {
  for (const int version : {2, 3, 4})
    check(LineTable({view(unit(version, old_tables(), program(1, 2))), {}, {}}, 0, 0x1000));
  const std::string five = unit(5, new_tables(), program(0, 1));
  check(LineTable({view(five), view(kStrings), {}}, 0, 0x1000));
  // Two units, the first of a version of the future.
  std::string both = unit(6, old_tables(), {}) + five;
  check(LineTable({view(both), view(kStrings), {}}, 0, 0x1000));
}

TEST(LineTables, CodeThatTheLinkerDroppedIsLeftOut) {
  const std::string four = unit(4, old_tables(), program(1, 2));
  EXPECT_TRUE(LineTable({view(four), {}, {}}, 0x2000, 0x3000).empty());
  EXPECT_EQ(LineTable({view(four), {}, {}}, 0x100, 0x110).at(0x110).line, 0u);
}

TEST(LineTables, HostileCountsAreDamage) {
  const auto damage = [](int version, const Bytes& tables, const Bytes& code = {}, int range = 14,
                         int base = 13) {
    const std::string text = unit(version, tables, code, range, base);
    const LineTable t({view(text), view(kStrings), {}}, 0, 0x1000);
    return t.damage();
  };
  Bytes b;
  EXPECT_NE(damage(5, b.byte(0).uleb(uint64_t{1} << 62)), "");  // entries without bytes, without end
  b = {};
  EXPECT_NE(damage(5, b.byte(1).uleb(1).uleb(8).uleb(uint64_t{1} << 40).string("x")), "");
  b = {};
  EXPECT_NE(damage(5, b.byte(1).uleb(1).uleb(0x77).uleb(1).byte(0)), "");  // an unknown form
  b = {};
  EXPECT_NE(damage(5, b.byte(1).uleb(1).uleb(9).uleb(1).uleb(uint64_t{1} << 60)),
            "");  // a block of 2^60 bytes
  EXPECT_NE(damage(4, old_tables(), {}, 0), "");
  EXPECT_NE(damage(4, old_tables(), {}, 14, 0), "");
  b = {};
  EXPECT_NE(damage(4, old_tables(), b.byte(0).uleb(uint64_t{1} << 50)), "");  // an extended opcode
  b = {};
  EXPECT_NE(damage(4, old_tables(), b.byte(0).uleb(12).byte(2).number(0, 8).number(0, 3)),
            "");  // address of 11 bytes
  Bytes length;
  const std::string wide = length.number(0xffffffff, 4).number(~uint64_t{0}, 8).text;
  EXPECT_NE(LineTable({view(wide), {}, {}}, 0, 1).damage(), "");
  // A name that is nowhere is no name.
  const std::string five = unit(5, new_tables(), program(0, 1));
  EXPECT_EQ(LineTable({view(five), {}, {}}, 0, 0x1000).at(0x100).file, "");
}

TEST(LineTables, TruncatedAndChangedOnesNeverCrash) {
  const std::string five = unit(5, new_tables(), program(0, 1));
  for (size_t size = 0; size < five.size(); ++size) {
    const std::string cut = five.substr(0, size);  // of its own, so that a read past the end is seen
    const LineTable t({view(cut), view(kStrings), {}}, 0, 0x1000);
    EXPECT_TRUE(size < 4 || !t.damage().empty()) << size;
  }
  std::mt19937 engine(4);
  for (int round = 0; round < 20000; ++round) {
    std::string changed = five;
    for (int i = 0; i < 1 + round % 4; ++i) changed[engine() % changed.size()] = static_cast<char>(engine());
    const LineTable t({view(changed), view(kStrings), {}}, 0, 0x1000);
    t.at(0x104);
    t.addresses("", 10);
  }
}

}  // namespace
}  // namespace rocm_sd::emu
