// Flash attention for head_dim up to 160: every wave owns its queries, the workgroup shares tiles of keys.
// Problem   y = softmax(scale q k^T + mask) v for each head; 16-bit in and out
// Mapping   grid (query tiles, batch * heads, splits of the keys). A wave holds Q of 16 kQueryAtoms
//           queries in registers (in LDS where those are short) and computes S^T = K Q^T, so that a
//           query's scores lie in few lanes, and O^T = V^T P^T with P^T made from S^T inside the wave
// Traffic   q and y once, k and v once per query tile (from L2) through kStages buffers in LDS
// Numerics  scores, softmax and sums in float; weights rounded to 16 bits for the second product, and
//           where head_dim is padded summed by it (a row of ones), so that their rounding cancels; rows by
//           tiles in order, splits merged in order
// Limits    head_dim % 8 == 0; rows at multiples of 16 bytes; scale > 0 unless Cfg::kGeneral
// Method: Dao, "FlashAttention-2", 2023; the lazy base: Zadouri et al., "FlashAttention-4", 2026.
#pragma once

#include <type_traits>

#include "composable_kernels/fused/flash_params.hpp"
#include "composable_kernels/fused/flash_softmax.hpp"
#include "composable_kernels/fused/flash_staging.hpp"

namespace rocm_sd {

// Cfg: T; kDim; kQueryAtoms (of a wave); kKeys (of a tile); kWaves; kStages; kGeneral (mask, causal, any
// scale); kTransposed (values reach LDS transposed, else they are read transposed); kQueriesInLds.
template <class Arch, class Cfg>
struct FlashAttention {
  using T = typename Cfg::T;
  using M = Atom<Arch, T>;
  using A = typename M::A;
  using B = typename M::B;
  using C = typename M::C;
  using Softmax = FlashSoftmax<Arch, T>;
  static constexpr int kDim = Cfg::kDim, kPadded = (kDim + 15) / 16 * 16, kDimAtoms = kPadded / 16;
  static constexpr int kQ = Cfg::kQueryAtoms, kKeys = Cfg::kKeys, kKeyAtoms = kKeys / 16;
  static constexpr int kThreads = Cfg::kWaves * Arch::lanes, kStages = Cfg::kStages;
  static constexpr int kQueries = Cfg::kWaves * kQ * 16;  // of a workgroup
  static constexpr int kPad = flash_row_pad(Arch::lanes), kLd = kPadded + kPad, kLdT = kKeys + kPad;
  static constexpr bool kOnes = kPadded > kDim;  // spare rows of V^T: the first is ones and sums the weights
  static constexpr int kKeySize = kKeys * kLd;
  static constexpr int kValueSize = Cfg::kTransposed ? kPadded * kLdT : kKeys * kLd;
  static constexpr int kStageSize = kKeySize + kValueSize;
  static constexpr int kRowsSize = kQueries * kLd;  // Q on the way in, O on the way out
  static constexpr int kStaged = kStages * kStageSize;
  static constexpr int kLdsElements =
      Cfg::kQueriesInLds ? kStaged + kRowsSize : (kStaged > kRowsSize ? kStaged : kRowsSize);

  using KeyStaging = RowStaging<Arch, T, kThreads, kKeys, kDim, kLd>;
  using ValueStaging =
      std::conditional_t<Cfg::kTransposed, TransposedStaging<Arch, T, kThreads, kKeys, kDim, kLdT>,
                         RowStaging<Arch, T, kThreads, kKeys, kDim, kLd>>;

  const FlashParams<T>& p;
  T* lds;
  const FlashGroup group;
  int wave, image, head, first_query;  // first_query: of the workgroup
  int first_key, last_key;             // of this split, [first_key, last_key)
  const T *k, *v;
  B q[Cfg::kQueriesInLds ? 1 : kQ][kDimAtoms];
  C o[kQ][kDimAtoms];
  Softmax softmax[kQ];
  KeyStaging keys;
  ValueStaging values;

  ROCM_SD_DEVICE FlashAttention(const FlashParams<T>& params, T* memory, FlashGroup at)
      : p(params), lds(memory), group(at) {
    wave = Arch::uniform(Arch::thread() / Arch::lanes);
    image = group.head / p.heads;
    head = group.head % p.heads;
    first_query = group.tile * kQueries;
    first_key = group.split * p.keys_per_split;
    last_key = first_key + p.keys_per_split < p.keys ? first_key + p.keys_per_split : p.keys;
    if (Cfg::kGeneral && p.causal && first_query + kQueries < last_key) last_key = first_query + kQueries;
    k = p.k.data + image * p.k.image + static_cast<int64_t>(head) * kDim;
    v = p.v.data + image * p.v.image + static_cast<int64_t>(head) * kDim;
  }

  ROCM_SD_DEVICE T* key_tile(int stage) const { return lds + stage * kStageSize; }
  ROCM_SD_DEVICE T* value_tile(int stage) const { return lds + stage * kStageSize + kKeySize; }

  ROCM_SD_DEVICE void load_queries() {
    const T* rows = p.q.data + image * p.q.image + first_query * p.q.row + static_cast<int64_t>(head) * kDim;
    RowStaging<Arch, T, kThreads, kQueries, kDim, kLd> staging;
    const int valid = p.queries - first_query < kQueries ? p.queries - first_query : kQueries;
    T* tile = lds + (Cfg::kQueriesInLds ? kStaged : 0);
    staging.issue(rows, p.q.row, valid, tile);
    zero_columns(tile, kQueries);
    staging.land(tile);
    if constexpr (Arch::kAsyncCopies) {
      Arch::commit_copies();
      Arch::template wait_copies<0>();
    }
    Arch::barrier();
    if constexpr (Cfg::kQueriesInLds) return;
    const T* mine = lds + wave * kQ * 16 * kLd;
    ROCM_SD_UNROLL
    for (int a = 0; a < (Cfg::kQueriesInLds ? 0 : kQ); ++a) {
      ROCM_SD_UNROLL
      for (int d = 0; d < kDimAtoms; ++d) q[a][d] = M::load_b(mine + a * 16 * kLd + d * 16, kLd);
    }
    Arch::barrier();
  }

  // The columns beyond kDim of a tile of rows, which no copy writes.
  static ROCM_SD_DEVICE void zero_columns(T* tile, int rows) {
    constexpr int kSpare = kPadded - kDim;
    if constexpr (kSpare > 0)
      for (int i = Arch::thread(); i < rows * kSpare; i += kThreads)
        tile[i / kSpare * kLd + kDim + i % kSpare] = T{};
  }
  // Spare columns of K are zero; V's first spare one is one, the others zero.
  ROCM_SD_DEVICE void prepare_spare() const {
    constexpr int kSpare = kPadded - kDim;
    if constexpr (kSpare > 0)
      for (int stage = 0; stage < kStages; ++stage) {
        zero_columns(key_tile(stage), kKeys);
        T* tile = value_tile(stage);
        for (int i = Arch::thread(); i < kKeys * kSpare; i += kThreads) {
          const int key = i / kSpare, d = kDim + i % kSpare;
          store(tile[Cfg::kTransposed ? d * kLdT + key : key * kLd + d], d == kDim ? 1.0f : 0.0f);
        }
      }
  }

  ROCM_SD_DEVICE int tile_rows(int first) const {
    return last_key - first < kKeys ? last_key - first : kKeys;
  }
  ROCM_SD_DEVICE void issue_keys(int first, int stage) {
    keys.issue(k + first * p.k.row, p.k.row, tile_rows(first), key_tile(stage));
  }
  ROCM_SD_DEVICE void issue_values(int first, int stage) {
    values.issue(v + first * p.v.row, p.v.row, tile_rows(first), value_tile(stage));
  }

  // S^T = K Q^T
  ROCM_SD_DEVICE void multiply_keys(const T* tile, C (&s)[kQ][kKeyAtoms]) const {
    ROCM_SD_UNROLL
    for (int a = 0; a < kQ; ++a) {
      ROCM_SD_UNROLL
      for (int j = 0; j < kKeyAtoms; ++j) s[a][j] = C{};
    }
    [[maybe_unused]] const T* queries = lds + kStaged + wave * kQ * 16 * kLd;
    stream_fragments(
        [&](int n) { return M::load(tile + n / kDimAtoms * 16 * kLd + n % kDimAtoms * 16, kLd); },
        [&](int n, const A& fragment) {
          ROCM_SD_UNROLL
          for (int a = 0; a < kQ; ++a) {
            if constexpr (Cfg::kQueriesInLds)
              M::mma(s[a][n / kDimAtoms], fragment,
                     M::load_b(queries + a * 16 * kLd + n % kDimAtoms * 16, kLd));
            else
              M::mma(s[a][n / kDimAtoms], fragment, q[a][n % kDimAtoms]);
          }
        });
  }

  // use(n, load(n)) for every pair of a key and a channel atom, with kAhead fragments read ahead of their use
  // and no more, so that the compiler does not read a whole tile into registers.
  template <class Load, class Use>
  static ROCM_SD_DEVICE void stream_fragments(const Load& load, const Use& use) {
    constexpr int kCount = kKeyAtoms * kDimAtoms, kRing = Arch::kFragmentsAhead + 1;
    A ring[kRing];
    ROCM_SD_UNROLL
    for (int n = 0; n < kRing - 1 && n < kCount; ++n) ring[n] = load(n);
    ROCM_SD_UNROLL
    for (int n = 0; n < kCount; ++n) {
      if (n + kRing - 1 < kCount) ring[(n + kRing - 1) % kRing] = load(n + kRing - 1);
      Arch::fence_schedule();
      use(n, ring[n % kRing]);
    }
  }

  // O^T += V^T P^T
  ROCM_SD_DEVICE void multiply_values(const T* tile, const C (&s)[kQ][kKeyAtoms]) {
    B weights[kQ];
    stream_fragments(
        [&](int n) {
          const int key = n / kDimAtoms * 16, channel = n % kDimAtoms * 16;
          if constexpr (Cfg::kTransposed)
            return M::load(tile + channel * kLdT + key, kLdT);
          else
            return M::load_transposed(tile + key * kLd + channel, kLd);
        },
        [&](int n, const A& fragment) {
          ROCM_SD_UNROLL
          for (int a = 0; a < kQ; ++a) {
            if (n % kDimAtoms == 0) weights[a] = M::as_b(s[a][n / kDimAtoms]);
            M::mma(o[a][n % kDimAtoms], fragment, weights[a]);
          }
        });
  }

  // Scale and mask, so that the scores are binary logarithms; keys behind the last one are hidden.
  ROCM_SD_DEVICE void finish_scores(int first, C (&s)[kQ][kKeyAtoms]) const {
    if (!Cfg::kGeneral && first + kKeys <= last_key) return;
    ROCM_SD_UNROLL
    for (int a = 0; a < kQ; ++a) {
      ROCM_SD_UNROLL
      for (int j = 0; j < kKeyAtoms; ++j) {
        ROCM_SD_UNROLL
        for (int i = 0; i < Softmax::kElements; ++i) {
          const int key = first + j * 16 + M::row(i),
                    query = first_query + (wave * kQ + a) * 16 + M::column(i);
          float& x = s[a][j].x[i];
          if constexpr (Cfg::kGeneral)
            x = flash_score(p, x, image, head, query, key, last_key);
          else if (key >= last_key)
            x = Softmax::kHidden;
        }
      }
    }
  }

  ROCM_SD_DEVICE void attend(C (&s)[kQ][kKeyAtoms]) {
    const float scale = Cfg::kGeneral ? 1.0f : p.scale;
    float most[kQ][M::kColumns];
    bool grown = false;
    ROCM_SD_UNROLL
    for (int a = 0; a < kQ; ++a) {
      Softmax::maximum(s[a], most[a]);
      grown |= softmax[a].outgrown(most[a], scale);
    }
    if (Arch::any(grown)) {
      ROCM_SD_UNROLL
      for (int a = 0; a < kQ; ++a) {
        float factor[M::kColumns];
        softmax[a].rebase(most[a], scale, factor);
        ROCM_SD_UNROLL
        for (int d = 0; d < kDimAtoms; ++d) {
          ROCM_SD_UNROLL
          for (int i = 0; i < Softmax::kElements; ++i) o[a][d].x[i] *= factor[M::slot(i)];
        }
      }
    }
    ROCM_SD_UNROLL
    for (int a = 0; a < kQ; ++a) softmax[a].template exponentiate<!kOnes>(s[a], scale);
  }

  ROCM_SD_DEVICE void step(int first, int stage, int next_stage) {
    C s[kQ][kKeyAtoms];
    // After the last tile it is fetched once more, in vain: a branch here would cut the loop's body apart.
    const int next = first + kKeys < last_key ? first + kKeys : first;
    if constexpr (!Arch::kAsyncCopies) issue_keys(next, next_stage);
    multiply_keys(key_tile(stage), s);
    if constexpr (!Arch::kAsyncCopies) {
      if constexpr (kStages == 1) Arch::barrier();
      keys.land(key_tile(next_stage));
      issue_values(next, next_stage);
    }
    finish_scores(first, s);
    attend(s);
    multiply_values(value_tile(stage), s);
    if constexpr (!Arch::kAsyncCopies) {
      if constexpr (kStages == 1) Arch::barrier();
      values.land(value_tile(next_stage));
      Arch::barrier();
    }
  }

  ROCM_SD_DEVICE void run_keys() {
    if (first_key >= last_key) return;
    if constexpr (Arch::kAsyncCopies) {
      ROCM_SD_UNROLL
      for (int ahead = 0; ahead < kStages - 1; ++ahead) fetch(first_key + ahead * kKeys, ahead);
      for (int first = first_key, stage = 0; first < last_key; first += kKeys) {
        Arch::template wait_copies<kStages - 2>();
        Arch::barrier();
        fetch(first + (kStages - 1) * kKeys, (stage + kStages - 1) % kStages);
        step(first, stage, 0);
        stage = stage + 1 == kStages ? 0 : stage + 1;
      }
    } else {
      issue_keys(first_key, 0);
      issue_values(first_key, 0);
      keys.land(key_tile(0));
      values.land(value_tile(0));
      Arch::barrier();
      for (int first = first_key, stage = 0; first < last_key; first += kKeys, stage = kStages - 1 - stage)
        step(first, stage, kStages - 1 - stage);
    }
  }
  ROCM_SD_DEVICE void fetch(int first, int stage) {
    if (first < last_key) {
      issue_keys(first, stage);
      issue_values(first, stage);
    }
    Arch::commit_copies();
  }

  // The total of the weights per column, in every lane of the column.
  ROCM_SD_DEVICE void totals(int a, float (&total)[M::kColumns]) const {
    ROCM_SD_UNROLL
    for (int c = 0; c < M::kColumns; ++c) total[c] = kOnes ? 0.0f : softmax[a].total[c];
    if constexpr (kOnes) {
      ROCM_SD_UNROLL
      for (int i = 0; i < Softmax::kElements; ++i)
        if (M::row(i) == kDim % 16) total[M::slot(i)] += o[a][kDimAtoms - 1].x[i];
    }
    ROCM_SD_UNROLL
    for (int c = 0; c < M::kColumns; ++c) total[c] = M::column_sum(total[c]);
  }

  ROCM_SD_DEVICE void write_output() {
    T* mine = lds + wave * kQ * 16 * kLd;
    Arch::barrier();  // the last tile has been read
    ROCM_SD_UNROLL
    for (int a = 0; a < kQ; ++a) {
      float share[M::kColumns];
      totals(a, share);
      ROCM_SD_UNROLL
      for (int c = 0; c < M::kColumns; ++c) share[c] = share[c] == 0 ? 0.0f : Arch::reciprocal(share[c]);
      ROCM_SD_UNROLL
      for (int d = 0; d < kDimAtoms; ++d) {
        ROCM_SD_UNROLL
        for (int i = 0; i < Softmax::kElements; ++i) o[a][d].x[i] *= share[M::slot(i)];
        M::store_columns(mine + a * 16 * kLd + d * 16, kLd, o[a][d]);
      }
    }
    Arch::barrier();
    constexpr int kChunks = kDim / 8;
    const int valid = p.queries - first_query < kQueries ? p.queries - first_query : kQueries;
    T* y = p.y + ((static_cast<int64_t>(image) * p.queries + first_query) * p.heads + head) * kDim;
    for (int i = Arch::thread(); i < valid * kChunks; i += kThreads) {
      const int row = i / kChunks, chunk = i % kChunks;
      *reinterpret_cast<FlashChunk*>(y + static_cast<int64_t>(row) * p.heads * kDim + chunk * 8) =
          load_chunk<kLd>(lds + row * kLd + chunk * 8);
    }
  }

  ROCM_SD_DEVICE void write_partial() const {
    const int64_t rows = static_cast<int64_t>(group.split) * p.batch_heads + group.head;
    float* sums = p.partial_sums + rows * p.queries * kDim;
    float* stats = p.partial_stats + rows * p.queries * 2;
    ROCM_SD_UNROLL
    for (int a = 0; a < kQ; ++a) {
      float total[M::kColumns];
      totals(a, total);
      ROCM_SD_UNROLL
      for (int d = 0; d < kDimAtoms; ++d) {
        ROCM_SD_UNROLL
        for (int i = 0; i < Softmax::kElements; ++i) {
          const int query = first_query + (wave * kQ + a) * 16 + M::column(i), channel = d * 16 + M::row(i);
          if (query >= p.queries) continue;
          if (channel < kDim) sums[static_cast<int64_t>(query) * kDim + channel] = o[a][d].x[i];
          if (channel == 0) {
            stats[query * 2] = softmax[a].base[M::slot(i)];
            stats[query * 2 + 1] = total[M::slot(i)];
          }
        }
      }
    }
  }

  ROCM_SD_DEVICE void run() {
    ROCM_SD_UNROLL
    for (int a = 0; a < kQ; ++a) {
      softmax[a].clear();
      ROCM_SD_UNROLL
      for (int d = 0; d < kDimAtoms; ++d) o[a][d] = C{};
    }
    load_queries();
    prepare_spare();
    run_keys();
    if (p.splits > 1)
      write_partial();
    else
      write_output();
  }
};

// One query of one head per call: merges its partial results, lanes taking channels in turn.
template <class Arch, class T>
ROCM_SD_DEVICE void flash_merge(const FlashMergeParams<T>& p, int64_t row, int lane, int lanes) {
  constexpr float kHidden = -__builtin_inff();
  float base = kHidden, total = 0;
  for (int s = 0; s < p.splits; ++s)
    base = Arch::max(base, p.stats[(s * static_cast<int64_t>(p.rows) + row) * 2]);
  const float from = base == kHidden ? 0.0f : base;
  for (int s = 0; s < p.splits; ++s) {
    const float* stats = p.stats + (s * static_cast<int64_t>(p.rows) + row) * 2;
    total += Arch::exp2(stats[0] - from) * stats[1];
  }
  const float share = total == 0 ? 0.0f : Arch::reciprocal(total);
  const int64_t query = row % p.queries, head = row / p.queries % p.heads, image = row / p.queries / p.heads;
  T* y = p.y + ((image * p.queries + query) * p.heads + head) * p.dim;
  for (int d = lane; d < p.dim; d += lanes) {
    float sum = 0;
    for (int s = 0; s < p.splits; ++s) {
      const int64_t at = s * static_cast<int64_t>(p.rows) + row;
      sum += Arch::exp2(p.stats[at * 2] - from) * p.sums[at * p.dim + d];
    }
    store(y[d], sum * share);
  }
}

}  // namespace rocm_sd
