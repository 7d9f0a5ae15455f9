#pragma once

#include "replica/device/device.h"

/// Every file of this folder except registry.cc defines the chip it is named after.
namespace poprun::chips {

#define POPRUN_FAMILY(chip) Device chip();
#include "replica/device/chips/families.inc"
#undef POPRUN_FAMILY

}  // namespace poprun::chips
