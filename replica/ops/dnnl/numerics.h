#pragma once

#include <cstdint>
#include <string>
#include <vector>

/// What the bits of a result depend on besides the Program: the libraries that compute it, and their instruction sets.
/// Our own kernels are compiled for several instruction sets, too, but are bit-identical on all (simd.h).
namespace poprun {

struct Numerics {
  /// Instruction sets that oneDNN can be limited to on this processor, smallest first, as values of the environment
  /// variable ONEDNN_MAX_CPU_ISA in lower case. The last one is in effect.
  std::vector<std::string> cpu_isas;
  std::string onednn_version;  ///< "2.6.3".
  /// Digest of a few thousand values of exp, log, pow and sin, whose last bits differ between glibc's variants with and
  /// without fused multiply-add, and between its versions.
  std::uint64_t libm_digest = 0;
};

/// Returns the numerics of this process. Cost: less than a millisecond.
Numerics numerics_here();

}  // namespace poprun
