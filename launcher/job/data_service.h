#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <asio/io_context.hpp>

#include "launcher/options/options.h"
#include "launcher/process/supervisor.h"
#include "launcher/screen/console.h"
#include "launcher/wire/dataset_query.h"
#include "launcher/wire/security.h"
#include "proto/host_streams.pb.h"
#include "replica/base/error.h"

namespace poprun::launcher {

struct ServedDataset {
  std::string address;  ///< host:port of the data server.
  proto::Dataset dataset;
  bool tls = false;  ///< Whether the server uses TLS, which is required beyond loopback.
};

/// Manages the data server of a job, which is either started here or provided by the user, and asks it what the dataset
/// contains. This class belongs to the loop's thread.
class DataService {
 public:
  struct Setup {
    std::string program;  ///< Path of poprun-emu-hostio.
    /// Host name or address at which other machines reach this one. Our own server listens on the listening_address of
    /// this name, and uses TLS if that address is not loopback; the name itself may resolve to loopback here.
    std::string own_address;
    Security security;
    std::uint32_t local_replicas = 0;  ///< Number of the job's replicas that run on this machine.
    bool only_describe = false;        ///< Whether only the dataset's description is needed, not its data.
  };
  struct Events {
    /// Called once. Errors: those of DatasetQuery, or, if our server ends without an answer, its last line.
    std::function<void(const Result<ServedDataset>&)> on_dataset;
    /// Called if our server ends after `on_dataset`. `status` is from waitpid.
    std::function<void(int status)> on_end;
  };

  /// All references must outlive this.
  DataService(asio::io_context& loop, Supervisor& supervisor, Console& console, const Options& options, Setup setup,
              Events events);

  /// Starts a server, unless the options name one, and asks it for the dataset.
  Status start();

  /// Cancels the query. `on_dataset` is not called after this.
  void forget() { query_.reset(); }

  /// Returns the command, without the token, that restarts our server at its address.
  [[nodiscard]] std::string restart_command() const;

 private:
  /// Asks the server at `address` for the dataset. The server uses TLS if other hosts can reach it (`leaves_loopback`).
  void ask(const std::string& address, bool leaves_loopback);
  /// Returns the arguments of our server.
  [[nodiscard]] std::vector<std::string> arguments(int port) const;
  /// Prints the server's progress soon after the start, and then once a minute.
  void tell(const proto::Loading& loading);
  void on_stdout(std::string_view line);
  void on_stderr(std::string_view line);
  void on_exit(int status);

  asio::io_context& loop_;
  Supervisor& supervisor_;
  Console& console_;
  const Options& options_;
  Setup setup_;
  Events events_;
  std::unique_ptr<DatasetQuery> query_;
  std::optional<std::chrono::steady_clock::time_point> next_note_;  ///< Set at the first progress report.
  bool answered_ = false;
  int port_ = 0;  ///< Port of our own server, once it listens.
  std::string last_line_;
};

}  // namespace poprun::launcher
