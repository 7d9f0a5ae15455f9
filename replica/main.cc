/// poprun-emu-replica: one instance of a job. Joins the launcher, compiles or receives the Program, and runs its
/// replicas, one thread each. Reads no files and accepts no job options; with arguments, it answers a question
/// (replica/answers/inquiry.h) and exits.
#include <chrono>
#include <cstdlib>
#include <future>
#include <iostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <mpi.h>

#include "collectives/mpi/mpi_world.h"
#include "replica/answers/inquiry.h"
#include "replica/base/host_limits.h"
#include "replica/base/log.h"
#include "replica/instance/instance.h"
#include "replica/instance/process.h"
#include "replica/link/launcher_link.h"
#include "replica/ops/dnnl/numerics.h"

namespace poprun {
namespace {

constexpr double kJoinTimeoutSeconds = 120;
constexpr std::size_t kThreads = 11;  // Threads of gRPC, Open MPI and the heartbeat.
constexpr std::size_t kThreadsOfAReplica = 4;

int run() {
  leave_signals_to_launcher();
  const auto environment = read_instance_environment();
  if (!environment) {
    log::write(log::Level::kError, "", "poprun-emu-replica: " + environment.error().message);
    return exit_code_of(environment.error().code);
  }
  if (const Status has_room =
          check_room_for_threads(kThreads + kThreadsOfAReplica * environment->local_replicas, "poprun-emu-replica");
      !has_room) {
    log::write(log::Level::kError, log::replica_source(environment->first_replica, machine_name()),
               has_room.error().message);
    return exit_code_of(has_room.error().code);
  }
  const char* level = std::getenv("POPRUN_EMU_LOG_LEVEL");
  log::set_level(level != nullptr && std::string_view(level) == "debug" ? log::Level::kDebug : log::Level::kInfo);
  run_in_long_turns(processes_on_host() * environment->local_replicas);
  CoordinatorClient client(*environment, [] { leave_without_launcher(ErrorCode::kInfrastructure); });

  // Join waits for the launcher, and MPI for the other instances, so both run in parallel.
  double joined_at = 0;
  std::promise<void> mpi_runs;
  auto joining = std::async(std::launch::async, [&, mpi = mpi_runs.get_future()] {
    auto reply = client.join(kJoinTimeoutSeconds, join_request());
    joined_at = now_seconds();
    if (!reply) {
      log::write(log::Level::kError, log::replica_source(environment->first_replica, machine_name()),
                 reply.error().message);
      leave_without_launcher(reply.error().code);
    }
    const std::chrono::seconds limit(reply->collective_timeout_seconds());
    if (mpi.wait_for(limit) != std::future_status::ready) {
      leave(client, ReplicaId{environment->first_replica},
            {ErrorCode::kInfrastructure,
             fmt::format("MPI_Init did not return within {} s after this instance joined the job; it waits for all "
                         "other instances, so check the network between the hosts (--host-subnet)",
                         limit.count())});
    }
    return std::move(*reply);
  });
  remove_leftovers();
  const Status has_room = check_room_for_mpi();
  int provided = 0;
  if (has_room) {
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
  }
  mpi_runs.set_value();
  proto::JoinReply reply = joining.get();
  Instance instance(*environment, client, std::move(reply), joined_at);
  if (const Status status = has_room ? instance.run() : has_room; !status) {
    instance.leave_with(ReplicaId{environment->first_replica}, status.error(), {});
  }
  client.leave();
  MPI_Finalize();
  return 0;
}

/// Answers a question instead of running a job. `--versions` asks for the libraries of this program, one per line.
int answer(const std::vector<std::string>& arguments) {
  if (arguments == std::vector<std::string>{"--versions"}) {
    fmt::print("oneDNN {}\nMPI {}\n", numerics_library_version(), mpi_version());
    return 0;
  }
  const Answer answer = answer_inquiry(arguments, std::cin);
  std::cout << answer.message << std::flush;
  if (!answer.status) {
    fmt::print(stderr, "{}\n", answer.status.error().message);
    return exit_code_of(answer.status.error().code);
  }
  return 0;
}

}  // namespace
}  // namespace poprun

int main(int argc, char** argv) {
  poprun::leave_no_core_dumps();
  poprun::keep_freed_memory();
  poprun::end_in_a_line_at_limits("poprun-emu-replica");
  poprun::pin_environment(argv);
  return argc > 1 ? poprun::answer({argv + 1, argv + argc}) : poprun::run();
}
