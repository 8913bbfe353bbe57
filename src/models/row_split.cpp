#include "models/row_split.hpp"

#include <algorithm>
#include <memory>

#include "base/error.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "kernels/norm/group_bands.hpp"
#include "models/exchange_record.hpp"
#include "models/layer_ops.hpp"
#include "models/row_exchange.hpp"

namespace rocm_sd {

using namespace row_exchange;

namespace {

// Of a thread, as cancellation is (stop_request.hpp): a forward is planned and captured by the thread that
// opened the scope, and what it captured knows its ranks itself.
thread_local RowScope* at_work = nullptr;

// Of exchanges in one call of a forward: more than any has.
constexpr uint32_t kChannels = 1 << 13;

}  // namespace

RowScope::RowScope(const RowSplit* rows, RowMessages messages) : rows_(rows), before_(at_work) {
  if (messages != RowMessages::kPassing) call_.emplace(rows->ranks(), messages == RowMessages::kStale);
  at_work = this;
}
RowScope::~RowScope() { at_work = before_; }
const RowSplit* rows_at_work() { return at_work ? at_work->rows() : nullptr; }
KeptCall* kept_call() { return at_work ? at_work->call() : nullptr; }

RowSplit::RowSplit(Ranks& ranks, int64_t height, int64_t width, int64_t unit, int64_t doublings)
    : ranks_(ranks) {
  const int64_t count = ranks.count(), units = (height + unit - 1) / unit;
  require<UsageError>(units >= count, "split: rows: latents of ", height, " rows are ", units, " times ",
                      unit, " rows, which ", count, " devices cannot divide");
  for (int64_t rank = 1; rank <= count; ++rank)
    ends_.push_back(std::min(height, units * rank / count * unit));
  const auto add_size = [&](const auto& rows_of, int64_t columns) {
    std::vector<int64_t> pixels;
    int64_t begin = 0;
    for (const int64_t end : ends_) {
      pixels.push_back(rows_of(begin, end) * columns);
      begin = end;
    }
    sizes_.push_back(std::move(pixels));
  };
  for (int64_t i = doublings; i > 0; --i)
    add_size([&](int64_t begin, int64_t end) { return (end - begin) << i; }, width << i);
  for (int64_t halved = 1; halved <= unit; halved *= 2)
    add_size([&](int64_t begin, int64_t end) { return (end - begin + halved - 1) / halved; },
             (width + halved - 1) / halved);
  for (size_t rank = 0; rank < ends_.size(); ++rank)
    for (size_t i = 1; i < sizes_.size(); ++i)
      require<UsageError>(sizes_[i][rank] < sizes_[i - 1][rank], "split: rows: an image of ", height, " x ",
                          width, " latents is too small for ", count, " devices");
}

int64_t RowSplit::rows() const {
  const auto rank = static_cast<size_t>(ranks_.rank());
  return ends_[rank] - (rank ? ends_[rank - 1] : 0);
}

const std::vector<int64_t>& RowSplit::pixels_like(int64_t own) const {
  for (const std::vector<int64_t>& pixels : sizes_)
    if (pixels[static_cast<size_t>(ranks_.rank())] == own) return pixels;
  throw InternalError(concat("split: rows: no map has ", own, " pixels on rank ", ranks_.rank()));
}

void RowSplit::begin_image() const {
  ++image_;
  call_ = 0;
  in_call_ = false;
  forward_.reset();
}

void RowSplit::begin_call() const {
  ++call_;
  exchanges_ = 0;
  in_call_ = true;
}

void RowSplit::run_forward(uint32_t which) const {
  follows_itself_ = forward_ == which;
  forward_ = which;
}

bool RowSplit::stale() const {
  const std::optional<int> exact = ranks_.exact_calls();
  return in_call_ && exact && call_ > *exact && follows_itself_;
}

uint32_t RowSplit::next_channel() const {
  if (!in_call_ || !ranks_.exact_calls()) return 0;
  require<InternalError>(++exchanges_ < kChannels, "split: displaced: more than ", kChannels, " exchanges");
  return static_cast<uint32_t>(call_) * kChannels + exchanges_;
}

bool RowSplit::doubles(int64_t from, int64_t to) const {
  const std::vector<int64_t>&small = pixels_like(from), &large = pixels_like(to);
  for (size_t rank = 0; rank < small.size(); ++rank)
    if (large[rank] != 4 * small[rank]) return false;
  return true;
}

Tensor with_neighbours(Exec& ex, const RowSplit& split, const Tensor& x, bool above, bool below) {
  const bool from_above = above && split.has_above(), from_below = below && split.has_below();
  // What this rank's neighbours ask for.
  const bool to_above = below && split.has_above(), to_below = above && split.has_below();
  Shape shape = x.shape();
  const int64_t images = shape[0], rows = shape[1];
  const auto row_bytes = static_cast<size_t>(shape[2] * shape[3]) * dtype_size(x.dtype());
  shape[1] += from_above + from_below;
  const Tensor out = ex.alloc(shape, x.dtype());
  if (by_windows(split)) {
    WindowExchange exchange(split.ranks());
    const int own = split.ranks().rank();
    exchange.copy(x, out.narrow(1, from_above, rows));
    if (split.has_above()) exchange.with(own - 1);
    if (split.has_below()) exchange.with(own + 1);
    if (to_above) exchange.send(own - 1, x.narrow(1, 0, 1));
    if (to_below) exchange.send(own + 1, x.narrow(1, rows - 1, 1));
    if (from_above) exchange.receive(own - 1, out.narrow(1, 0, 1));
    if (from_below) exchange.receive(own + 1, out.narrow(1, from_above + rows, 1));
    exchange.run(ex, Waits::kEager, kept_call());
    return out;
  }
  copy_into(ex, x, out.narrow(1, from_above, rows));
  const size_t bytes = static_cast<size_t>(images) * row_bytes;
  const Buffer sent = make_buffer(), over = make_buffer(), under = make_buffer();
  Device* device = &ex.device();
  const RowSplit* rows_of = &split;
  const auto passing = std::make_shared<Passing>();
  char* const first = static_cast<char*>(out.data());
  const size_t image_bytes = static_cast<size_t>(shape[1]) * row_bytes;
  const size_t own_first = from_above ? row_bytes : 0,
               own_last = own_first + (static_cast<size_t>(rows) - 1) * row_bytes;
  Exchange noted{.sent = std::vector<uint64_t>(static_cast<size_t>(split.ranks().count()))};
  const auto own_rank = static_cast<size_t>(split.ranks().rank());
  if (to_above) noted.sent[own_rank - 1] = bytes;
  if (to_below) noted.sent[own_rank + 1] = bytes;
  noted.copies_to_host = (to_above + to_below) * static_cast<int>(images);
  noted.copies_to_device = (from_above + from_below) * static_cast<int>(images);
  noted.to_host = bytes * static_cast<size_t>(to_above + to_below);
  noted.to_device = bytes * static_cast<size_t>(from_above + from_below);
  ExchangeRecord::note(std::move(noted));
  ex.launch({"exchange rows", concat(x.shape(), " ", x.dtype()), 0, 2.0 * static_cast<double>(bytes)}, [=] {
    for (const Buffer& buffer : {sent, over, under}) buffer->resize(bytes);
    Ranks& ranks = rows_of->ranks();
    const auto each = [&](const Buffer& buffer, const auto& copy) {
      for (size_t n = 0; n < static_cast<size_t>(images); ++n)
        copy(first + n * image_bytes, buffer->data() + n * row_bytes);
    };
    const auto send = [&](int to, size_t offset, uint32_t channel) {
      each(sent, [&](char* image, char* host) { device->copy_to_host(host, image + offset, row_bytes); });
      ranks.send(to, sent->data(), bytes, channel);
    };
    const auto fill = [&](const Buffer& buffer, size_t offset) {
      each(buffer,
           [&](char* image, const char* host) { device->copy_to_device(image + offset, host, row_bytes); });
    };
    (*passing)(
        *rows_of,
        [&](uint32_t channel) {
          if (to_above) send(ranks.rank() - 1, own_first, channel);
          if (to_below) send(ranks.rank() + 1, own_last, channel);
        },
        [&](uint32_t channel) {
          if (from_above) ranks.receive(ranks.rank() - 1, over->data(), bytes, channel);
          if (from_below) ranks.receive(ranks.rank() + 1, under->data(), bytes, channel);
        });
    if (from_above) fill(over, 0);
    if (from_below) fill(under, own_last + row_bytes);
  });
  return out;
}

Tensor conv_of_rows(Exec& ex, const RowSplit& split, const Tensor& x, int kernel, ConvArgs args,
                    const ConvOfRows& conv) {
  if (kernel == 1) return conv(x, args);
  require<InternalError>(kernel == 3 && args.pad.top == 1 && args.pad.bottom == 1 &&
                             (args.stride == 1 || (args.stride == 2 && !args.upsample2x)),
                         "split: rows: a convolution of ", kernel, " x ", kernel, ", stride ", args.stride);
  // With stride 2 a rank's rows are even in number, but for the last one's: the filter ends at its own rows.
  const bool reads_below = args.stride == 1;
  const Tensor source = with_neighbours(ex, split, x, true, reads_below);
  const bool above = split.has_above(), below = split.has_below();
  if (above) args.pad.top = 0;
  if (below) args.pad.bottom = 0;
  const Tensor made = conv(source, args);
  if (!args.upsample2x || (!above && !below)) return made;
  // The neighbour's row is doubled, too: the second of the two gives a row that is the neighbour's.
  Shape shape = made.shape();
  shape[1] = 2 * x.dim(1);
  const Tensor out = ex.alloc(shape, made.dtype());
  copy_into(ex, made.narrow(1, above, shape[1]), out);
  return out;
}

// moments [images,rows of all ranks,groups,3], of which this rank has written its rows. ends: of each rank's
// bytes in messages, where its rows of all images lie together.
static void gather_moments(Exec& ex, const RowSplit& split, const Tensor& moments,
                           const std::vector<size_t>& ends, int64_t own_rows) {
  const int64_t images = moments.dim(0), rows = moments.dim(1);
  const size_t one = static_cast<size_t>(moments.dim(2) * 3) * sizeof(float);
  const auto rank = static_cast<size_t>(split.ranks().rank());
  const Buffer buffer = make_buffer();
  Device* device = &ex.device();
  const RowSplit* rows_of = &split;
  const auto passing = std::make_shared<Passing>();
  char* const data = static_cast<char*>(moments.data());
  const uint64_t own_bytes = static_cast<uint64_t>(own_rows * images) * one;
  const int pieces = static_cast<int>(images);
  ExchangeRecord::note({.sent = sent_to_all(split, own_bytes),
                        .to_host = own_bytes,
                        .to_device = ends.back() - own_bytes,
                        .copies_to_host = pieces,
                        .copies_to_device = pieces * (split.ranks().count() - 1)});
  ex.launch({"gather moments", concat(moments.shape()), 0, static_cast<double>(ends.back())}, [=] {
    buffer->resize(ends.back());
    const auto each = [&](size_t r, const auto& copy) {
      const size_t begin = r ? ends[r - 1] : 0, part = (ends[r] - begin) / static_cast<size_t>(images);
      const size_t offset = begin / static_cast<size_t>(images);
      for (size_t n = 0; n < static_cast<size_t>(images); ++n)
        copy(data + n * static_cast<size_t>(rows) * one + offset, buffer->data() + begin + n * part, part);
    };
    each(rank,
         [&](char* on_device, char* host, size_t bytes) { device->copy_to_host(host, on_device, bytes); });
    Ranks& ranks = rows_of->ranks();
    (*passing)(
        *rows_of, [&](uint32_t channel) { send_part(ranks, buffer->data(), ends, channel); },
        [&](uint32_t channel) { receive_parts(ranks, buffer->data(), ends, channel); });
    for (size_t r = 0; r < ends.size(); ++r)
      if (r != rank)
        each(r, [&](char* on_device, const char* host, size_t bytes) {
          device->copy_to_device(on_device, host, bytes);
        });
  });
}

SplitMoments row_exchange::own_moments(Exec& ex, const RowSplit& split, const Tensor& x, int64_t groups) {
  const int64_t images = x.dim(0);
  const auto rank = static_cast<size_t>(split.ranks().rank());
  SplitMoments out;
  int64_t rows = 0;
  for (const int64_t pixels : split.pixels_like(x.dim(1) * x.dim(2))) {
    if (out.rows.size() == rank) out.own_begin = rows;
    out.rows.push_back(moment_rows(pixels));
    rows += out.rows.back();
  }
  out.values = ex.alloc({images, rows, groups, 3}, DType::kF32);
  group_moments(ex, x, static_cast<int>(groups), out.of(out.own_begin, rank));
  return out;
}

Tensor row_exchange::normalised(Exec& ex, const SplitMoments& moments, Tensor x, const Norm& norm,
                                Activation act, const EdgeRows& edges) {
  Shape shape = x.shape();
  shape[1] += (edges.above ? 1 : 0) + (edges.below ? 1 : 0);
  const Tensor out = ex.alloc(shape, x.dtype());
  normalise_channels(ex, x, group_scale(ex, moments.values, norm, norm.eps), norm, act, out, edges);
  return out;
}

Tensor group_norm_of_all(Exec& ex, const RowSplit& split, const Tensor& x, const Norm& norm, int64_t groups,
                         Activation act, DType dtype) {
  const SplitMoments moments = own_moments(ex, split, x, groups);
  const auto own = static_cast<size_t>(split.ranks().rank());
  if (by_windows(split)) {
    WindowExchange exchange(split.ranks());
    int64_t begin = 0;
    for (size_t rank = 0; rank < moments.rows.size(); ++rank) {
      if (rank != own) {
        exchange.send(static_cast<int>(rank), moments.of(moments.own_begin, own));
        exchange.receive(static_cast<int>(rank), moments.of(begin, rank));
      }
      begin += moments.rows[rank];
    }
    exchange.run(ex, Waits::kEager, kept_call());
  } else {
    const size_t row_bytes = static_cast<size_t>(moments.images() * groups * 3) * sizeof(float);
    std::vector<size_t> ends;  // in messages, where a rank's rows of all images lie together
    for (const int64_t rows : moments.rows)
      ends.push_back((ends.empty() ? 0 : ends.back()) + static_cast<size_t>(rows) * row_bytes);
    gather_moments(ex, split, moments.values, ends, moments.rows[own]);
  }
  return as_dtype(ex, normalised(ex, moments, x, norm, act), dtype);
}

}  // namespace rocm_sd
