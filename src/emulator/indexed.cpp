// Registers chosen at run time: v_movrel, s_movrel and gfx9's index mode; and v_trig_preop_f64, a table.
#include <iterator>

#include "emulator/operations.hpp"
#include "emulator/program.hpp"
#include "emulator/scalar_core.hpp"
#include "emulator/wrappers.hpp"

namespace rocm_sd::emu {
namespace {

using ROCM_SD_ISA::exec_of;
using ROCM_SD_ISA::raw_row;
using ROCM_SD_ISA::scalar;
using ROCM_SD_ISA::store_row;

constexpr uint32_t kVgprs = 256, kSgprs = 106;

uint32_t indexed(const Wave& w, const Inst& in, uint32_t reg, uint32_t by, uint32_t limit) {
  const uint64_t to = uint64_t{reg} + by;
  if (to >= limit) fault(w, in, concat("indexes register ", to, " of ", limit));
  return static_cast<uint32_t>(to);
}
void movrels(Wave& w, const Inst& in) {
  Operand from = in.src[0];
  from.reg = static_cast<uint16_t>(indexed(w, in, from.reg, w.sgpr[kM0], kVgprs));
  alignas(64) uint32_t buffer[kRow];
  for (uint32_t h = 0; h < w.halves; ++h)
    if (exec_of(w, h)) store_row(w, in.dst.reg, h, raw_row(w, from, h, 0, buffer));
}
void movreld(Wave& w, const Inst& in) {
  const uint32_t to = indexed(w, in, in.dst.reg, w.sgpr[kM0], kVgprs);
  alignas(64) uint32_t buffer[kRow];
  for (uint32_t h = 0; h < w.halves; ++h)
    if (exec_of(w, h)) store_row(w, to, h, raw_row(w, in.src[0], h, 0, buffer));
}
template <uint32_t kDwords>
void scalar_movrels(Wave& w, const Inst& in) {
  const uint32_t from = indexed(w, in, in.src[0].reg + kDwords - 1, w.sgpr[kM0], kSgprs) - (kDwords - 1);
  for (uint32_t d = 0; d < kDwords; ++d) w.sgpr[in.dst.reg + d] = w.sgpr[from + d];
}
template <uint32_t kDwords>
void scalar_movreld(Wave& w, const Inst& in) {
  const uint32_t to = indexed(w, in, in.dst.reg + kDwords - 1, w.sgpr[kM0], kSgprs) - (kDwords - 1);
  for (uint32_t d = 0; d < kDwords; ++d) w.sgpr[to + d] = scalar(w, in.src[0], d);
}

// m0: the index in bits 0..7, in bits 12..15 which operands it is added to. The translator wraps what
// follows.
void index_on(Wave& w, const Inst& in) { w.sgpr[kM0] = (scalar(w, in.src[0]) & 0xff) | in.aux << 12; }
void index_set(Wave& w, const Inst& in) {
  w.sgpr[kM0] = (w.sgpr[kM0] & ~0xffu) | (scalar(w, in.src[0]) & 0xff);
}
void index_off(Wave&, const Inst&) {}

// 2 / pi: the first 1216 bits after the point.
constexpr uint32_t kTwoOverPi[38] = {
    0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0, 0xdb629599, 0x3c439041, 0xfe5163ab, 0xdebbc561,
    0xb7246e3a, 0x424dd2e0, 0x06492eea, 0x09d1921c, 0xfe1deb1c, 0xb129a73e, 0xe88235f5, 0x2ebb4484,
    0xe99c7026, 0xb45f7e41, 0x3991d639, 0x835339f4, 0x9c845f8b, 0xbdf9283b, 0x1ff897ff, 0xde05980f,
    0xef2f118b, 0x5a0a6d1f, 0x6d367ecf, 0x27cb09b7, 0x4f463f66, 0x9e5fea2d, 0x7527bac7, 0xebe5f17b,
    0x3d0739f7, 0x8a5292ea, 0x6bfb5fb1, 0x1f8d5d08, 0x56033046, 0xfc7b6bab};

// Part s1 (53 bits each) of 2 / pi for the reduction of s0 as the double's exponent asks.
double trig_preop(double s0, uint32_t s1) {
  const auto exponent = static_cast<int>(__builtin_bit_cast(uint64_t, s0) >> 52 & 0x7ff);
  int shift = static_cast<int>(s1 & 31) * 53;
  if (exponent > 1077) shift += exponent - 1077;
  uint64_t bits = 0;
  for (int i = shift; i < shift + 53; ++i) {
    const bool on = i < 1201 && (kTwoOverPi[i / 32] >> (31 - i % 32) & 1);
    bits = bits << 1 | (on ? 1 : 0);
  }
  const int scale = -53 - shift + (exponent >= 1968 ? 128 : 0);
  return __builtin_ldexp(static_cast<double>(bits), scale);
}
void trig_preop_f64(Wave& w, const Inst& in) {
  using ROCM_SD_ISA::B32;
  using ROCM_SD_ISA::F64;
  for (uint32_t h = 0; h < w.halves; ++h) {
    if (!exec_of(w, h)) continue;
    ROCM_SD_ISA::Buffer<F64> ba, r;
    ROCM_SD_ISA::Buffer<B32> bb;
    const double* a = ROCM_SD_ISA::fetch<F64>(w, in.src[0], h, ba.lane);
    const uint32_t* b = ROCM_SD_ISA::fetch<B32>(w, in.src[1], h, bb.lane);
    for (uint32_t l = 0; l < kRow; ++l) r.lane[l] = trig_preop(a[l], b[l]);
    ROCM_SD_ISA::store_result<F64>(w, in, h, r.lane);
  }
}

constexpr Type kB = Type::kB32;
constexpr Operation kTable[] = {
    {"v_movrels_b32", &movrels, Class::kValu, 1, 1, false, kB, {kB}},
    {"v_movreld_b32", &movreld, Class::kValu, 1, 1, false, kB, {kB}},
    {"s_movrels_b32", &scalar_movrels<1>, Class::kSalu, 1, 1, false, kB, {kB}},
    {"s_movrels_b64", &scalar_movrels<2>, Class::kSalu, 1, 1, false, Type::kB64, {Type::kB64}},
    {"s_movreld_b32", &scalar_movreld<1>, Class::kSalu, 1, 1, false, kB, {kB}},
    {"s_movreld_b64", &scalar_movreld<2>, Class::kSalu, 1, 1, false, Type::kB64, {Type::kB64}},
    {"s_set_gpr_idx_on", &index_on, Class::kSalu, 0, 1, false, Type::kNone, {kB}},
    {"s_set_gpr_idx_idx", &index_set, Class::kSalu, 0, 1, false, Type::kNone, {kB}},
    {"s_set_gpr_idx_off", &index_off, Class::kSalu, 0, 0, false, Type::kNone, {}},
    {"v_trig_preop_f64", &trig_preop_f64, Class::kTrans, 1, 2, false, Type::kF64, {Type::kF64, kB}},
};

}  // namespace

Operations indexed_operations() { return {kTable, std::size(kTable)}; }

void run_indexed(Wave& w, const Inst& in) {
  Inst moved = in;
  moved.run = in.inner;
  const uint32_t by = w.sgpr[kM0] & 0xff, which = w.sgpr[kM0] >> 12;
  for (int s = 0; s < 3; ++s)
    if ((which >> s & 1) && moved.src[s].kind == Kind::kVgpr)
      moved.src[s].reg = static_cast<uint16_t>(indexed(w, in, moved.src[s].reg, by, kVgprs));
  if ((which & 8) && moved.dst.kind == Kind::kVgpr)
    moved.dst.reg = static_cast<uint16_t>(indexed(w, in, moved.dst.reg, by, kVgprs));
  moved.run(w, moved);
}

}  // namespace rocm_sd::emu
