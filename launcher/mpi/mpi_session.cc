#include "launcher/mpi/mpi_session.h"

#include <string>

#include <fmt/format.h>
#include <sys/statvfs.h>

#include "replica/base/text.h"

namespace poprun::launcher {

Status check_room_for_mpi_session(const collectives::SessionPlace& place, std::uint32_t instances) {
  // Measured with 4.1.4: 8,253 KiB for 2, 8,309 for 16, 8,509 for 64 ranks.
  const Bytes needed{(8300 + 4 * std::int64_t{instances}) * 1024};
  const std::string folder = place.base;
  struct statvfs disk {};
  if (statvfs(folder.c_str(), &disk) != 0) {
    return {};  // Open MPI makes a folder that is not there, or says why not.
  }
  const Bytes free{static_cast<std::int64_t>(disk.f_bfree * disk.f_frsize)};
  if (free >= needed) {
    return {};
  }
  return fail(
      ErrorCode::kHostResources,
      fmt::format("Open MPI needs {} in {} to start, but only {} is free; make room, or set "
                  "TMPDIR to another folder",
                  mebibytes_text(static_cast<std::uint64_t>(needed.count())), folder,
                  mebibytes_text(static_cast<std::uint64_t>(free.count()))),
      {.shortage = Shortage{.needed = needed, .had = free}});
}

}  // namespace poprun::launcher
