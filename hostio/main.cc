#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <future>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <boost/program_options.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include "hostio/streams/dataset_store.h"
#include "hostio/streams/server.h"
#include "replica/base/grpc/identity.h"
#include "replica/base/host_limits.h"
#include "replica/base/log.h"

/// Main program of the data server, poprun-emu-hostio. Exit codes: replica/base/error.h.
namespace poprun::hostio {
namespace {

namespace po = boost::program_options;

constexpr const char* kName = "poprun-emu-hostio";
/// Threads of gRPC (at most 10 on 2 cores), the store and the server. gRPC hangs if it cannot start one of its threads.
constexpr std::size_t kThreads = 13 + 10;

struct Options {
  ServerOptions server;
  StoreLimits limits;
  std::vector<std::string> preload;
  bool probes = false;
  std::uint32_t local_replicas = 0;
  std::string answer;  ///< Text of --help or --version, to print before exiting.
};

po::options_description described_options() {
  po::options_description network("Network");
  network.add_options()  //
      ("bind", po::value<std::string>()->value_name("ADDRESS")->default_value("127.0.0.1"),
       "Address to listen on; 0.0.0.0 for all addresses of this host (requires a token).")  //
      ("port", po::value<int>()->value_name("PORT")->default_value(50051),
       "Port to listen on; 0 for any free port.")  //
      ("token-file", po::value<std::string>()->value_name("FILE"),
       "File whose first line is the job token that clients must present (default: environment variable "
       "POPRUN_EMU_TOKEN; without either, clients on this host need no token).")  //
      ("tls-cert", po::value<std::string>()->value_name("FILE"),
       "Certificate (PEM) of this server, used with --tls-key and --tls-ca. Without them, a server that other hosts "
       "can reach uses a certificate derived from the token.")  //
      ("tls-key", po::value<std::string>()->value_name("FILE"),
       "Private key of the certificate (PEM, without a password).")  //
      ("tls-ca", po::value<std::string>()->value_name("FILE"),
       "Certificates (PEM) of the authorities that sign the clients' certificates.");
  po::options_description data("Data");
  data.add_options()  //
      ("root", po::value<std::string>()->value_name("DIR"),
       "Serve the datasets in files below this folder. Without it, only built-in and synthetic datasets, and datasets "
       "named by --source or --preload, are served.")  //
      ("source", po::value<std::vector<std::string>>()->value_name("SOURCE")->composing(),
       "Serve this dataset (a source as in train.cfg), wherever its files are. Can be given several times.")  //
      ("preload", po::value<std::vector<std::string>>()->value_name("SOURCE")->composing(),
       "Like --source, but load it before listening; exit if that fails.")  //
      ("local-replicas", po::value<std::uint32_t>()->value_name("N")->default_value(0),
       "The number of replicas that run on this host. If they outnumber its cores, requests do not interrupt them.");
  po::options_description information("Information");
  information.add_options()  //
      ("probe",
       "Ask the server that was started on this host with the same options whether it is serving. The exit code "
       "is 0 if it is, and 69 if not. For use as a probe in Kubernetes.")  //
      ("help,h", "Print this help and exit.")                              //
      ("version", "Print the version and exit.");
  po::options_description all(
      fmt::format("{} serves datasets to the replicas of poprun-emu jobs.\nUsage: {} [options]\n"
                  "Example: {} --root ~/data --port 50051",
                  kName, kName, kName));
  all.add(network).add(data).add(information);
  return all;
}

Result<std::string> token_from(const po::variables_map& given) {
  std::string token;
  std::string origin = "POPRUN_EMU_TOKEN";
  if (given.count("token-file") != 0) {
    origin = given["token-file"].as<std::string>();
    std::ifstream file(origin);
    if (!std::getline(file, token) || token.empty()) {
      return fail(ErrorCode::kUsage,
                  fmt::format("--token-file {}: the first line must contain a token, but it is empty", origin));
    }
  } else if (const char* environment = std::getenv("POPRUN_EMU_TOKEN")) {
    token = environment;
  }
  POPRUN_TRY(check_token(token, origin));
  return token;
}

Result<std::optional<TlsIdentity>> identity_from(const po::variables_map& given) {
  const auto file = [&](const char* option) { return given.count(option) == 0 ? "" : given[option].as<std::string>(); };
  const TlsFiles files{file("tls-cert"), file("tls-key"), file("tls-ca")};
  if (!files.any()) {
    return std::optional<TlsIdentity>();
  }
  if (const auto warning = warning_about_key(files.key)) {
    log::write(log::Level::kWarning, kName, *warning);
  }
  return read_identity(files).map([](TlsIdentity read) { return std::optional(std::move(read)); });
}

Result<StoreLimits> limits_from(const po::variables_map& given, const std::vector<std::string>& preload) {
  StoreLimits limits;
  limits.files = FileScope::nothing();
  if (given.count("root") != 0) {
    POPRUN_ASSIGN(limits.files, FileScope::below(given["root"].as<std::string>()).map_error([](Error error) {
      error.message = "--root " + error.message;
      return error;
    }));
  }
  limits.sources = preload;
  if (given.count("source") != 0) {
    const auto& sources = given["source"].as<std::vector<std::string>>();
    limits.sources.insert(limits.sources.end(), sources.begin(), sources.end());
  }
  return limits;
}

Result<Options> parse_options(int argc, char** argv) {
  const po::options_description known = described_options();
  po::variables_map given;
  try {
    const po::positional_options_description none;
    po::store(po::command_line_parser(argc, argv).options(known).positional(none).run(), given);
    po::notify(given);
  } catch (const po::error& error) {
    return fail(ErrorCode::kUsage, fmt::format("{}; see {} --help", error.what(), kName));
  }
  Options options;
  if (given.count("help") != 0) {
    std::ostringstream text;
    text << known;
    options.answer = text.str();
    return options;
  }
  if (given.count("version") != 0) {
    options.answer = fmt::format("{} {}\n", kName, POPRUN_VERSION);
    return options;
  }
  const int port = given["port"].as<int>();
  if (port < 0 || port > 65535) {
    return fail(ErrorCode::kUsage, fmt::format("--port {}: the port must be a number from 0 to 65535", port));
  }
  options.server.port = static_cast<std::uint16_t>(port);
  options.server.bind = given["bind"].as<std::string>();
  POPRUN_ASSIGN(options.server.token, token_from(given));
  POPRUN_ASSIGN(options.server.identity, identity_from(given));
  options.probes = given.count("probe") != 0;
  options.local_replicas = given["local-replicas"].as<std::uint32_t>();
  if (given.count("preload") != 0) {
    options.preload = given["preload"].as<std::vector<std::string>>();
  }
  POPRUN_ASSIGN(options.limits, limits_from(given, options.preload));
  // Half of the free memory is for datasets and a quarter for batches; replicas on this host need the rest.
  if (const auto memory = free_memory()) {
    options.limits.bytes_max = static_cast<std::uint64_t>(memory->bytes.count()) / 2;
    options.server.batch_bytes_max = batch_bytes_max_of(memory->bytes);
  }
  return options;
}

/// Prints the text. Ignores errors: the server continues even if its parent has closed standard output.
void print(std::string_view text) {
  [[maybe_unused]] const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
}

/// Ends the process, even during a load or description. Both can take minutes and have nothing to save.
[[noreturn]] void end_now(Server* server) {
  constexpr std::chrono::seconds kGrace{1};
  std::thread([kGrace] {
    std::this_thread::sleep_for(kGrace);
    ::_exit(0);
  }).detach();
  if (server != nullptr) {
    server->stop();
  }
  ::_exit(0);
}

/// Loads a dataset. Ends the process if one of `end_signals` arrives first.
Status preload(DatasetStore& datasets, const std::string& source, const sigset_t& end_signals) {
  constexpr std::chrono::milliseconds kPoll{20};
  std::promise<Status> answer;
  std::future<Status> loaded = answer.get_future();
  datasets.load_then(source, "", [&answer](const Result<DatasetStore::Loaded>& dataset) {
    answer.set_value(dataset.map([](const auto&) {}));
  });
  while (loaded.wait_for(kPoll) != std::future_status::ready) {
    constexpr timespec kAtOnce{0, 0};
    if (sigtimedwait(&end_signals, nullptr, &kAtOnce) > 0) {
      end_now(nullptr);
    }
  }
  return loaded.get();
}

Status serve(const Options& options, const sigset_t& end_signals) {
  POPRUN_TRY(check_room_for_threads(kThreads, kName));
  run_in_long_turns(options.local_replicas);
  DatasetStore datasets(options.limits);
  for (const std::string& source : options.preload) {
    POPRUN_TRY(preload(datasets, source, end_signals));
  }
  POPRUN_ASSIGN(const std::unique_ptr<Server> server, Server::start(options.server, datasets));
  print(fmt::format("{} listening on {}:{}\n", kName, options.server.bind, server->port()));
  int signal = 0;
  sigwait(&end_signals, &signal);
  end_now(server.get());
}

/// Returns SIGTERM and SIGINT, except those that the parent ignores. A data server that the launcher starts ignores
/// both, even if every process of the job receives them: the launcher ends it when the replicas no longer need it.
sigset_t signals_to_end_at() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGTERM, SIGINT}) {
    struct sigaction action {};
    if (sigaction(number, nullptr, &action) == 0 && action.sa_handler != SIG_IGN) {
      sigaddset(&signals, number);
    }
  }
  return signals;
}

int run(int argc, char** argv) {
  // The signal mask is set before any thread exists, so that all threads inherit it. Only sigwait receives the end
  // signals, and writing to a client or parent that is gone returns an error instead of raising SIGPIPE.
  const sigset_t end_signals = signals_to_end_at();
  pthread_sigmask(SIG_BLOCK, &end_signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  // Keeps gRPC from printing its own report of a port in use before our one-line message.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);

  leave_no_core_dumps();
  keep_freed_memory();
  end_in_a_line_at_limits(kName);
  const Result<Options> options = parse_options(argc, argv);
  if (options && !options->answer.empty()) {
    print(options->answer);
    return 0;
  }
  const Status status = options.and_then(
      [&](const Options& valid) { return valid.probes ? probe(valid.server) : serve(valid, end_signals); });
  if (!status) {
    log::write(log::Level::kError, kName, status.error().message);
    return exit_code_of(status.error().code);
  }
  return 0;
}

}  // namespace
}  // namespace poprun::hostio

int main(int argc, char** argv) {
  return poprun::hostio::run(argc, argv);
}
