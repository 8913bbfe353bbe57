"""Runs one job of test_emu_differential.py on tinygrad's emulator of AMD machine code (its test/mockgpu).

    python tinygrad_mockgpu.py TINYGRAD_FOLDER JOB.json

TINYGRAD_FOLDER is a checkout of tinygrad, which compiles with the `clang` of the PATH (or $CC). A job with a "trace" is run
in step with that trace (register_trace.py): at its addresses, each instruction of its first wave from the registers that the
trace says.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import struct
import sys
from pathlib import Path
from types import SimpleNamespace

import register_trace

EXIT_ADDRESS_TAKEN = 75  # the trace's addresses are not free in this process: another run may have others
# What tinygrad is known to do otherwise than the ISA documents, by mnemonic; docs/emulator.md has what was found.
DEVIATIONS: dict[str, str] = {}


def map_at(ranges: list[tuple[int, int]]) -> None:
    """Memory of zeros at these addresses and sizes; exits where another mapping is in the way."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
    pages: list[list[int]] = []
    for address, size in sorted(ranges):
        first, last = address & ~4095, (address + max(size, 1) + 4095) & ~4095
        if pages and first <= pages[-1][1]:
            pages[-1][1] = max(pages[-1][1], last)
        else:
            pages.append([first, last])
    for first, last in pages:
        got = libc.mmap(first, last - first, 3, 0x100022, -1, 0)  # read and write; private, anonymous, fixed, no replacing
        if got != first:
            print(f"{first:#x} to {last:#x} are taken", file=sys.stderr)
            sys.exit(EXIT_ADDRESS_TAKEN)


def load_image(path: str, at: int = 0) -> tuple[ctypes.Array | None, int]:
    """The ELF file's segments as they are loaded, at `at` or at an address that is a multiple of 4096."""
    data = Path(path).read_bytes()
    phoff, = struct.unpack_from("<Q", data, 32)
    phentsize, phnum = struct.unpack_from("<HH", data, 54)
    segments = [struct.unpack_from("<IIQQQQQQ", data, phoff + i * phentsize) for i in range(phnum)]
    loaded = [s for s in segments if s[0] == 1]
    size = max(s[3] + s[6] for s in loaded)
    memory = None if at else ctypes.create_string_buffer(size + 8192)
    if at:
        map_at([(at, size + 64)])
    base = at or (ctypes.addressof(memory) + 4095) & ~4095
    for _, _, offset, address, _, file_size, _, _ in loaded:
        ctypes.memmove(base + address, data[offset:offset + file_size], file_size)
    return memory, base


def user_scalars(job: dict, kernarg_address: int, kernarg: bytes) -> list[int]:
    """The scalar registers that the descriptor asks for, in their order; what this does not model is 0."""
    properties, preload = job["descriptor"]["properties"], job["descriptor"]["kernarg_preload"]
    out: list[int] = []
    for bit, count in ((0, 4), (1, 2), (2, 2), (3, 2), (4, 2), (5, 2), (6, 1)):
        if properties >> bit & 1:
            out += [kernarg_address & 0xffffffff, kernarg_address >> 32] if bit == 3 else [0] * count
    first = preload >> 7
    for i in range(preload & 127):
        out.append(struct.unpack_from("<I", kernarg, (first + i) * 4)[0])
    return out


def kernarg_of(start: register_trace.Registers, properties: int) -> int:
    """Where a traced wave's arguments are: the pair of scalar registers that the descriptor asks for."""
    at = sum(count for bit, count in ((0, 4), (1, 2), (2, 2)) if properties >> bit & 1)
    return start[f"s{at}"][0] | start[f"s{at + 1}"][0] << 32


class Follower:
    """Called with a wave's registers before each instruction: keeps them in step with a trace, notes what differs."""

    def __init__(self, trace: register_trace.Trace, lanes: int, cdna: bool, base: int, scc: int) -> None:
        self.trace, self.lanes, self.base, self.step = trace, lanes, base, -1
        self.names = {step.offset: step.text.split()[0] for step in trace.steps}
        self.file = ["".join(f"deviates {name}: {why}\n" for name, why in DEVIATIONS.items())]
        self.scalars = {"vcc_lo": 106, "vcc_hi": 107, "m0": 124 if cdna else 125, "exec_lo": 126, "exec_hi": 127, "scc": scc}
        self.scalars |= {f"s{i}": i for i in range(106)} | {f"ttmp{i}": 108 + i for i in range(16)}

    def read(self, name: str, wave) -> tuple[int, ...]:
        if name in self.scalars:
            return (wave._sgpr_mv[self.scalars[name]],)
        view = wave._vgpr_mv if name[0] == "v" else wave.accumulators()
        first = int(name[1:]) * self.lanes
        return tuple(view[first:first + self.lanes])

    def write(self, registers: register_trace.Registers, wave) -> None:
        for name, values in registers.items():
            if name in self.scalars:
                wave._sgpr_mv[self.scalars[name]] = values[0]
                continue
            view = wave._vgpr_mv if name[0] == "v" else wave.accumulators()
            for lane, value in enumerate(values):
                view[int(name[1:]) * self.lanes + lane] = value

    def at(self, pc: int, wave) -> int:
        """pc: where the wave would go on; returns where the trace does."""
        if self.step < 0:
            set_up = {name: self.read(name, wave) for name in self.trace.start}
            self.file += ["start\n", register_trace.format_registers({n: v for n, v in set_up.items() if any(v)})]
            self.state = dict(self.trace.start)
        elif self.step < len(self.trace.steps):
            done = self.trace.steps[self.step]
            changed = {name: now for name, was in self.state.items() if (now := self.read(name, wave)) != was}
            self.state.update(done.changed)
            self.file.append(f"{done.offset:8x}:  {done.text}\n" + register_trace.format_registers(changed))
            after = self.trace.steps[self.step + 1].offset if self.step + 1 < len(self.trace.steps) else None
            if after is not None and pc - self.base != after:
                self.file.append(f"    pc = {(pc - self.base) & (1 << 64) - 1:x}\n")
        self.step += 1
        self.write(self.state, wave)
        return pc if self.step >= len(self.trace.steps) else self.base + self.trace.steps[self.step].offset


def follow(emu, follower: Follower) -> None:
    """The first wave that tinygrad makes is followed: wave 0 of group 0."""
    plain = emu.WaveState
    waves: list = []

    class Followed(plain):
        def __init__(self, *arguments) -> None:
            super().__init__(*arguments)
            waves.append(self)
            self.ready = False

        def accumulators(self):
            return self.accvgpr_buf.as_memoryview(force_zero_copy=True).cast("I")

        @property
        def pc(self) -> int:
            pc = plain.pc.fget(self)
            if waves[0] is not self or (follower.step > 0 and follower.step >= len(follower.trace.steps)):
                return pc
            pc = follower.at(pc, self)
            plain.pc.fset(self, pc)
            return pc

        @pc.setter
        def pc(self, value: int) -> None:
            plain.pc.fset(self, value)

    emu.WaveState = Followed
    decode_at = emu._decode_at

    def decode_or_leave_out(pc: int, arch: str):
        """What tinygrad cannot run does nothing there: the trace has its registers."""
        try:
            return decode_at(pc, arch)
        except RuntimeError as error:
            name = follower.names[pc - follower.base]
            follower.file.append(f"deviates {name}: it cannot run it: {' '.join(str(error).split())[-120:]}\n")
            nothing = SimpleNamespace(fxn=lambda *_: None, arg=SimpleNamespace(globals=[]))
            return (nothing, nothing), emu.decode_inst(bytes((ctypes.c_char * 16).from_address(pc).raw), arch)

    emu._decode_at = decode_or_leave_out


def main() -> None:
    folder, job_path = sys.argv[1:3]
    sys.path.insert(0, folder)
    os.environ.setdefault("CC", "clang")
    from test.mockgpu.amd import emu  # noqa: PLC0415

    # It sets the host's flags so that f32 denormals become zeros, whatever a kernel's descriptor says; ours keep them.
    emu._MXCSRContext = contextlib.nullcontext
    job = json.loads(Path(job_path).read_text())
    arch = {"gfx11": "rdna3", "gfx12": "rdna4"}.get(job["target"][:5], "cdna")
    lanes = 64 if arch == "cdna" else 32
    contents = [Path(path).read_bytes() for path in job["buffers"]]
    kernarg = bytearray(bytes.fromhex(job["kernarg"]))
    trace = None
    if "trace" in job:
        trace = register_trace.parse(Path(job["trace"]["ours"]).read_text(), lanes)
        addresses = [address for address, _ in trace.memory]
        address = kernarg_of(trace.start, job["descriptor"]["properties"])
        map_at([*trace.memory, (address, len(kernarg) + 256)])
        memory, base = load_image(job["object"], trace.image)
    else:
        memory, base = load_image(job["object"])
        buffers = [ctypes.create_string_buffer(len(data) + 64) for data in contents]
        addresses = [ctypes.addressof(buffer) for buffer in buffers]
        arguments = ctypes.create_string_buffer(len(kernarg) + 256)
        address = ctypes.addressof(arguments)
    for at, data in zip(addresses, contents):
        ctypes.memmove(at, data, len(data))
    for pointer in job["pointers"]:
        struct.pack_into("<Q", kernarg, pointer["offset"], addresses[pointer["buffer"]])
    ctypes.memmove(address, bytes(kernarg), len(kernarg))
    if trace:
        follower = Follower(trace, lanes, arch == "cdna", base, emu.SCC.offset)
        follow(emu, follower)
    rsrc2 = job["descriptor"]["rsrc2"] & ~(0x1ff << 15) | (job["lds_bytes"] + 511) // 512 << 15
    emu.run_asm(base + job["entry"], Path(job["object"]).stat().st_size, *job["grid"], *job["block"], address, rsrc2,
                job["scratch_bytes"], arch, user_scalars(job, address, bytes(kernarg)))
    for path, at, data in zip(job["buffers"], addresses, contents):
        Path(path).write_bytes(ctypes.string_at(at, len(data)))
    if trace:
        Path(job["trace"]["theirs"]).write_text("".join(follower.file))
    del memory  # only now: the machine code was in it


if __name__ == "__main__":
    main()
