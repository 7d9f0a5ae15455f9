#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <string>
#include <variant>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include "launcher/job/inquiry.h"
#include "launcher/job/job.h"
#include "launcher/job/reports.h"
#include "launcher/job/subcommands.h"
#include "launcher/job/world.h"
#include "launcher/metrics/metrics_server.h"
#include "launcher/options/environment.h"
#include "launcher/options/help.h"
#include "launcher/options/next_command.h"
#include "launcher/options/parse.h"
#include "launcher/placement/addresses.h"
#include "launcher/placement/hosts.h"
#include "launcher/placement/placement.h"
#include "launcher/process/process_handle.h"
#include "launcher/screen/console.h"
#include "launcher/version.h"
#include "replica/base/host_limits.h"
#include "replica/base/text.h"

/// Main program of the `poprun-emu` command. Its exit codes are listed in replica/base/error.h.
namespace poprun::launcher {
namespace {

/// Raises the limit on open files, which is low by default. If mpirun runs out of file descriptors, it hangs.
///
/// Errors
///   kHostResources  even the highest allowed limit is not enough.
Status allow_many_files(const Options& options, const Placement& placement) {
  constexpr rlim_t kBesides = 32;           // Measured: the launcher opens 22 files and mpirun 24,
  constexpr rlim_t kForALocalInstance = 4;  // plus 3 to 3.4 for each instance on this machine.
  const rlim_t for_metrics = options.metrics.port > 0 ? 1 + rlim_t{MetricsServer::kLimits.connections} : 0;
  const rlim_t needed = kBesides + for_metrics +
                        std::max(kForALocalInstance * rlim_t{placement.instances_here()},
                                 rlim_t{placement.num_instances} + placement.num_replicas);
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    if (files.rlim_max < needed) {
      return fail(ErrorCode::kHostResources,
                  fmt::format("a job with {} in {} needs {} open files, but the limit is {}; raise it (ulimit -n "
                              "{}), or lower --num-instances",
                              counted(placement.num_replicas, "replica"), counted(placement.num_instances, "instance"),
                              needed, files.rlim_max, needed));
    }
  }
  return {};
}

/// Checks the limit on threads: gRPC, mpirun and Open MPI in the replicas hang, abort or report a misleading error if
/// they cannot start a thread. Errors: those of check_room_for_threads.
Status allow_many_threads(const Placement& placement) {
  constexpr std::size_t kBesides = 32;  // Measured: 13 threads in the launcher, 13 in the data server, 5 in mpirun,
  constexpr std::size_t kForAnInstance = 12;  // 15 in an instance of 1 replica, 32 in one of 8.
  constexpr std::size_t kForAReplica = 3;
  const std::size_t local = placement.instances_here();
  return check_room_for_threads(kBesides + local * (kForAnInstance + kForAReplica * placement.replicas_per_instance()),
                                fmt::format("a job with {}", counted(local, "local instance")));
}

/// Checks limits below which mpirun, Open MPI in the replicas and the data server crash or hang without giving a
/// reason; above these limits, each program reports what is missing. Raises a low limit if it can.
///
/// Errors
///   kHostResources  a limit is too low; the message names it.
Status allow_what_processes_need() {
  struct Limit {
    int resource;
    const char* name;
    const char* option;
    rlim_t least;
  };
  // Measured with 2 replicas: mpirun crashes with a stack of 128 KiB but runs with 256 KiB. PMIx fails if files are
  // limited to 100 KiB, and the data server if address space is limited to 500 MB. Replicas hang with a
  // data segment of 100 MB.
  constexpr std::array<Limit, 4> kLimits = {{{RLIMIT_STACK, "stack", "-s", 256 << 10},
                                             {RLIMIT_FSIZE, "file size", "-f", 4 << 20},
                                             {RLIMIT_AS, "address space", "-v", 1 << 30},
                                             {RLIMIT_DATA, "data segment", "-d", 1 << 30}}};
  for (const Limit& limit : kLimits) {
    rlimit now{};
    const auto resource = static_cast<__rlimit_resource>(limit.resource);
    if (getrlimit(resource, &now) != 0 || now.rlim_cur >= limit.least) {
      continue;
    }
    now.rlim_cur = std::min(now.rlim_max, limit.least);
    setrlimit(resource, &now);
    if (now.rlim_cur < limit.least) {
      return fail(ErrorCode::kHostResources,
                  fmt::format("mpirun and the replicas need a limit of at least {} KiB for the {} of a process, but "
                              "the limit here is {} KiB; raise it (ulimit {} {})",
                              grouped(limit.least >> 10), limit.name, grouped(now.rlim_max >> 10), limit.option,
                              limit.least >> 10));
    }
  }
  return {};
}

volatile std::sig_atomic_t code_at_the_end = 0;

/// Limits the time that the process takes to exit after all output is printed and written. Only gRPC's shutdown
/// remains, and it waits forever for a thread that it could not start (ulimit -u).
void limit_the_end(int code) {
  constexpr unsigned kSecondsMax = 3;
  code_at_the_end = code;
  std::signal(SIGALRM, [](int) { _exit(code_at_the_end); });
  alarm(kSecondsMax);
}

/// Opens a placeholder for each closed standard stream. Otherwise, the next file to be opened would get the stream's
/// descriptor and receive our output. The placeholder is read-only, so that writing still fails.
void keep_numbers_of_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) < 0) {
      open("/dev/null", O_RDONLY);
    }
  }
}

JobEnd run_job(const Options& options, const Placement& placement, Console& console, double launched_at) {
  const Status allowed =
      allow_what_processes_need().and_then([&] { return allow_many_files(options, placement); }).and_then([&] {
        return allow_many_threads(placement);
      });
  if (!allowed) {
    return {.exit_code = console.say(allowed.error())};
  }
  if (options.print_topology || options.verbosity > 0) {
    console.out(topology_table(placement));
  }
  keep_freed_memory();
  return run_attempts(real_world(), options, placement, console, launched_at);
}

/// After success, suggests the next command. Returns `code`.
int suggest_next(int code, const Options& options, Console& console) {
  if (code == 0) {
    console.next(next_command(options));
  }
  return code;
}

/// Shows the version or, with -v, all versions. The replica's program prints the versions of its own libraries.
int show_version(const Options& options, Console& console) {
  if (options.verbosity == 0) {
    console.out(fmt::format("poprun-emu {}", POPRUN_VERSION));
    return 0;
  }
  console.out(version_lines());
  return ask({"poprun-emu-replica", "--versions"}, "", console);
}

void show_notes(const Options& options, Console& console) {
  for (const std::string& note : options.notes) {
    console.say(fmt::format("note: {}", note));
  }
}

int run(const std::vector<std::string>& args, Console& console, double launched_at) {
  const Environment environment = environment_here();
  console.colour(colour_choice(args, environment));
  const Result<Options> options = parse_options(args, environment);
  if (!options) {
    return console.say(options.error());
  }
  if (options->help) {
    console.page(help_text(*options->help));
    return 0;
  }
  if (options->version) {
    return show_version(*options, console);
  }
  if (options->list_models) {
    return list_models(*options, console);
  }
  if (options->check_onnx) {
    return ask({"poprun-emu-onnx-check", *options->check_onnx}, "", console);
  }
  if (options->subcommand() == Subcommand::kEstimate) {
    show_notes(*options, console);
    return suggest_next(estimate(*options, console), *options, console);
  }
  if (options->subcommand() == Subcommand::kScale) {
    show_notes(*options, console);
    return scale(*options, console);
  }
  if (options->subcommand() == Subcommand::kValidate) {
    return validate(*options, console);
  }
  if (options->subcommand() == Subcommand::kReport) {
    return report(*options, console);
  }
  const auto* const to_profile = std::get_if<ProfileRequest>(&options->request);
  if (to_profile != nullptr && to_profile->compare) {
    return compare_profiles(*options, console);
  }
  const Result<Placement> placement = place(*options);
  if (!placement) {
    return console.say(placement.error());
  }
  if (!options->dry_run) {
    console.never_wait();  // A job continues whatever happens to the readers of its output.
  }
  show_notes(*options, console);
  if (!placement->source.empty()) {
    console.say(
        fmt::format("note: running on the hosts of {}: {}", placement->source, fmt::join(placement->hosts, ", ")));
  }
  if (options->config_file.empty()) {
    console.out(topology_table(*placement));
    return 0;
  }
  if (const Status reaches_itself = check_loopback(); !reaches_itself) {
    return console.say(reaches_itself.error());
  }
  if (options->dry_run) {
    return suggest_next(dry_run(*options, *placement, console), *options, console);
  }
  const RunJob job = [&](const Options& asked) { return run_job(asked, *placement, console, launched_at); };
  const int code = suggest_next(
      to_profile != nullptr ? profile(*options, console, job) : with_report(*options, console, job(*options).exit_code),
      *options, console);
  console.settle();
  limit_the_end(code);
  return code;
}

/// Runs the command. Fails if its output cannot be written.
int run_and_tell(const std::vector<std::string>& args, double launched_at) {
  keep_numbers_of_standard_streams();
  Console console;
  const int code = run(args, console, launched_at);
  const Status told = console.out_status();
  if (told) {
    return code;
  }
  const int code_of_untold = console.say(told.error());
  return code == 0 ? code_of_untold : code;
}

}  // namespace
}  // namespace poprun::launcher

int main(int argc, char** argv) {
  poprun::launcher::unblock_signals();
  poprun::leave_no_core_dumps();
  poprun::end_in_a_line_at_limits("poprun-emu");
  const double launched_at = poprun::launcher::real_world().now();
  std::signal(SIGPIPE, SIG_IGN);                      // The job must survive the reader of its output.
  std::signal(SIGUSR1, SIG_IGN);                      // Ignored until there is a job that can take a checkpoint.
  std::signal(SIGXFSZ, SIG_IGN);                      // Writing beyond ulimit -f then fails, as it does on a full disk.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);  // gRPC's own messages must not precede ours.
  return poprun::launcher::run_and_tell({argv + 1, argv + argc}, launched_at);
}
