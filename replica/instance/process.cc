#include "replica/instance/process.h"

#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <string>

#include <unistd.h>

#include "collectives/session/session.h"
#include "replica/base/host_limits.h"
#include "replica/instance/host_memory.h"
#include "replica/link/launcher_link.h"
#include "replica/ops/dnnl/numerics.h"

namespace poprun {
namespace {

std::string variable(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? "" : text;
}

}  // namespace

void remove_leftovers() {
  if (variable("OMPI_COMM_WORLD_LOCAL_RANK") == "0") {
    collectives::remove_leftovers(collectives::session_place(machine_name()));
  }
}

void leave_without_launcher(ErrorCode code) {
  collectives::end_daemon(variable("OMPI_MCA_orte_jobfam_session_dir"), getppid());
  ::_exit(exit_code_of(code));
}

Status check_room_for_mpi() {
  const int processes = std::atoi(variable("OMPI_COMM_WORLD_LOCAL_SIZE").c_str());
  if (processes < 2 || variable("OMPI_COMM_WORLD_LOCAL_RANK") != "0" ||
      variable("OMPI_MCA_btl").find("vader") == std::string::npos) {
    return {};
  }
  const std::string folder = variable("OMPI_MCA_btl_vader_backing_directory");
  return check_shared_folder(folder.empty() ? "/dev/shm" : folder, machine_name(),
                             static_cast<std::uint32_t>(processes));
}

proto::JoinRequest join_request() {
  const Numerics numerics = numerics_here();
  proto::JoinRequest request;
  request.mutable_cpu_isas()->Assign(numerics.cpu_isas.begin(), numerics.cpu_isas.end());
  request.set_onednn_version(numerics.onednn_version);
  request.set_libm_digest(numerics.libm_digest);
  return request;
}

void leave_signals_to_launcher() {
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2}) {
    std::signal(number, SIG_IGN);
  }
}

}  // namespace poprun
