// Self attention of divided rows: keys and values of all ranks, gathered first or while a rank attends to its
// own ones.
#include <memory>
#include <numeric>

#include "kernels/elementwise/elementwise.hpp"
#include "kernels/gpu_launch.hpp"
#include "models/exchange_record.hpp"
#include "models/row_exchange.hpp"
#include "models/row_split.hpp"
#include "runtime/beside.hpp"
#include "runtime/peer_windows.hpp"

namespace rocm_sd {

using namespace row_exchange;

namespace {

int64_t pixels_of_all(const std::vector<int64_t>& pixels) {
  return std::accumulate(pixels.begin(), pixels.end(), int64_t{0});
}

// Keys and values of packed ones [B,N,2C].
KeysValues halves_of(const Tensor& packed) {
  const int64_t width = packed.dim(2) / 2;
  return {packed.narrow(2, 0, width), packed.narrow(2, width, width)};
}

// Whether the others' keys are to come while a rank attends to its own ones. With fewer own keys the sums in
// float that are merged cost more than what is hidden: a query's own keys are own / 4 operations for each
// byte of them. Over NVLink keys are there before as much could be saved: two H200 took 2 % longer at 2048 x
// 2048, and no less time at 1024 (docs/howto/several-devices.md).
bool attends_meanwhile(const Exec& ex, int64_t own_keys) {
  constexpr int64_t kLeastOwnKeys = 1024;
  const GpuDevice* gpu = gpu_device(ex);
  return gpu && gpu->traits().family != GpuFamily::kNvidia && own_keys >= kLeastOwnKeys;
}

// own [B,N,C], a rank's pixels -> those of all ranks in their order, or of all but this one, [B,sum of N,C]:
// by messages of the host. beside_flops: of launches that do not read what comes.
Tensor gather_by_messages(Exec& ex, const RowSplit& split, const Tensor& own, bool with_own,
                          double beside_flops = 0) {
  const std::vector<int64_t>& pixels = split.pixels_like(own.dim(1));
  const Tensor dense = ex.alloc(own.shape(), own.dtype());
  copy_into(ex, own, dense);
  const int64_t batch = own.dim(0), channels = own.dim(2);
  const Tensor out =
      ex.alloc({batch, pixels_of_all(pixels) - (with_own ? 0 : own.dim(1)), channels}, own.dtype());
  const auto pixel_bytes = static_cast<size_t>(channels) * dtype_size(own.dtype());
  std::vector<size_t> ends;  // of the ranks' parts, each [B,N,C]
  for (const int64_t n : pixels)
    ends.push_back((ends.empty() ? 0 : ends.back()) + static_cast<size_t>(batch * n) * pixel_bytes);
  const Buffer buffer = make_buffer();
  Device* device = &ex.device();
  const RowSplit* rows_of = &split;
  const auto passing = std::make_shared<Passing>();
  const void* from = dense.data();
  char* const to = static_cast<char*>(out.data());
  const size_t own_bytes = dense.bytes(), out_bytes = out.bytes();
  const int parts = split.ranks().count() - (with_own ? 0 : 1);
  ExchangeRecord::note({.sent = sent_to_all(split, own_bytes),
                        .to_host = own_bytes,
                        .to_device = out_bytes,
                        .copies_to_host = 1,
                        .copies_to_device = static_cast<int>(batch) * parts,
                        .beside_flops = beside_flops});
  ex.launch({"gather pixels", concat(own.shape(), " to ", out.shape(), " ", own.dtype()), 0,
             static_cast<double>(ends.back())},
            [=] {
              buffer->resize(ends.back());
              Ranks& ranks = rows_of->ranks();
              const auto rank = static_cast<size_t>(ranks.rank());
              device->copy_to_host(buffer->data() + ends[rank] - own_bytes, from, own_bytes);
              (*passing)(
                  *rows_of, [&](uint32_t channel) { send_part(ranks, buffer->data(), ends, channel); },
                  [&](uint32_t channel) { receive_parts(ranks, buffer->data(), ends, channel); });
              size_t begin = 0, offset = 0;  // of the rank's part, and in an image
              for (size_t r = 0; r < ends.size(); begin = ends[r++]) {
                if (r == rank && !with_own) continue;
                const size_t part = (ends[r] - begin) / static_cast<size_t>(batch);
                for (size_t b = 0; b < static_cast<size_t>(batch); ++b)
                  device->copy_to_device(to + b * (out_bytes / static_cast<size_t>(batch)) + offset,
                                         buffer->data() + begin + b * part, part);
                offset += part;
              }
            });
  return out;
}

// The others' keys and values come while the queries attend to the own ones.
Tensor attention_beside_exchange(Exec& ex, const RowSplit& split, const Tensor& q, const Tensor& own,
                                 const AttentionArgs& args) {
  const double flops = 4.0 * static_cast<double>(q.numel()) * static_cast<double>(own.dim(1));
  if (!by_windows(split)) {
    const Tensor others = gather_by_messages(ex, split, own, false, flops);
    return attention_over_parts(ex, q, halves_of(own), halves_of(others), args, [] {});
  }
  const std::vector<int64_t>& pixels = split.pixels_like(own.dim(1));
  const Tensor others = ex.alloc({own.dim(0), pixels_of_all(pixels) - own.dim(1), own.dim(2)}, own.dtype());
  WindowExchange exchange(split.ranks());
  int64_t begin = 0;
  for (int rank = 0; rank < split.ranks().count(); ++rank) {
    if (rank == split.ranks().rank()) continue;
    const int64_t part = pixels[static_cast<size_t>(rank)];
    exchange.send(rank, own);
    exchange.receive(rank, others.narrow(1, begin, part));
    begin += part;
  }
  Beside beside(ex);
  const auto pass = [&] { exchange.run(ex, Waits::kEager, kept_call()); };
  const PeerWindows& windows = *split.ranks().windows();
  // A library's copies of the parts live in memory that is given back when run() returns. And on one device
  // what one rank waits for may stand behind the waiting kernel of the other, where their streams share a
  // queue of the hardware (seen on an H200: neither went on).
  if (windows.by_library() || windows.shares_device())
    pass();
  else
    beside.run(pass);
  return attention_over_parts(ex, q, halves_of(own), halves_of(others), args, [&] { beside.join(); });
}

}  // namespace

Tensor gather_pixels(Exec& ex, const RowSplit& split, const Tensor& own, Waits waits) {
  if (!by_windows(split)) return gather_by_messages(ex, split, own, true);
  const std::vector<int64_t>& pixels = split.pixels_like(own.dim(1));
  const Tensor out = ex.alloc({own.dim(0), pixels_of_all(pixels), own.dim(2)}, own.dtype());
  WindowExchange exchange(split.ranks());
  int64_t begin = 0;
  for (int rank = 0; rank < split.ranks().count(); ++rank) {
    const int64_t part = pixels[static_cast<size_t>(rank)];
    const Tensor of_rank = out.narrow(1, begin, part);
    begin += part;
    if (rank == split.ranks().rank()) {
      exchange.copy(own, of_rank);
    } else {
      exchange.send(rank, own);
      exchange.receive(rank, of_rank);
    }
  }
  exchange.run(ex, waits, kept_call());
  return out;
}

Tensor packed_attention(Exec& ex, const Tensor& packed, const AttentionArgs& args) {
  const int64_t width = packed.dim(2) / 3;
  const Tensor q = packed.narrow(2, 0, width), own = packed.narrow(2, width, 2 * width);  // [B,N,C], [B,N,2C]
  const auto attend = [&](const Tensor& keys_values) {
    const KeysValues parts = halves_of(keys_values);
    return attention(ex, q, parts.k, parts.v, args);
  };
  const RowSplit* rows = rows_at_work();
  if (!rows) return attend(own);
  if (attends_meanwhile(ex, own.dim(1)) && takes_attention_over_parts(ex, q, halves_of(own), args))
    return attention_beside_exchange(ex, *rows, q, own, args);
  return attend(gather_pixels(ex, *rows, own));
}

}  // namespace rocm_sd
