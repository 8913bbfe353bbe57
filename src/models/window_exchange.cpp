#include "models/window_exchange.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "runtime/peer_windows.hpp"

namespace rocm_sd {
namespace {

// Parts begin where the widest loads may begin.
size_t place_part(size_t& bytes, const Tensor& part) {
  constexpr size_t kAlignment = 16;
  const size_t offset = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  bytes = offset + part.bytes();
  return offset;
}

}  // namespace

WindowExchange::WindowExchange(Ranks& ranks)
    : ranks_(ranks),
      sent_bytes_(static_cast<size_t>(ranks.count())),
      received_bytes_(static_cast<size_t>(ranks.count())) {
  require<InternalError>(ranks.windows() != nullptr, "exchange: the ranks have no windows");
}

void WindowExchange::send(int to, const Tensor& part) {
  const size_t offset = place_part(sent_bytes_[static_cast<size_t>(to)], part);
  with(to);
  for (ExchangePart& other : sent_)
    if (other.offset == offset && other.tensor.storage() == part.storage() &&
        other.tensor.offset_bytes() == part.offset_bytes() && other.tensor.shape() == part.shape()) {
      other.ranks |= bit(to);
      return;
    }
  sent_.push_back({part, bit(to), offset});
}

void WindowExchange::receive(int from, const Tensor& part) {
  const size_t offset = place_part(received_bytes_[static_cast<size_t>(from)], part);
  with(from);
  received_.push_back({part, bit(from), offset});
}

void WindowExchange::run(Exec& ex, Waits waits) {
  PeerWindows& windows = *ranks_.windows();
  windows.need(std::max(*std::ranges::max_element(sent_bytes_), *std::ranges::max_element(received_bytes_)));
  if (waits == Waits::kHaveMet && !ex.planning()) windows.meet();
  put(ex, windows.control(), sent_, with_);
  if (waits == Waits::kEager)
    ex.launch({"exchange await", "", 0, 0}, [&windows, with = with_] { windows.await(with); });
  take(ex, windows.control(), received_, own_, with_);
}

}  // namespace rocm_sd
