// Messages between the devices that draw one image, as launches: put() stores pieces of tensors into the
// windows of other ranks, take() waits for what they have put into the own one, pass() stores what the next
// call takes and takes what was stored in the call before. The protocol, and what a window is, stands in
// composable_kernels/fused/exchange.hpp.
#pragma once

#include <span>
#include <vector>

#include "runtime/exec.hpp"

namespace rocm_sd {

struct ExchangeControl;
struct KeptMessage;

// A part of a message: a tensor, dense in its first two and in all further dimensions, or any view with one
// distance between blocks, one between rows, and rows without gaps. It lies `offset` bytes after the
// message's begin.
struct ExchangePart {
  Tensor tensor;
  uint32_t ranks = 0;  // put: to whom it goes; take: from whom it comes; a bit for each
  size_t offset = 0;
};

// A copy beside the messages: from and to are of one shape and type.
struct OwnPart {
  Tensor from, to;
};

// control: in the device's memory. with: the ranks that take part, a bit for each; those of an exchange all
// put and all take. kept: where the message lies that the next call reads, too; null: in a buffer. Parts are
// multiples of a byte in any case and fastest as multiples of 16. Throw UsageError for views of other forms,
// InternalError for ranks beyond the eighth.
void put(Exec& ex, ExchangeControl* control, std::span<const ExchangePart> parts,
         std::span<const OwnPart> own, uint32_t with, const KeptMessage* kept = nullptr);
// shared: whom it waits for may be on the same device, so it leaves half of the compute units to them.
void take(Exec& ex, ExchangeControl* control, std::span<const ExchangePart> parts, uint32_t with, bool shared,
          const KeptMessage* kept = nullptr);
// Of a stale call; waits for nobody.
void pass(Exec& ex, ExchangeControl* control, std::span<const ExchangePart> sent,
          std::span<const ExchangePart> received, std::span<const OwnPart> own, const KeptMessage& kept);

// Whether the device runs them: the host, and GPUs with these kernels in their archive.
bool can_exchange(Device& device);

}  // namespace rocm_sd
