// Base64, forms and frames: what clients and workers send, and what is not that.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <random>
#include <span>
#include <thread>

#include "base/base64.hpp"
#include "base/error.hpp"
#include "server/frame.hpp"
#include "server/http.hpp"
#include "server/multipart.hpp"

namespace rocm_sd::server {
namespace {

TEST(Base64, VectorsOfTheStandard) {  // RFC 4648, section 10
  const std::pair<const char*, const char*> cases[] = {{"", ""},
                                                       {"f", "Zg=="},
                                                       {"fo", "Zm8="},
                                                       {"foo", "Zm9v"},
                                                       {"foob", "Zm9vYg=="},
                                                       {"fooba", "Zm9vYmE="},
                                                       {"foobar", "Zm9vYmFy"}};
  for (const auto& [plain, coded] : cases) {
    EXPECT_EQ(encode_base64(plain), coded);
    EXPECT_EQ(decode_base64(coded), plain);
  }
}

TEST(Base64, AllLengthsThereAndBack) {
  std::mt19937 random(1);
  for (size_t length = 0; length < 300; ++length) {
    std::string bytes;
    for (size_t i = 0; i < length; ++i) bytes += static_cast<char>(random());
    EXPECT_EQ(decode_base64(encode_base64(bytes)), bytes);
  }
}

TEST(JsonText, IsNlohmannsDump) {
  using nlohmann::json;
  std::mt19937 random(2);
  const auto text = [&](size_t length, bool any) {
    std::string out;
    for (size_t i = 0; i < length; ++i)
      out += any ? static_cast<char>(random()) : static_cast<char>(' ' + random() % 95);
    return out;
  };
  for (int round = 0; round < 200; ++round) {
    const std::string code = encode_base64(text(random() % 9000, true));
    json body = {{"images", {code, code}}, {"empty", {json::array(), json::object(), nullptr, ""}}};
    body[text(random() % 9, true)] = text(random() % 9000, random() % 2 == 0);
    body["deep"] = {{{"number", 1.5}, {"list", {1, true, "caf\xc3\xa9" + code}}}};
    EXPECT_EQ(json_text(body), body.dump(-1, ' ', false, json::error_handler_t::replace));
  }
  for (const char* escaped : {"\"", "\\", "\n", "\x7f", "\xff"})
    EXPECT_EQ(json_text(json(std::string(5000, 'a') + escaped)),
              json(std::string(5000, 'a') + escaped).dump(-1, ' ', false, json::error_handler_t::replace));
}

TEST(Base64, PaddingMayBeMissingAndLinesMayBreak) {
  EXPECT_EQ(decode_base64("Zg"), "f");
  EXPECT_EQ(decode_base64("Zm9v\r\nYmFy\n"), "foobar");
}

TEST(Base64, RefusesWhatIsNone) {
  for (const char* text : {"Z", "Zm9v!", "Zm 9v", "Zh", "Zg===", "=Zg", "Z=g=", "Zm9v-_", "caf\xc3\xa9"})
    EXPECT_EQ(decode_base64(text), std::nullopt) << text;
}

TEST(Base64, DataUrls) {
  EXPECT_EQ(decode_data_url("data:image/png;base64,Zm9v"), "foo");
  EXPECT_EQ(decode_data_url("Zm9v"), "foo");
  EXPECT_EQ(decode_data_url("data:image/png,Zm9v"), std::nullopt);
  EXPECT_EQ(decode_data_url("data:image/png;base64"), std::nullopt);
}

std::string field(const std::string& head, const std::string& value) {
  return "--b\r\n" + head + "\r\n\r\n" + value + "\r\n";
}

TEST(Multipart, FieldsAndFiles) {
  const std::string binary("\0\r\n--c\r\n\xff", 9);
  const std::string body =
      field("Content-Disposition: form-data; name=\"prompt\"", "a cat") +
      field("content-disposition: form-data; filename=\"x;\\\".png\"; name=image\r\nContent-Type: image/png",
            binary) +
      field("Content-Disposition: form-data; name=\"empty\"", "") + "--b--\r\n";
  const auto fields = parse_multipart(body, "b");
  ASSERT_EQ(fields.size(), 3u);
  EXPECT_EQ(fields[0].name, "prompt");
  EXPECT_EQ(fields[0].value, "a cat");
  EXPECT_FALSE(fields[0].is_file);
  EXPECT_EQ(fields[1].name, "image");
  EXPECT_EQ(fields[1].value, binary);
  EXPECT_TRUE(fields[1].is_file);
  EXPECT_EQ(fields[2].value, "");
  EXPECT_EQ(parse_multipart("preamble\r\n" + body, "b").size(), 3u);
}

TEST(Multipart, RefusesWhatIsNone) {
  const std::string good = field("Content-Disposition: form-data; name=\"a\"", "1");
  for (const std::string& body :
       {std::string(), std::string("--c--"), good, std::string("--b"), std::string("--b\r\n"),
        std::string("--bx\r\n--b--"), field("Content-Disposition: form-data", "1") + "--b--",
        field("Content-Type: text/plain", "1") + "--b--",
        field("Content-Disposition: form-data; name=\"\"", "1") + "--b--", field("nothing", "1") + "--b--",
        field("Content-Disposition: form-data; name=\"a\"; x=" + std::string(5000, 'x'), "1") + "--b--",
        field("Content-Disposition: form-data; name=\"a\"\r\nContent-Transfer-Encoding: base64", "1") +
            "--b--"})
    EXPECT_THROW(parse_multipart(body, "b"), UsageError) << body.substr(0, 100);
  std::string many;
  for (int i = 0; i < 65; ++i) many += good;
  EXPECT_THROW(parse_multipart(many + "--b--", "b"), UsageError);
}

TEST(Multipart, Boundaries) {
  EXPECT_EQ(multipart_boundary("multipart/form-data; boundary=abc"), "abc");
  EXPECT_EQ(multipart_boundary("multipart/form-data; charset=utf-8; Boundary=\"a b\""), "a b");
  for (const char* type : {"multipart/form-data", "multipart/form-data; boundary=",
                           "multipart/form-data; boundary=a\"b", "multipart/form-data; boundary=a\xc3\xa9"})
    EXPECT_THROW(multipart_boundary(type), UsageError) << type;
  EXPECT_THROW(multipart_boundary("multipart/form-data; boundary=" + std::string(71, 'x')), UsageError);
}

class SocketPair : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends_), 0); }
  void TearDown() override {
    ::close(ends_[0]);
    ::close(ends_[1]);
  }
  int ends_[2] = {-1, -1};
};
using Frames = SocketPair;

TEST_F(Frames, ArriveWholeInAnyPieces) {
  const std::string large(3 << 20, 'x');
  std::thread writer([&] {
    EXPECT_TRUE(write_frame(ends_[0], "{\"a\":1}", large));
    EXPECT_TRUE(write_frame(ends_[0], "{}"));
    ::shutdown(ends_[0], SHUT_WR);
  });
  FrameReader reader;
  std::vector<Frame> frames;
  char piece[1021];
  for (ssize_t got = 0; (got = ::recv(ends_[1], piece, sizeof(piece), 0)) > 0;) {
    reader.append({piece, static_cast<size_t>(got)});
    while (auto frame = reader.next()) frames.push_back(std::move(*frame));
  }
  writer.join();
  ASSERT_EQ(frames.size(), 2u);
  EXPECT_EQ(frames[0].json, "{\"a\":1}");
  EXPECT_EQ(frames[0].bytes, large);
  EXPECT_EQ(frames[1].json, "{}");
  EXPECT_EQ(frames[1].bytes, "");
}

TEST(JsonText, HasFilesInBase64) {
  using nlohmann::json;
  std::mt19937 random(7);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<std::string> files(random() % 4);
    json expected = json::object();
    for (int i = static_cast<int>(random() % 3); i > 0; --i)
      expected["key " + std::to_string(i)] = {"a \"b\"", i};
    const json rest = expected;
    expected["images"] = json::array();
    for (std::string& file : files) {
      file.resize(random() % 3000);
      for (char& c : file) c = static_cast<char>(random());
      expected["images"].push_back(encode_base64(file));
    }
    const std::string text = json_text_with_files("images", {files.begin(), files.end()}, rest);
    EXPECT_EQ(json::parse(text), expected) << text.substr(0, 200);
  }
}

// Lengths about those at which the reader changes its ways, and pieces of random lengths, of which some are
// received to the reader's room and others copied.
TEST(FrameReader, GivesTheSameFramesHoweverTheyCome) {
  std::mt19937 random(20261128);
  const auto below = [&](size_t end) { return std::uniform_int_distribution<size_t>(0, end - 1)(random); };
  const auto text_of = [&](size_t size) {
    std::string text(size, '\0');
    for (char& c : text) c = static_cast<char>(random());
    return text;
  };
  constexpr size_t kSizes[] = {0, 1, 7, 8, 9, 65535, 65536, 65537, 131072, 1 << 20, (1 << 20) + 1, 3 << 20};
  for (int trial = 0; trial < 60; ++trial) {
    std::string stream;
    std::vector<Frame> sent(1 + below(6));
    const auto append_u32 = [&](size_t value) {
      for (size_t i = 0; i < 4; ++i) stream += static_cast<char>(value >> (8 * i));
    };
    for (Frame& frame : sent) {
      frame = {text_of(below(4) == 0 ? below(200000) : below(40)), text_of(kSizes[below(std::size(kSizes))])};
      append_u32(frame.json.size());
      append_u32(frame.bytes.size());
      stream += frame.json + frame.bytes;
    }
    FrameReader reader;
    size_t given = 0, come = 0;
    const size_t longest = size_t{1} << below(20);
    for (std::string_view rest = stream; !rest.empty();) {
      const std::string_view piece = rest.substr(0, 1 + below(longest));
      rest.remove_prefix(piece.size());
      if (below(2) == 0) {
        reader.append(piece);
        given += piece.size();
      } else {
        const std::span<char> room = reader.room();
        ASSERT_FALSE(room.empty());
        const size_t count = piece.copy(room.data(), room.size());
        reader.took(count);
        given += count;
        rest = std::string_view(stream).substr(given);
      }
      while (const auto frame = reader.next()) {
        ASSERT_LT(come, sent.size());
        EXPECT_TRUE(frame->json == sent[come].json && frame->bytes == sent[come].bytes) << "frame " << come;
        ++come;
      }
    }
    EXPECT_EQ(come, sent.size());
  }
}

TEST_F(Frames, RefuseLengthsBeyondTheLimits) {
  FrameReader json, bytes;
  json.append(std::string_view("\xff\xff\xff\x7f\0\0\0\0", 8));
  EXPECT_THROW(json.next(), FormatError);
  bytes.append(std::string_view("\0\0\0\0\xff\xff\xff\xff", 8));
  EXPECT_THROW(bytes.next(), FormatError);
}

TEST_F(Frames, SayWhenTheOtherSideHasGone) {
  ::close(ends_[1]);
  EXPECT_FALSE(write_frame(ends_[0], std::string(1 << 20, 'x')));
}

}  // namespace
}  // namespace rocm_sd::server
