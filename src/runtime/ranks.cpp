#include "runtime/ranks.hpp"

#include "base/error.hpp"

namespace rocm_sd {

void exchange(Ranks& ranks, int with, const void* out, size_t out_bytes, void* in, size_t in_bytes) {
  ranks.send(with, out, out_bytes);
  ranks.receive(with, in, in_bytes);
}

void all_gather(Ranks& ranks, void* all, std::span<const size_t> ends) {
  require<InternalError>(ends.size() == static_cast<size_t>(ranks.count()), "all_gather: ", ends.size(),
                         " parts for ", ranks.count(), " ranks");
  const auto begin = [&](int rank) { return rank == 0 ? 0 : ends[static_cast<size_t>(rank) - 1]; };
  const auto bytes = [&](int rank) { return ends[static_cast<size_t>(rank)] - begin(rank); };
  auto* const base = static_cast<char*>(all);
  const int own = ranks.rank();
  for (int to = 0; to < ranks.count(); ++to)
    if (to != own) ranks.send(to, base + begin(own), bytes(own));
  for (int from = 0; from < ranks.count(); ++from)
    if (from != own) ranks.receive(from, base + begin(from), bytes(from));
}

}  // namespace rocm_sd
