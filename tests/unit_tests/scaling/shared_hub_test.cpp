// Messages between threads: order, sizes, attempts begun anew, ranks that fail or fall silent.
#include "scaling/shared_hub.hpp"

#include <gmock/gmock.h>

#include <cstring>
#include <numeric>
#include <random>
#include <thread>

#include "base/error.hpp"

namespace rocm_sd {
namespace {

using testing::HasSubstr;

std::vector<std::string> names(int count) {
  std::vector<std::string> out;
  for (int i = 0; i < count; ++i) out.push_back("device " + std::to_string(i));
  return out;
}

// body(ranks) in a thread for each.
template <class Body>
void run_ranks(SharedHub& hub, const Body& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < hub.count(); ++rank)
    threads.emplace_back([&, rank] {
      HubRanks ranks(hub, rank);
      body(ranks);
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(SharedHubs, AllGatherOfUnevenParts) {
  for (const int count : {1, 2, 3, 4, 8}) {
    SharedHub hub(names(count), {});
    std::mt19937 random(static_cast<unsigned>(count));
    std::vector<std::vector<size_t>> rounds(50);
    for (auto& ends : rounds)
      for (int rank = 0; rank < count; ++rank)
        ends.push_back((ends.empty() ? 0 : ends.back()) + random() % 1000);
    run_ranks(hub, [&](HubRanks& ranks) {
      ranks.begin();
      for (size_t round = 0; round < rounds.size(); ++round) {
        const auto& ends = rounds[round];
        std::vector<unsigned char> want(ends.back()), all(ends.back(), 0xee);
        for (size_t i = 0; i < want.size(); ++i) want[i] = static_cast<unsigned char>(i * 7 + round);
        const auto own = static_cast<size_t>(ranks.rank());
        const size_t begin = own ? ends[own - 1] : 0;
        std::copy_n(want.begin() + static_cast<ptrdiff_t>(begin), ends[own] - begin,
                    all.begin() + static_cast<ptrdiff_t>(begin));
        all_gather(ranks, all.data(), ends);
        EXPECT_EQ(all, want) << count << " " << round;
      }
    });
    EXPECT_FALSE(hub.failed());
  }
}

TEST(SharedHubs, ExchangeOfNeighbours) {
  SharedHub hub(names(2), {});
  run_ranks(hub, [](HubRanks& ranks) {
    ranks.begin();
    for (int i = 0; i < 1000; ++i) {
      const int out = 2 * i + ranks.rank();
      int in = -1;
      exchange(ranks, 1 - ranks.rank(), &out, sizeof out, &in, sizeof in);
      EXPECT_EQ(in, 2 * i + 1 - ranks.rank());
    }
  });
}

// The pipeline's loop: an attempt that another rank ended is begun anew. Rank 1 fails in some attempts.
TEST(SharedHubs, AttemptsBeginAnewTogether) {
  for (int failing_rounds : {1, 2, 5}) {
    SharedHub hub(names(3), {});
    run_ranks(hub, [&](HubRanks& ranks) {
      int failures = ranks.rank() == 1 ? failing_rounds : ranks.rank() == 2 ? 1 : 0;
      for (;;) {
        try {
          ranks.begin();
          for (int i = 0; i < 20; ++i) {
            if (i == 7 && failures-- > 0) throw AttemptOver{};
            int all[3] = {-1, -1, -1};
            all[ranks.rank()] = 100 * i + ranks.rank();
            const size_t ends[] = {sizeof(int), 2 * sizeof(int), 3 * sizeof(int)};
            all_gather(ranks, all, ends);
            for (int r = 0; r < 3; ++r) EXPECT_EQ(all[r], 100 * i + r) << "nothing of an earlier attempt";
          }
          // As the pipeline ends: rank 0 tells the others that the image is there.
          char done = 1;
          for (int to = 1; ranks.rank() == 0 && to < 3; ++to) ranks.send(to, &done, 1);
          if (ranks.rank() > 0) ranks.receive(0, &done, 1);
          return;
        } catch (const AttemptOver&) {
        }
      }
    });
    EXPECT_FALSE(hub.failed());
  }
}

TEST(SharedHubs, AFailureReachesEverybody) {
  SharedHub hub(names(3), {});
  run_ranks(hub, [&](HubRanks& ranks) {
    if (ranks.rank() == 2) return hub.fail(2, 2, "its card fell off");
    try {
      char byte = 0;
      ranks.begin();  // which already finds it, where rank 2 was faster
      ranks.receive(2, &byte, 1);
      ADD_FAILURE();
    } catch (const DeviceError& e) {
      EXPECT_STREQ(e.what(), "rank 2 (device 2): its card fell off");
    }
    EXPECT_THROW(ranks.begin(), DeviceError);
    EXPECT_THROW(ranks.send(0, nullptr, 0), DeviceError);
  });
  EXPECT_EQ(hub.failed_rank(), 2);
  hub.fail(0, 0, "later");
  EXPECT_EQ(hub.failed_rank(), 2) << "the first counts";
  hub.begin_call(0);
  EXPECT_FALSE(hub.failed());
  hub.fail(1, 1, "cancelled", true);
  EXPECT_THROW(HubRanks(hub, 0).begin(), CancelledError);
}

TEST(SharedHubs, ASilentRankIsNamed) {
  SharedHub hub(names(2), {.first = 0.2, .later = 0.05});
  const auto begin = std::chrono::steady_clock::now();
  const auto waits_in_vain = [&](HubRanks& ranks) {
    try {
      char byte = 0;
      ranks.receive(1, &byte, 1);
      return std::string("received");
    } catch (const DeviceError& e) {
      return std::string(e.what());
    }
  };
  HubRanks first(hub, 0), second(hub, 1);
  first.begin();
  second.begin();
  EXPECT_EQ(waits_in_vain(first), "rank 1 (device 1): no sign of life for 0.2 s");
  hub.begin_call(0);
  first.begin();
  second.begin();
  second.send(0, "x", 1);
  char byte = 0;
  first.receive(1, &byte, 1);
  EXPECT_EQ(byte, 'x');
  EXPECT_EQ(waits_in_vain(first), "rank 1 (device 1): no sign of life for 0.05 s");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

TEST(SharedHubs, ARankThatIsBusyIsWaitedFor) {
  SharedHub hub(names(2), {.first = 0.3, .later = 0.3});
  run_ranks(hub, [&](HubRanks& ranks) {
    ranks.begin();
    int value = 5;
    if (ranks.rank() == 0) {
      ranks.receive(1, &value, sizeof value);
      EXPECT_EQ(value, 6);
      return;
    }
    for (int i = 0; i < 40; ++i) {  // longer than the patience, with signs of life
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      hub.beat(1);
    }
    value = 6;
    ranks.send(0, &value, sizeof value);
  });
  EXPECT_FALSE(hub.failed());
}

TEST(SharedHubs, AMessageOfAnotherSizeIsRefused) {
  SharedHub hub(names(2), {});
  HubRanks first(hub, 0), second(hub, 1);
  first.begin();
  second.begin();
  second.send(0, "abc", 3);
  char bytes[4];
  EXPECT_THROW(first.receive(1, bytes, 4), InternalError);
}

}  // namespace
}  // namespace rocm_sd
