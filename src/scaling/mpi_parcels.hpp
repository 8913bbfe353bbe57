// What the ranks of an MpiHub send each other.
#pragma once

#include <string_view>

#include "scaling/mpi_post.hpp"

namespace rocm_sd {

// The numbers of each: kHello version, process; kState milliseconds of silence, idle, has sent; kFailure
// rank, cancelled; kExpel rank; kAsk request, from, to, number of the question; kAnswer number, yes; kClaim
// request, state. Bodies: kHello name and host, kFailure the reason, kTable the states of all requests.
enum class ParcelKind : uint32_t {
  kHello,
  kState,
  kAttempt,
  kData,
  kFailure,
  kExpel,
  kLeave,
  kReady,
  kAsk,
  kAnswer,
  kClaim,
  kTable
};

inline Parcel parcel_of(ParcelKind kind, std::string_view body = {}) {
  Parcel out;
  out.head.kind = static_cast<uint32_t>(kind);
  out.body.assign(body.begin(), body.end());
  return out;
}

}  // namespace rocm_sd
