#include "emulator/analysis.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "emulator/names.hpp"

namespace rocm_sd::emu {

namespace {

std::string_view mnemonic_of(std::string_view text) { return text.substr(0, text.find_first_of(" \t")); }

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

bool is_wide_multiply(std::string_view name) {
  return has(name, "mul_lo_u32") || has(name, "mul_hi_u32") || has(name, "mul_hi_i32") ||
         has(name, "mad_u64_u32") || has(name, "mad_i64_i32") || has(name, "mad_co_u64") ||
         has(name, "mad_co_i64");
}

struct MatrixShape {
  double m = 0, n = 0, k = 0;
};
// "v_wmma_f32_16x16x16_f16" -> 16, 16, 16.
MatrixShape matrix_shape(std::string_view name) {
  for (size_t at = name.find('_'); at != std::string_view::npos; at = name.find('_', at + 1)) {
    int values[3];
    const char *p = name.data() + at + 1, *end = name.data() + name.size();
    int found = 0;
    for (; found < 3; ++found) {
      const auto r = std::from_chars(p, end, values[found]);
      if (r.ec != std::errc{} || (found < 2 && (r.ptr == end || *r.ptr != 'x'))) break;
      p = r.ptr + 1;
    }
    if (found == 3)
      return {static_cast<double>(values[0]), static_cast<double>(values[1]), static_cast<double>(values[2])};
  }
  throw InternalError(concat("a matrix instruction without a shape: ", name));
}

uint32_t lanes_of(const Target& target, const Kernel& kernel) {
  return target.gfx9 || !(kernel.properties & (1 << 10)) ? 64 : 32;
}

}  // namespace

Occupancy occupancy_of(const Target& target, const Kernel& kernel, const CardRates& rates, uint32_t lds,
                       uint64_t waves_of_group) {
  Occupancy out;
  const uint32_t lanes = lanes_of(target, kernel);
  const uint32_t encoded = target.gfx9 || lanes == 32 ? 8 : 4;
  const uint32_t used = ((kernel.rsrc1 & 63) + 1) * encoded;
  auto granule = static_cast<uint32_t>(rates.granule), file = static_cast<uint32_t>(rates.registers);
  if (!target.gfx9 && lanes == 64) granule /= 2, file /= 2;
  const auto most = static_cast<uint32_t>(rates.most_waves);
  out.registers = (used + granule - 1) / granule * granule;
  out.lds_bytes = lds;
  out.by_registers = std::min(most, file / out.registers);
  out.by_lds = most;
  if (lds > 0) {
    const uint64_t groups = static_cast<uint64_t>(rates.lds_kib) * 1024 / lds;
    out.by_lds = static_cast<uint32_t>(
        std::clamp<uint64_t>(groups * waves_of_group / static_cast<uint64_t>(rates.lds_simds), 1, most));
  }
  out.waves = std::min(out.by_registers, out.by_lds);
  return out;
}

void UnitCycles::operator+=(const UnitCycles& o) {
  matrix += o.matrix;
  vector += o.vector;
  transcendental += o.transcendental;
  scalar += o.scalar;
  lds += o.lds;
  memory += o.memory;
}

namespace {
struct Busy {
  std::string_view name;
  double cycles;  // of a compute unit
};
std::array<Busy, 6> busy(const UnitCycles& u, const CardRates& r) {
  const double simds = r.simds;
  // Where matrix instructions use the vector unit, the two add up.
  const double vector = (r.own_matrix ? u.vector : u.vector + u.matrix) / simds;
  return {Busy{"matrix", u.matrix / simds},
          Busy{"vector", vector},
          Busy{"transcendental", u.transcendental / simds},
          Busy{"scalar", u.scalar / simds},
          Busy{"lds", u.lds},
          Busy{"memory", u.memory}};
}
}  // namespace

double UnitCycles::bound(const CardRates& rates) const {
  double most = 0;
  for (const Busy& b : busy(*this, rates)) most = std::max(most, b.cycles);
  return most;
}
std::string_view UnitCycles::limit(const CardRates& rates) const {
  Busy most{"nothing", 0};
  for (const Busy& b : busy(*this, rates))
    if (b.cycles > most.cycles) most = b;
  return most.name;
}
double UnitCycles::matrix_share(const CardRates& rates) const {
  const double most = bound(rates);
  return most > 0 ? matrix / rates.simds / most : 0;
}

double matrix_cycles(const Inst& inst, std::string_view text, const CardRates& r) {
  const std::string name = operation_name(mnemonic_of(text));
  const MatrixShape s = matrix_shape(name);
  const std::string_view types = std::string_view(name).substr(name.find('x'));
  double rate = r.matrix_16, blocks = 1;
  const bool mfma = has(name, "mfma"), f64 = has(types, "f64");
  const bool xf32 = has(types, "xf32"), f32 = has(types, "f32") && !xf32;
  if (mfma && !f64) blocks = std::max(1.0, inst.dst.dwords * 64.0 / (s.m * s.n));
  if (mfma && f64) blocks = s.m == 4 ? 4 : 1;
  if (has(types, "iu4"))
    rate = r.matrix_4;
  else if (has(types, "fp8") || has(types, "bf8") || has(types, "i8") || has(types, "iu8"))
    rate = r.matrix_8;
  else if (f64)
    rate = r.matrix_f64;
  else if (f32)
    rate = r.matrix_f32;
  // Several small blocks at once, and gfx90a's older bf16, run at the rate of the generation before.
  const bool old_bf16 = has(types, "bf16") && !has(types, "_1k") && r.matrix_16 == 1024 && mfma;
  if (mfma && !f32 && !f64 && (blocks > 1 || old_bf16)) rate = std::min(rate, old_bf16 ? 512.0 : 1024.0);
  if (xf32) rate = r.matrix_16 / 2;
  // A sparse product counts the elements that were left out, and is as fast as a dense one of half its depth.
  if (has(name, "smfmac") || has(name, "swmmac")) rate *= 2;
  require<InternalError>(rate > 0, "no rate of ", name, " on ", r.target);
  const double cycles = 2 * s.m * s.n * s.k * blocks / (rate / r.simds);
  return mfma ? std::max(cycles, 8.0) : cycles;  // two passes of four cycles at least
}

UnitCycles issue_cycles(const Inst& inst, std::string_view text, const CardRates& r, uint32_t lanes) {
  UnitCycles out;
  if (inst.flags & kSecond) return out;  // issued with the first half
  const std::string_view name = mnemonic_of(text);
  const double vector = r.vector * (r.most_waves == 16 && lanes == 64 ? 2.0 : 1.0);
  switch (inst.cls) {
    case Class::kMatrix: out.matrix = matrix_cycles(inst, text, r); break;
    case Class::kTrans:
      if (r.own_transcendental) {
        out.vector = vector;
        out.transcendental = vector * r.transcendental;
      } else {
        out.vector = r.transcendental;
      }
      break;
    case Class::kValu:
      if (is_wide_multiply(name))
        out.vector = vector * r.wide_multiply / r.vector;
      else if (has(name, "_f64"))
        out.vector = vector * r.vector_f64 / r.vector;
      else
        out.vector = vector;
      break;
    case Class::kSalu:
    case Class::kSmem:
    case Class::kBranch: out.scalar = r.scalar; break;
    case Class::kLds:  // shuffles move a dword a lane; accesses are counted where they happen
      if (has(name, "permute") || has(name, "swizzle")) out.lds = lanes * 4.0 / r.lds_bytes;
      break;
    default: break;
  }
  return out;
}

namespace {

struct Costs {
  std::vector<UnitCycles> all;  // of all executions, by instruction
  UnitCycles sum(uint32_t first, uint32_t last) const {
    UnitCycles out;
    for (uint32_t i = first; i <= last; ++i) out += all[i];
    return out;
  }
};

Costs costs_of(const Program& program, const Counters& counters, const CardRates& rates, uint32_t lanes) {
  Costs out;
  out.all.resize(program.code.size());
  for (size_t i = 0; i < program.code.size(); ++i) {
    const auto n = static_cast<double>(counters.executed[i]);
    if (n == 0) continue;
    UnitCycles c = issue_cycles(program.code[i], program.texts[program.code[i].text], rates, lanes);
    for (double* v : {&c.matrix, &c.vector, &c.transcendental, &c.scalar, &c.lds, &c.memory}) *v *= n;
    c.lds += static_cast<double>(counters.memory[i].lds_cycles) * 128.0 / rates.lds_bytes;
    c.memory += static_cast<double>(counters.memory[i].lines64) * 64.0 / rates.cache_bytes;
    out.all[i] = c;
  }
  return out;
}

// The loop of these blocks.
Loop loop_of(const std::vector<BasicBlock>& all, std::vector<uint32_t> blocks, uint32_t header,
             uint64_t turns, const Costs& costs) {
  Loop out{.blocks = std::move(blocks), .header = header, .turns = turns};
  for (const uint32_t b : out.blocks) {
    out.cycles += costs.sum(all[b].first, all[b].last);
    for (size_t c = 0; c < kClasses; ++c) out.executed[c] += all[b].once[c] * all[b].executions;
  }
  return out;
}

Loop hottest_of(const std::vector<Loop>& loops, const Loop& whole, const CardRates& rates) {
  const auto bound = [&](const Loop& l) { return l.cycles.bound(rates); };
  const auto most = std::max_element(loops.begin(), loops.end(),
                                     [&](const Loop& a, const Loop& b) { return bound(a) < bound(b); });
  if (most == loops.end()) return whole;
  Loop best = *most;
  for (bool deeper = true; deeper;) {
    deeper = false;
    for (const Loop& l : loops) {
      const bool inside =
          l.blocks.size() < best.blocks.size() &&
          std::includes(best.blocks.begin(), best.blocks.end(), l.blocks.begin(), l.blocks.end());
      if (!inside || 2 * bound(l) < bound(best)) continue;
      best = l;
      deeper = true;
      break;
    }
  }
  return best;
}

}  // namespace

Analysis analyse(const CodeObject& code, std::string_view name, const Launch& launch,
                 const Counters& counters) {
  const Program& program = code.program();
  require<UsageError>(
      counters.executed.size() == program.code.size() && counters.memory.size() == program.code.size(),
      "kernel ", printable(name), ": its launch was not counted");
  const Kernel& kernel = code.kernel(name);
  Analysis out;
  out.target = code.target();
  out.kernel = name;
  out.rates = find_rates(code.target());
  require<InternalError>(out.rates != nullptr, "no rates of ", code.target());
  const CardRates& rates = *out.rates;
  out.lanes = lanes_of(program.target, kernel);
  const Dim3 &g = launch.grid, &b = launch.block;
  out.groups = uint64_t{g.x} * g.y * g.z;
  out.waves_of_group = (uint64_t{b.x} * b.y * b.z + out.lanes - 1) / out.lanes;
  out.blocks = basic_blocks(program, counters.executed);
  const Costs costs = costs_of(program, counters, rates, out.lanes);
  out.cycles = costs.sum(0, static_cast<uint32_t>(program.code.size()) - 1);
  const auto entry = static_cast<uint32_t>(program.at(code.base() + kernel.entry) - program.code.data());
  std::vector<Loop> loops;
  for (NaturalLoop& l : natural_loops(program, out.blocks, entry)) {
    const BasicBlock& header = out.blocks[l.header];
    loops.push_back(loop_of(out.blocks, std::move(l.blocks), header.first, header.executions, costs));
  }
  std::vector<uint32_t> all(out.blocks.size());
  std::iota(all.begin(), all.end(), 0u);
  out.hottest = hottest_of(loops, loop_of(out.blocks, all, entry, counters.waves, costs), rates);
  out.occupancy =
      occupancy_of(program.target, kernel, rates, kernel.lds_bytes + launch.dynamic_lds, out.waves_of_group);
  const auto groups = static_cast<double>(out.groups);
  out.group_cycles = out.cycles.bound(rates) / groups;
  // A group has one compute unit, or both of a work-group processor in that mode (bit 29 of rsrc1).
  const double share = !program.target.gfx9 && kernel.rsrc1 >> 29 & 1 ? 2 : 1;
  out.card_unit_cycles = std::ceil(groups / (rates.card->compute_units / share)) * out.group_cycles / share;
  const double bytes = 64.0 * static_cast<double>(counters.distinct.read + counters.distinct.written);
  out.card_memory_cycles = bytes / (rates.card->bandwidth / rates.card->gigahertz);
  return out;
}

}  // namespace rocm_sd::emu
