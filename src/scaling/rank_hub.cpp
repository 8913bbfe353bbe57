#include "scaling/rank_hub.hpp"

#include <chrono>

namespace rocm_sd {
namespace {

// Adds the seconds of its life to a sum.
class Stopwatch {
 public:
  explicit Stopwatch(double& sum) : sum_(sum) {}
  ~Stopwatch() { sum_ += std::chrono::duration<double>(Clock::now() - begin_).count(); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  double& sum_;
  const Clock::time_point begin_ = Clock::now();
};

}  // namespace

void HubRanks::send(int to, const void* data, size_t bytes, uint32_t channel) {
  const Stopwatch watch(traffic_.send_seconds);
  hub_.send(rank_, to, data, bytes, channel);
  ++traffic_.messages;
  traffic_.bytes += bytes;
}

void HubRanks::receive(int from, void* data, size_t bytes, uint32_t channel) {
  const Stopwatch watch(traffic_.receive_seconds);
  hub_.receive(from, rank_, data, bytes, channel);
  traffic_.received_bytes += bytes;
}

}  // namespace rocm_sd
