// Messages between ranks by put, take and pass, on the host: which bytes come where, in whatever order the
// ranks get there, over many messages; waits that end without one.
#include "kernels/exchange/exchange.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstring>
#include <memory>
#include <random>
#include <thread>

#include "composable_kernels/fused/exchange.hpp"
#include "support/exchange_ring.hpp"
#include "support/tensor_testing.hpp"

namespace rocm_sd {
namespace {

using namespace testing_support;

constexpr size_t kWindow = size_t{1} << 14;  // of a message
constexpr size_t kKept = 4 * kWindow;        // of those of a call

class Ring : public ExchangeRing {
 public:
  explicit Ring(int count, uint64_t patience = 0) : ExchangeRing(count, kWindow, kKept, patience) {}
};

// What one message holds is the same on both sides: a function of its seed.
struct Message {
  Shape whole;  // of which a part passes
  int axis = 0;
  int64_t begin = 0, length = 0;
  DType dtype = DType::kF32;

  Message(int from, int to, int round) {
    std::mt19937 random(static_cast<uint32_t>(from * 1009 + to * 101 + round * 7 + 1));
    const auto pick = [&](int64_t most) {
      return 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(most));
    };
    whole = {pick(3), pick(5), pick(7), pick(9)};
    const DType types[] = {DType::kF32, DType::kF16, DType::kU8};
    dtype = types[random() % 3];
    axis = static_cast<int>(random() % 3);
    length = pick(whole[axis]);
    begin = static_cast<int64_t>(random() % static_cast<uint64_t>(whole[axis] - length + 1));
  }
  Tensor part(const Tensor& of) const { return of.narrow(axis, begin, length); }
};

void fill(const Tensor& tensor, int from, int to, int round) {
  std::mt19937 random(static_cast<uint32_t>(round * 65537 + from * 257 + to));
  auto* bytes = static_cast<uint8_t*>(tensor.data());
  for (size_t i = 0; i < tensor.bytes(); ++i) bytes[i] = static_cast<uint8_t>(random());
}

std::vector<uint8_t> bytes_of(const Tensor& tensor) {
  const auto* data = static_cast<const uint8_t*>(tensor.data());
  return {data, data + tensor.bytes()};
}

// Rank's messages of one round, and a copy of its own.
void put_round(Ring& ring, int rank, int round) {
  TestExec test;
  std::vector<Tensor> wholes;
  std::vector<ExchangePart> parts;
  for (int to = 0; to < ring.count(); ++to) {
    if (to == rank) continue;
    const Message message(rank, to, round);
    wholes.push_back(make_tensor(test.device, message.whole, message.dtype));
    fill(wholes.back(), rank, to, round);
    parts.push_back({message.part(wholes.back()), 1u << to, static_cast<size_t>(16 * (round % 3))});
  }
  const Tensor own = make_tensor(test.device, {3, 5}, DType::kF16),
               copy = make_tensor(test.device, {3, 5}, DType::kF16);
  fill(own, rank, rank, round);
  const OwnPart beside[] = {{own, copy}};
  put(test.ex, ring.control(rank), parts, beside, ring.others(rank));
  EXPECT_EQ(bytes_of(copy), bytes_of(own)) << "rank " << rank << ", round " << round;
}

void take_round(Ring& ring, int rank, int round) {
  TestExec test;
  std::vector<Tensor> got;
  std::vector<ExchangePart> parts;
  for (int from = 0; from < ring.count(); ++from) {
    if (from == rank) continue;
    const Message message(from, rank, round);
    got.push_back(make_tensor(test.device, message.whole, message.dtype));  // poisoned
    parts.push_back({message.part(got.back()), 1u << from, static_cast<size_t>(16 * (round % 3))});
  }
  take(test.ex, ring.control(rank), parts, ring.others(rank), true);
  size_t at = 0;
  for (int from = 0; from < ring.count(); ++from) {
    if (from == rank) continue;
    const Message message(from, rank, round);
    const Tensor sent = make_tensor(test.device, message.whole, message.dtype);
    fill(sent, from, rank, round);
    // What lies beside the part stays poisoned.
    const Tensor want = make_tensor(test.device, message.whole, message.dtype);
    const Tensor want_part = message.part(want), sent_part = message.part(sent);
    const int64_t blocks = message.axis == 0   ? 1
                           : message.axis == 1 ? message.whole[0]
                                               : message.whole[0] * message.whole[1];
    const int64_t block = want.numel() / blocks, piece = want_part.numel() / blocks;
    const auto size = static_cast<int64_t>(dtype_size(message.dtype));
    for (int64_t i = 0; i < blocks; ++i)
      std::memcpy(static_cast<char*>(want_part.data()) + i * block * size,
                  static_cast<const char*>(sent_part.data()) + i * block * size,
                  static_cast<size_t>(piece * size));
    EXPECT_EQ(bytes_of(got[at++]), bytes_of(want))
        << "from " << from << " to " << rank << ", round " << round;
  }
}

// One thread makes any order that the protocol allows: a rank may be a whole message ahead of another.
TEST(Exchange, PartsComeWhereTheyBelongInEveryOrder) {
  for (const int count : {2, 3, 4, 8}) {
    Ring ring(count);
    std::mt19937 random(static_cast<uint32_t>(count));
    constexpr int kRounds = 24;
    std::vector<int> put(static_cast<size_t>(count)), taken(put.size());
    int ahead = 0;
    while (*std::ranges::min_element(taken) < kRounds) {
      const auto rank = static_cast<size_t>(random() % static_cast<uint32_t>(count));
      if (put[rank] == taken[rank]) {
        if (put[rank] < kRounds) put_round(ring, static_cast<int>(rank), put[rank]++);
      } else if (*std::ranges::min_element(put) > taken[rank]) {
        take_round(ring, static_cast<int>(rank), taken[rank]++);
      }
      ahead = std::max(ahead, *std::ranges::max_element(put) - *std::ranges::min_element(taken));
    }
    EXPECT_EQ(ahead, 2) << count << " ranks: both halves of a window were in use";
  }
}

TEST(Exchange, CountsWhatHasPassed) {
  constexpr int kCount = 3, kRounds = 5;
  Ring ring(kCount);
  uint64_t sent[kCount] = {}, received[kCount] = {};
  for (int round = 0; round < kRounds; ++round) {
    for (int rank = 0; rank < kCount; ++rank) put_round(ring, rank, round);
    for (int rank = 0; rank < kCount; ++rank) take_round(ring, rank, round);
    for (int from = 0; from < kCount; ++from)
      for (int to = 0; to < kCount; ++to) {
        if (from == to) continue;
        TestExec test;
        const Message message(from, to, round);
        const size_t bytes = message.part(make_tensor(test.device, message.whole, message.dtype)).bytes();
        sent[from] += bytes;
        received[to] += bytes;
      }
  }
  for (int rank = 0; rank < kCount; ++rank) {
    const ExchangeCounts& counts = ring.control(rank)->counts;
    EXPECT_EQ(counts.messages, uint64_t{kRounds} * (kCount - 1));
    EXPECT_EQ(counts.sent_bytes, sent[rank]);
    EXPECT_EQ(counts.received_bytes, received[rank]);
    EXPECT_LT(counts.waited, 1'000'000'000u) << "all had come";
  }
}

TEST(Exchange, CountsHowLongItWaited) {
  Ring ring(2);
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    put_round(ring, 1, 0);
  });
  put_round(ring, 0, 0);
  const auto begin = std::chrono::steady_clock::now();
  take_round(ring, 0, 0);
  const auto took = std::chrono::steady_clock::now() - begin;
  other.join();
  const std::chrono::nanoseconds waited(ring.control(0)->counts.waited);
  EXPECT_GT(waited, std::chrono::milliseconds(10));
  EXPECT_LE(waited, took);
}

TEST(Exchange, RanksOnThreadsWithRandomDelaysMissNothing) {
  for (const int count : {2, 3, 4}) {
    Ring ring(count, 20'000'000'000);
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < count; ++rank)
      ranks.emplace_back([&ring, rank] {
        std::mt19937 random(static_cast<uint32_t>(rank));
        const auto pause = [&] {
          if (random() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
        };
        for (int round = 0; round < 100; ++round) {
          pause();
          put_round(ring, rank, round);
          pause();
          take_round(ring, rank, round);
        }
      });
    for (std::thread& rank : ranks) rank.join();
    for (int rank = 0; rank < count; ++rank) EXPECT_EQ(ring.late(rank), 0u);
  }
}

TEST(Exchange, AWaitThatIsTooLongNamesTheRank) {
  Ring ring(3, 30'000'000);  // 30 ms
  TestExec test;
  const Tensor got = make_tensor(test.device, {4}, DType::kF32);
  put_round(ring, 1, 0);  // rank 2 does not come
  const ExchangePart part{got, 1u << 1, 0};
  const auto begin = std::chrono::steady_clock::now();
  take(test.ex, ring.control(0), {&part, 1}, ring.others(0), true);
  EXPECT_EQ(ring.late(0), 3u) << "the number of rank 2, from 1 on";
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(30));
}

TEST(Exchange, AStopEndsAWaitWithoutBlame) {
  Ring ring(2);  // whose patience has no end
  TestExec test;
  const Tensor got = make_tensor(test.device, {4}, DType::kF32);
  const ExchangePart part{got, 1u << 1, 0};
  std::thread stopper([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::atomic_ref(ring.stop).store(1);
  });
  take(test.ex, ring.control(0), {&part, 1}, ring.others(0), true);
  stopper.join();
  EXPECT_EQ(ring.late(0), 0u);
}

// What a rank does in calls whose messages are kept. In exact ones it takes what the others have put in the
// same exchange, in stale ones what they have passed in the call before. A call ends with an exchange that is
// not kept.
struct KeptStep {
  enum Kind { kPut, kTake, kPass } kind;
  int call, exchange;
};
constexpr int kExchanges = 3, kExactCalls = 2;

std::vector<KeptStep> kept_steps(int calls) {
  std::vector<KeptStep> out;
  for (int call = 0; call < calls; ++call)
    for (int exchange = 0; exchange <= kExchanges; ++exchange) {
      if (exchange < kExchanges && call >= kExactCalls) {
        out.push_back({KeptStep::kPass, call, exchange});
      } else {
        out.push_back({KeptStep::kPut, call, exchange});
        out.push_back({KeptStep::kTake, call, exchange});
      }
    }
  return out;
}

// From one rank to another in an exchange: of the same size in every call.
Tensor kept_message(TestExec& test, int from, int to, int call, int exchange) {
  const Tensor out = make_tensor(test.device, {1 + (from * 31 + to * 7 + exchange * 13) % 100}, DType::kF32);
  fill(out, from, to, call * (kExchanges + 1) + exchange);
  return out;
}

void run_step(Ring& ring, int rank, const KeptStep& step) {
  TestExec test;
  std::vector<ExchangePart> sent, received;
  const bool kept = step.exchange < kExchanges;
  KeptMessage place{
      .to = {}, .from = {}, .is_kept = kept, .begins_call = kept && step.exchange == 0 ? 1u : 0u};
  for (int other = 0; other < ring.count(); ++other) {
    if (other == rank) continue;
    // Places of a pair of ranks' own, as those of messages of other sizes are.
    const auto at = [&](int from, int to) {
      return static_cast<int64_t>(kWindow) * step.exchange + 128 * (from + to);
    };
    place.to[other] = at(rank, other);
    place.from[other] = at(other, rank);
    sent.push_back({kept_message(test, rank, other, step.call, step.exchange), 1u << other, 0});
    const Tensor like = kept_message(test, other, rank, step.call, step.exchange);
    received.push_back({make_tensor(test.device, like.shape(), DType::kF32), 1u << other, 0});
  }
  if (step.kind == KeptStep::kPut)
    return put(test.ex, ring.control(rank), sent, {}, ring.others(rank), &place);
  if (step.kind == KeptStep::kTake)
    take(test.ex, ring.control(rank), received, ring.others(rank), true, &place);
  else
    pass(test.ex, ring.control(rank), sent, received, {}, place);
  const int call = step.kind == KeptStep::kPass ? step.call - 1 : step.call;
  for (const ExchangePart& part : received) {
    const int from = std::countr_zero(part.ranks);
    EXPECT_EQ(bytes_of(part.tensor), bytes_of(kept_message(test, from, rank, call, step.exchange)))
        << "from " << from << " to " << rank << ", call " << step.call << ", exchange " << step.exchange;
  }
}

// One thread makes any order in which nobody takes what is not there. A rank may be through with a call's
// passes, while another one has not begun them.
TEST(Exchange, StaleCallsTakeWhatCameInTheCallBefore) {
  for (const int count : {2, 3, 8}) {
    Ring ring(count);
    std::mt19937 random(static_cast<uint32_t>(count));
    const std::vector<KeptStep> steps = kept_steps(8);
    std::vector<size_t> at(static_cast<size_t>(count)), puts(at.size()), takes(at.size());
    int whole_calls_ahead = 0;
    while (*std::ranges::min_element(at) < steps.size()) {
      const auto rank = static_cast<size_t>(random() % static_cast<uint32_t>(count));
      if (at[rank] == steps.size()) continue;
      // Long runs of one rank, so that it comes as far ahead of the others as it may.
      for (int run = static_cast<int>(random() % 12); run >= 0 && at[rank] < steps.size(); --run) {
        const KeptStep& step = steps[at[rank]];
        if (step.kind == KeptStep::kTake && *std::ranges::min_element(puts) <= takes[rank]) break;
        run_step(ring, static_cast<int>(rank), step);
        puts[rank] += step.kind == KeptStep::kPut;
        takes[rank] += step.kind == KeptStep::kTake;
        ++at[rank];
        const KeptStep& last = steps[std::min(*std::ranges::min_element(at), steps.size() - 1)];
        whole_calls_ahead += step.kind == KeptStep::kPass && step.exchange == kExchanges - 1 &&
                             (last.call < step.call || last.exchange == 0);
      }
    }
    EXPECT_GT(whole_calls_ahead, 0) << "a rank ended a call's passes before another began them";
    for (int rank = 0; rank < count; ++rank) {
      const ExchangeCounts& counts = ring.control(rank)->counts;
      EXPECT_EQ(counts.messages, uint64_t{8} * (kExchanges + 1) * static_cast<uint64_t>(count - 1));
    }
  }
}

TEST(Exchange, StaleCallsOnThreadsMissNothing) {
  for (const int count : {2, 4}) {
    Ring ring(count, 20'000'000'000);
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < count; ++rank)
      ranks.emplace_back([&ring, rank] {
        std::mt19937 random(static_cast<uint32_t>(rank));
        for (const KeptStep& step : kept_steps(40)) {
          if (random() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
          run_step(ring, rank, step);
        }
      });
    for (std::thread& rank : ranks) rank.join();
    for (int rank = 0; rank < count; ++rank) EXPECT_EQ(ring.late(rank), 0u);
  }
}

TEST(Exchange, RefusesWhatItCannotPass) {
  Ring ring(2);
  TestExec test;
  const Tensor whole = make_tensor(test.device, {4, 4, 4, 4}, DType::kF32);
  const Tensor view = whole.narrow(1, 0, 2).narrow(2, 0, 2).narrow(3, 0, 2);  // three distances
  const ExchangePart part{view, 1u << 1, 0};
  EXPECT_THROW(put(test.ex, ring.control(0), {&part, 1}, {}, ring.others(0)), UsageError);
  EXPECT_THROW(put(test.ex, ring.control(0), {}, {}, 1u << kMaxExchangeRanks), InternalError);
  const ExchangePart both{whole.narrow(0, 0, 1), 3, 0};
  EXPECT_THROW(take(test.ex, ring.control(0), {&both, 1}, ring.others(0), true), InternalError);
}

}  // namespace
}  // namespace rocm_sd
