// Flash attention for wide heads (the VAE's 512): the waves of a workgroup share the scores of its queries
// and own slices of the channels of the output.
// Problem   y = softmax(scale q k^T + mask) v for each head; 16-bit in and out
// Mapping   grid (query tiles, batch * heads, splits of the keys). kWavesQ x kWavesK waves compute
//           S^T = K Q^T by rectangles, agree on the maxima and put P into LDS; then each wave multiplies
//           its kDim / waves rows of V^T by all of P^T
// Traffic   q and y once, k and v once per query tile (from L2), through kStages slots of LDS that hold
//           in turn [kKeys][kChunkDim] of K and [kChunkKeys][kDim] of V; Q stays in LDS
// Numerics  as FlashAttention; the weights are summed before they are rounded
// Limits    kDim % (16 waves) == 0; rows at multiples of 16 bytes
#pragma once

#include <type_traits>

#include "composable_kernels/fused/flash_params.hpp"
#include "composable_kernels/fused/flash_softmax.hpp"
#include "composable_kernels/fused/flash_staging.hpp"

namespace rocm_sd {

// Cfg: T; kDim; kQueries, kKeys (of the workgroup's tile); kWavesQ, kWavesK; kChunkDim, kChunkKeys; kStages;
// kTransposed (values reach LDS transposed).
template <class Arch, class Cfg>
struct FlashLargeD {
  using T = typename Cfg::T;
  using M = Atom<Arch, T>;
  using A = typename M::A;
  using B = typename M::B;
  using C = typename M::C;
  using Softmax = FlashSoftmax<Arch, T>;
  static constexpr int kDim = Cfg::kDim, kQueries = Cfg::kQueries, kKeys = Cfg::kKeys;
  static constexpr int kWavesK = Cfg::kWavesK, kWaves = Cfg::kWavesQ * kWavesK,
                       kThreads = kWaves * Arch::lanes;
  static constexpr int kChunkDim = Cfg::kChunkDim, kChunkKeys = Cfg::kChunkKeys, kStages = Cfg::kStages;
  static constexpr int kKeySteps = kDim / kChunkDim, kSteps = kKeySteps + kKeys / kChunkKeys;
  static constexpr int kQ = kQueries / 16 / Cfg::kWavesQ,
                       kK = kKeys / 16 / kWavesK;                       // atoms of a wave's scores
  static constexpr int kD = kDim / 16 / kWaves, kAllQ = kQueries / 16;  // and of its output
  static_assert(kSteps % kStages == 0, "the slot of a step is known when the kernel is compiled");
  static_assert(kQ * Cfg::kWavesQ == kAllQ && kK * kWavesK * 16 == kKeys && kD * kWaves * 16 == kDim);

  static constexpr int kPad = flash_row_pad(Arch::lanes), kLdQ = kDim + kPad, kLdW = kKeys + kPad;
  static constexpr int kLdK = kChunkDim + kPad, kLdV = (Cfg::kTransposed ? kChunkKeys : kDim) + kPad;
  static constexpr int kKeySlot = kKeys * kLdK, kValueSlot = (Cfg::kTransposed ? kDim : kChunkKeys) * kLdV;
  static constexpr int kSlot = kKeySlot > kValueSlot ? kKeySlot : kValueSlot;
  static constexpr int kWeights = kQueries * kLdQ, kRing = kWeights + kQueries * kLdW;
  static constexpr int kMaxima = kRing + kStages * kSlot;          // floats [kWavesK][kQueries]
  static constexpr int kBases = kMaxima + 2 * kWavesK * kQueries;  // floats [2][kQueries], by turns
  static constexpr int kLdsElements = kBases + 4 * kQueries;

  using KeyStaging = RowStaging<Arch, T, kThreads, kKeys, kChunkDim, kLdK>;
  using ValueStaging =
      std::conditional_t<Cfg::kTransposed, TransposedStaging<Arch, T, kThreads, kChunkKeys, kDim, kLdV>,
                         RowStaging<Arch, T, kThreads, kChunkKeys, kDim, kLdV>>;

  const FlashParams<T>& p;
  T* lds;
  const FlashGroup group;
  int wave, image, head, first_query, first_key, last_key;
  const T *k, *v;
  C o[kD][kAllQ];
  Softmax softmax[kQ];  // of the wave's own rectangle
  int turn = 0;         // which bases are valid
  KeyStaging keys;
  ValueStaging values;

  ROCM_SD_DEVICE FlashLargeD(const FlashParams<T>& params, T* memory, FlashGroup at)
      : p(params), lds(memory), group(at) {
    wave = Arch::uniform(Arch::thread() / Arch::lanes);
    image = group.head / p.heads;
    head = group.head % p.heads;
    first_query = group.tile * kQueries;
    first_key = group.split * p.keys_per_split;
    last_key = first_key + p.keys_per_split < p.keys ? first_key + p.keys_per_split : p.keys;
    if (p.causal && first_query + kQueries < last_key) last_key = first_query + kQueries;
    k = p.k.data + image * p.k.image + static_cast<int64_t>(head) * kDim;
    v = p.v.data + image * p.v.image + static_cast<int64_t>(head) * kDim;
  }

  ROCM_SD_DEVICE int wave_query() const { return wave / kWavesK * kQ; }  // first atoms of its rectangle
  ROCM_SD_DEVICE int wave_key() const { return wave % kWavesK * kK; }
  ROCM_SD_DEVICE T* slot(int step) const { return lds + kRing + step % kStages * kSlot; }
  ROCM_SD_DEVICE float* maxima() const { return reinterpret_cast<float*>(lds + kMaxima); }
  ROCM_SD_DEVICE float* bases(int which) const {
    return reinterpret_cast<float*>(lds + kBases) + which * kQueries;
  }
  ROCM_SD_DEVICE int valid_queries() const {
    return p.queries - first_query < kQueries ? p.queries - first_query : kQueries;
  }

  ROCM_SD_DEVICE void load_queries() {
    const T* rows = p.q.data + image * p.q.image + first_query * p.q.row + static_cast<int64_t>(head) * kDim;
    constexpr int kPart = 16;  // rows at a time, for the sake of registers
    for (int row = 0; row < kQueries; row += kPart) {
      RowStaging<Arch, T, kThreads, kPart, kDim, kLdQ> staging;
      const int start = row < valid_queries() ? row : valid_queries() - 1, left = valid_queries() - start;
      staging.issue(rows + start * p.q.row, p.q.row, left < kPart ? left : kPart, lds + row * kLdQ);
      staging.land(lds + row * kLdQ);
    }
    if constexpr (Arch::kAsyncCopies) Arch::commit_copies();
  }

  // The chunk of a step of the tile that begins at key `first`: reads it, and writes what was read.
  ROCM_SD_DEVICE void issue(int first, int step) {
    if (step < kKeySteps) {
      const int left = last_key - first;
      keys.issue(k + first * p.k.row + step * kChunkDim, p.k.row, left < kKeys ? left : kKeys, slot(step));
    } else {
      const int wanted = first + (step - kKeySteps) * kChunkKeys,
                start = wanted < last_key ? wanted : last_key - 1;
      const int left = last_key - start;  // weights of keys behind the last are zero
      values.issue(v + start * p.v.row, p.v.row, left < kChunkKeys ? left : kChunkKeys, slot(step));
    }
  }
  ROCM_SD_DEVICE void land(int step) {
    if (step < kKeySteps)
      keys.land(slot(step));
    else
      values.land(slot(step));
  }

  ROCM_SD_DEVICE void multiply_keys(int step, C (&s)[kQ][kK]) const {
    const T* tile = slot(step) + wave_key() * 16 * kLdK;
    const T* rows = lds + wave_query() * 16 * kLdQ + step * kChunkDim;
    ROCM_SD_UNROLL
    for (int d = 0; d < kChunkDim; d += 16) {
      A fragments[kK];
      ROCM_SD_UNROLL
      for (int j = 0; j < kK; ++j) fragments[j] = M::load(tile + j * 16 * kLdK + d, kLdK);
      ROCM_SD_UNROLL
      for (int a = 0; a < kQ; ++a) {
        const B query = M::load_b(rows + a * 16 * kLdQ + d, kLdQ);
        ROCM_SD_UNROLL
        for (int j = 0; j < kK; ++j) M::mma(s[a][j], fragments[j], query);
      }
      if (d / 16 % 2 == 1) Arch::fence_schedule();
    }
  }

  ROCM_SD_DEVICE void multiply_values(int step) {
    const T* tile = slot(step);
    const T* weights = lds + kWeights + (step - kKeySteps) * kChunkKeys;
    ROCM_SD_UNROLL
    for (int j = 0; j < kChunkKeys; j += 16) {
      B columns[kAllQ];
      ROCM_SD_UNROLL
      for (int a = 0; a < kAllQ; ++a) columns[a] = M::load_b(weights + a * 16 * kLdW + j, kLdW);
      ROCM_SD_UNROLL
      for (int d = 0; d < kD; ++d) {
        const int channel = (wave * kD + d) * 16;
        A fragment;
        if constexpr (Cfg::kTransposed)
          fragment = M::load(tile + channel * kLdV + j, kLdV);
        else
          fragment = M::load_transposed(tile + j * kLdV + channel, kLdV);
        ROCM_SD_UNROLL
        for (int a = 0; a < kAllQ; ++a) M::mma(o[d][a], fragment, columns[a]);
        if (d % 2 == 1) Arch::fence_schedule();
      }
    }
  }

  // Scores are finished; the wave's maxima go to LDS.
  ROCM_SD_DEVICE void publish_maxima(int first, C (&s)[kQ][kK]) const {
    ROCM_SD_UNROLL
    for (int a = 0; a < kQ; ++a) {
      ROCM_SD_UNROLL
      for (int j = 0; j < kK; ++j) {
        ROCM_SD_UNROLL
        for (int i = 0; i < Softmax::kElements; ++i) {
          float& x = s[a][j].x[i];
          x = flash_score(p, x, image, head, first_query + (wave_query() + a) * 16 + M::column(i),
                          first + (wave_key() + j) * 16 + M::row(i), last_key);
        }
      }
      float most[M::kColumns];
      Softmax::maximum(s[a], most);
      publish(a, most);
    }
  }
  // One value per column of the wave's queries, written by the lane with the column's first row.
  ROCM_SD_DEVICE void publish(int a, const float (&value)[M::kColumns]) const {
    float* row = maxima() + wave % kWavesK * kQueries + (wave_query() + a) * 16;
    ROCM_SD_UNROLL
    for (int c = 0; c < M::kColumns; ++c) {
      const int i = Softmax::element_of(c);
      if (M::row(i) == 0) row[M::column(i)] = value[c];
    }
  }
  // What the waves have published for atom a of all queries, folded.
  template <class Fold>
  ROCM_SD_DEVICE void gather(int a, float (&value)[M::kColumns], const Fold& fold) const {
    ROCM_SD_UNROLL
    for (int c = 0; c < M::kColumns; ++c) {
      const float* column = maxima() + a * 16 + M::column(Softmax::element_of(c));
      value[c] = column[0];
      ROCM_SD_UNROLL
      for (int w = 1; w < kWavesK; ++w) value[c] = fold(value[c], column[w * kQueries]);
    }
  }
  ROCM_SD_DEVICE void gather_maxima(int a, float (&most)[M::kColumns]) const {
    gather(a, most, [](float x, float y) { return Arch::max(x, y); });
  }
  // The state of atom a of all queries but for its total.
  ROCM_SD_DEVICE Softmax shared_state(int a) const {
    Softmax state;
    state.clear();
    ROCM_SD_UNROLL
    for (int c = 0; c < M::kColumns; ++c)
      state.base[c] = bases(turn)[a * 16 + M::column(Softmax::element_of(c))];
    return state;
  }

  // After a barrier: all waves find the same new bases; the wave's weights go to LDS.
  ROCM_SD_DEVICE void online_softmax(C (&s)[kQ][kK]) {
    bool grown = false;
    float most[M::kColumns], factor[M::kColumns];
    ROCM_SD_UNROLL
    for (int a = 0; a < kAllQ; ++a) {
      gather_maxima(a, most);
      grown |= shared_state(a).outgrown(most, 1.0f);
    }
    if (Arch::any(grown)) {  // alike in all waves
      ROCM_SD_UNROLL
      for (int a = 0; a < kAllQ; ++a) {
        Softmax state = shared_state(a);
        gather_maxima(a, most);
        state.rebase(most, 1.0f, factor);
        ROCM_SD_UNROLL
        for (int d = 0; d < kD; ++d) {
          ROCM_SD_UNROLL
          for (int i = 0; i < Softmax::kElements; ++i) o[d][a].x[i] *= factor[M::slot(i)];
        }
        ROCM_SD_UNROLL
        for (int c = 0; c < M::kColumns; ++c) {
          const int i = Softmax::element_of(c);
          if (wave == 0 && M::row(i) == 0) bases(1 - turn)[a * 16 + M::column(i)] = state.base[c];
        }
      }
      ROCM_SD_UNROLL
      for (int a = 0; a < kQ; ++a) {
        gather_maxima(wave_query() + a, most);
        softmax[a].rebase(most, 1.0f, factor);
      }
      turn = 1 - turn;
    }
    ROCM_SD_UNROLL
    for (int a = 0; a < kQ; ++a) {
      softmax[a].template exponentiate<true>(s[a], 1.0f);
      T* row = lds + kWeights + (wave_query() + a) * 16 * kLdW + wave_key() * 16;
      ROCM_SD_UNROLL
      for (int j = 0; j < kK; ++j) M::store_columns(row + j * 16, kLdW, s[a][j]);
    }
    Arch::barrier();
  }

  // One step of the tile at `first`, whose chunk lies in LDS.
  ROCM_SD_DEVICE void step(int step, int first, C (&s)[kQ][kK]) {
    if (step < kKeySteps) {
      multiply_keys(step, s);
      if (step == kKeySteps - 1) publish_maxima(first, s);
    } else {
      if (step == kKeySteps) online_softmax(s);
      multiply_values(step);
    }
  }

  ROCM_SD_DEVICE void run_tile(int first) {
    const bool last = first + kKeys >= last_key;
    C s[kQ][kK];
    ROCM_SD_UNROLL
    for (int a = 0; a < kQ; ++a) {
      ROCM_SD_UNROLL
      for (int j = 0; j < kK; ++j) s[a][j] = C{};
    }
    ROCM_SD_UNROLL
    for (int n = 0; n < kSteps; ++n) {
      if constexpr (Arch::kAsyncCopies) {
        Arch::template wait_copies<kStages - 2>();
        Arch::barrier();
        constexpr int kAhead = kStages - 1;
        if (n + kAhead < kSteps)
          issue(first, n + kAhead);
        else if (!last)
          issue(first + kKeys, n + kAhead - kSteps);
        Arch::commit_copies();
        step(n, first, s);
      } else {
        const int next = n + 1 < kSteps ? n + 1 : 0;
        issue(next > 0 || last ? first : first + kKeys, next);  // after the last tile in vain
        step(n, first, s);
        if constexpr (kStages == 1) Arch::barrier();
        land(next);
        Arch::barrier();
      }
    }
  }

  ROCM_SD_DEVICE void run_keys() {
    if (first_key >= last_key) {  // Q must not arrive over what is written there next
      if constexpr (Arch::kAsyncCopies) Arch::template wait_copies<0>();
      return;
    }
    if constexpr (Arch::kAsyncCopies) {
      ROCM_SD_UNROLL
      for (int n = 0; n < kStages - 1; ++n) {
        issue(first_key, n);
        Arch::commit_copies();
      }
    } else {
      issue(first_key, 0);
      land(0);
      Arch::barrier();
    }
    for (int first = first_key; first < last_key; first += kKeys) run_tile(first);
  }

  // The totals of the waves' rectangles, for gather.
  ROCM_SD_DEVICE void publish_totals() const {
    Arch::barrier();  // the last maxima have been read
    ROCM_SD_UNROLL
    for (int a = 0; a < kQ; ++a) {
      float mine[M::kColumns];
      ROCM_SD_UNROLL
      for (int c = 0; c < M::kColumns; ++c) mine[c] = M::column_sum(softmax[a].total[c]);
      publish(a, mine);
    }
    Arch::barrier();
  }
  ROCM_SD_DEVICE void gather_totals(int a, float (&total)[M::kColumns]) const {
    gather(a, total, [](float x, float y) { return x + y; });
  }

  ROCM_SD_DEVICE void write_output() {
    publish_totals();
    ROCM_SD_UNROLL
    for (int a = 0; a < kAllQ; ++a) {
      float share[M::kColumns];
      gather_totals(a, share);
      ROCM_SD_UNROLL
      for (int c = 0; c < M::kColumns; ++c) share[c] = share[c] == 0 ? 0.0f : Arch::reciprocal(share[c]);
      ROCM_SD_UNROLL
      for (int d = 0; d < kD; ++d) {
        ROCM_SD_UNROLL
        for (int i = 0; i < Softmax::kElements; ++i) o[d][a].x[i] *= share[M::slot(i)];
        M::store_columns(lds + a * 16 * kLdQ + (wave * kD + d) * 16, kLdQ, o[d][a]);  // over Q
      }
    }
    Arch::barrier();
    constexpr int kChunks = kDim / 8;
    T* y = p.y + ((static_cast<int64_t>(image) * p.queries + first_query) * p.heads + head) * kDim;
    for (int i = Arch::thread(); i < valid_queries() * kChunks; i += kThreads) {
      const int row = i / kChunks, chunk = i % kChunks;
      *reinterpret_cast<FlashChunk*>(y + static_cast<int64_t>(row) * p.heads * kDim + chunk * 8) =
          load_chunk<kLdQ>(lds + row * kLdQ + chunk * 8);
    }
  }

  ROCM_SD_DEVICE void write_partial() const {
    publish_totals();
    const int64_t rows = (static_cast<int64_t>(group.split) * p.batch_heads + group.head) * p.queries;
    ROCM_SD_UNROLL
    for (int a = 0; a < kAllQ; ++a) {
      const Softmax state = shared_state(a);
      float total[M::kColumns];
      gather_totals(a, total);
      ROCM_SD_UNROLL
      for (int d = 0; d < kD; ++d) {
        ROCM_SD_UNROLL
        for (int i = 0; i < Softmax::kElements; ++i) {
          const int query = first_query + a * 16 + M::column(i), channel = (wave * kD + d) * 16 + M::row(i);
          if (query >= p.queries) continue;
          p.partial_sums[(rows + query) * kDim + channel] = o[d][a].x[i];
          if (channel != 0) continue;
          p.partial_stats[(rows + query) * 2] = state.base[M::slot(i)];
          p.partial_stats[(rows + query) * 2 + 1] = total[M::slot(i)];
        }
      }
    }
  }

  ROCM_SD_DEVICE void run() {
    ROCM_SD_UNROLL
    for (int a = 0; a < kQ; ++a) softmax[a].clear();
    ROCM_SD_UNROLL
    for (int a = 0; a < kAllQ; ++a) {
      ROCM_SD_UNROLL
      for (int d = 0; d < kD; ++d) o[d][a] = C{};
    }
    for (int i = Arch::thread(); i < kQueries; i += kThreads) bases(0)[i] = Softmax::kHidden;
    load_queries();
    run_keys();
    if (p.splits > 1)
      write_partial();
    else
      write_output();
  }
};

}  // namespace rocm_sd
