// A stand-in for libnvidia-ml.so.1: a GPU at 0000:1b:00.0, whose core clock falls by 15 MHz with each
// reading; one at 0000:1c:00.0, with three links between both; and one at 0000:5d:00.0 that has no peer
// access.
#include <cstring>

namespace {
int gpu = 0, linked_gpu = 0, lonely_gpu = 0;
unsigned clock_mhz = 1980;
}  // namespace

extern "C" {
int nvmlInit_v2() { return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char* pci, void** device) {
  *device = std::strcmp(pci, "0000:1b:00.0") == 0   ? &gpu
            : std::strcmp(pci, "0000:1c:00.0") == 0 ? &linked_gpu
            : std::strcmp(pci, "0000:5d:00.0") == 0 ? &lonely_gpu
                                                    : nullptr;
  return *device ? 0 : 6;  // NVML_ERROR_NOT_FOUND
}
int nvmlDeviceGetP2PStatus(void* one, void* other, int, int* status) {
  *status = one == &lonely_gpu || other == &lonely_gpu ? 1 : 0;  // NVML_P2P_STATUS_CHIPSET_NOT_SUPPORTED
  return 0;
}
int nvmlDeviceGetNvLinkState(void*, unsigned link, int* active) {
  *active = link < 3 ? 1 : 0;
  return link < 4 ? 0 : 2;
}
int nvmlSystemGetDriverVersion(char* text, unsigned length) {
  std::strncpy(text, "580.159.04", length);
  return 0;
}
int nvmlDeviceGetClockInfo(void*, int kind, unsigned* mhz) {
  *mhz = kind == 2 ? 3201 : clock_mhz;
  if (kind == 1) clock_mhz -= 15;
  return kind == 1 || kind == 2 ? 0 : 2;
}
int nvmlDeviceGetMaxClockInfo(void*, int kind, unsigned* mhz) {
  *mhz = 1980;
  return kind == 1 ? 0 : 2;
}
int nvmlDeviceGetPowerUsage(void*, unsigned* milliwatts) {
  *milliwatts = 650500;
  return 0;
}
int nvmlDeviceGetTemperature(void*, int, unsigned* celsius) {
  *celsius = 61;
  return 0;
}
int nvmlDeviceGetTotalEnergyConsumption(void*, unsigned long long* millijoules) {
  *millijoules = 7000;
  return 0;
}
}
