#include "runtime/ranks.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace rocm_sd {

RankView::RankView(Ranks& all, std::vector<int> members) : all_(all), members_(std::move(members)) {
  const auto own = std::find(members_.begin(), members_.end(), all.rank());
  require<InternalError>(own != members_.end(), "ranks: rank ", all.rank(),
                         " is not among those of its view");
  own_ = static_cast<int>(own - members_.begin());
}

void exchange(Ranks& ranks, int with, const void* out, size_t out_bytes, void* in, size_t in_bytes) {
  ranks.send(with, out, out_bytes);
  ranks.receive(with, in, in_bytes);
}

namespace {

size_t begin_of(std::span<const size_t> ends, int rank) {
  return rank == 0 ? 0 : ends[static_cast<size_t>(rank) - 1];
}
size_t bytes_of(std::span<const size_t> ends, int rank) {
  return ends[static_cast<size_t>(rank)] - begin_of(ends, rank);
}

}  // namespace

void send_part(Ranks& ranks, const void* all, std::span<const size_t> ends, uint32_t channel) {
  require<InternalError>(ends.size() == static_cast<size_t>(ranks.count()), "all_gather: ", ends.size(),
                         " parts for ", ranks.count(), " ranks");
  const int own = ranks.rank();
  for (int to = 0; to < ranks.count(); ++to)
    if (to != own)
      ranks.send(to, static_cast<const char*>(all) + begin_of(ends, own), bytes_of(ends, own), channel);
}

void receive_parts(Ranks& ranks, void* all, std::span<const size_t> ends, uint32_t channel) {
  for (int from = 0; from < ranks.count(); ++from)
    if (from != ranks.rank())
      ranks.receive(from, static_cast<char*>(all) + begin_of(ends, from), bytes_of(ends, from), channel);
}

void all_gather(Ranks& ranks, void* all, std::span<const size_t> ends) {
  send_part(ranks, all, ends, 0);
  receive_parts(ranks, all, ends, 0);
}

}  // namespace rocm_sd
