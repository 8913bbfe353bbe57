// Displaced rows by windows against displaced rows by messages: the exchanges of a forward over several
// calls, on threads whose windows lie in host memory.
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <thread>

#include "base/error.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "models/layer_ops.hpp"
#include "models/row_norm_conv.hpp"
#include "models/row_split.hpp"
#include "runtime/peer_windows.hpp"
#include "scaling/shared_hub.hpp"
#include "support/exchange_ring.hpp"

namespace rocm_sd {
namespace {

using testing_support::ExchangeRing;

constexpr int64_t kHeight = 18, kWidth = 7, kChannels = 8, kImages = 2, kNormGroups = 4;
constexpr int kExactCalls = 2, kCalls = 6;
constexpr size_t kSlot = size_t{1} << 16, kKept = size_t{1} << 18;

// A rank's view of a ring that is large enough from the beginning.
class RingWindows final : public PeerWindows {
 public:
  RingWindows(ExchangeRing& ring, int rank) : ring_(ring), rank_(rank) {}
  ExchangeControl* control() const override { return ring_.control(rank_); }
  void need(size_t bytes) override { EXPECT_LE(bytes, kSlot); }
  void need_kept(size_t bytes) override {
    EXPECT_LE(bytes, kKept);
    needed_ = std::max(needed_, bytes);
  }
  size_t kept_bytes() const override { return needed_; }
  uint64_t generation() const override { return 0; }
  size_t bytes() const override { return 0; }
  void meet() override {}
  void await(uint32_t) override {}
  void check() override { EXPECT_EQ(ring_.late(rank_), 0u); }
  void begin() override {}
  ExchangeCounts counts() const override { return ring_.control(rank_)->counts; }
  size_t needed() const { return needed_; }

 private:
  ExchangeRing& ring_;
  const int rank_;
  size_t needed_ = 0;
};

Tensor tensor_of(const Shape& shape, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  for (float& value : values) value = normal(random);
  return tensor_from(host_device(), shape, values.data());
}

// One rank's forward over its rows, with every kind of exchange that the UNet's has.
class Rank {
 public:
  Rank(HubRanks& link, unsigned seed)
      : split_(link, kHeight, kWidth, 2, 0),
        arena_(host_device()),
        conv_(kChannels, kChannels),
        norm_(kChannels) {
    conv_.weight = Weight(tensor_of({kChannels, kChannels, 3, 3}, 4));
    conv_.bias = tensor_of({kChannels}, 5);
    norm_.gain = tensor_of({kChannels}, 6);
    norm_.bias = tensor_of({kChannels}, 7);
    const Shape own{kImages, split_.rows(), kWidth, kChannels};
    input_ = make_tensor(host_device(), own, DType::kF32);
    output_ = make_tensor(host_device(), own, DType::kF32);
    gathered_ = make_tensor(host_device(), {kImages, kHeight * kWidth, kChannels}, DType::kF32);
    whole_ = tensor_of({kImages, kHeight, kWidth, kChannels}, seed);
    const auto program = [&](RowMessages messages) {
      return std::make_unique<Program>("rows", arena_, [this, messages](Exec& ex) { forward(ex, messages); });
    };
    const bool windows = link.windows() != nullptr;
    exact_ = program(windows ? RowMessages::kKept : RowMessages::kPassing);
    exact_->plan();
    if (!windows) return;
    stale_ = program(RowMessages::kStale);
    stale_->plan();
  }

  // -> what each call gave. The last but one counts as another forward: it is exact, and so is the last one.
  std::vector<std::vector<float>> draw() {
    std::vector<std::vector<float>> out;
    split_.begin_image();
    for (int call = 0; call < kCalls; ++call) {
      Exec ex(arena_);
      copy_into(ex, whole_.narrow(1, split_.begin(), split_.rows()), input_);
      split_.begin_call();
      split_.run_forward(call == kCalls - 2 ? 1 : 0);
      const bool displaced = split_.ranks().exact_calls() == kExactCalls;
      EXPECT_EQ(split_.stale(), displaced && call >= kExactCalls && call < kCalls - 2) << call;
      (stale_ && split_.stale() ? stale_ : exact_)->run();
      split_.end_call();
      const Tensor all = gather_pixels(
          ex, split_, output_.reshape({kImages, split_.rows() * kWidth, kChannels}), Waits::kHaveMet);
      copy_into(ex, all, gathered_);
      out.push_back(to_floats(host_device(), gathered_));
      // The next call's input comes of all rows.
      whole_ = tensor_from(host_device(), whole_.shape(), out.back().data());
    }
    return out;
  }

 private:
  void forward(Exec& ex, RowMessages messages) {
    const RowScope scope(&split_, messages);
    const ConvArgs args{.pad = Padding::same(1)};
    Tensor x = conv2d(ex, input_, conv_, args);
    x = norm_silu_conv_of_rows(ex, split_, x, norm_, kNormGroups, DType::kF32, args,
                               [&](const Tensor& rows, const ConvArgs& a) {
                                 const RowScope whole(nullptr);
                                 return conv2d(ex, rows, conv_, a);
                               });
    const Tensor keys = gather_pixels(ex, split_, x.reshape({kImages, split_.rows() * kWidth, kChannels}));
    // Every third row of all ranks' keys is added to every row of this one's.
    Tensor sum = group_norm_of_all(ex, split_, x, norm_, kNormGroups, Activation::kNone, DType::kF32);
    for (int64_t row = 0; row < kHeight; row += 3) {
      const Tensor pixels = ex.alloc(x.shape(), DType::kF32);
      for (int64_t n = 0; n < kImages; ++n)
        for (int64_t to = 0; to < split_.rows(); ++to)
          copy_into(ex,
                    keys.narrow(0, n, 1).narrow(1, row * kWidth, kWidth).reshape({1, 1, kWidth, kChannels}),
                    pixels.narrow(0, n, 1).narrow(1, to, 1));
      sum = add(ex, sum, pixels);
    }
    sum = group_norm_of_all(ex, split_, sum, norm_, kNormGroups, Activation::kNone, DType::kF32);
    copy_into(ex, sum, output_);
  }

  RowSplit split_;
  Arena arena_;
  Conv conv_;
  Norm norm_;
  Tensor input_, output_, gathered_, whole_;
  std::unique_ptr<Program> exact_, stale_;
};

// -> what every call of two images gave, on rank 0; the others have the same.
std::vector<std::vector<float>> draw(int ranks, bool windows, std::optional<int> exact_calls,
                                     uint64_t* bytes = nullptr) {
  SharedHub hub(std::vector<std::string>(static_cast<size_t>(ranks), "cpu"), {});
  ExchangeRing ring(ranks, kSlot, kKept, 20'000'000'000);
  std::vector<std::vector<std::vector<float>>> out(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      HubRanks link(hub, rank, {Division::kRows, exact_calls});
      RingWindows own(ring, rank);
      if (windows) link.use_windows(&own);
      link.begin();
      for (const unsigned seed : {3u, 8u}) {
        Rank drawer(link, seed);
        for (std::vector<float>& call : drawer.draw())
          out[static_cast<size_t>(rank)].push_back(std::move(call));
      }
      own.check();
      if (windows && rank == 0 && bytes) *bytes = own.needed();
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(hub.failed()) << hub.failure();
  for (size_t rank = 1; rank < out.size(); ++rank) EXPECT_EQ(out[rank], out[0]) << "rank " << rank;
  return out[0];
}

TEST(DisplacedWindows, DrawWhatMessagesDraw) {
  for (const int ranks : {2, 3, 4, 8}) {
    uint64_t kept = 0;
    const std::vector<std::vector<float>> messages = draw(ranks, false, kExactCalls),
                                          windows = draw(ranks, true, kExactCalls, &kept),
                                          exact = draw(ranks, false, std::nullopt);
    ASSERT_EQ(windows.size(), messages.size());
    for (size_t i = 0; i < windows.size(); ++i) {
      EXPECT_EQ(windows[i], messages[i]) << ranks << " ranks, call " << i;
      if (i >= kCalls) continue;
      EXPECT_EQ(windows[i] == exact[i], i < kExactCalls) << ranks << " ranks, call " << i << ": stale or not";
    }
    EXPECT_GT(kept, 0u);
  }
}

// Where the ranks of an image that is checked against the exact one draw that one.
TEST(DisplacedWindows, AreExactWhereAllCallsAre) {
  EXPECT_EQ(draw(3, true, kCalls), draw(3, false, std::nullopt));
}

}  // namespace
}  // namespace rocm_sd
