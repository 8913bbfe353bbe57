// Tensors that several threads read and copy: each piece once and in its place, errors, and an end before all
// is done.
#include "models/parallel_upload.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <random>

#include "base/error.hpp"

namespace rocm_sd {
namespace {

// A card whose memory is the host's.
class PlainCopies final : public SideCopies {
 public:
  std::shared_ptr<void> make_point() override { return nullptr; }
  void mark_launches(void*) override {}
  void mark_copies(void*) override {}
  void copies_wait(void*) override {}
  void launches_wait(void*) override {}
  void* allocate_host(size_t) override { return nullptr; }
  void free_host(void*) noexcept override {}
  void copy_beside(void*, const void*, size_t) override {}
  void wait_for_copies() override {}
  void copy_made(void* dst, size_t bytes, const std::function<void(char*)>& make) override {
    std::vector<char> lane(bytes);
    make(lane.data());
    std::memcpy(dst, lane.data(), bytes);
    ++copies;
  }
  std::atomic<int> copies = 0;
};

TEST(ParallelUpload, CopiesEachPieceOnceToItsPlace) {
  PlainCopies card;
  std::mt19937 random(3);
  std::vector<char> source(300'000), device(source.size(), '\x55');
  for (char& byte : source) byte = static_cast<char>(random());
  ParallelUpload upload(card);
  for (int round = 1; round <= 2; ++round) {  // it may be used again
    int pieces = 0;
    for (size_t begin = 0; begin < source.size(); ++pieces) {
      const size_t bytes = std::min<size_t>(1 + random() % 3000, source.size() - begin);
      upload.add(device.data() + begin, bytes,
                 [&source, begin, bytes](char* dst) { std::memcpy(dst, source.data() + begin, bytes); });
      begin += bytes;
    }
    upload.finish();
    EXPECT_EQ(card.copies.exchange(0), pieces);
    EXPECT_TRUE(device == source);
    std::fill(device.begin(), device.end(), '\x55');
  }
}

TEST(ParallelUpload, FinishThrowsWhatAReadThrew) {
  PlainCopies card;
  std::vector<char> device(1000);
  ParallelUpload upload(card);
  for (int i = 0; i < 1000; ++i)
    upload.add(&device[static_cast<size_t>(i)], 1, [i](char* dst) {
      require<FormatError>(i != 500, "tensor 500 is cut short");
      *dst = 1;
    });
  try {
    upload.finish();
    FAIL() << "no error";
  } catch (const FormatError& error) {
    EXPECT_STREQ(error.what(), "tensor 500 is cut short");
  }
  upload.add(device.data(), 1, [](char* dst) { *dst = 7; });
  upload.finish();  // the error was told once
  EXPECT_EQ(device[0], 7);
}

TEST(ParallelUpload, AnUploadThatIsGivenUpDropsWhatHasNotBegun) {
  PlainCopies card;
  std::vector<char> device(10'000);
  std::atomic<int> begun = 0;
  {
    ParallelUpload upload(card);
    for (char& byte : device)
      upload.add(&byte, 1, [&begun](char*) {
        ++begun;
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      });
  }
  EXPECT_LT(begun, 10'000);
  EXPECT_EQ(card.copies, begun);
}

TEST(ParallelUpload, NothingToDoIsDone) {
  PlainCopies card;
  ParallelUpload upload(card);
  upload.finish();
  EXPECT_EQ(card.copies, 0);
}

}  // namespace
}  // namespace rocm_sd
