#include "launcher/verdict/same_numerics.h"

#include <algorithm>

#include <fmt/format.h>

namespace poprun::launcher {
namespace {

/// Returns the instruction set for which oneDNN selects its kernels.
std::string isa_of(const proto::JoinRequest& request) {
  return request.cpu_isas().empty() ? "" : *request.cpu_isas().rbegin();
}

bool has(const proto::JoinRequest& request, const std::string& isa) {
  return std::ranges::find(request.cpu_isas(), isa) != request.cpu_isas().end();
}

std::string best_common(const proto::JoinRequest& a, const proto::JoinRequest& b) {
  std::string best;
  for (const std::string& isa : a.cpu_isas()) {
    best = has(b, isa) ? isa : best;
  }
  return best;
}

}  // namespace

Status check_same_numerics(const proto::JoinRequest& first, const proto::JoinRequest& other,
                           const std::string& cpu_isa) {
  const std::string isa = isa_of(other);
  if (!cpu_isa.empty() && isa != cpu_isa) {
    return fail(ErrorCode::kHostResources,
                fmt::format("host {} computes with {}, not with --cpu-isa {}; {}", other.host(), isa, cpu_isa,
                            has(other, cpu_isa) ? "remove ONEDNN_MAX_CPU_ISA from its environment"
                                                : fmt::format("use --cpu-isa {}, or a different host", isa)));
  }
  if (isa != isa_of(first)) {
    return fail(ErrorCode::kHostResources,
                fmt::format("host {} computes with {}, but host {} computes with {}: results would depend on where a "
                            "replica runs; use --cpu-isa {}, or hosts with identical processors",
                            first.host(), isa_of(first), other.host(), isa, best_common(first, other)));
  }
  if (other.onednn_version() != first.onednn_version()) {
    return fail(ErrorCode::kHostResources,
                fmt::format("host {} has oneDNN {}, but host {} has oneDNN {}; install the same version on all hosts",
                            first.host(), first.onednn_version(), other.host(), other.onednn_version()));
  }
  if (other.libm_digest() != first.libm_digest()) {
    return fail(ErrorCode::kHostResources,
                fmt::format("the C libraries of hosts {} and {} round exp, log, pow or sin differently; install the "
                            "same glibc on all hosts, or use --cpu-isa avx if one processor has no FMA",
                            first.host(), other.host()));
  }
  return {};
}

void add_numerics(const proto::JoinRequest& request, proto::CheckpointManifest& manifest) {
  manifest.set_cpu_isa(isa_of(request));
  manifest.set_onednn_version(request.onednn_version());
  manifest.set_libm_digest(fmt::format("{:016x}", request.libm_digest()));
}

Status check_numerics_of_checkpoint(const proto::CheckpointManifest& manifest, const proto::JoinRequest& request) {
  if (isa_of(request) != manifest.cpu_isa()) {
    return fail(
        ErrorCode::kHostResources,
        fmt::format(
            "host {} computes with {}, but the checkpoint was computed with {}: results would not be bit-identical; {}",
            request.host(), isa_of(request), manifest.cpu_isa(),
            has(request, manifest.cpu_isa()) ? fmt::format("use --cpu-isa {}", manifest.cpu_isa())
                                             : "use a host that supports it"));
  }
  proto::CheckpointManifest here;
  add_numerics(request, here);
  if (here.onednn_version() != manifest.onednn_version()) {
    return fail(ErrorCode::kHostResources,
                fmt::format("host {} has oneDNN {}, but the checkpoint was computed with {}: results would not be "
                            "bit-identical; install that version",
                            request.host(), here.onednn_version(), manifest.onednn_version()));
  }
  if (here.libm_digest() != manifest.libm_digest()) {
    return fail(ErrorCode::kHostResources, fmt::format("the C library of host {} rounds exp, log, pow or sin "
                                                       "differently from that of the checkpoint; use the same glibc",
                                                       request.host()));
  }
  return {};
}

}  // namespace poprun::launcher
