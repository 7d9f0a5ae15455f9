#include "launcher/job/processes.h"

#include <cstdlib>
#include <list>
#include <memory>
#include <optional>
#include <utility>

#include <asio/ip/tcp.hpp>
#include <asio/steady_timer.hpp>
#include <fmt/format.h>

#include "collectives/session/session.h"
#include "launcher/mpi/mpirun.h"
#include "launcher/process/supervisor.h"

namespace poprun::launcher {
namespace {

constexpr const char* kFolderVariable = "OMPI_MCA_orte_tmpdir_base";  ///< Open MPI's counterpart of TMPDIR.

using asio::ip::tcp;

constexpr const char* kPortOfSsh = "22";

/// Tries to connect to all hosts at the same time. The object lives until the last of these attempts has ended.
class Knocks : public std::enable_shared_from_this<Knocks> {
 public:
  Knocks(asio::io_context& loop, std::vector<std::string> hosts, std::function<void(std::vector<std::string>)> then)
      : loop_(loop), timer_(loop), resolver_(loop), silent_(std::move(hosts)), then_(std::move(then)) {}

  void start(std::chrono::milliseconds patience) {
    timer_.expires_after(silent_.empty() ? std::chrono::milliseconds(0) : patience);
    timer_.async_wait([self = shared_from_this()](const asio::error_code&) { self->end(); });
    for (const std::string& host : silent_) {
      resolver_.async_resolve(
          tcp::v4(), host, kPortOfSsh,
          [self = shared_from_this(), host](const asio::error_code& error, const tcp::resolver::results_type& found) {
            if (!error && !self->silent_.empty()) {
              self->connect(host, *found.begin());
            }
          });
    }
  }

 private:
  void connect(const std::string& host, const tcp::endpoint& endpoint) {
    sockets_.emplace_back(loop_).async_connect(endpoint,
                                               [self = shared_from_this(), host](const asio::error_code& error) {
                                                 if (!error || error == asio::error::connection_refused) {
                                                   self->heard(host);
                                                 }
                                               });
  }

  void heard(const std::string& host) {
    std::erase(silent_, host);
    if (silent_.empty()) {
      timer_.cancel();
    }
  }

  void end() {
    resolver_.cancel();
    sockets_.clear();
    then_(std::exchange(silent_, {}));
  }

  asio::io_context& loop_;
  asio::steady_timer timer_;
  tcp::resolver resolver_;
  std::list<tcp::socket> sockets_;
  std::vector<std::string> silent_;  ///< Hosts that have not answered yet.
  std::function<void(std::vector<std::string>)> then_;
};

class RealProcesses final : public JobProcesses {
 public:
  RealProcesses(asio::io_context& loop, const Options& options, const Placement& placement, Console& console,
                const Security& security, Events events)
      : loop_(loop),
        options_(options),
        placement_(placement),
        console_(console),
        security_(security),
        own_address_(own_address(placement)),
        events_(std::move(events)),
        place_(collectives::session_place(machine_name())),
        supervisor_(loop) {}

  Status check() override;
  Status start(int coordinator_port, std::uint64_t epoch) override;
  [[nodiscard]] Status check_mpirun() const override { return check_mpirun_program(programs_.mpirun); }
  void replicas_run() override { folder_->learn(); }
  [[nodiscard]] bool any_run() const override { return supervisor_.anything_runs(); }
  [[nodiscard]] std::string restart_command() const override;
  void terminate() override;
  void kill() override { supervisor_.kill_all(); }
  void clear_away() override;

 private:
  Status start_mpirun(int coordinator_port, std::uint64_t epoch);
  Status start_data_service();

  asio::io_context& loop_;
  const Options& options_;
  const Placement& placement_;
  Console& console_;
  const Security& security_;
  std::string own_address_;
  Events events_;
  collectives::SessionPlace place_;               ///< Place of the session folder on this machine.
  std::optional<collectives::JobFolder> folder_;  ///< Set by `check`.
  Supervisor supervisor_;
  Programs programs_;
  std::optional<DataService> data_;  ///< Set by `start`.
};

Status RealProcesses::check() {
  POPRUN_ASSIGN(programs_, find_programs(/*other_hosts=*/!placement_.all_local));
  collectives::remove_leftovers(place_);
  POPRUN_TRY(check_room_for_mpi_session(place_, placement_.num_instances));
  POPRUN_ASSIGN(collectives::JobFolder folder, collectives::JobFolder::make(place_));
  folder_.emplace(std::move(folder));
  return {};
}

Status RealProcesses::start(int coordinator_port, std::uint64_t epoch) {
  POPRUN_TRY(start_mpirun(coordinator_port, epoch));
  return start_data_service();
}

Status RealProcesses::start_mpirun(int coordinator_port, std::uint64_t epoch) {
  const MpirunCommand command = mpirun_here(options_, placement_, programs_.replica);
  Child::Program program{programs_.mpirun, command.arguments, command.environment};
  program.without = command.without;
  // If no process of this job survives to remove the folder, a later job removes it, recognising it by its path.
  program.environment.emplace_back(std::getenv(kFolderVariable) != nullptr ? kFolderVariable : "TMPDIR",
                                   folder_->path());
  program.environment.emplace_back("POPRUN_EMU_COORDINATOR",
                                   fmt::format("{}:{}/{}", own_address_, coordinator_port, epoch));
  program.environment.emplace_back("POPRUN_EMU_TOKEN", security_.token);
  program.environment.emplace_back("POPRUN_EMU_TLS",
                                   security_.variable(leaves_loopback(listening_address(own_address_) + ":")));
  if (options_.verbosity > 0) {
    console_.say(fmt::format("running {}", shell_line(command)));
  }
  return supervisor_.start_mpirun(
      program, *folder_, [this](std::string_view line) { events_.on_mpirun_line(line, false); },
      [this](std::string_view line) { events_.on_mpirun_line(line, true); }, events_.on_mpirun_exit);
}

Status RealProcesses::start_data_service() {
  data_.emplace(loop_, supervisor_, console_, options_,
                DataService::Setup{.program = programs_.data_server,
                                   .own_address = own_address_,
                                   .security = security_,
                                   .local_replicas = placement_.instances_here() * placement_.replicas_per_instance()},
                DataService::Events{.on_dataset = events_.on_dataset, .on_end = events_.on_data_server_exit});
  return data_->start();
}

std::string RealProcesses::restart_command() const {
  if (token_is_users()) {
    return data_->restart_command();
  }
  return fmt::format("POPRUN_EMU_TOKEN=$(tr '\\0' '\\n' < /proc/{}/environ | sed -n s/^POPRUN_EMU_TOKEN=//p) {}",
                     supervisor_.mpirun_pid(), data_->restart_command());
}

void RealProcesses::terminate() {
  if (data_) {
    data_->forget();
  }
  supervisor_.terminate();
}

void RealProcesses::clear_away() {
  supervisor_.kill_all();
  if (folder_) {
    folder_->remove();
  }
}

}  // namespace

std::unique_ptr<JobProcesses> JobProcesses::real(asio::io_context& loop, const Options& options,
                                                 const Placement& placement, Console& console, const Security& security,
                                                 Events events) {
  return std::make_unique<RealProcesses>(loop, options, placement, console, security, std::move(events));
}

void find_silent_hosts(asio::io_context& loop, std::vector<std::string> hosts, std::chrono::milliseconds patience,
                       std::function<void(std::vector<std::string> silent)> then) {
  std::make_shared<Knocks>(loop, std::move(hosts), std::move(then))->start(patience);
}

}  // namespace poprun::launcher
