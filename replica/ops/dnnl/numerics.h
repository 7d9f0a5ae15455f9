#pragma once

#include <cstdint>
#include <string>
#include <vector>

/// Everything besides the Program that determines the bits of a result: the libraries that compute it and their
/// instruction sets. Our own kernels are also compiled for several, but all of these give the same bits (simd.h).
namespace poprun {

struct Numerics {
  /// Instruction sets to which oneDNN can be limited on this processor, smallest first. They are named as in the
  /// environment variable ONEDNN_MAX_CPU_ISA, but in lower case. The last one is in effect.
  std::vector<std::string> cpu_isas;
  std::string onednn_version;  ///< For example, "2.6.3".
  /// Digest of a few thousand values of exp, log, pow and sin. Their last bits differ between versions of glibc, and
  /// between its variants with and without fused multiply-add.
  std::uint64_t libm_digest = 0;
};

/// Returns the numerics of this process. Cost: less than a millisecond.
Numerics numerics_here();

}  // namespace poprun
