#pragma once

#include <cstdint>
#include <string>
#include <vector>

/// Describes what determines a result's bits in addition to the Program: the libraries that compute the result, and
/// their instruction sets. Our own kernels give the same bits on all instruction sets for which they are compiled
/// (simd.h).
namespace poprun {

struct Numerics {
  /// Instruction sets to which oneDNN can be limited on this processor, smallest first. The last one is in effect.
  /// Names are those of the environment variable ONEDNN_MAX_CPU_ISA in lower case.
  std::vector<std::string> cpu_isas;
  std::string onednn_version;  ///< For example, "2.6.3".
  /// Digest of a few thousand values of exp, log, pow and sin. Their last bits differ between versions of glibc, and
  /// between glibc's variants with and without fused multiply-add.
  std::uint64_t libm_digest = 0;
};

/// Returns the numerics of this process. Cost: less than a millisecond.
Numerics numerics_here();

}  // namespace poprun
