// The kernels of the embeddings: embed_tokens_<type of both tables>_<type of y>, timestep_embedding_<type of
// y>.
#include "composable_kernels/arch/target.hpp"
#include "composable_kernels/fused/embedding.hpp"

#include "kernels/embed/embed_configs.hpp"

namespace rocm_sd {
namespace {

using namespace embed_configs;

template <class TableType, class Out>
struct TokensCfg {
  using Table = TableType;
  using Positions = TableType;
  using Y = Out;
};
template <class Out>
struct TimestepCfg {
  using Y = Out;
};
template <class T, class Y>
using Tokens = EmbedTokensParams<T, T, Y>;

}  // namespace

#define COMMA ,
#define TOKENS(t, T, y, Y)                                                                     \
  ROCM_SD_KERNEL(embed_tokens_##t##_##y, kTokenWaves* GpuArch::lanes, 4, Tokens<T COMMA Y>) {  \
    embed_tokens_body<GpuArch, TokensCfg<T, Y>>(p, Block<GpuArch>{p.workgroups, kTokenWaves}); \
  }
#define TABLE(t, T)        \
  TOKENS(t, T, f16, Half)  \
  TOKENS(t, T, bf16, Bf16) \
  TOKENS(t, T, f32, float)
TABLE(f16, Half)
TABLE(bf16, Bf16)
TABLE(f32, float)

#define TIMESTEP(y, Y)                                                                      \
  ROCM_SD_KERNEL(timestep_embedding_##y, kTimestepThreads, 4, TimestepEmbeddingParams<Y>) { \
    timestep_embedding_body<GpuArch, TimestepCfg<Y>>(                                       \
        p, Block<GpuArch>{p.workgroups, kTimestepThreads / GpuArch::lanes});                \
  }
TIMESTEP(f16, Half)
TIMESTEP(bf16, Bf16)
TIMESTEP(f32, float)

}  // namespace rocm_sd
