// Registers of a wave as text: all of them, or what each instruction changed.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "emulator/gpu.hpp"

namespace rocm_sd::emu {

// pc, exec, vcc, scc, m0, and the scalar and vector registers that the kernel has.
std::string all_registers(const Wave& wave, const CodeObject& code, const Kernel& kernel);

// Follows one wave of one group. before() and after() are Options::before and Options::trace. What it gives
// the sink: once "start of wave N of group (X, Y, Z)", then for each instruction its offset and text. Behind
// either, four blanks and "REGISTER = HEX", with a dword for each lane (or "HEX in every lane") of a vector
// register: all of them at the start, those that it changed behind an instruction.
class WaveTracer {
 public:
  // `sink` gets lines of text. References must outlive the tracer.
  WaveTracer(const CodeObject& code, const Kernel& kernel, std::array<uint32_t, 3> group, uint32_t wave,
             std::function<void(const std::string&)> sink);

  bool follows(const Wave& wave) const;
  void before(const Wave& wave);
  // The instruction and each register that it changed.
  void after(const Wave& wave, const Inst& inst, std::string_view text);
  bool seen() const { return seen_; }  // whether the wave has run

 private:
  const CodeObject& code_;
  const Kernel& kernel_;
  std::array<uint32_t, 3> group_;
  uint32_t wave_;
  std::function<void(const std::string&)> sink_;
  std::vector<uint32_t> scalars_, rows_;  // as they were
  std::string source_;
  bool seen_ = false;
};

}  // namespace rocm_sd::emu
