// Results in order whatever the threads do: nothing lost, nothing twice, errors in their place.
#include "scaling/in_order.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "base/error.hpp"

namespace rocm_sd {
namespace {

GenerateRequest numbered(size_t index) {
  GenerateRequest request;
  request.seed = static_cast<int64_t>(index);
  return request;
}

MultiPipeline::RequestAt up_to(size_t count) {
  return [=](size_t i) { return i < count ? std::optional(numbered(i)) : std::nullopt; };
}

GenerateResult drawn(const GenerateRequest& request) {
  GenerateResult result;
  result.pictures.push_back({.seed = static_cast<uint64_t>(request.seed)});
  return result;
}

TEST(InOrder, EveryResultOnceInItsPlace) {
  std::mt19937 random(5);
  for (const size_t threads : {1, 2, 3, 7})
    for (const size_t count : {0, 1, 2, 6, 50}) {
      std::mutex mutex;
      std::multiset<int64_t> seen;
      const DrawOne draw = [&](const GenerateRequest& request, const Callbacks&) {
        int wait = 0;
        {
          const std::lock_guard lock(mutex);
          seen.insert(request.seed);
          wait = static_cast<int>(random() % 300);
        }
        std::this_thread::sleep_for(std::chrono::microseconds(wait));
        return drawn(request);
      };
      size_t next = 0;
      draw_in_order(threads, up_to(count), draw,
                    [&](size_t index, const GenerateResult& result) {
                      EXPECT_EQ(index, next++);
                      EXPECT_EQ(result.pictures.at(0).seed, index);
                    },
                    {});
      EXPECT_EQ(next, count);
      EXPECT_EQ(seen.size(), count);
      EXPECT_EQ(std::set(seen.begin(), seen.end()).size(), count) << "none twice";
    }
}

TEST(InOrder, FewResultsWaitForTheTaker) {
  std::atomic<int> begun = 0;
  const DrawOne draw = [&](const GenerateRequest& request, const Callbacks&) {
    ++begun;
    return drawn(request);
  };
  draw_in_order(2, up_to(40), draw,
                [&](size_t index, const GenerateResult&) {
                  std::this_thread::sleep_for(std::chrono::milliseconds(2));
                  EXPECT_LE(begun, static_cast<int>(index) + 1 + 6);
                },
                {});
}

TEST(InOrder, AnErrorComesAfterTheResultsBeforeIt) {
  for (const size_t bad : {0, 3, 9}) {
    std::vector<size_t> taken;
    const DrawOne draw = [&](const GenerateRequest& request, const Callbacks& watch) {
      const auto index = static_cast<size_t>(request.seed);
      if (index == bad) throw GenerationError("the bad one");
      // Those behind it are told to stop; those before it end.
      for (int i = 0; i < 200 && index > bad; ++i) {
        require<CancelledError>(!watch.cancelled(), "cancelled");
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      if (index < bad) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      return drawn(request);
    };
    EXPECT_THROW(draw_in_order(3, up_to(10), draw,
                               [&](size_t index, const GenerateResult&) { taken.push_back(index); }, {}),
                 GenerationError);
    std::vector<size_t> before(bad);
    for (size_t i = 0; i < bad; ++i) before[i] = i;
    EXPECT_EQ(taken, before);
  }
}

TEST(InOrder, WhatRequestsAndTakersThrow) {
  const DrawOne draw = [](const GenerateRequest& request, const Callbacks&) { return drawn(request); };
  std::vector<size_t> taken;
  const auto take = [&](size_t index, const GenerateResult&) {
    taken.push_back(index);
    if (index == 6) throw FileError("the disk is full");
  };
  const auto bad_request = [](size_t i) -> std::optional<GenerateRequest> {
    require<UsageError>(i != 4, "no such request");
    return numbered(i);
  };
  EXPECT_THROW(draw_in_order(2, bad_request, draw, take, {}), UsageError);
  EXPECT_EQ(taken, (std::vector<size_t>{0, 1, 2, 3}));
  taken.clear();
  EXPECT_THROW(draw_in_order(2, up_to(100), draw, take, {}), FileError);
  EXPECT_EQ(taken.size(), 7u);
}

TEST(InOrder, CallbacksOneAtATime) {
  std::atomic<int> inside = 0;
  const auto alone = [&] {
    EXPECT_EQ(++inside, 1);
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    --inside;
  };
  Callbacks callbacks;
  callbacks.progress = [&](const Progress&) { return alone(), true; };
  callbacks.cancelled = [&] { return alone(), false; };
  callbacks.planned = [&](const MemoryPlan&) { alone(); };
  const DrawOne draw = [](const GenerateRequest& request, const Callbacks& watch) {
    for (int i = 0; i < 5; ++i) {
      watch.planned({});
      EXPECT_TRUE(watch.progress({}));
      EXPECT_FALSE(watch.cancelled());
    }
    return drawn(request);
  };
  draw_in_order(4, up_to(12), draw, [](size_t, const GenerateResult&) {}, callbacks);
}

}  // namespace
}  // namespace rocm_sd
