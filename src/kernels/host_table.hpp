// Choice among the copies of a table of functions that *_isa.cpp files define per instruction set.
#pragma once

#include "runtime/device.hpp"

namespace rocm_sd {

template <class Table>
const Table& table_for_host(const Table& baseline, const Table& v3, const Table& v4) {
  switch (host_isa()) {
    case HostIsa::kV4: return v4;
    case HostIsa::kV3: return v3;
    case HostIsa::kBaseline: break;
  }
  return baseline;
}

// A macro because the name must be looked up in three namespaces, two of which only x86-64 builds.
#if defined(__x86_64__)
#define ROCM_SD_HOST_TABLE(name) table_for_host(isa_baseline::name, isa_v3::name, isa_v4::name)
#else
#define ROCM_SD_HOST_TABLE(name) (isa_baseline::name)
#endif

}  // namespace rocm_sd
