// Loads and stores of global, flat, scratch and buffer instructions.
#include <iterator>
#include <utility>

#include "emulator/memory_core.hpp"
#include "emulator/operations.hpp"

namespace rocm_sd::emu {
namespace {

using ROCM_SD_ISA::exec_of;
using ROCM_SD_ISA::vgpr;

template <class Width>
void global_load(Wave& w, const Inst& in) {
  Pointers p;
  global_pointers(w, in, in.src[0], in.src[1], Width::bytes, p);
  Width::load(w, in.dst.reg, p);
}
template <class Width>
void global_store(Wave& w, const Inst& in) {
  Pointers p;
  global_pointers(w, in, in.src[0], in.src[2], Width::bytes, p);
  Width::store(w, in.src[1], p);
}
template <class Width>
void flat_load(Wave& w, const Inst& in) {
  Pointers p;
  flat_pointers(w, in, in.src[0], Width::bytes, p);
  Width::load(w, in.dst.reg, p);
}
template <class Width>
void flat_store(Wave& w, const Inst& in) {
  Pointers p;
  flat_pointers(w, in, in.src[0], Width::bytes, p);
  Width::store(w, in.src[1], p);
}
template <class Width>
void scratch_load(Wave& w, const Inst& in) {
  Pointers p;
  scratch_pointers(w, in, in.src[0], in.src[1], Width::bytes, p);
  Width::load(w, in.dst.reg, p);
}
template <class Width>
void scratch_store(Wave& w, const Inst& in) {
  Pointers p;
  scratch_pointers(w, in, in.src[0], in.src[2], Width::bytes, p);
  Width::store(w, in.src[1], p);
}
// Lanes that reach beyond a buffer's end: each of their dwords is checked on its own.
class Pieces {
 public:
  Pieces(Wave& w, const Inst& in, const Operand& vaddr, const Operand& resource, const Operand& soffset,
         const uint32_t outside[2], uint32_t dwords)
      : dwords_(dwords) {
    uint32_t exec[2] = {};
    for (uint32_t h = 0; h < w.halves; ++h) exec[h] = std::exchange(w.sgpr[kExec + h], outside[h]);
    uint32_t beyond[2];
    for (uint32_t d = 0; d < dwords; ++d)
      buffer_pointers(w, in, vaddr, resource, soffset, 4, at_[d], beyond, 4 * d);
    for (uint32_t h = 0; h < w.halves; ++h) w.sgpr[kExec + h] = exec[h];
  }
  void load(Wave& w, uint32_t reg) const {
    for (uint32_t d = 0; d < dwords_; ++d) load_dwords<1>(w, reg + d, at_[d]);
  }
  void store(Wave& w, Operand data) const {
    for (uint32_t d = 0; d < dwords_; ++d, ++data.reg) store_dwords<1>(w, data, at_[d]);
  }

 private:
  Pointers at_[4];
  uint32_t dwords_;
};
template <class Width>
void buffer_load(Wave& w, const Inst& in) {
  Pointers p;
  uint32_t outside[2] = {};
  buffer_pointers(w, in, in.src[0], in.src[1], in.src[2], Width::bytes, p, outside);
  if (!(outside[0] | outside[1])) return Width::load(w, in.dst.reg, p);
  // All addresses before any data: the destination may hold them.
  const Pieces pieces(w, in, in.src[0], in.src[1], in.src[2], outside,
                      Width::bytes > 4 ? Width::bytes / 4 : 0);
  Width::load(w, in.dst.reg, p);
  alignas(16) static uint8_t zeros[16] = {};
  for (uint32_t h = 0; h < w.halves; ++h) {
    p.active[h] = outside[h];
    for (uint32_t l = 0; l < kRow; ++l) p.at[h * kRow + l] = zeros;
  }
  Width::load(w, in.dst.reg, p);
  pieces.load(w, in.dst.reg);
}
template <class Width>
void buffer_store(Wave& w, const Inst& in) {
  Pointers p;
  uint32_t outside[2] = {};
  buffer_pointers(w, in, in.src[1], in.src[2], in.src[3], Width::bytes, p, outside);
  Width::store(w, in.src[0], p);
  if (Width::bytes > 4 && outside[0] | outside[1])
    Pieces(w, in, in.src[1], in.src[2], in.src[3], outside, Width::bytes / 4).store(w, in.src[0]);
}
// Sixteen bytes a lane as eight numbers of 16 bits, transposed among each eight lanes: element j of lane l
// comes from element l % 8 of lane l / 8 * 8 + j. As public measurements on a gfx1201 card found; the ISA
// document names no lanes.
void global_load_transposed(Wave& w, const Inst& in) {
  if (w.lanes != 32) fault(w, in, "not implemented: in waves of 64 lanes");
  if (exec_of(w, 0) != 0xffffffff) fault(w, in, "needs all lanes of the wave");
  Pointers p;
  global_pointers(w, in, in.src[0], in.src[1], 16, p);
  uint16_t from[kRow][8], to[kRow][8];
  for (uint32_t l = 0; l < kRow; ++l) std::memcpy(from[l], p.at[l], 16);
  for (uint32_t l = 0; l < kRow; ++l)
    for (uint32_t j = 0; j < 8; ++j) to[l][j] = from[l / 8 * 8 + j][l % 8];
  for (uint32_t d = 0; d < 4; ++d)
    for (uint32_t l = 0; l < kRow; ++l) std::memcpy(vgpr(w, in.dst.reg + d, 0) + l, to[l] + 2 * d, 4);
}
// To LDS, extended to a dword; what is out of a buffer's range reads as 0.
template <class T>
void move_to_lds(Wave& w, const Inst& in, const Pointers& from, const uint32_t outside[2]) {
  Pointers to;
  uint32_t active[2] = {};
  for (uint32_t h = 0; h < w.halves; ++h) active[h] = from.active[h] | outside[h];
  lane_slots(w, in, active, to);
  for (uint32_t h = 0; h < w.halves; ++h)
    for_active(active[h], [&](uint32_t l) {
      T value = 0;
      if (from.active[h] >> l & 1) std::memcpy(&value, from.at[h * kRow + l], sizeof(T));
      const auto wide = static_cast<uint32_t>(static_cast<int32_t>(value));
      std::memcpy(to.at[h * kRow + l], &wide, 4);
    });
}
template <class T>
void global_load_lds(Wave& w, const Inst& in) {
  Pointers p;
  global_pointers(w, in, in.src[0], in.src[1], sizeof(T), p);
  constexpr uint32_t kNone[2] = {};
  move_to_lds<T>(w, in, p, kNone);
}
template <class T>
void scratch_load_lds(Wave& w, const Inst& in) {
  Pointers p;
  scratch_pointers(w, in, in.src[0], in.src[1], sizeof(T), p);
  constexpr uint32_t kNone[2] = {};
  move_to_lds<T>(w, in, p, kNone);
}
template <class T>
void buffer_load_lds(Wave& w, const Inst& in) {
  Pointers p;
  uint32_t outside[2];
  buffer_pointers(w, in, in.src[0], in.src[1], in.src[2], sizeof(T), p, outside);
  move_to_lds<T>(w, in, p, outside);
}
// Cache maintenance: every access here is coherent already.
void nothing(Wave&, const Inst&) {}

constexpr Type kA = Type::kWide;
constexpr Operation load_entry(const char* name, Handler run, uint8_t sources) {
  return {name, run, Class::kVmem, 1, sources, false, kA, {kA, kA, Type::kB32}};
}
constexpr Operation store_entry(const char* name, Handler run, uint8_t sources) {
  return {name, run, Class::kVmem, 0, sources, false, Type::kNone, {kA, kA, kA, Type::kB32}};
}
#define GLOBAL_LOAD(name, W) load_entry(name, &global_load<W>, 2)
#define GLOBAL_STORE(name, W) store_entry(name, &global_store<W>, 3)
#define FLAT_LOAD(name, W) load_entry(name, &flat_load<W>, 1)
#define FLAT_STORE(name, W) store_entry(name, &flat_store<W>, 2)
#define SCRATCH_LOAD(name, W) load_entry(name, &scratch_load<W>, 2)
#define SCRATCH_STORE(name, W) store_entry(name, &scratch_store<W>, 3)
#define BUFFER_LOAD(name, W) load_entry(name, &buffer_load<W>, 3)
#define BUFFER_STORE(name, W) store_entry(name, &buffer_store<W>, 4)
#define LOADS_TO_LDS(prefix, run, sources)                                                \
  {                                                                                       \
      prefix "load_lds_b32", &run<uint32_t>,      Class::kVmem, 0, sources, false,        \
      Type::kNone,           {kA, kA, Type::kB32}},                                       \
      {prefix "load_lds_u8", &run<uint8_t>,       Class::kVmem, 0, sources, false,        \
       Type::kNone,          {kA, kA, Type::kB32}},                                       \
      {prefix "load_lds_i8", &run<int8_t>,        Class::kVmem, 0, sources, false,        \
       Type::kNone,          {kA, kA, Type::kB32}},                                       \
      {prefix "load_lds_u16", &run<uint16_t>,      Class::kVmem, 0, sources, false,       \
       Type::kNone,           {kA, kA, Type::kB32}},                                      \
  {                                                                                       \
    prefix "load_lds_i16", &run<int16_t>, Class::kVmem, 0, sources, false, Type::kNone, { \
      kA, kA, Type::kB32                                                                  \
    }                                                                                     \
  }
constexpr Operation quiet(const char* name) {
  return {name, &nothing, Class::kOther, 0, 0, false, Type::kNone, {}};
}

constexpr Operation kTable[] = {
    ROCM_SD_LOADS(GLOBAL_LOAD, "global_"),
    ROCM_SD_STORES(GLOBAL_STORE, "global_"),
    ROCM_SD_LOADS(FLAT_LOAD, "flat_"),
    ROCM_SD_STORES(FLAT_STORE, "flat_"),
    ROCM_SD_LOADS(SCRATCH_LOAD, "scratch_"),
    ROCM_SD_STORES(SCRATCH_STORE, "scratch_"),
    ROCM_SD_LOADS(BUFFER_LOAD, "buffer_"),
    ROCM_SD_STORES(BUFFER_STORE, "buffer_"),
    load_entry("global_load_tr_b128", &global_load_transposed, 2),
    LOADS_TO_LDS("global_", global_load_lds, 2),
    LOADS_TO_LDS("scratch_", scratch_load_lds, 2),
    LOADS_TO_LDS("buffer_", buffer_load_lds, 3),
    quiet("buffer_gl0_inv"),
    quiet("buffer_gl1_inv"),
    quiet("buffer_wbl2"),
    quiet("buffer_invl2"),
    quiet("buffer_inv"),
    quiet("buffer_wbinvl1"),
    quiet("buffer_wbinvl1_vol"),
    quiet("global_inv"),
    quiet("global_wb"),
    quiet("global_wbinv"),
};

}  // namespace

Operations vector_memory_operations() { return {kTable, std::size(kTable)}; }

}  // namespace rocm_sd::emu
