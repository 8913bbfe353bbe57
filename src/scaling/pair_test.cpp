#include "scaling/pair_test.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.hpp"
#include "runtime/devices.hpp"
#include "scaling/shared_hub.hpp"
#include "scaling/test_bytes.hpp"

namespace rocm_sd {
namespace {

using Clock = LinkClock;

constexpr size_t kSmallBytes = 256, kLargeBytes = size_t{8} << 20;
constexpr double kPatience = 5;  // of a copy that takes milliseconds

class DeviceBytes {
 public:
  DeviceBytes(Device& device, size_t bytes) : device_(device), bytes_(bytes), data_(device.allocate(bytes)) {}
  ~DeviceBytes() { device_.free(data_, bytes_); }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;
  void* data() const { return data_; }

 private:
  Device& device_;
  size_t bytes_;
  void* data_;
};

// Shared with the threads, which may hang longer than anybody waits.
struct Run {
  Run(const std::array<std::string, 2>& names, double limit)
      : hub({names[0], names[1]}, {kPatience, kPatience}), seconds(limit) {}
  SharedHub hub;
  const double seconds;
  std::array<Device*, 2> devices{};
  std::mutex mutex;
  std::condition_variable ended;
  int done = 0;
  PairTest result;
};

class Rank {
 public:
  Rank(Run& run, int rank)
      : run_(run), rank_(rank), ranks_(run.hub, rank), device_(*run.devices[static_cast<size_t>(rank)]) {}

  void measure() {
    ranks_.begin();
    std::vector<double> small = rounds(kSmallBytes, run_.seconds / 4, 63);
    const std::vector<double> large = rounds(kLargeBytes, run_.seconds * 3 / 4, 63);
    if (rank_ > 0) return;
    std::nth_element(small.begin(), small.begin() + static_cast<ptrdiff_t>(small.size() / 2), small.end());
    const std::lock_guard lock(run_.mutex);
    run_.result.seconds = small[small.size() / 2];
    // The first one also makes buffers.
    const double best = *std::min_element(large.begin(), large.end());
    run_.result.bytes_per_second = static_cast<double>(kLargeBytes) / best;
    run_.result.message_bytes = kLargeBytes;
  }

 private:
  // Both send and receive at once -> the seconds of each round. Rank 0 says when it was enough.
  std::vector<double> rounds(size_t bytes, double limit, int most) {
    const DeviceBytes out(device_, bytes), in(device_, bytes);
    std::vector<uint32_t> sent(bytes / 4), want(bytes / 4), got(bytes / 4), host(bytes / 4);
    std::vector<double> times;
    const auto begin = Clock::now();
    const int other = 1 - rank_;
    for (char on = 1; on;) {
      const int round = static_cast<int>(times.size());
      fill_with_test_bytes(sent, rank_, round);
      fill_with_test_bytes(want, other, round);
      device_.copy_to_device(out.data(), sent.data(), bytes);
      meet();
      const auto start = Clock::now();
      device_.copy_to_host(host.data(), out.data(), bytes);
      ranks_.send(other, host.data(), bytes);
      ranks_.receive(other, host.data(), bytes);
      device_.copy_to_device(in.data(), host.data(), bytes);
      times.push_back(seconds_since(start));
      std::fill(got.begin(), got.end(), 0);
      device_.copy_to_host(got.data(), in.data(), bytes);
      require<DeviceError>(got == want, "of ", bytes, " bytes from ", run_.hub.name(other), " to ",
                           run_.hub.name(rank_), " others came than were sent");
      on = seconds_since(begin) < limit && times.size() < static_cast<size_t>(most);
      if (rank_ == 0)
        ranks_.send(other, &on, 1, 2);
      else
        ranks_.receive(other, &on, 1, 2);
    }
    return times;
  }
  void meet() {
    char nothing = 0;
    exchange_on(1, &nothing, 1);
  }
  void exchange_on(uint32_t channel, void* data, size_t bytes) {
    ranks_.send(1 - rank_, data, bytes, channel);
    ranks_.receive(1 - rank_, data, bytes, channel);
  }

  Run& run_;
  const int rank_;
  HubRanks ranks_;
  Device& device_;
};

void run_rank(const std::shared_ptr<Run>& run, int rank) {
  std::string problem;
  try {
    Rank(*run, rank).measure();
  } catch (const std::exception& e) {
    problem = e.what();
    run->hub.fail(rank, rank, problem);
  }
  const std::lock_guard lock(run->mutex);
  ++run->done;
  run->ended.notify_all();
}

PairTest test_pair(const ListedDevice& from, const ListedDevice& to, double seconds) {
  auto run = std::make_shared<Run>(std::array{from.name, to.name}, seconds);
  run->devices = {&device_copy(from.name, from.copy), &device_copy(to.name, to.copy)};
  run->result = {.from = from.name, .to = to.name, .way = "host memory"};
  for (int rank : {0, 1}) std::thread([run, rank] { run_rank(run, rank); }).detach();
  std::unique_lock lock(run->mutex);
  const bool ended = run->ended.wait_for(lock, std::chrono::duration<double>(seconds + 2 * kPatience),
                                         [&] { return run->done == 2; });
  PairTest out = run->result;
  if (run->hub.failed())
    out.problem = run->hub.failure();
  else if (!ended)
    out.problem = "hangs: nobody waits for it any longer";
  return out;
}

}  // namespace

std::vector<PairTest> test_pairs(const std::vector<ListedDevice>& devices, double seconds) {
  std::vector<PairTest> out;
  const size_t pairs = devices.size() * (devices.size() - 1) / 2;
  for (size_t i = 0; i < devices.size(); ++i)
    for (size_t j = i + 1; j < devices.size(); ++j)
      out.push_back(test_pair(devices[i], devices[j], seconds / static_cast<double>(pairs)));
  return out;
}

nlohmann::ordered_json pair_tests_json(const std::vector<PairTest>& tests) {
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (const PairTest& test : tests)
    out.push_back({{"from", test.from},
                   {"to", test.to},
                   {"way", test.way},
                   {"microseconds", test.seconds * 1e6},
                   {"bytes_per_second", test.bytes_per_second},
                   {"message_bytes", test.message_bytes},
                   {"problem", test.problem}});
  return out;
}

std::string pair_tests_text(const std::vector<PairTest>& tests) {
  std::string text;
  for (const PairTest& test : tests)
    text += fmt::format("{:<12}{} - {}, {}: {}\n", "measured", test.from, test.to, test.way,
                        test.problem.empty()
                            ? fmt::format("{:.1f} us a message, {:.2f} GB/s each way, right bytes",
                                          test.seconds * 1e6, test.bytes_per_second / 1e9)
                            : test.problem);
  return text;
}

}  // namespace rocm_sd
