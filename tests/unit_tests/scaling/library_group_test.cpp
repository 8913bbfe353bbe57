// Exchanges by NCCL and RCCL, on emulated GPUs and a stand-in for the library (tests/support/fake_nccl): what
// comes where, ranks that fail while another one waits in the library, and what is refused. Whole pictures:
// tests/gpu_tests/scaling.
#include "scaling/library_group.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <random>
#include <thread>

#include "base/error.hpp"
#include "models/window_exchange.hpp"
#include "runtime/arena.hpp"
#include "runtime/devices.hpp"
#include "scaling/shared_hub.hpp"

namespace rocm_sd {
namespace {

using testing::HasSubstr;

const std::string kDevice = "emu:gfx1100";

class LibraryGroups : public testing::Test {
 protected:
  void SetUp() override {
    setenv("ROCM_SD_NCCL", ROCM_SD_FAKE_NCCL, 1);
    const std::vector<DeviceListing> all = list_devices();
    if (std::ranges::none_of(all, [](const DeviceListing& d) { return d.name == kDevice && d.usable; }))
      GTEST_SKIP() << "no kernels were built for it";
  }

  // Ranks on emulated GPUs of their own; body(rank, ranks) in a thread for each.
  struct Ranks {
    explicit Ranks(int count, const RankPatience& patience = {}) {
      for (int i = 0; i < count; ++i) names.push_back("device " + std::to_string(i));
      hub = std::make_shared<SharedHub>(names, patience);
      for (int i = 0; i < count; ++i) {
        own.push_back({i, names[static_cast<size_t>(i)], &device_copy(kDevice, i)});
        links.push_back(std::make_unique<HubRanks>(*hub, i));
      }
      group = LibraryGroup::make(own, patience, hub);
      for (const auto& link : links) {
        views.push_back(group->windows(*link));
        link->use_windows(views.back().get());
      }
    }
    template <class Body>
    void run(const Body& body) {
      hub->begin_call(0);
      group->begin_call();
      std::vector<std::thread> threads;
      for (size_t i = 0; i < links.size(); ++i)
        threads.emplace_back([&, i] {
          links[i]->begin();
          views[i]->begin();
          body(static_cast<int>(i), *links[i]);
        });
      for (std::thread& thread : threads) thread.join();
      group->end_call(false);
    }

    std::vector<std::string> names;
    std::shared_ptr<SharedHub> hub;
    std::vector<LibraryRank> own;
    std::vector<std::unique_ptr<HubRanks>> links;
    std::vector<std::unique_ptr<PeerWindows>> views;
    std::shared_ptr<LibraryGroup> group;
  };
};

// A part of a map, dense or not, whose values are a function of who sends it to whom.
struct Part {
  Shape whole;
  int axis = 0;
  int64_t begin = 0, length = 0;

  Part(int from, int to, int round) {
    std::mt19937 random(static_cast<uint32_t>(from * 1009 + to * 101 + round * 7 + 1));
    const auto pick = [&](int64_t most) {
      return 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(most));
    };
    whole = {pick(3), pick(5), pick(7)};
    axis = static_cast<int>(random() % 2);
    length = pick(whole[axis]);
    begin = static_cast<int64_t>(random() % static_cast<uint64_t>(whole[axis] - length + 1));
  }
  Tensor of(const Tensor& tensor) const { return tensor.narrow(axis, begin, length); }
  std::vector<float> values(int seed) const {
    std::vector<float> out;
    for (int64_t i = 0; i < whole[0] * whole[1] * whole[2]; ++i)
      out.push_back(static_cast<float>((seed * 31 + i * 7) % 1013));
    return out;
  }
};

TEST_F(LibraryGroups, PassPartsOfMapsAndTheirOwnCopies) {
  for (const int count : {2, 3, 4}) {
    Ranks ranks(count);
    ranks.run([&](int rank, HubRanks& link) {
      Device& device = *ranks.own[static_cast<size_t>(rank)].device;
      Arena arena(device);
      for (int round = 0; round < 10; ++round) {
        Exec ex(arena);
        WindowExchange exchange(link);
        std::vector<Tensor> got(static_cast<size_t>(count));
        std::vector<std::vector<float>> want(got.size());
        for (int other = 0; other < count; ++other) {
          if (other == rank) continue;
          const Part out(rank, other, round), in(other, rank, round);
          const std::vector<float> sent = out.values(rank * 64 + other + round),
                                   there = in.values(other * 64 + rank + round);
          exchange.send(other, out.of(tensor_from(device, out.whole, sent.data())));
          std::vector<float> before(there.size(), -1);
          Tensor& target = got[static_cast<size_t>(other)] = tensor_from(device, in.whole, before.data());
          exchange.receive(other, in.of(target));
          // What lies beside the part stays.
          std::vector<float>& w = want[static_cast<size_t>(other)] = before;
          for (size_t i = 0; i < there.size(); ++i) {
            const auto n = static_cast<int64_t>(i);
            const int64_t place[3] = {n / (in.whole[1] * in.whole[2]), n / in.whole[2] % in.whole[1],
                                      n % in.whole[2]};
            const int64_t at = place[in.axis];
            if (at >= in.begin && at < in.begin + in.length) w[i] = there[i];
          }
        }
        const std::vector<float> own(15, static_cast<float>(rank + round));
        const Tensor from = tensor_from(device, {3, 5}, own.data()),
                     to = make_tensor(device, {3, 5}, DType::kF32);
        exchange.copy(from, to);
        exchange.run(ex, round % 2 ? Waits::kHaveMet : Waits::kEager);
        EXPECT_EQ(to_floats(device, to), own);
        for (int other = 0; other < count; ++other) {
          if (other == rank) continue;
          EXPECT_EQ(to_floats(device, got[static_cast<size_t>(other)]), want[static_cast<size_t>(other)])
              << "from " << other << " to " << rank << " of " << count << ", round " << round;
        }
      }
    });
    EXPECT_FALSE(ranks.hub->failed()) << ranks.hub->failure();
  }
}

// Rank 0 is in the library when rank 1 fails: it comes back within seconds, and the group draws no more.
TEST_F(LibraryGroups, AWaitInTheLibraryEndsWhenAnotherRankFails) {
  Ranks ranks(2);
  const auto begin = std::chrono::steady_clock::now();
  ranks.run([&](int rank, HubRanks& link) {
    PeerWindows& windows = *link.windows();
    std::vector<char> bytes(64);
    const LibraryMessage message{1 - rank, bytes.data(), bytes.size()};
    if (rank == 1) {
      windows.meet();                                               // but never calls
      std::this_thread::sleep_for(std::chrono::milliseconds(500));  // rank 0 does meanwhile
      ranks.hub->fail(1, 1, "its driver has failed");
      return;
    }
    EXPECT_THROW(windows.pass({&message, 1}, {&message, 1}), DeviceError);
    try {
      windows.check();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const DeviceError& e) {
      EXPECT_THAT(e.what(), HasSubstr("rank 1 (device 1): its driver has failed"));
    }
  });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  EXPECT_THROW(ranks.group->begin_call(), DeviceError);
}

// A rank that hangs is named after the ranks' patience, by whoever waits or by the group's own thread.
TEST_F(LibraryGroups, ARankThatHangsIsNamed) {
  Ranks ranks(2, {.first = 30, .later = 0.3});
  ranks.run([&](int rank, HubRanks& link) {
    PeerWindows& windows = *link.windows();
    std::vector<char> bytes(64);
    const LibraryMessage message{1 - rank, bytes.data(), bytes.size()};
    windows.meet();
    if (rank == 1) {
      while (!ranks.hub->failed()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      return;
    }
    EXPECT_THROW(windows.pass({&message, 1}, {&message, 1}), DeviceError);
  });
  EXPECT_TRUE(ranks.hub->failed());
  EXPECT_THAT(ranks.hub->failure(), HasSubstr("no sign of life for 0.3 s"));
}

TEST_F(LibraryGroups, RefuseWhatTheyCannotDo) {
  const auto hub = std::make_shared<SharedHub>(std::vector<std::string>{"cpu", "cpu"}, RankPatience{});
  const std::vector<LibraryRank> host = {{0, "cpu", &host_device()}, {1, "cpu", &host_device()}};
  EXPECT_THROW(LibraryGroup::make(host, {}, hub), UsageError);
  for (const auto& [word, way] :
       {std::pair("nccl", ExchangeWay::kLibrary), std::pair("rccl", ExchangeWay::kLibrary),
        std::pair("host", ExchangeWay::kMessages), std::pair("peer", ExchangeWay::kPeer),
        std::pair("mapped", ExchangeWay::kMapped)}) {
    setenv("ROCM_SD_EXCHANGE", word, 1);
    EXPECT_EQ(asked_exchange_way(), way) << word;
  }
  setenv("ROCM_SD_EXCHANGE", "peer", 1);
  EXPECT_THROW(make_exchange_group("cpu", host_device(), {}, hub, 0), UsageError) << "between processes";
  setenv("ROCM_SD_EXCHANGE", "pigeons", 1);
  EXPECT_THROW(asked_exchange_way(), UsageError);
  unsetenv("ROCM_SD_EXCHANGE");
  EXPECT_EQ(asked_exchange_way(), std::nullopt);
}

TEST(LibraryApi, NamesWhatIsMissing) {
  setenv("ROCM_SD_NCCL", "/nowhere.so", 1);
  try {
    nccl::load_api(DeviceKind::kHip);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const DeviceError& e) {
    EXPECT_THAT(e.what(), HasSubstr("RCCL is not there: "));
    EXPECT_THAT(e.what(), HasSubstr("ROCM_SD_NCCL"));
  }
  setenv("ROCM_SD_NCCL", "libm.so.6", 1);
  try {
    nccl::load_api(DeviceKind::kHip);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const DeviceError& e) {
    EXPECT_THAT(e.what(), HasSubstr("RCCL: libm.so.6 has no function nccl"));
  }
}

}  // namespace
}  // namespace rocm_sd
