// Self attention of divided rows, whose exchange runs beside the attention over the own keys on AMD and
// before it on NVIDIA: ranks on threads, by every way between their devices, against the reference over all
// rows.
#include <cstdlib>
#include <memory>
#include <thread>

#include "base/format.hpp"
#include "gpu_tests/against_reference.hpp"
#include "gpu_tests/gpu_test.hpp"
#include "kernels/attention/attention.hpp"
#include "models/row_split.hpp"
#include "runtime/devices.hpp"
#include "scaling/exchange_group.hpp"
#include "scaling/shared_hub.hpp"

namespace rocm_sd {
namespace {

using testing_support::expect_near;
using testing_support::random_tensor;

// ROCM_SD_TEST_DEVICES ("cuda:0,cuda:1"), else the tests' GPU as often as there are ranks.
std::vector<std::string> device_names(int ranks) {
  const char* list = std::getenv("ROCM_SD_TEST_DEVICES");
  const char* one = std::getenv("ROCM_SD_TEST_DEVICE");
  std::string names = list ? list : one ? one : "cuda:0";
  std::vector<std::string> named;
  for (size_t begin = 0; begin <= names.size();) {
    const size_t end = std::min(names.find(',', begin), names.size());
    named.push_back(names.substr(begin, end - begin));
    begin = end + 1;
  }
  std::vector<std::string> out;
  for (int rank = 0; rank < ranks; ++rank) out.push_back(named[static_cast<size_t>(rank) % named.size()]);
  return out;
}

// Rows of 64 pixels; a rank of these has at least 1024 of them, from which on its attention is in parts.
constexpr int64_t kWidth = 64, kChannels = 40;

struct Attended {
  std::vector<std::vector<float>> of_runs;  // each [images, own pixels, channels]
  int64_t begin = 0, rows = 0;
};

// Several runs of a rank's program: run at once, recorded, replayed, and its keys and values changed between.
Attended attend(HubRanks& link, PeerWindows* windows, Device& device, int64_t height,
                const std::vector<Tensor>& inputs) {
  const RowSplit split(link, height, kWidth, 4, 0);
  Arena arena(device);
  const int64_t images = inputs[0].dim(0);
  const Tensor packed =
      make_tensor(device, {images, split.rows() * kWidth, 3 * kChannels}, inputs[0].dtype());
  const Tensor y = make_tensor(device, {images, split.rows() * kWidth, kChannels}, inputs[0].dtype());
  Program program("attention of rows", arena, [&](Exec& ex) {
    const RowScope scope(&split);
    copy_into(ex, packed_attention(ex, packed, {.heads = 1}), y);
  });
  program.plan();
  Attended out{{}, split.begin(), split.rows()};
  for (const Tensor& input : inputs) {
    const size_t row = static_cast<size_t>(kWidth * 3 * kChannels) * dtype_size(input.dtype());
    for (int64_t image = 0; image < images; ++image)
      device.copy_to_device(
          static_cast<char*>(packed.data()) + static_cast<size_t>(image * split.rows()) * row,
          static_cast<const char*>(input.data()) + static_cast<size_t>(image * height + split.begin()) * row,
          static_cast<size_t>(split.rows()) * row);
    if (windows) windows->meet();
    program.run();
    device.synchronize();
    if (windows) windows->check();
    out.of_runs.push_back(to_floats(device, y));
  }
  return out;
}

void check(int ranks, int64_t height, int64_t images, const std::string& way, DType dtype) {
  SCOPED_TRACE(fmt::format("{} ranks, {} rows, {} images by {}", ranks, height, images, way));
  const std::vector<std::string> names = device_names(ranks);
  std::vector<Device*> devices;
  for (int rank = 0; rank < ranks; ++rank) {
    int copy = 0;
    for (int before = 0; before < rank; ++before)
      copy += names[static_cast<size_t>(before)] == names[static_cast<size_t>(rank)];
    devices.push_back(&device_copy(names[static_cast<size_t>(rank)], copy));
  }
  const RankPatience patience;
  // Ranks of one name share a device, and pass keys and values in order. Emulated ones share nothing.
  std::vector<std::string> labels = names;
  for (size_t rank = 0; test_gpu_is_emulated() && rank < labels.size(); ++rank)
    labels[rank] += fmt::format(" of rank {}", rank);
  const auto hub = std::make_shared<SharedHub>(labels, patience);
  setenv("ROCM_SD_EXCHANGE", way.c_str(), 1);
  const std::shared_ptr<ExchangeGroup> group = make_exchange_group(labels, devices, patience, hub);
  unsetenv("ROCM_SD_EXCHANGE");
  ASSERT_EQ(group != nullptr, way != "host");
  std::vector<Tensor> inputs;
  for (uint64_t run = 0; run < (test_gpu_is_emulated() ? 2u : 5u); ++run)
    inputs.push_back(random_tensor({images, height * kWidth, 3 * kChannels}, dtype, 11 + run));
  std::vector<Attended> got(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      HubRanks link(*hub, rank, {Division::kRows, std::nullopt});
      const std::unique_ptr<PeerWindows> windows = group ? group->windows(link) : nullptr;
      if (windows) link.use_windows(windows.get());
      try {
        link.begin();
        if (windows) windows->begin();
        got[static_cast<size_t>(rank)] =
            attend(link, windows.get(), *devices[static_cast<size_t>(rank)], height, inputs);
      } catch (const Error& error) {
        hub->fail(rank, rank, error.what());
      }
    });
  for (std::thread& thread : threads) thread.join();
  ASSERT_FALSE(hub->failed()) << hub->failure();
  for (size_t run = 0; run < inputs.size(); ++run) {
    const std::vector<double> want = on_host("attention", [&](Exec& ex, const Place&) {
      const Tensor& all = inputs[run];
      return attention(ex, all.narrow(2, 0, kChannels), all.narrow(2, kChannels, kChannels),
                       all.narrow(2, 2 * kChannels, kChannels), {.heads = 1});
    });
    for (const Attended& of_rank : got) {
      std::vector<double> own;
      for (int64_t image = 0; image < images; ++image) {
        const auto first = want.begin() + (image * height + of_rank.begin) * kWidth * kChannels;
        own.insert(own.end(), first, first + of_rank.rows * kWidth * kChannels);
      }
      const std::vector<float>& values = of_rank.of_runs.at(run);
      expect_near({values.begin(), values.end()}, own,
                  5 * testing_support::unit_roundoff(dtype) +
                      8 * testing_support::reduction_tolerance(DType::kF32, kChannels + height * kWidth),
                  fmt::format("run {}, rows from {}", run, of_rank.begin));
    }
  }
}

TEST(RowAttention, MatchesTheReferenceByEveryWay) {
  const bool few = test_gpu_is_emulated();
  const std::vector<std::string> ways =
      few ? std::vector<std::string>{"mapped", "host"} : std::vector<std::string>{"peer", "mapped", "host"};
  for (const std::string& way : ways) check(2, 32, 1, way, DType::kF16);
  if (few) return;
  for (const std::string& way : ways) {
    check(2, 44, 2, way, DType::kBF16);  // two images; 24 and 20 rows
    check(3, 64, 1, way, DType::kF16);   // 20, 20 and 24 rows, each reads those of two
  }
}

}  // namespace
}  // namespace rocm_sd
