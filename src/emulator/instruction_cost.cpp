#include "emulator/instruction_cost.hpp"

#include <algorithm>

#include "emulator/analysis.hpp"
#include "emulator/names.hpp"

namespace rocm_sd::emu {

namespace {

Engine engine_of(const Inst& in, std::string_view name, const Uses& uses) {
  if (name == "s_barrier") return Engine::kBarrier;
  if (name.starts_with("s_barrier_signal")) return Engine::kSignal;
  if (name == "s_barrier_wait") return Engine::kJoin;
  switch (uses.unit) {
    case Unit::kScalarMemory: return Engine::kScalarLoad;
    case Unit::kLds: return Engine::kLds;
    case Unit::kLoad:
    case Unit::kStore:
    case Unit::kFlat: return Engine::kMemory;
    default: break;
  }
  switch (in.cls) {
    case Class::kValu: return Engine::kVector;
    case Class::kTrans: return Engine::kTrans;
    case Class::kMatrix: return Engine::kMatrix;
    case Class::kSalu: return Engine::kScalar;
    case Class::kBranch: return Engine::kBranch;
    case Class::kLds: return Engine::kLds;
    default: return Engine::kInside;
  }
}

}  // namespace

std::vector<InstructionCost> instruction_costs(const Program& program, const Machine& m,
                                               const CardRates& rates, uint32_t lanes) {
  std::vector<InstructionCost> out(program.code.size());
  for (size_t i = 0; i < out.size(); ++i) {
    const Inst& in = program.code[i];
    const std::string& text = program.texts[in.text];
    if (text.empty()) continue;
    InstructionCost& c = out[i];
    c.uses = uses_of(in, text, program.target);
    c.second = in.flags & kSecond;
    c.engine = engine_of(in, operation_name(text.substr(0, text.find_first_of(" \t"))), c.uses);
    c.stores = c.uses.unit == Unit::kStore ||
               (c.engine == Engine::kMemory && in.flags & kStores && !(in.flags & kReturns));
    c.pause = m.issue * std::max<double>(1, c.uses.states);
    const UnitCycles cycles = issue_cycles(in, text, rates, lanes);
    const double usual = rates.vector * (rates.most_waves == 16 && lanes == 64 ? 2.0 : 1.0);
    switch (c.engine) {
      case Engine::kVector:
        c.busy = std::max(cycles.vector, c.second ? 0.0 : 1.0);
        c.latency = m.vector_latency + std::max(0.0, cycles.vector - rates.vector);
        break;
      case Engine::kTrans:
        c.busy = rates.own_transcendental ? cycles.transcendental : cycles.vector;
        c.vector = cycles.vector;
        c.latency = m.trans_latency + std::max(0.0, usual - rates.vector);
        break;
      case Engine::kMatrix:
        c.busy = cycles.matrix;
        c.vector = rates.own_matrix ? rates.vector : cycles.matrix;
        c.latency = cycles.matrix + m.matrix_latency;
        c.chain = cycles.matrix;
        if (in.src[2].kind == Kind::kVgpr) c.addend = {in.src[2].reg, in.src[2].dwords};
        break;
      case Engine::kScalar:
      case Engine::kBranch:
        c.busy = rates.scalar;
        c.latency = m.scalar_latency;
        break;
      case Engine::kLds: c.busy = cycles.lds; break;
      default: break;
    }
  }
  return out;
}

}  // namespace rocm_sd::emu
