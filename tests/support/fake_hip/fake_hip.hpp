// A stand-in for libamdhip64: the calls that hip.cpp makes, each checked for its handles, sizes, order and
// thread. Work is queued and done only when something waits for it, so that a copy whose source was changed
// too early, or a result that was read too early, shows. The kernels of src/kernels/probe run as host
// functions; a launch of any other kernel is checked and does nothing.
//
// Tests reach these functions with dlsym in the library that ROCM_SD_HIP_LIBRARY names.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

// Wrong uses of the API so far, one a line; empty: none.
const char* fake_hip_complaints();
// What is alive: blocks, pinned blocks and pages, streams, events, modules, graphs, graph executables
// together.
size_t fake_hip_live();
// How often a function was called.
size_t fake_hip_calls(const char* function);
// From now on the function returns this status; 0 ends that.
void fake_hip_fail(const char* function, int status);
// The card: its architecture as the driver spells it ("gfx942:sramecc+:xnack-") and its memory.
void fake_hip_card(const char* arch, uint64_t memory_bytes);
// Streams that are made after the first do their work as soon as they may, not as late as they may.
void fake_hip_eager(bool eager);
// Puts somebody else's work on a stream (of a library that works beside the kernels), to be captured if the
// stream is.
void fake_hip_enqueue(void* stream, void (*work)(void*), void* argument);

}  // extern "C"
