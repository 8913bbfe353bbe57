// Archives of kernels: what the packer writes is what the reader finds; broken files are refused with a
// reason.
#include "runtime/kernel_archive.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "support/code_objects.hpp"

namespace rocm_sd {
namespace {

using testing_support::amd_code_object;

std::string bytes_of(const std::filesystem::path& path) { return read_file(path, 1 << 20); }

class KernelArchiveTest : public testing::Test {
 protected:
  KernelArchiveTest() {
    write_kernel_archive(file, "gfx1100", "clang 19 (test)",
                         {{"a.co", amd_code_object({{"add", 24, 0, 0, 0}, {"mul", 32, 4096, 16, 0}})},
                          {"none.co", amd_code_object({})},
                          {"b.co", second}});
  }
  // Opens the archive's bytes after `change`; the error's text.
  template <class Change>
  std::string error_after(const Change& change) {
    std::string bytes = bytes_of(file);
    change(bytes);
    const std::filesystem::path changed = folder.path() / "changed.rsk";
    std::ofstream(changed, std::ios::binary) << bytes;
    try {
      const KernelArchive archive(changed);
      for (const ArchivedObject& object : archive.objects()) archive.read(object);
    } catch (const FormatError& error) {
      return error.what();
    }
    return "";
  }
  std::string replaced(const std::string& from, const std::string& to) {
    return error_after([&](std::string& bytes) {
      const size_t at = bytes.find(from);
      ASSERT_NE(at, std::string::npos) << from;
      ASSERT_EQ(from.size(), to.size());
      bytes.replace(at, from.size(), to);
    });
  }

  testing_support::TemporaryFolder folder;
  std::filesystem::path file = folder.path() / "kernels_gfx1100.rsk";
  std::string second = amd_code_object({{"softmax_f16", 88, 0, 0, 0}});
};

TEST_F(KernelArchiveTest, ReadsWhatWasPacked) {
  const KernelArchive archive(file);
  EXPECT_EQ(archive.target(), "gfx1100");
  EXPECT_EQ(archive.compiler(), "clang 19 (test)");
  ASSERT_EQ(archive.objects().size(), 2u);  // the one without kernels is left out
  ASSERT_EQ(archive.kernels().size(), 3u);
  const ArchivedKernel& mul = archive.kernels().at("mul");
  EXPECT_EQ(mul.object, 0u);
  EXPECT_EQ(mul.params, 32u);
  EXPECT_EQ(mul.lds, 4096u);
  EXPECT_EQ(mul.scratch, 16u);
  const ArchivedKernel& softmax = archive.kernels().at("softmax_f16");
  EXPECT_EQ(archive.objects()[softmax.object].name, "b.co");
  EXPECT_EQ(archive.read(archive.objects()[softmax.object]), second);
}

TEST_F(KernelArchiveTest, RefusesBrokenFiles) {
  EXPECT_EQ(error_after([](std::string&) {}), "");
  const auto expect = [](const std::string& error, const char* part) {
    EXPECT_NE(error.find(part), std::string::npos) << '"' << error << "\" lacks \"" << part << '"';
  };
  expect(error_after([](std::string& b) { b.clear(); }), "too few");
  expect(error_after([](std::string& b) { b.resize(23); }), "too few");
  expect(error_after([](std::string& b) { b[0] = 'X'; }), "is no kernel archive");
  expect(error_after([](std::string& b) { b[8] = 9; }), "version 9");
  expect(error_after([](std::string& b) { b[16 + 6] = 1; }), "index of");
  expect(error_after([](std::string& b) { b.resize(b.size() - 1); }), "outside the file");
  expect(error_after([](std::string& b) { b.back() ^= 1; }), "not those that were packed");
  expect(replaced("\"offset\":0", "\"offset\":X"), "changed.rsk");
  expect(replaced("\"offset\":0", "\"offset\":9"), "not those that were packed");
  expect(replaced("\"offset\":0,\"size\"", "\"offset\":-1,\"siz\""), "offset");
  expect(replaced("\"target\"", "\"tarGet\""), "lacks \"target\"");
  expect(replaced("\"gfx1100\"", "[ \"\\u0\" ]"), "changed.rsk");
  expect(replaced("\"gfx1100\"", "        7"), "target must be a short text");
  expect(replaced("\"mul\"", "\"add\""), "add is there twice");
  expect(replaced("\"params\":32", "\"params\":{}"), "params must be a number");
}

// Any one byte of the head and index: an error or the same archive, never anything else.
TEST_F(KernelArchiveTest, SurvivesAnyChangedByte) {
  const std::string sound = bytes_of(file);
  const size_t index_end = 24 + 600;
  for (size_t i = 0; i < std::min(index_end, sound.size()); i += 3)
    error_after([&](std::string& bytes) { bytes[i] = static_cast<char>(bytes[i] ^ 0x41); });
}

TEST_F(KernelArchiveTest, IsFoundByItsTarget) {
  setenv("ROCM_SD_KERNELS", folder.path().c_str(), 1);
  EXPECT_EQ(find_kernel_archive("gfx1100"), file);
  EXPECT_EQ(find_kernel_archive("gfx1101"), std::nullopt);
  std::ofstream(folder.path() / "kernels_sm_90.rsk") << "x";
  std::ofstream(folder.path() / "other.rsk") << "x";
  EXPECT_EQ(archived_targets(), (std::vector<std::string>{"gfx1100", "sm_90"}));
  unsetenv("ROCM_SD_KERNELS");
  EXPECT_GE(kernel_folders().size(), 3u);
}

TEST(Packer, RefusesTheSameKernelTwice) {
  const testing_support::TemporaryFolder folder;
  const std::string object = amd_code_object({{"add", 24, 0, 0, 0}});
  EXPECT_THROW(write_kernel_archive(folder.path() / "a.rsk", "gfx1100", "c", {{"a", object}, {"b", object}}),
               std::runtime_error);
}

// Code objects come from our own build, but a cut or damaged one must not crash it.
TEST(Packer, RefusesBrokenCodeObjects) {
  const std::string sound = amd_code_object({{"add", 24, 0, 0, 0}});
  ASSERT_EQ(kernels_of_code_object(sound, "sound").size(), 1u);
  int refused = 0;
  for (size_t size = 0; size < sound.size(); ++size) {
    try {
      kernels_of_code_object(std::string_view(sound).substr(0, size), "cut");
    } catch (const std::runtime_error&) {
      ++refused;
    }
  }
  EXPECT_EQ(refused, static_cast<int>(sound.size()));  // the section headers are last
  for (size_t i = 0; i < sound.size(); ++i) {
    for (const int mask : {1, 0x80, 0xff}) {
      std::string changed = sound;
      changed[i] = static_cast<char>(changed[i] ^ mask);
      try {
        kernels_of_code_object(changed, "changed");
      } catch (const std::runtime_error&) {
      }
    }
  }
}

}  // namespace
}  // namespace rocm_sd
