#pragma once

/// Compiles a leaf loop for several instruction sets. The best one is chosen when the program starts. Elementwise
/// results do not depend on the choice, because floating-point contraction is off.
#if defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define POPRUN_SIMD __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define POPRUN_SIMD
#endif
