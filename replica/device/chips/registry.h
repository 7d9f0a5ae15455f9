#pragma once

#include "replica/device/device.h"

/// Every source file of this folder except registry.cc defines the chip after which it is named.
namespace poprun::chips {

#define POPRUN_FAMILY(chip) Device chip();
#include "replica/device/chips/families.inc"
#undef POPRUN_FAMILY

}  // namespace poprun::chips
