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

/// A dataset and who serves it.
struct ServedDataset {
  std::string address;  ///< host:port of the data server.
  proto::Dataset dataset;
  bool tls = false;  ///< The server is beyond loopback, or speaks TLS all the same.
};

/// The data server of a job, started here or the user's own, asked what its dataset holds. Belongs
/// to the loop's thread.
class DataService {
 public:
  struct Setup {
    std::string program;  ///< Path of poprun-emu-hostio.
    /// Host at which this machine is reached; a server listens there, or where listening_address
    /// says. That decides whether it speaks TLS: the name of a machine may be one of loopback here.
    std::string own_address;
    Security security;
    bool only_describe = false;  ///< The dataset is described, and nobody will read it.
  };
  struct Events {
    /// Comes once. Errors: those of DatasetQuery; and the reason of our server where it ends before
    /// it could be asked.
    std::function<void(const Result<ServedDataset>&)> on_dataset;
    /// Our server ended after that. `status` is that of waitpid.
    std::function<void(int status)> on_end;
  };

  /// All references must outlive this.
  DataService(asio::io_context& loop, Supervisor& supervisor, Console& console,
              const Options& options, Setup setup, Events events);

  /// Starts a server, unless the options name one, and asks it.
  Status start();

  /// Asks no more; `on_dataset` does not come any more.
  void forget() { query_.reset(); }

  /// The command that starts our server again at its address, without the token.
  [[nodiscard]] std::string restart_command() const;

 private:
  /// `leaves_loopback`: whether other hosts reach the server, which then speaks TLS.
  void ask(const std::string& address, bool leaves_loopback);
  /// The user's own files, for a server of ours.
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> tls_options() const;
  /// Says how far the server is, soon and then once a minute.
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
  std::optional<std::chrono::steady_clock::time_point> next_note_;  ///< Once there was news.
  bool answered_ = false;
  int port_ = 0;  ///< Of a server of ours that listens.
  std::string last_line_;
};

}  // namespace poprun::launcher
