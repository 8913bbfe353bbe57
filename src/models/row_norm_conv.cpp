#include "models/row_norm_conv.hpp"

#include <utility>

#include "base/error.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "models/exchange_record.hpp"
#include "models/layer_ops.hpp"
#include "models/row_exchange.hpp"
#include "models/window_exchange.hpp"

namespace rocm_sd {
namespace {

using namespace row_exchange;

// The rows that a rank's neighbours have of it, and those that it gets of them: empty where there is no
// neighbour.
struct Halo {
  Tensor x;        // [N,R,W,C]
  EdgeRows edges;  // [N,1,W,C] each

  Tensor first() const { return x.narrow(1, 0, 1); }
  Tensor last() const { return x.narrow(1, x.dim(1) - 1, 1); }
};

void pass_by_windows(Exec& ex, const RowSplit& split, const SplitMoments& moments, const Halo& halo) {
  WindowExchange exchange(split.ranks());
  const int own = split.ranks().rank();
  int64_t begin = 0;
  for (int rank = 0; rank < split.ranks().count(); ++rank) {
    const auto r = static_cast<size_t>(rank);
    if (rank != own) {
      exchange.send(rank, moments.of(moments.own_begin, static_cast<size_t>(own)));
      exchange.receive(rank, moments.of(begin, r));
      if (rank + 1 == own) {
        exchange.send(rank, halo.first());
        exchange.receive(rank, halo.edges.above);
      }
      if (rank == own + 1) {
        exchange.send(rank, halo.last());
        exchange.receive(rank, halo.edges.below);
      }
    }
    begin += moments.rows[r];
  }
  exchange.run(ex, Waits::kEager, kept_call());
}

// Blocks of a tensor, one for each image, at one distance: of these many bytes each.
struct Blocks {
  char* first = nullptr;
  size_t distance = 0, bytes = 0;

  Blocks() = default;
  explicit Blocks(const Tensor& part)
      : first(static_cast<char*>(part.data())),
        distance(static_cast<size_t>(part.stride(0)) * dtype_size(part.dtype())),
        bytes(part.bytes() / static_cast<size_t>(part.dim(0))) {}
};

void pass_by_messages(Exec& ex, const RowSplit& split, const SplitMoments& moments, const Halo& halo) {
  const size_t own = static_cast<size_t>(split.ranks().rank()), count = moments.rows.size();
  const auto images = static_cast<size_t>(moments.images());
  // A message: the sender's moments, and the row for a neighbour.
  const Blocks own_moments(moments.of(moments.own_begin, own)), first(halo.first()), last(halo.last());
  std::vector<std::vector<Blocks>> sent(count), received(count);
  int64_t begin = 0;
  for (size_t rank = 0; rank < count; ++rank) {
    if (rank != own) {
      sent[rank].push_back(own_moments);
      received[rank].emplace_back(moments.of(begin, rank));
    }
    begin += moments.rows[rank];
  }
  if (halo.edges.above) {
    sent[own - 1].push_back(first);
    received[own - 1].emplace_back(halo.edges.above);
  }
  if (halo.edges.below) {
    sent[own + 1].push_back(last);
    received[own + 1].emplace_back(halo.edges.below);
  }
  const auto bytes_of = [images](const std::vector<Blocks>& parts) {
    size_t bytes = 0;
    for (const Blocks& part : parts) bytes += images * part.bytes;
    return bytes;
  };
  Exchange noted{.sent = std::vector<uint64_t>(count)};
  for (size_t rank = 0; rank < count; ++rank) {
    noted.sent[rank] = bytes_of(sent[rank]);
    noted.to_device += bytes_of(received[rank]);
    noted.to_host += rank == own ? 0 : bytes_of(sent[rank]);
    noted.copies_to_host += static_cast<int>(images * sent[rank].size());
    noted.copies_to_device += static_cast<int>(images * received[rank].size());
  }
  const double bytes = static_cast<double>(noted.to_host + noted.to_device);
  ExchangeRecord::note(std::move(noted));
  Device* device = &ex.device();
  const RowSplit* rows_of = &split;
  const auto passing = std::make_shared<Passing>();
  const Buffer out = make_buffer();
  std::vector<Buffer> in;
  for (size_t rank = 0; rank < count; ++rank) in.push_back(make_buffer());
  ex.launch({"exchange moments and rows", concat(halo.x.shape(), " ", halo.x.dtype()), 0, bytes}, [=] {
    Ranks& ranks = rows_of->ranks();
    const auto each = [images](const std::vector<Blocks>& parts, char* host, const auto& copy) {
      for (const Blocks& part : parts)
        for (size_t n = 0; n < images; ++n, host += part.bytes)
          copy(part.first + n * part.distance, host, part.bytes);
    };
    (*passing)(
        *rows_of,
        [&](uint32_t channel) {
          for (size_t rank = 0; rank < count; ++rank) {
            if (rank == own) continue;
            out->resize(bytes_of(sent[rank]));
            each(sent[rank], out->data(),
                 [&](char* data, char* host, size_t size) { device->copy_to_host(host, data, size); });
            ranks.send(static_cast<int>(rank), out->data(), out->size(), channel);
          }
        },
        [&](uint32_t channel) {
          for (size_t rank = 0; rank < count; ++rank) {
            if (rank == own) continue;
            in[rank]->resize(bytes_of(received[rank]));
            ranks.receive(static_cast<int>(rank), in[rank]->data(), in[rank]->size(), channel);
          }
        });
    for (size_t rank = 0; rank < count; ++rank)
      each(received[rank], in[rank]->data(),
           [&](char* data, char* host, size_t size) { device->copy_to_device(data, host, size); });
  });
}

}  // namespace

Tensor norm_silu_conv_of_rows(Exec& ex, const RowSplit& split, Tensor x, const Norm& norm, int64_t groups,
                              DType dtype, ConvArgs args, const ConvOfRows& conv) {
  require<InternalError>(args.pad.top == 1 && args.pad.bottom == 1 && args.stride == 1 && !args.upsample2x,
                         "split: rows: a norm before a convolution of stride ", args.stride);
  const SplitMoments moments = own_moments(ex, split, x, groups);
  const auto edge = [&](bool is_there) {
    return is_there ? ex.alloc({x.dim(0), 1, x.dim(2), x.dim(3)}, x.dtype()) : Tensor();
  };
  Halo halo{.x = x, .edges = {edge(split.has_above()), edge(split.has_below())}};
  if (by_windows(split))
    pass_by_windows(ex, split, moments, halo);
  else
    pass_by_messages(ex, split, moments, halo);
  halo.x = Tensor();
  if (halo.edges.above) args.pad.top = 0;
  if (halo.edges.below) args.pad.bottom = 0;
  Tensor h = normalised(ex, moments, std::move(x), norm, Activation::kSilu, halo.edges);
  halo.edges = {};
  h = as_dtype(ex, h, dtype);
  return conv(std::move(h), args);
}

}  // namespace rocm_sd
