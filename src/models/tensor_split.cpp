#include "models/tensor_split.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "models/exchange_record.hpp"
#include "models/window_exchange.hpp"

namespace rocm_sd {
namespace {

// Channels that a rank's share is a multiple of: a tile of most kernels, where every rank has several; else
// what the widest loads read.
int64_t channel_unit(int64_t channels, const TensorShare& share) {
  constexpr int64_t kTile = 64, kLoad = 8, kTilesPerRank = 4;
  if (channels % kTile == 0 && channels / kTile >= kTilesPerRank * share.count) return kTile;
  return channels % kLoad == 0 ? kLoad : 1;
}

// By messages of the host: to and from its memory.
void pass_by_messages(Exec& ex, Ranks& ranks, const Tensor& own, const std::vector<Tensor>& parts) {
  Device* device = &ex.device();
  const bool on_host = device->kind() == DeviceKind::kHost;
  const size_t bytes = parts.front().bytes();
  const int rank = ranks.rank(), others = static_cast<int>(parts.size()) - (own ? 1 : 0);
  std::vector<uint64_t> sent(static_cast<size_t>(ranks.count()), own ? bytes : 0);
  sent[static_cast<size_t>(rank)] = 0;
  ExchangeRecord::note({.sent = std::move(sent),
                        .to_host = own ? bytes : 0,
                        .to_device = bytes * static_cast<uint64_t>(others),
                        .copies_to_host = own ? 1 : 0,
                        .copies_to_device = others});
  std::vector<void*> to;
  for (const Tensor& part : parts) to.push_back(part.data());
  const auto staging = std::make_shared<std::vector<char>>();
  const void* from = own ? own.data() : nullptr;
  ex.launch({"gather parts of a sum", concat(parts.front().shape(), " ", parts.front().dtype()), 0,
             static_cast<double>(bytes) * static_cast<double>(parts.size())},
            [=, &ranks] {
              if (!on_host) staging->resize(bytes);
              if (from) {
                if (!on_host) device->copy_to_host(staging->data(), from, bytes);
                const void* data = on_host ? from : staging->data();
                for (int other = 0; other < ranks.count(); ++other)
                  if (other != rank) ranks.send(other, data, bytes);
              }
              for (size_t other = 0; other < to.size(); ++other) {
                if (static_cast<int>(other) == rank) continue;
                ranks.receive(static_cast<int>(other), on_host ? to[other] : staging->data(), bytes);
                if (!on_host) device->copy_to_device(to[other], staging->data(), bytes);
              }
            });
}

void pass_by_windows(Exec& ex, Ranks& ranks, const Tensor& own, const std::vector<Tensor>& parts) {
  WindowExchange exchange(ranks);
  for (int other = 0; other < ranks.count(); ++other) {
    if (other == ranks.rank()) continue;
    if (own) exchange.send(other, own);
    if (other < static_cast<int>(parts.size())) exchange.receive(other, parts[static_cast<size_t>(other)]);
  }
  exchange.run(ex);
}

}  // namespace

CutRange share_of(int64_t pieces, const TensorShare& share) {
  const auto end = [&](int64_t ranks) { return (pieces * ranks + share.count - 1) / share.count; };
  if (pieces < share.count)
    return {std::min<int64_t>(share.rank, pieces), std::min<int64_t>(share.rank + 1, pieces)};
  return {end(share.rank), end(share.rank + 1)};
}

CutRange share_of_channels(int64_t channels, const TensorShare& share) {
  const int64_t unit = channel_unit(channels, share);
  const CutRange units = share_of(channels / unit, share);
  return {units.begin * unit, units.end * unit};
}

int ranks_with(int64_t pieces, const TensorShare& share) {
  return static_cast<int>(std::min<int64_t>(pieces, share.count));
}

int ranks_with_channels(int64_t channels, const TensorShare& share) {
  return ranks_with(channels / channel_unit(channels, share), share);
}

void keep_columns(Linear& layer, const CutRange& channels, const TensorShare& share) {
  layer.cut = std::make_shared<Cut>(Cut{{layer.out, layer.in}, {{0, layer.out}}, channels});
  layer.in = channels.size();
  layer.biased = layer.biased && share.leads();
}

Tensor sum_of_ranks(Exec& ex, Ranks& ranks, const Tensor& own, int parts, const Shape& shape, DType dtype) {
  const int rank = ranks.rank();
  require<InternalError>(parts > 0 && parts <= ranks.count() && bool(own) == (rank < parts),
                         "split: tensor: a sum of ", parts, " ranks of ", ranks.count());
  std::vector<Tensor> all;
  for (int other = 0; other < parts; ++other) all.push_back(other == rank ? own : ex.alloc(shape, dtype));
  require<InternalError>(all.front().shape() == shape && all.front().dtype() == dtype &&
                             (!own || (own.shape() == shape && own.dtype() == dtype && own.is_contiguous())),
                         "split: tensor: expected parts ", shape, " ", dtype);
  if (ranks.windows() && ex.device().kind() != DeviceKind::kHost)
    pass_by_windows(ex, ranks, own, all);
  else
    pass_by_messages(ex, ranks, own, all);
  Tensor sum = all.front();
  for (size_t other = 1; other < all.size(); ++other) {
    sum = add(ex, sum, all[other]);
    all[other] = Tensor();
  }
  return sum;
}

}  // namespace rocm_sd
