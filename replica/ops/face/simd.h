#pragma once

#include "replica/base/simd.h"  // IWYU pragma: export
