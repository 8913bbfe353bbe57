#include "kernels/exchange/exchange.hpp"

#include <algorithm>
#include <bit>

#include "base/error.hpp"
#include "composable_kernels/fused/exchange.hpp"
#include "kernels/gpu_launch.hpp"

namespace rocm_sd {
namespace {

// Two views of one shape as rows of `bytes`, `inner` of them in each of `outer` blocks; distances in bytes.
struct Rows {
  int64_t outer = 1, inner = 1, bytes = 0;
  struct Steps {
    int64_t outer = 0, inner = 0;
  } from, to;
};

Rows rows_of(const Tensor& from, const Tensor& to) {
  const auto size = static_cast<int64_t>(dtype_size(from.dtype()));
  Rows rows{.bytes = size};
  int levels = 0, i = from.rank() - 1;
  for (; i >= 0; --i) {
    if (from.dim(i) == 1) continue;
    if (from.stride(i) * size != rows.bytes || to.stride(i) * size != rows.bytes) break;
    rows.bytes *= from.dim(i);
  }
  for (; i >= 0; --i) {
    if (from.dim(i) == 1) continue;
    const int64_t step = from.stride(i) * size, to_step = to.stride(i) * size;
    if (levels == 0) {
      rows.inner = from.dim(i), rows.from.inner = step, rows.to.inner = to_step;
      levels = 1;
    } else if (levels == 1 && step == rows.inner * rows.from.inner && to_step == rows.inner * rows.to.inner) {
      rows.inner *= from.dim(i);
    } else {
      require<UsageError>(levels == 1, "exchange: a view ", from.shape(), " of more than two distances");
      rows.outer = from.dim(i), rows.from.outer = step, rows.to.outer = to_step;
      levels = 2;
    }
  }
  return rows;
}

enum class Way { kPut, kTake, kPass };

class Pieces {
 public:
  Pieces(ExchangeControl* control, uint32_t with, const KeptMessage* kept) {
    params_.control = control;
    params_.with = with;
    if (kept) params_.kept = *kept;
    require<InternalError>(with >> kMaxExchangeRanks == 0, "exchange: more than ", kMaxExchangeRanks,
                           " ranks");
  }

  void send(const ExchangePart& part) { message(part, true); }
  void receive(const ExchangePart& part) { message(part, false); }
  // Of a message whose first exchange has been counted.
  void continue_call() { params_.kept.begins_call = 0; }
  void copy(const OwnPart& part) {
    require(part.from.shape() == part.to.shape() && part.from.dtype() == part.to.dtype(),
            "exchange: ", part.from.shape(), " into ", part.to.shape());
    const Rows rows = rows_of(part.from, part.to);
    add(rows, {.from = static_cast<const char*>(part.from.data()), .to = static_cast<char*>(part.to.data())});
  }

  int unit() const { return bits_ % 16 == 0 ? 16 : bits_ % 4 == 0 ? 4 : 1; }
  double bytes() const { return bytes_; }
  // With the grid of a device with so many compute units.
  ExchangeParams params(uint32_t most_workgroups) const {
    ExchangeParams out = params_;
    double units = 0;
    for (uint32_t i = 0; i < out.count; ++i) {
      out.pieces[i].row /= static_cast<uint32_t>(unit());
      units += static_cast<double>(out.pieces[i].outer) * out.pieces[i].inner * out.pieces[i].row;
    }
    constexpr double kUnitsOfThread = 4;
    out.workgroups = static_cast<uint32_t>(
        std::clamp(units / (kExchangeThreads * kUnitsOfThread), 1.0, double{1} * most_workgroups));
    return out;
  }

 private:
  void message(const ExchangePart& part, bool sends) {
    Rows rows = rows_of(part.tensor, part.tensor);
    const Rows::Steps dense{rows.inner * rows.bytes, rows.bytes};
    (sends ? rows.to : rows.from) = dense;
    auto* data = static_cast<char*>(part.tensor.data());
    require<InternalError>(sends || std::popcount(part.ranks) == 1, "exchange: a part comes from one rank");
    add(rows, {.from = sends ? data : nullptr,
               .to = sends ? nullptr : data,
               .offset = static_cast<int64_t>(part.offset),
               .ranks = part.ranks});
    (sends ? params_.sent_bytes : params_.received_bytes) +=
        part.tensor.bytes() * static_cast<size_t>(std::popcount(part.ranks));
    if (sends && part.tensor.bytes() > 0) told_ |= part.ranks;
    params_.messages = static_cast<uint32_t>(std::popcount(told_));
  }
  void add(const Rows& rows, ExchangePiece piece) {
    const double size = static_cast<double>(rows.outer) * static_cast<double>(rows.inner * rows.bytes);
    if (size == 0) return;
    require<UsageError>(size < 4294967295.0, "exchange: a part of ", size, " bytes; at most 4 GiB");
    require<InternalError>(params_.count < kMaxExchangePieces, "exchange: more than ", kMaxExchangePieces,
                           " parts");
    piece.from_outer = rows.from.outer, piece.from_inner = rows.from.inner;
    piece.to_outer = rows.to.outer, piece.to_inner = rows.to.inner;
    piece.outer = static_cast<uint32_t>(rows.outer);
    piece.inner = static_cast<uint32_t>(rows.inner);
    piece.row = static_cast<uint32_t>(rows.bytes);
    for (const int64_t number :
         {piece.from_outer, piece.from_inner, piece.to_outer, piece.to_inner, piece.offset, rows.bytes,
          reinterpret_cast<int64_t>(piece.from), reinterpret_cast<int64_t>(piece.to)})
      bits_ |= static_cast<uint64_t>(number);
    bytes_ += size;
    params_.pieces[params_.count++] = piece;
  }

  ExchangeParams params_{};
  uint32_t told_ = 0;
  uint64_t bits_ = 0;
  double bytes_ = 0;
};

template <int kUnit>
void run_on_host(const ExchangeParams& params, Way way) {
  for (int64_t i = 0; i < params.workgroups; ++i) {
    const Block<Scalar> block{i, params.workgroups};
    switch (way) {
      case Way::kPut: exchange_put_body<Scalar, kUnit>(params, block); break;
      case Way::kTake: exchange_take_body<Scalar, kUnit>(params, block); break;
      case Way::kPass: exchange_pass_body<Scalar, kUnit>(params, block); break;
    }
  }
}

const char* op_of(Way way) {
  switch (way) {
    case Way::kPut: return "exchange_put";
    case Way::kTake: return "exchange_take";
    case Way::kPass: return "exchange_pass";
  }
  return "";
}

void launch(Exec& ex, const Pieces& pieces, Way way, bool shared = false) {
  const char* op = op_of(way);
  OpInfo info{op, concat(pieces.bytes(), " bytes"), 0, 2 * pieces.bytes()};
  const int unit = pieces.unit();
  GpuDevice* device = gpu_device(ex);
  if (!device) {
    return ex.launch(std::move(info), [params = pieces.params(4), unit, way] {
      if (unit == 16) return run_on_host<16>(params, way);
      if (unit == 4) return run_on_host<4>(params, way);
      run_on_host<1>(params, way);
    });
  }
  const GpuKernel* kernel = device->find_kernel(concat(op, "_", unit));
  require<DeviceError>(kernel != nullptr, device->name(), ": its kernel archive has no ", op, "_", unit);
  const auto units = static_cast<uint32_t>(device->traits().compute_units);
  // Beside other launches few: they keep their place while those come and go.
  const uint32_t most = ex.is_beside() ? std::max(units / 4, 1u)
                        : shared       ? std::max(units / 2, 1u)
                                       : 2 * units;
  const ExchangeParams params = pieces.params(most);
  launch_kernel(ex, std::move(info), *kernel, {params.workgroups}, kExchangeThreads, 0, params);
}

}  // namespace

void put(Exec& ex, ExchangeControl* control, std::span<const ExchangePart> parts,
         std::span<const OwnPart> own, uint32_t with, const KeptMessage* kept) {
  Pieces pieces(control, with, kept);
  for (const ExchangePart& part : parts) pieces.send(part);
  for (const OwnPart& part : own) pieces.copy(part);
  launch(ex, pieces, Way::kPut);
}

void take(Exec& ex, ExchangeControl* control, std::span<const ExchangePart> parts, uint32_t with, bool shared,
          const KeptMessage* kept) {
  Pieces pieces(control, with, kept);
  pieces.continue_call();
  for (const ExchangePart& part : parts) pieces.receive(part);
  launch(ex, pieces, Way::kTake, shared);
}

void pass(Exec& ex, ExchangeControl* control, std::span<const ExchangePart> sent,
          std::span<const ExchangePart> received, std::span<const OwnPart> own, const KeptMessage& kept) {
  Pieces pieces(control, 0, &kept);
  for (const ExchangePart& part : sent) pieces.send(part);
  for (const OwnPart& part : own) pieces.copy(part);
  for (const ExchangePart& part : received) pieces.receive(part);
  launch(ex, pieces, Way::kPass);
}

bool can_exchange(Device& device) {
  if (device.kind() == DeviceKind::kHost) return true;
  auto& gpu = static_cast<GpuDevice&>(device);
  for (const Way way : {Way::kPut, Way::kTake, Way::kPass})
    for (const int unit : {16, 4, 1})
      if (!gpu.find_kernel(concat(op_of(way), "_", unit))) return false;
  return true;
}

}  // namespace rocm_sd
