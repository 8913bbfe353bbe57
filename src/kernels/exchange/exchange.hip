// The kernels of messages between GPUs: composable_kernels/fused/exchange.hpp.
#include "composable_kernels/arch/system_target.hpp"
#include "composable_kernels/fused/exchange.hpp"

using namespace rocm_sd;

#define FOR_UNIT(bytes)                                                                                     \
  ROCM_SD_KERNEL(exchange_put_##bytes, kExchangeThreads, 2, ExchangeParams) {                               \
    exchange_put_body<GpuArch, bytes>(p, Block<GpuArch>{p.workgroups, kExchangeThreads / GpuArch::lanes});  \
  }                                                                                                         \
  ROCM_SD_KERNEL(exchange_pass_##bytes, kExchangeThreads, 2, ExchangeParams) {                              \
    exchange_pass_body<GpuArch, bytes>(p, Block<GpuArch>{p.workgroups, kExchangeThreads / GpuArch::lanes}); \
  }                                                                                                         \
  ROCM_SD_WAITING_KERNEL(exchange_take_##bytes, kExchangeThreads, 2, ExchangeParams) {                      \
    exchange_take_body<GpuArch, bytes>(p, Block<GpuArch>{p.workgroups, kExchangeThreads / GpuArch::lanes}); \
  }
FOR_UNIT(16)
FOR_UNIT(4)
FOR_UNIT(1)
