// A stand-in for libnvidia-ml.so.1: one GPU at 0000:1b:00.0, whose core clock falls by 15 MHz with each
// reading.
#include <cstring>

namespace {
int gpu = 0;
unsigned clock_mhz = 1980;
}  // namespace

extern "C" {
int nvmlInit_v2() { return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char* pci, void** device) {
  *device = &gpu;
  return std::strcmp(pci, "0000:1b:00.0") == 0 ? 0 : 6;  // NVML_ERROR_NOT_FOUND
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
