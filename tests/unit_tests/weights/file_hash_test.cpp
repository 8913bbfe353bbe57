#include "weights/file_hash.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "base/error.hpp"

namespace rocm_sd {
namespace {

namespace fs = std::filesystem;

class FileHash : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / (std::string("rocm_sd_hash_") +
                                           ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  fs::path write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }
  fs::path folder_;
};

// FIPS 180-4's examples, and a text that spans several pieces.
TEST_F(FileHash, KnownDigests) {
  EXPECT_EQ(sha256_of_file(write("empty", "")),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_of_file(write("abc", "abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_of_file(write("million", std::string(1000000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  EXPECT_EQ(sha256_of_file(write("pieces", std::string((9 << 20) + 1, 'x'))).size(), 64u);
  EXPECT_THROW(sha256_of_file(folder_ / "none"), FileError);
}

TEST_F(FileHash, RemembersUntilTheFileChanges) {
  const fs::path file = write("model.safetensors", "one"), cache = folder_ / "deep" / "hashes.json";
  const std::string first = cached_sha256(file, cache);
  EXPECT_EQ(first, sha256_of_file(file));
  ASSERT_TRUE(fs::exists(cache));
  std::ifstream in(cache);
  std::string text((std::istreambuf_iterator<char>(in)), {});
  const size_t at = text.find(first);
  ASSERT_NE(at, std::string::npos);
  text.replace(at, 64, std::string(64, '7'));  // a hash that only the cache can give
  std::ofstream(cache) << text;
  EXPECT_EQ(cached_sha256(file, cache), std::string(64, '7'));
  write("model.safetensors", "other");
  EXPECT_EQ(cached_sha256(file, cache), sha256_of_file(file));
}

TEST_F(FileHash, ABrokenCacheIsNoError) {
  const fs::path file = write("model.safetensors", "one");
  for (const char* broken : {"", "{", "[]", "{\"x\": 3}", "\xff\xfe"}) {
    const fs::path cache = write("hashes.json", broken);
    EXPECT_EQ(cached_sha256(file, cache), sha256_of_file(file)) << broken;
  }
  EXPECT_EQ(cached_sha256(file, folder_ / "model.safetensors" / "below-a-file"), sha256_of_file(file));
  EXPECT_EQ(cached_sha256(file, {}), sha256_of_file(file));
}

}  // namespace
}  // namespace rocm_sd
