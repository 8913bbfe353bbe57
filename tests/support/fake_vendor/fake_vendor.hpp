// Stand-ins for the vendors' libraries: the calls that src/vendor makes, each checked for its handles, types
// and sizes; products and convolutions are computed plainly on memory that the host can read. One shared
// library holds them all, so that one file can stand for any of them.
//
// Tests reach these functions with dlsym in the library that ROCM_SD_HIPBLASLT and so on name.
#pragma once

#include <cstddef>

extern "C" {

// Wrong uses of the interfaces so far, one a line; empty: none.
const char* fake_vendor_complaints();
// Handles and descriptors that are alive.
size_t fake_vendor_live();
size_t fake_vendor_calls(const char* function);
// From now on the function returns this status; 0 ends that.
void fake_vendor_fail(const char* function, int status);
// Bytes of workspace that every product and convolution asks for; it is overwritten.
void fake_vendor_workspace(size_t bytes);
// Work goes to this function with the stream in place of being done at once; null ends that.
void fake_vendor_queue(void (*queue)(void* stream, void (*work)(void*), void* argument));

}  // extern "C"
