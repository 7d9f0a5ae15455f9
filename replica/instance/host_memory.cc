#include "replica/instance/host_memory.h"

#include <fmt/format.h>
#include <sys/statvfs.h>

#include "replica/base/text.h"

namespace poprun {

Bytes memory_touched(const Program& program) {
  Bytes bytes{0};
  for (const proto::IpuMemory& memory : program.memory()) {
    bytes += bytes_touched(memory);
  }
  return bytes;
}

Status check_host_memory(const FreeMemory& memory, const std::string& host, std::uint32_t replicas, Bytes each,
                         Bytes copies) {
  const std::int64_t needed = each.count() * static_cast<std::int64_t>(replicas) + copies.count();
  if (needed <= memory.bytes.count()) {
    return {};
  }
  return fail(ErrorCode::kHostResources,
              fmt::format("{} on host {} {} {} of its memory for {} tensors{}, "
                          "but only {} is free ({}); use more hosts (-H), fewer replicas or a "
                          "smaller data.micro-batch-size, or raise that limit",
                          counted(replicas, "replica"), host, replicas == 1 ? "needs" : "need", bytes_text(needed),
                          replicas == 1 ? "its" : "their", copies.count() > 0 ? " and a checkpoint" : "",
                          bytes_text(memory.bytes.count()), memory.source),
              {.shortage = Shortage{.needed = Bytes{needed}, .had = memory.bytes}});
}

Status check_shared_folder(const std::string& folder, const std::string& host, std::uint32_t processes) {
  constexpr std::int64_t kSegment = std::int64_t{4} << 20;
  const std::int64_t needed = std::int64_t{processes} * (64 + 4 * std::int64_t{processes}) * 1024;
  struct statvfs status {};
  if (::statvfs(folder.c_str(), &status) != 0) {
    return {};
  }
  const auto free = static_cast<std::int64_t>(status.f_bavail * status.f_frsize);
  if (free < kSegment || free >= needed) {
    return {};
  }
  return fail(ErrorCode::kHostResources,
              fmt::format("{} processes on host {} need {} in {} for Open MPI, but only {} is free; mount a "
                          "larger one (docker run --shm-size), remove any vader_segment.* files that killed "
                          "jobs left there, or use fewer processes (--num-instances)",
                          processes, host, bytes_text(needed), folder, bytes_text(free)),
              {.shortage = Shortage{.needed = Bytes{needed}, .had = Bytes{free}}});
}

}  // namespace poprun
