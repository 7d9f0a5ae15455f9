#pragma once

#include <cstdint>
#include <string>
#include <vector>

/// Everything besides the Program that the bits of a result depend on: the libraries that compute it, and what they
/// make of the processor. Our own kernels are compiled for several instruction sets, too, but give the same bits with
/// each (simd.h).
namespace poprun {

struct Numerics {
  /// Instruction sets that oneDNN may be held to on this processor, the least first, in lower case as its variable
  /// ONEDNN_MAX_CPU_ISA has them. The last one is the one in effect.
  std::vector<std::string> cpu_isas;
  std::string onednn_version;  ///< "2.6.3".
  /// Digest of a few thousand values of exp, log, pow and sin: glibc has variants of these with and without fused
  /// multiply-add, whose last bits differ, as do those of its versions.
  std::uint64_t libm_digest = 0;
};

/// This process's. Cost: below a millisecond.
Numerics numerics_here();

}  // namespace poprun
