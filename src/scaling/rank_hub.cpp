#include "scaling/rank_hub.hpp"

#include <chrono>

namespace rocm_sd {
namespace {

double seconds(const MessageEvent& event) {
  return std::chrono::duration<double>(event.end - event.begin).count();
}

}  // namespace

void HubRanks::send(int to, const void* data, size_t bytes, uint32_t channel) {
  MessageEvent event{.other = to, .sent = true, .bytes = bytes, .channel = channel};
  event.begin = MessageEvent::Clock::now();
  hub_.send(rank_, to, data, bytes, channel);
  event.end = MessageEvent::Clock::now();
  traffic_.send_seconds += seconds(event);
  ++traffic_.messages;
  traffic_.bytes += bytes;
  if (keeps_) messages_.push_back(event);
}

void HubRanks::receive(int from, void* data, size_t bytes, uint32_t channel) {
  MessageEvent event{.other = from, .sent = false, .bytes = bytes, .channel = channel};
  event.begin = MessageEvent::Clock::now();
  hub_.receive(from, rank_, data, bytes, channel);
  event.end = MessageEvent::Clock::now();
  traffic_.receive_seconds += seconds(event);
  traffic_.received_bytes += bytes;
  if (keeps_) messages_.push_back(event);
}

}  // namespace rocm_sd
