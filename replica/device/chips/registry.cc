#include "replica/device/chips/registry.h"

#include <algorithm>

#include <fmt/format.h>

#include "replica/base/text.h"

namespace poprun {
namespace {

std::vector<Device> all_devices() {
  return {
#define POPRUN_FAMILY(chip) chips::chip(),
#include "replica/device/chips/families.inc"
#undef POPRUN_FAMILY
  };
}

}  // namespace

std::vector<std::string> device_names() {
  std::vector<std::string> names;
  for (const Device& device : all_devices()) {
    names.push_back(device.name);
  }
  std::ranges::sort(names);
  return names;
}

Result<Device> find_device(std::string_view name) {
  std::vector<Device> devices = all_devices();
  for (Device& device : devices) {
    if (device.name == name) {
      return std::move(device);
    }
  }
  return fail(ErrorCode::kUsage,
              fmt::format("device.ipu: no IPU is called '{}'; {}", name, suggestion(name, device_names())));
}

}  // namespace poprun
