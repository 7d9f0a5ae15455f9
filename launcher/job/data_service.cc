#include "launcher/job/data_service.h"

#include <array>
#include <charconv>
#include <csignal>

#include <fmt/format.h>
#include <sys/wait.h>

#include "launcher/options/shell_words.h"
#include "launcher/placement/placement.h"
#include "launcher/process/process_handle.h"

namespace poprun::launcher {
namespace {

/// Returns the port in `poprun-emu-hostio listening on HOST:PORT`, or 0 for any other line.
int listening_port(std::string_view line) {
  int port = 0;
  const std::size_t colon = line.rfind(':');
  if (line.starts_with("poprun-emu-hostio listening on ") && colon != std::string_view::npos) {
    std::from_chars(line.data() + colon + 1, line.data() + line.size(), port);
  }
  return port;
}

/// Returns the `message` in a data server's line such as `[poprun-emu-hostio] E message`, or any other line unchanged.
std::string_view untagged(std::string_view line) {
  const std::size_t close = line.find("] ");
  return line.starts_with('[') && close != std::string_view::npos && close + 4 <= line.size() ? line.substr(close + 4)
                                                                                              : line;
}

/// Returns the kind of error that ended a data server, judging by the server's exit code.
ErrorCode code_of(int status) {
  constexpr std::array kTold = {ErrorCode::kUsage, ErrorCode::kData, ErrorCode::kBug, ErrorCode::kInfrastructure,
                                ErrorCode::kOutOfMemory};
  for (const ErrorCode code : kTold) {
    if (WIFEXITED(status) && WEXITSTATUS(status) == exit_code_of(code)) {
      return code;
    }
  }
  return ErrorCode::kUnreachable;
}

}  // namespace

DataService::DataService(asio::io_context& loop, Supervisor& supervisor, Console& console, const Options& options,
                         Setup setup, Events events)
    : loop_(loop),
      supervisor_(supervisor),
      console_(console),
      options_(options),
      setup_(std::move(setup)),
      events_(std::move(events)) {}

Status DataService::start() {
  if (!options_.hostio.address.empty()) {
    ask(options_.hostio.address, leaves_loopback(options_.hostio.address));
    return {};
  }
  std::vector<std::string> words = arguments(0);
  words.insert(words.begin(), "poprun-emu-hostio");
  const Child::Program program{setup_.program, words, {{"POPRUN_EMU_TOKEN", setup_.security.token}}, SIGKILL};
  return supervisor_.start_data_server(
      program, [this](std::string_view line) { on_stdout(line); }, [this](std::string_view line) { on_stderr(line); },
      [this](int status) { on_exit(status); });
}

std::vector<std::string> DataService::arguments(int port) const {
  std::vector<std::string> words = {"--bind",   listening_address(setup_.own_address), "--port", std::to_string(port),
                                    "--source", options_.config.data().source()};
  if (const TlsFiles& files = options_.hostio.tls_files; files.any()) {
    words.insert(words.end(), {"--tls-cert", files.certificate, "--tls-key", files.key, "--tls-ca", files.authorities});
  }
  if (setup_.local_replicas > 0) {
    words.insert(words.end(), {"--local-replicas", std::to_string(setup_.local_replicas)});
  }
  return words;
}

void DataService::ask(const std::string& address, bool leaves_loopback) {
  const std::optional<TlsIdentity> identity = setup_.security.identity(leaves_loopback);
  const DatasetQuery::Question question{address,
                                        setup_.security.token,
                                        identity,
                                        options_.config.data().source(),
                                        setup_.only_describe,
                                        static_cast<double>(options_.hostio.timeout_seconds)};
  query_ = std::make_unique<DatasetQuery>(
      loop_, question, [this](const proto::Loading& loading) { tell(loading); },
      [this, address, tls = identity.has_value()](const Result<proto::Dataset>& dataset) {
        answered_ = dataset.has_value();
        events_.on_dataset(dataset.map([&](const proto::Dataset& known) {
          return ServedDataset{address, known, tls};
        }));
      });
}

void DataService::tell(const proto::Loading& loading) {
  constexpr std::chrono::seconds kFirst{5};
  constexpr std::chrono::seconds kBetween{60};
  const auto now = std::chrono::steady_clock::now();
  next_note_ = next_note_.value_or(now + kFirst);
  if (now >= *next_note_) {
    next_note_ = now + kBetween;
    console_.say(loading.waits() ? "note: the data server is reading other datasets first; this job is waiting"
                                 : fmt::format("note: the data server is reading {}, {} % done",
                                               options_.config.data().source(), loading.percent()));
  }
}

void DataService::on_stdout(std::string_view line) {
  if (const int port = listening_port(line); port != 0) {
    port_ = port;
    ask(fmt::format("{}:{}", setup_.own_address, port), leaves_loopback(listening_address(setup_.own_address) + ":"));
  }
}

void DataService::on_stderr(std::string_view line) {
  last_line_ = line;
  // Before the server is ready, its lines are not printed. If it exits, the last of them ends the error message.
  if (answered_ || options_.verbosity > 0) {
    console_.err(line);
  }
}

void DataService::on_exit(int status) {
  if (answered_) {
    events_.on_end(status);
    return;
  }
  forget();
  const Error error{code_of(status), fmt::format("the data server {} before it was ready{}{}", exit_text(status),
                                                 last_line_.empty() ? "" : ": ", untagged(last_line_))};
  events_.on_dataset(tl::unexpected<Error>{error});
}

std::string DataService::restart_command() const {
  std::string line = setup_.program;
  for (const std::string& word : arguments(port_)) {
    line += ' ' + quote_shell_word(word);
  }
  return line;
}

}  // namespace poprun::launcher
