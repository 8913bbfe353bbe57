#include "emulator/translate.hpp"

#include <cstring>
#include <map>
#include <optional>

#include "emulator/disassemble.hpp"
#include "emulator/lane_maps.hpp"
#include "emulator/lanes.hpp"
#include "emulator/names.hpp"
#include "emulator/operand_text.hpp"
#include "emulator/tables.hpp"
#include "emulator/wrappers.hpp"

namespace rocm_sd::emu {

namespace {

bool is_16_bits(Type type) {
  return type == Type::kF16 || type == Type::kB16 || type == Type::kHalfBits || type == Type::kBf16;
}

// gfx11, gfx12: an instruction of the long vector encoding (VOP3), which has bits that choose halves of
// 16-bit operands.
bool has_op_sel(uint32_t first_dword) { return first_dword >> 26 == 0x35; }

bool is_packed(Type type) {
  return type == Type::kPkF16 || type == Type::kPkB16 || type == Type::kPkF32 || type == Type::kPkBf16;
}

uint8_t sdwa_select(std::string_view word) {
  static constexpr std::string_view kNames[] = {"BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3",
                                                "WORD_0", "WORD_1", "DWORD"};
  for (uint8_t i = 0; i < 7; ++i)
    if (word == kNames[i]) return static_cast<uint8_t>(kByte0 + i);
  return kSdwaNone;
}

// hwreg(HW_REG_MODE, 4, 2) -> id | offset << 6 | (size - 1) << 11.
uint32_t hardware_register(std::string_view text) {
  const auto parts = list_of(text.substr(text.find('(') + 1));  // the name counts as 0
  static constexpr std::pair<std::string_view, HardwareRegister> kNames[] = {
      {"HW_REG_MODE", kModeRegister},
      {"HW_REG_WAVE_MODE", kModeRegister},
      {"HW_REG_SH_MEM_BASES", kApertureRegister},
      {"HW_REG_SHADER_CYCLES_HI", kCyclesHighRegister},
      {"HW_REG_SHADER_CYCLES", kCyclesRegister},  // and _LO
      {"HW_REG_HW_ID", kUnitRegister},            // and HW_ID1, HW_ID2
      {"HW_REG_WAVE_HW_ID", kUnitRegister},
      {"HW_REG_XCC_ID", kUnitRegister},
  };
  uint32_t id = kUnknownRegister;
  for (const auto& [name, number] : kNames)
    if (id == kUnknownRegister && text.find(name) != std::string_view::npos) id = number;
  const uint32_t offset = parts.size() > 1 ? static_cast<uint32_t>(parts[1]) : 0;
  const uint32_t size = parts.size() > 2 ? static_cast<uint32_t>(parts[2]) : 32;
  return id | (offset & 31) << 6 | ((size - 1) & 31) << 11;
}

class Translator {
 public:
  Translator(Program& program) : program_(program) {}

  // Appends the instruction(s) of a line; the last one carries no fields of the line but its operation.
  void line(const Line& line, uint64_t address, uint32_t first_dword) {
    first_dword_ = program_.target.gfx9 ? 0 : first_dword;
    const auto text = static_cast<uint32_t>(program_.texts.size());
    program_.texts.push_back(line.text);
    const size_t first = program_.code.size();
    const size_t pair = line.text.find(" :: ");
    const std::string_view all = line.text;
    if (pair == std::string::npos) {
      program_.code.push_back(one(all));
    } else {
      dual(one(all.substr(0, pair)), one(all.substr(pair + 4)));
    }
    for (size_t i = first; i < program_.code.size(); ++i) {
      Inst& inst = program_.code[i];
      inst.address = address;
      inst.bytes = line.bytes;
      inst.text = text;
      if (i > first) inst.flags |= kSecond;
    }
  }

 private:
  // One operation; what cannot be translated becomes an instruction that faults.
  Inst one(std::string_view text) {
    Inst unknown;
    unknown.run = run_unknown;
    if (text.empty()) return unknown;
    const Assembly parts = take_apart(text);
    std::string name = operation_name(parts.mnemonic);
    if (parts.has("lds") && name.starts_with("buffer_load_")) name.insert(12, "lds_");  // gfx9's spelling
    const Operation* op = find_operation(name);
    if (!op) return unknown;
    Inst inst;
    inst.run = op->run;
    inst.cls = op->cls;
    if (program_.target.gfx12) inst.flags |= kGfx12;
    if (program_.target.gfx9) inst.flags |= kGfx9;
    if (parts.has("clamp")) {
      const bool real = op->dst == Type::kF16 || op->dst == Type::kF32 || op->dst == Type::kF64 ||
                        op->dst == Type::kPkF16 || op->dst == Type::kPkF32 || op->cls == Class::kMatrix ||
                        name.starts_with("v_dot") || name.starts_with("v_pk_f");
      if (!real) {  // integers saturate: an operation of its own
        op = find_operation(name + "_clamp");
        if (!op) return unknown;
        inst.run = op->run;
      }
      inst.flags |= kClamp;
    }
    if (!operands(inst, *op, parts) || !modifiers(inst, *op, parts, name)) return unknown;
    constants(inst, *op);
    if (name == "s_set_gpr_idx_on") index_mode_ = true;
    if (name == "s_set_gpr_idx_off") index_mode_ = false;
    if (index_mode_ && (op->cls == Class::kValu || op->cls == Class::kTrans)) {
      if (inst.inner) return unknown;
      inst.inner = inst.run;
      inst.run = run_indexed;
    }
    return inst;
  }

  bool operands(Inst& inst, const Operation& op, const Assembly& parts) {
    std::vector<std::string_view> words = parts.operands;
    if (op.dsts == 0 && op.srcs == 0) return true;  // waits, nops
    if (words.size() == 2 && words[1].starts_with("gpr_idx(")) {
      static constexpr std::string_view kUses[] = {"SRC0", "SRC1", "SRC2", "DST"};
      for (uint32_t i = 0; i < 4; ++i)
        if (words[1].find(kUses[i]) != std::string_view::npos) inst.aux |= 1u << i;
      words.pop_back();
    }
    if (op.run && words.size() == 3 && op.srcs == 3 && op.src[2] == Type::kMask && op.dsts == 1)
      words.push_back("vcc");  // v_dual_cndmask_b32 does not name it
    size_t i = 0;
    const auto destination = [&](Operand& to, Type type) {
      if (i >= words.size()) return false;
      const auto o = parse_operand(words[i++], type);
      if (!o) return false;
      to = *o;
      if (to.kind == Kind::kConst || to.kind == Kind::kNone) {  // null
        to = Operand{};
        to.kind = Kind::kSgpr;
        to.reg = kSink;
      }
      if (to.half) inst.dst_half = 1;
      return to.kind == Kind::kVgpr || to.kind == Kind::kSgpr;
    };
    // Atomics that return, and gfx9's v_cmpx, have one operand more than their plain forms.
    const bool returns = op.dsts == 0 && op.dst != Type::kNone && words.size() == op.srcs + 1u;
    if (op.dsts >= 1 || returns)
      if (!destination(inst.dst, op.dst)) return false;
    if (returns) inst.flags |= kReturns;
    if (op.dsts == 2 && !destination(inst.sdst, Type::kMask)) return false;
    for (int s = 0; s < op.srcs && i < words.size(); ++s) {
      if (words[i].starts_with("hwreg(")) inst.aux = hardware_register(words[i++]);
      const auto o = i < words.size() ? parse_operand(words[i++], op.src[s]) : Operand{};
      if (!o) return false;
      inst.src[s] = *o;
      if (is_packed(op.src[s])) inst.src[s].neg_hi = o->neg;  // "-v1" of a pair negates both
      inst.operands = static_cast<uint8_t>(s + 1);
    }
    if (op.srcs == 0 && i < words.size() && words[i].starts_with("hwreg("))
      inst.aux = hardware_register(words[i++]);
    if (op.srcs == 0 && i < words.size() && words[i].starts_with("sendmsg("))
      if (words[i++].find("GET_REALTIME") != std::string_view::npos) inst.aux = kMessageClock;
    if (op.reads_dst) {
      inst.src[op.srcs] = inst.dst;
      inst.src[op.srcs].type = op.src[op.srcs];
    }
    const bool memory = op.cls == Class::kVmem || op.cls == Class::kSmem || op.cls == Class::kLds;
    return i == words.size() && (memory || inst.operands == op.srcs);
  }

  bool modifiers(Inst& inst, const Operation& op, const Assembly& parts, const std::string& name) {
    const int total = op.srcs + (op.reads_dst ? 1 : 0);
    for (int s = 0; s < total; ++s)
      if (is_packed(op.src[s])) inst.src[s].half = 2;
    const auto each = [&](std::string_view key, auto apply) {
      const auto list = list_of(parts.value(key));
      for (size_t k = 0; k < list.size(); ++k) apply(k, list[k]);
    };
    each("op_sel", [&](size_t k, int on) {
      if (on) inst.aux |= 1u << k;
      if (k >= op.srcs && op.cls != Class::kMatrix)
        inst.dst_half = on ? 1 : inst.dst_half;
      else if (k < 4 && on)
        inst.src[k].half |= 1;
    });
    each("op_sel_hi", [&](size_t k, int on) {
      if (k < 4) inst.src[k].half = static_cast<uint8_t>((inst.src[k].half & 1) | (on ? 2 : 0));
    });
    each("neg_lo", [&](size_t k, int on) {
      if (k < 4 && on) inst.src[k].neg = inst.src[k].modified = true;
    });
    each("neg_hi", [&](size_t k, int on) {
      if (k < 4 && on) inst.src[k].neg_hi = inst.src[k].modified = true;
    });
    choose_halves(inst, op);
    if (name.starts_with("v_cmpx")) inst.flags |= kWritesExec;
    if (name.find("_fma_mix") != std::string::npos)
      for (int s = 0; s < 3; ++s)
        if (inst.src[s].half & 2) inst.src[s].type = Type::kF16;
    inst.omod = parts.has("mul:2") ? 1 : parts.has("mul:4") ? 2 : parts.has("div:2") ? 3 : 0;
    if (const auto b = parse_integer(parts.value("byte_sel"))) inst.aux = static_cast<uint32_t>(*b);
    if (const auto b = parse_integer(parts.value("blgp"))) inst.aux = static_cast<uint32_t>(*b);
    const auto neg = list_of(parts.value("neg"));  // gfx942's spelling of blgp of doubles
    for (size_t k = 0; k < neg.size(); ++k) inst.aux |= static_cast<uint32_t>(neg[k] != 0) << k;
    if (op.cls == Class::kMatrix) {  // what the handlers of matrix instructions read
      inst.offset = static_cast<int32_t>(parse_integer(parts.value("cbsz")).value_or(0));
      for (const auto key : {"abid", "index_key"})
        if (const auto v = parse_integer(parts.value(key))) inst.offset1 = static_cast<int32_t>(*v);
    }
    if (program_.target.gfx9 && op.srcs <= 2 && (op.dst == Type::kF16 || op.dst == Type::kB16))
      inst.flags |= kZeroHigh;

    if (op.cls == Class::kLds && !name.starts_with("ds_load"))
      inst.flags |= name.starts_with("ds_store_") && name.find("xchg") == std::string::npos
                        ? kStores
                        : kStores | kAtomic;
    if (name.find("_store") != std::string::npos) inst.flags |= kStores;
    const bool to_lds = name.find("_load_lds_") != std::string::npos;
    if (to_lds) inst.flags |= kToLds;
    if (name.find("_atomic") != std::string::npos) inst.flags |= kStores | kAtomic;

    const std::string_view offset = parts.value("offset");
    if (offset.starts_with("swizzle")) {
      const auto control = swizzle_control(offset);
      if (!control) return false;
      inst.offset = *control;
    } else if (!offset.empty()) {
      const auto value = parse_integer(offset);
      if (!value) return false;
      inst.offset = static_cast<int32_t>(*value);
    }
    if (const auto v = parse_integer(parts.value("offset0"))) inst.offset = static_cast<int32_t>(*v);
    if (const auto v = parse_integer(parts.value("offset1"))) inst.offset1 = static_cast<int32_t>(*v);
    if (parts.has("gds") || (parts.has("lds") && !to_lds) || parts.has("tfe")) return false;
    if (parts.has("offen")) inst.flags |= kOffen;
    if (parts.has("idxen")) inst.flags |= kIdxen;
    if (name.starts_with("buffer_atomic") &&
        (parts.has("glc") || parts.has("sc0") || parts.value("th").find("RETURN") != std::string_view::npos))
      inst.flags |= kReturns;
    if (name == "s_round_mode" || name == "s_denorm_mode") {
      const auto mode = parts.operands.empty() ? std::nullopt : parse_integer(parts.operands[0]);
      if (!mode) return false;
      inst.aux = static_cast<uint32_t>(*mode);
    }
    if (op.cls == Class::kBranch && op.src[0] == Type::kB32)
      inst.offset = static_cast<int16_t>(inst.src[0].bits);
    return sdwa(inst, op, parts) && dpp(inst, parts);
  }

  // The halves that 16-bit operands take in the long encoding of gfx11 and gfx12: LLVM 19 writes them for
  // some operations only.
  void choose_halves(Inst& inst, const Operation& op) {
    if (!has_op_sel(first_dword_) || op.dsts == 2) return;
    const int total = op.srcs + (op.reads_dst ? 1 : 0);
    const bool to_high = first_dword_ >> 14 & 1;
    for (int s = 0; s < total && s < 3; ++s)
      if (is_16_bits(op.src[s]) && inst.src[s].kind != Kind::kNone)
        inst.src[s].half = s < op.srcs ? first_dword_ >> (11 + s) & 1 : to_high;
    if (is_16_bits(op.dst)) inst.dst_half = to_high;
  }

  bool sdwa(Inst& inst, const Operation& op, const Assembly& parts) {
    if (!parts.mnemonic.ends_with("_sdwa")) return true;
    static constexpr std::string_view kSources[] = {"src0_sel", "src1_sel"};
    for (int s = 0; s < 2 && s < op.srcs; ++s)
      if (const uint8_t select = sdwa_select(parts.value(kSources[s])); select && select != kDword) {
        inst.src[s].sdwa = static_cast<uint8_t>((inst.src[s].sdwa & kSignExtend) | select);
        inst.src[s].modified = true;
        if (op.src[s] == Type::kB64 || op.src[s] == Type::kF64 || inst.src[s].kind == Kind::kPermuted)
          return false;
      } else if (inst.src[s].sdwa == kSignExtend) {
        return false;
      }
    inst.sdwa_dst = sdwa_select(parts.value("dst_sel"));
    if (inst.sdwa_dst == kSdwaNone || inst.sdwa_dst == kDword) return true;
    const auto unused = parts.value("dst_unused");
    inst.sdwa_unused = unused == "UNUSED_PRESERVE" ? 2 : unused == "UNUSED_SEXT" ? 1 : 0;
    inst.inner = inst.run;
    inst.run = run_sdwa;
    return true;
  }

  bool dpp(Inst& inst, const Assembly& parts) {
    LaneMap map;
    const bool permuted = lane_map(parts, map);
    // Comparisons have no suffix that says so.
    if (!permuted && !parts.mnemonic.ends_with("_dpp")) return true;
    if (!permuted || inst.src[0].kind != Kind::kVgpr || inst.inner) return false;
    program_.lane_maps.push_back(map);
    inst.lanes = &program_.lane_maps.back();
    inst.src[0].kind = Kind::kPermuted;
    inst.inner = inst.run;
    inst.run = run_dpp;
    return true;
  }

  // Constants become rows that handlers read like registers.
  void constants(Inst& inst, const Operation& op) {
    for (int s = 0; s < 4; ++s) {
      Operand& o = inst.src[s];
      if (o.kind != Kind::kConst) continue;
      uint64_t bits = o.bits;
      if (o.type == Type::kPkF32) bits |= bits << 32;
      // A float constant of a mixed operand that is f16 was read as f32.
      if (o.type == Type::kF16 && op.src[s] == Type::kF32 && bits > 0xffff)
        bits = ROCM_SD_ISA::float_to_half(ROCM_SD_ISA::cast<float>(static_cast<uint32_t>(bits)));
      if (o.type == Type::kB32 || o.type == Type::kWide)  // scalars of either width read it
        bits = static_cast<uint64_t>(static_cast<int64_t>(static_cast<int32_t>(bits)));
      auto [found, fresh] = rows_.try_emplace(bits, nullptr);
      if (fresh) {
        auto& row = program_.constants.emplace_back();
        for (uint32_t l = 0; l < kRow; ++l) {
          row.lane[l] = static_cast<uint32_t>(bits);
          row.lane[kRow + l] = static_cast<uint32_t>(bits >> 32);
        }
        found->second = row.lane.data();
      }
      o.row = found->second;
    }
  }

  static bool reads(const Inst& inst, const Operand& dst) {
    for (const Operand& o : inst.src)
      if (o.kind == Kind::kVgpr && dst.kind == Kind::kVgpr && o.reg <= dst.reg && dst.reg < o.reg + o.dwords)
        return true;
    return false;
  }

  // Both halves of a dual instruction read before either writes.
  void dual(Inst x, Inst y) {
    if (!reads(y, x.dst)) {
      program_.code.push_back(x);
      program_.code.push_back(y);
    } else if (!reads(x, y.dst)) {
      program_.code.push_back(y);
      program_.code.push_back(x);
    } else {  // each reads what the other writes: save one source first
      Inst save = one("v_mov_b32 v0, v0");
      save.src[0].reg = x.dst.reg;
      save.dst.reg = kSpareRow;
      for (Operand& o : y.src)
        if (o.kind == Kind::kVgpr && o.reg == x.dst.reg) o.reg = kSpareRow;
      program_.code.push_back(save);
      program_.code.push_back(x);
      program_.code.push_back(y);
    }
  }

  Program& program_;
  uint32_t first_dword_ = 0;  // of the line's encoding; gfx9: 0
  bool index_mode_ = false;   // between s_set_gpr_idx_on and _off, which stand in one basic block
  std::map<uint64_t, const uint32_t*> rows_;
};

}  // namespace

bool is_implemented(std::string_view name) { return find_operation(name) != nullptr; }

Program translate(std::span<const std::byte> image, uint64_t base,
                  std::span<const std::pair<uint64_t, uint64_t>> sections, const Target& target) {
  Program program;
  program.target = target;
  Translator translator(program);
  for (const auto& [begin, end] : sections) {
    Program::Section section{base + begin, base + end, std::vector<int32_t>((end - begin) / 4, -1)};
    for (const Line& line : disassemble(image.subspan(begin, end - begin), target.name)) {
      section.index[line.offset / 4] = static_cast<int32_t>(program.code.size());
      uint32_t first = 0;
      std::memcpy(&first, image.data() + begin + line.offset, sizeof(first));
      translator.line(line, section.begin + line.offset, first);
    }
    // Running off the end of a section faults.
    translator.line({end - begin, 4, {}}, section.end, 0);
    program.sections.push_back(std::move(section));
  }
  for (Inst& inst : program.code)
    if (inst.cls == Class::kBranch && inst.src[0].type == Type::kB32) {
      inst.target =
          program.at(inst.address + 4 + static_cast<uint64_t>(static_cast<int64_t>(inst.offset) * 4));
      if (!inst.target) inst.run = run_unknown;
    }
  return program;
}

const Inst* Program::at(uint64_t address) const {
  for (const Section& s : sections)
    if (address >= s.begin && address < s.end && address % 4 == 0) {
      const int32_t index = s.index[(address - s.begin) / 4];
      return index < 0 ? nullptr : &code[static_cast<size_t>(index)];
    }
  return nullptr;
}

}  // namespace rocm_sd::emu
