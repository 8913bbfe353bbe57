#include "emulator/loops.hpp"

#include <algorithm>
#include <string_view>

namespace rocm_sd::emu {

namespace {

using Edges = std::vector<std::vector<uint32_t>>;

uint32_t index_of(const Program& program, const Inst* inst) {
  return static_cast<uint32_t>(inst - program.code.data());
}

// Whether execution may go on with the next instruction.
bool falls_through(const Inst& inst, std::string_view text) {
  return inst.cls != Class::kBranch || text.starts_with("s_cbranch") || text.starts_with("s_call");
}

Edges edges_of(const Program& program, const std::vector<BasicBlock>& blocks) {
  const auto starting_at = [&](uint32_t instruction) {
    const auto at = std::lower_bound(blocks.begin(), blocks.end(), instruction,
                                     [](const BasicBlock& b, uint32_t i) { return b.first < i; });
    return at != blocks.end() && at->first == instruction ? static_cast<int64_t>(at - blocks.begin()) : -1;
  };
  Edges out(blocks.size());
  for (size_t b = 0; b < blocks.size(); ++b) {
    const Inst& last = program.code[blocks[b].last];
    const auto add = [&](uint32_t instruction) {
      if (const int64_t to = starting_at(instruction); to >= 0) out[b].push_back(static_cast<uint32_t>(to));
    };
    if (last.target) add(index_of(program, last.target));
    if (falls_through(last, program.texts[last.text])) add(blocks[b].last + 1);
  }
  return out;
}

// dominators[b] holds a bit for each block without which b cannot be reached.
using Bits = std::vector<bool>;
std::vector<Bits> dominators_of(const Edges& next, uint32_t entry) {
  const size_t n = next.size();
  Edges before(n);
  for (uint32_t b = 0; b < n; ++b)
    for (const uint32_t to : next[b]) before[to].push_back(b);
  std::vector<Bits> out(n, Bits(n, true));
  out[entry].assign(n, false);
  out[entry][entry] = true;
  for (bool changed = true; changed;) {
    changed = false;
    for (uint32_t b = 0; b < n; ++b) {
      if (b == entry) continue;
      Bits common(n, true);
      for (const uint32_t p : before[b])
        for (size_t i = 0; i < n; ++i) common[i] = common[i] && out[p][i];
      common[b] = true;
      if (common != out[b]) out[b] = std::move(common), changed = true;
    }
  }
  return out;
}

}  // namespace

std::vector<BasicBlock> basic_blocks(const Program& program, const std::vector<uint64_t>& executed) {
  std::vector<bool> leads(program.code.size());
  for (const Inst& in : program.code)
    if (in.target) leads[index_of(program, in.target)] = true;
  std::vector<BasicBlock> out;
  for (uint32_t i = 0; i < program.code.size(); ++i) {
    if (executed[i] == 0) continue;
    // A jump through a register leads where counts change.
    const bool starts = out.empty() || out.back().last + 1 != i || leads[i] ||
                        executed[i] != executed[i - 1] || program.code[i - 1].cls == Class::kBranch;
    if (starts) out.push_back({.first = i, .last = i, .executions = executed[i]});
    out.back().last = i;
    const Inst& in = program.code[i];
    if (!(in.flags & kSecond)) ++out.back().once[static_cast<size_t>(in.cls)];
  }
  return out;
}

std::vector<NaturalLoop> natural_loops(const Program& program, const std::vector<BasicBlock>& blocks,
                                       uint32_t entry) {
  std::vector<NaturalLoop> out;
  uint32_t first = 0;
  while (first < blocks.size() && blocks[first].first != entry) ++first;
  if (first == blocks.size()) return out;
  const Edges next = edges_of(program, blocks);
  const std::vector<Bits> dominators = dominators_of(next, first);
  Edges before(blocks.size());
  for (uint32_t b = 0; b < blocks.size(); ++b)
    for (const uint32_t to : next[b]) before[to].push_back(b);
  for (uint32_t header = 0; header < blocks.size(); ++header) {
    std::vector<uint32_t> work;
    for (const uint32_t tail : before[header])
      if (dominators[tail][header]) work.push_back(tail);
    if (work.empty()) continue;
    std::vector<bool> inside(blocks.size());
    inside[header] = true;
    while (!work.empty()) {
      const uint32_t b = work.back();
      work.pop_back();
      if (inside[b]) continue;
      inside[b] = true;
      work.insert(work.end(), before[b].begin(), before[b].end());
    }
    NaturalLoop loop{header, {}};
    for (uint32_t b = 0; b < blocks.size(); ++b)
      if (inside[b]) loop.blocks.push_back(b);
    out.push_back(std::move(loop));
  }
  return out;
}

}  // namespace rocm_sd::emu
