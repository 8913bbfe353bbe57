#include "runtime/pinned_pages.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "runtime/device.hpp"

namespace rocm_sd {
namespace {

constexpr size_t kAlignment = 256, kPage = 4096, kHugePage = 2 << 20;
// A piece is as large as all before it together, within these.
constexpr size_t kMinPiece = 4 << 20, kMaxPiece = 128 << 20;

size_t rounded_up(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

// The system makes pages as they are first written: by several threads, several at once.
void touch(char* begin, size_t bytes) {
  const size_t huge = bytes / kHugePage;
  [[maybe_unused]] const int threads =
      static_cast<int>(std::clamp<size_t>(huge / 2, 1, static_cast<size_t>(std::min(8, host_threads()))));
#pragma omp parallel for num_threads(threads) schedule(static)
  for (size_t i = 0; i < huge; ++i)
    for (size_t at = 0; at < kHugePage; at += kPage) begin[i * kHugePage + at] = 0;
}

}  // namespace

PinnedPages::~PinnedPages() {
  while (!pieces_.empty()) release(pieces_.begin());
  for (const auto& [data, block] : blocks_)
    if (!block.piece) driver_.free_pinned(data);
}

void* PinnedPages::allocate(size_t bytes) {
  const size_t rounded = rounded_up(std::max<size_t>(bytes, 1), kAlignment);
  const std::lock_guard lock(mutex_);
  if (const auto kept = freed_.find(rounded); kept != freed_.end()) {
    char* const data = kept->second;
    auto piece = std::prev(pieces_.upper_bound(data));
    blocks_[data] = {piece->first, rounded};
    ++piece->second.blocks;
    freed_.erase(kept);
    return data;
  }
  const auto room = [&] {
    const auto newest = pieces_.find(newest_);
    return newest != pieces_.end() && newest->second.bytes - newest->second.used >= rounded;
  };
  if (!room() && !add_piece(rounded)) {
    auto* const data = static_cast<char*>(driver_.allocate_pinned(bytes));
    if (data) blocks_[data] = {nullptr, rounded};
    return data;
  }
  Piece& piece = pieces_.at(newest_);
  char* const data = newest_ + piece.used;
  blocks_[data] = {newest_, rounded};
  piece.used += rounded;
  ++piece.blocks;
  return data;
}

void PinnedPages::free(void* data) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(static_cast<char*>(data));
  if (found == blocks_.end()) return;
  const auto [at, block] = *found;
  blocks_.erase(found);
  if (!block.piece) return driver_.free_pinned(at);
  const auto piece = pieces_.find(block.piece);
  if (--piece->second.blocks == 0)
    release(piece);
  else
    freed_.emplace(block.bytes, at);
}

char* PinnedPages::add_piece(size_t least) {
  if (!pins_) return nullptr;
  Piece piece{.bytes = rounded_up(std::max(least, std::clamp(mapped_, kMinPiece, kMaxPiece)), kHugePage)};
  piece.mapped = piece.bytes + kHugePage;
  piece.mapping = mmap(nullptr, piece.mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (piece.mapping == MAP_FAILED) return nullptr;
  auto* const begin =
      reinterpret_cast<char*>(rounded_up(reinterpret_cast<uintptr_t>(piece.mapping), kHugePage));
  madvise(begin, piece.bytes, MADV_HUGEPAGE);  // where the system has none, small ones do
  touch(begin, piece.bytes);
  if (!driver_.pin_pages(begin, piece.bytes)) {
    pins_ = false;
    munmap(piece.mapping, piece.mapped);
    return nullptr;
  }
  mapped_ += piece.bytes;
  pieces_.emplace(begin, piece);
  return newest_ = begin;
}

void PinnedPages::release(Pieces::iterator piece) noexcept {
  const auto [begin, of] = *piece;
  driver_.unpin_pages(begin);
  std::erase_if(freed_,
                [&](const auto& kept) { return kept.second >= begin && kept.second < begin + of.bytes; });
  munmap(of.mapping, of.mapped);
  mapped_ -= of.bytes;
  if (newest_ == begin) newest_ = nullptr;
  pieces_.erase(piece);
}

}  // namespace rocm_sd
