#include "models/window_exchange.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "runtime/peer_windows.hpp"

namespace rocm_sd {
namespace {

constexpr int kMaxExchangePlaces = 32;  // bits of ExchangePart::ranks

// Parts begin where the widest loads may begin.
size_t place_part(size_t& bytes, const Tensor& part) {
  constexpr size_t kAlignment = 16;
  const size_t offset = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  bytes = offset + part.bytes();
  return offset;
}

}  // namespace

KeptCall::KeptCall(const Ranks& ranks, bool stale)
    : stale_(stale), sent_(static_cast<size_t>(ranks.count())), received_(sent_.size()) {}

KeptMessage KeptCall::add(const Ranks& ranks, const std::vector<size_t>& sent,
                          const std::vector<size_t>& received) {
  constexpr size_t kAlignment = 128;  // a line of every GPU's caches
  KeptMessage out{.to = {}, .from = {}, .is_kept = 1, .begins_call = begun_ ? 0u : 1u};
  begun_ = true;
  for (size_t rank = 0; rank < sent_.size(); ++rank) {
    const auto place = static_cast<size_t>(ranks.place(static_cast<int>(rank)));
    out.to[place] = static_cast<int64_t>(sent_[rank]);
    out.from[place] = static_cast<int64_t>(received_[rank]);
    sent_[rank] += (sent[rank] + kAlignment - 1) / kAlignment * kAlignment;
    received_[rank] += (received[rank] + kAlignment - 1) / kAlignment * kAlignment;
  }
  return out;
}

size_t KeptCall::bytes() const {
  return std::max(*std::ranges::max_element(sent_), *std::ranges::max_element(received_));
}

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

void WindowExchange::run(Exec& ex, Waits waits, KeptCall* call) {
  PeerWindows& windows = *ranks_.windows();
  if (call) return run_kept(ex, windows, *call);
  if (windows.by_library()) return run_by_library(ex, windows);
  windows.need(std::max(*std::ranges::max_element(sent_bytes_), *std::ranges::max_element(received_bytes_)));
  if (waits == Waits::kHaveMet && !ex.planning()) windows.meet();
  put(ex, windows.control(), sent_, own_, with_);
  if (waits == Waits::kEager)
    ex.launch({"exchange await", "", 0, 0}, [&windows, with = with_] { windows.await(with); });
  take(ex, windows.control(), received_, with_, windows.shares_device());
}

void WindowExchange::run_kept(Exec& ex, PeerWindows& windows, KeptCall& call) {
  const KeptMessage kept = call.add(ranks_, sent_bytes_, received_bytes_);
  if (ex.planning())
    windows.need_kept(call.bytes());
  else
    require<InternalError>(call.bytes() <= windows.kept_bytes(), "exchange: a call that keeps ", call.bytes(),
                           " bytes in windows for ", windows.kept_bytes());
  if (call.stale()) return pass(ex, windows.control(), sent_, received_, own_, kept);
  put(ex, windows.control(), sent_, own_, with_, &kept);
  ex.launch({"exchange await", "", 0, 0}, [&windows, with = with_] { windows.await(with); });
  take(ex, windows.control(), received_, with_, windows.shares_device(), &kept);
}

// Its memory is the arena's until this returns, and the stream's order keeps it as long as it is needed.
void WindowExchange::run_by_library(Exec& ex, PeerWindows& windows) {
  std::vector<LibraryMessage> sent, received;
  std::vector<Tensor> dense;
  double bytes = 0;
  const auto dense_of = [&](const Tensor& part) {
    if (part.is_contiguous()) return part;
    dense.push_back(ex.alloc(part.shape(), part.dtype()));
    return dense.back();
  };
  const auto add = [&](std::vector<LibraryMessage>& to, const ExchangePart& part, const Tensor& of) {
    for (int place = 0; place < kMaxExchangePlaces; ++place)
      if ((part.ranks >> place & 1) && of.bytes() > 0)
        to.push_back({place, static_cast<char*>(of.data()), of.bytes()});
    bytes += static_cast<double>(of.bytes());
  };
  for (const ExchangePart& part : sent_) {
    const Tensor from = dense_of(part.tensor);
    if (!part.tensor.is_contiguous()) copy_into(ex, part.tensor, from);
    add(sent, part, from);
  }
  for (const OwnPart& part : own_) {
    const bool both_apart = !part.from.is_contiguous() && !part.to.is_contiguous();
    const Tensor from = both_apart ? dense_of(part.from) : part.from;  // rows of two lengths do not fit
    if (both_apart) copy_into(ex, part.from, from);
    copy_into(ex, from, part.to);
  }
  std::vector<Tensor> came;
  for (const ExchangePart& part : received_) {
    came.push_back(dense_of(part.tensor));
    add(received, part, came.back());
  }
  ex.launch({"exchange by library", concat(bytes, " bytes"), 0, 2 * bytes},
            [&windows, sent, received] { windows.pass(sent, received); });
  for (size_t i = 0; i < came.size(); ++i)
    if (!received_[i].tensor.is_contiguous()) copy_into(ex, came[i], received_[i].tensor);
}

}  // namespace rocm_sd
