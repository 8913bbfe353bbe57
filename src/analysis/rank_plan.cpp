#include "analysis/rank_plan.hpp"

#include <algorithm>
#include <bit>
#include <memory>
#include <numeric>
#include <optional>

#include "base/error.hpp"
#include "models/row_split.hpp"
#include "pipeline/guidance_split.hpp"

namespace rocm_sd {
namespace {

// A rank of a group that exists on paper: it is asked who it is.
class PaperRanks final : public Ranks {
 public:
  PaperRanks(int rank, int count, Division division) : rank_(rank), count_(count), division_(division) {}
  int rank() const override { return rank_; }
  int count() const override { return count_; }
  Division division() const override { return division_; }
  void begin() override {}
  void send(int, const void*, size_t, uint32_t) override { refuse(); }
  void receive(int, void*, size_t, uint32_t) override { refuse(); }
  void expect(int) override { refuse(); }

 private:
  [[noreturn]] void refuse() const {
    throw InternalError(concat("ranks: rank ", rank_, " of ", count_, " exists on paper only"));
  }
  const int rank_, count_;
  const Division division_;
};

// Of some ranks among themselves -> of all.
Exchange of_all(Exchange exchange, const std::vector<int>& members, int count) {
  std::vector<uint64_t> sent(static_cast<size_t>(count));
  for (size_t i = 0; i < members.size(); ++i) sent[static_cast<size_t>(members[i])] = exchange.sent[i];
  exchange.sent = std::move(sent);
  return exchange;
}

class RankPlanner {
 public:
  RankPlanner(Device& device, const Device& products, const KnownModel& model, const PictureShape& shape,
              DType dtype, Division division, int ranks)
      : device_(device),
        products_(products),
        model_(model),
        shape_(shape),
        dtype_(dtype),
        division_(division),
        count_(ranks) {}

  RankPlan plan(int rank, int steps) const {
    PaperRanks all(rank, count_, division_);
    std::vector<int> half(static_cast<size_t>(count_)), pair;
    std::iota(half.begin(), half.end(), 0);
    if (division_ == Division::kBoth) {
      const int each = count_ / 2;
      half.assign(static_cast<size_t>(each), 0);
      std::iota(half.begin(), half.end(), rank / each * each);
      pair = {rank % each, each + rank % each};
    }
    RankView rows_of(all, half);
    const int64_t height = shape_.height / 8, width = shape_.width / 8;
    const auto halvings =
        std::ranges::count_if(model_.unet.down, [](const UNetBlockConfig& b) { return b.resamples; });
    std::optional<RowSplit> unet, vae;
    const bool divides_rows = division_ == Division::kRows || division_ == Division::kBoth;
    if (divides_rows) unet.emplace(rows_of, height, width, int64_t{1} << halvings, 0);
    const int doublings = std::countr_zero(static_cast<uint64_t>(model_.vae.downscale()));
    if (height >= count_ && !model_.vae.half_size_finest) vae.emplace(all, height, width, 1, doublings);
    const int64_t conditions = shape_.guidance ? 2 : 1;
    ConditionShare own{0, conditions, conditions};
    const bool divides_conditions = division_ == Division::kConditions || division_ == Division::kBoth;
    if (divides_conditions) own = share_conditions(conditions, pair.empty() ? rank : rank == pair[1], 2);

    RankPlan out{.rows = unet ? unet->rows() : height};
    out.stages = plan_share(device_, products_, model_, shape_, steps, dtype_,
                            {.conditions = own.count,
                             .unet = unet ? &*unet : nullptr,
                             .vae = vae ? &*vae : nullptr,
                             .decodes = vae || rank == 0,
                             .tensors = division_ == Division::kTensors ? &all : nullptr});
    for (const PlannedStage& stage : out.stages)
      for (const Exchange& exchange : stage.exchanges)
        if (stage.name == "unet")
          out.step.push_back(of_all(exchange, half, count_));
        else
          out.decode.push_back(exchange);
    if (division_ != Division::kTensors)
      gather_predictions(out, own, unet ? &*unet : nullptr, half, pair, rank);
    if (vae) gather_picture(out, *vae);
    out.once.push_back(to_others(rank, 2));  // Pipeline::State::agree_about_savings
    out.once.push_back(rank == 0 ? to_others(rank, 1) : Exchange{std::vector<uint64_t>(size())});
    return out;
  }

 private:
  size_t size() const { return static_cast<size_t>(count_); }

  Exchange to_others(int rank, uint64_t bytes) const {
    Exchange out{.sent = std::vector<uint64_t>(size(), bytes)};
    out.sent[static_cast<size_t>(rank)] = 0;
    return out;
  }

  // As Pipeline::State::gather_predictions.
  void gather_predictions(RankPlan& out, const ConditionShare& own, const RowSplit* rows,
                          const std::vector<int>& half, const std::vector<int>& pair, int rank) const {
    const int64_t width = shape_.width / 8, channels = model_.unet.out_channels;
    const auto condition = static_cast<uint64_t>(shape_.batch * out.rows * width * channels) * sizeof(float);
    if (division_ != Division::kRows) {
      Exchange exchange{.sent = std::vector<uint64_t>(size()),
                        .to_host = condition * static_cast<uint64_t>(own.count),
                        .to_device = condition * static_cast<uint64_t>(own.all),
                        .copies_to_host = 1,
                        .copies_to_device = 1};
      const int other = pair.empty() ? 1 - rank : pair[0] + pair[1] - rank;
      exchange.sent[static_cast<size_t>(other)] = exchange.to_host;
      out.step.push_back(std::move(exchange));
    }
    if (!rows) return;
    Arena arena(device_);
    Program gather("gather predictions", arena, [&](Exec& ex) {
      gather_pixels(ex, *rows, ex.alloc({own.all * shape_.batch, out.rows * width, channels}, DType::kF32));
    });
    const ExchangeRecord record;
    gather.plan();
    for (const Exchange& exchange : record.exchanges()) out.step.push_back(of_all(exchange, half, count_));
  }

  // As VaeStage::gather_rows: the picture goes to the host in any case.
  void gather_picture(RankPlan& out, const RowSplit& vae) const {
    const auto row = static_cast<uint64_t>(model_.vae.downscale() * shape_.width * 3);
    out.decode.push_back(to_others(vae.ranks().rank(), static_cast<uint64_t>(vae.rows()) * row));
    out.decode.push_back(to_others(vae.ranks().rank(), sizeof(int64_t)));
  }

  Device& device_;
  const Device& products_;
  const KnownModel& model_;
  const PictureShape& shape_;
  const DType dtype_;
  const Division division_;
  const int count_;
};

template <class Of>
uint64_t sum_of(const RankPlan& plan, int steps, int64_t pictures, const Of& of) {
  uint64_t sum = 0;
  for (const Exchange& e : plan.step) sum += of(e) * static_cast<uint64_t>(steps);
  for (const Exchange& e : plan.decode) sum += of(e) * static_cast<uint64_t>(pictures);
  for (const Exchange& e : plan.once) sum += of(e);
  return sum;
}

}  // namespace

uint64_t RankPlan::bytes(int steps, int64_t pictures) const {
  return sum_of(*this, steps, pictures, [](const Exchange& e) { return e.bytes(); });
}

uint64_t RankPlan::messages(int steps, int64_t pictures) const {
  return sum_of(*this, steps, pictures,
                [](const Exchange& e) { return static_cast<uint64_t>(e.messages()); });
}

std::vector<RankPlan> plan_ranks(Device& device, const Device& products, const KnownModel& model,
                                 const PictureShape& shape, int steps, DType dtype, Division division,
                                 int ranks) {
  require<UsageError>(ranks > 1 && (division != Division::kConditions || ranks == 2) &&
                          (division != Division::kBoth || (ranks >= 4 && ranks % 2 == 0)) &&
                          division != Division::kLayers,
                      "split: ", ranks, " ranks cannot divide one picture so");
  const RankPlanner planner(device, products, model, shape, dtype, division, ranks);
  std::vector<RankPlan> out;
  for (int rank = 0; rank < ranks; ++rank) out.push_back(planner.plan(rank, steps));
  return out;
}

}  // namespace rocm_sd
