#include "replica/ops/dnnl/numerics.h"

#include <bit>
#include <cmath>
#include <utility>

#include <dnnl.hpp>

#include "replica/ops/face/operator.h"

namespace poprun {
namespace {

using Isa = dnnl::cpu_isa;

/// oneDNN's instruction sets as bit masks. Each mask contains the bits of the instruction sets that it extends.
constexpr std::pair<const char*, Isa> kIsas[] = {{"sse41", Isa::sse41},
                                                 {"avx", Isa::avx},
                                                 {"avx2", Isa::avx2},
                                                 {"avx2_vnni", Isa::avx2_vnni},
                                                 {"avx512_core", Isa::avx512_core},
                                                 {"avx512_core_vnni", Isa::avx512_core_vnni},
                                                 {"avx512_core_bf16", Isa::avx512_core_bf16},
                                                 {"avx512_core_amx", Isa::avx512_core_amx}};

std::uint64_t libm_digest() {
  std::uint64_t digest = 0;
  const auto add = [&](double value) { digest = digest * 0x9E3779B97F4A7C15 + std::bit_cast<std::uint64_t>(value); };
  volatile double step = 0.0123456789;  // Volatile, so that the compiler cannot fold the calls.
  for (int i = 1; i <= 1000; ++i) {
    const double x = step * i;
    add(std::exp(x));
    add(std::log(x));
    add(std::pow(x, 1.7));
    add(std::sin(x));
  }
  return digest;
}

}  // namespace

Numerics numerics_here() {
  Numerics numerics;
  const auto had = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  for (const auto& [name, isa] : kIsas) {
    const auto bits = static_cast<unsigned>(isa);
    if ((had & bits) == bits) {
      numerics.cpu_isas.emplace_back(name);
    }
  }
  numerics.onednn_version = numerics_library_version();
  numerics.libm_digest = libm_digest();
  return numerics;
}

}  // namespace poprun
