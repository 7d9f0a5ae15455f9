#include "replica/link/launcher_link.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "replica/base/log.h"
#include "replica/base/text.h"
#include "replica/link/heartbeat.h"
#include "replica/link/progress_board.h"
#include "replica/link/streams_up.h"

namespace poprun {
namespace {

constexpr double kConnectSecondsMax = 30;
constexpr double kFailSecondsMax = 600;  // The launcher may be receiving a dump; the call ends if the launcher is dead.
constexpr double kWeightsSecondsMax = 600;

Result<std::uint32_t> integer_variable(const char* name) {
  const char* text = std::getenv(name);
  const std::string_view view = text == nullptr ? "" : text;
  const auto value = parse_number<std::uint32_t>(view);
  if (!value) {
    return fail(ErrorCode::kUsage,
                fmt::format("environment variable {} is '{}', not a number; start this program through poprun-emu",
                            name, view));
  }
  return *value;
}

proto::Failure failure_of(const Error& error) {
  proto::Failure failure;
  failure.set_exit_code(static_cast<std::uint32_t>(exit_code_of(error.code)));
  failure.set_message(error.message);
  const Facts& facts = error.facts;
  failure.mutable_missing()->Assign(facts.missing.begin(), facts.missing.end());
  failure.set_address(facts.address);
  if (facts.shortage) {
    failure.set_needed_bytes(static_cast<std::uint64_t>(facts.shortage->needed.count()));
    failure.set_had_bytes(static_cast<std::uint64_t>(facts.shortage->had.count()));
  }
  return failure;
}

}  // namespace

std::string machine_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

Result<InstanceEnvironment> read_instance_environment() {
  InstanceEnvironment environment;
  const char* coordinator = std::getenv("POPRUN_EMU_COORDINATOR");
  if (coordinator == nullptr || *coordinator == '\0') {
    return fail(ErrorCode::kUsage,
                "environment variable POPRUN_EMU_COORDINATOR is not set; start this program through poprun-emu");
  }
  environment.coordinator = coordinator;
  if (const std::size_t slash = environment.coordinator.find('/'); slash != std::string::npos) {
    const std::string epoch = environment.coordinator.substr(slash + 1);
    std::from_chars(epoch.data(), epoch.data() + epoch.size(), environment.epoch);
    environment.coordinator.resize(slash);
  }
  const char* token = std::getenv("POPRUN_EMU_TOKEN");
  environment.token = token == nullptr ? "" : token;
  const char* tls = std::getenv("POPRUN_EMU_TLS");
  const std::string_view identity = tls == nullptr ? "off" : tls;
  if (identity == "token") {
    environment.identity = identity_of_token(environment.token);
  } else if (identity != "off") {
    POPRUN_ASSIGN(environment.identity, identity_from_line(identity));
  }
  POPRUN_ASSIGN(environment.first_replica, integer_variable("POPDIST_REPLICA_INDEX_OFFSET"));
  POPRUN_ASSIGN(environment.local_replicas, integer_variable("POPDIST_NUM_LOCAL_REPLICAS"));
  if (environment.local_replicas == 0 || environment.first_replica % environment.local_replicas != 0) {
    return fail(ErrorCode::kUsage, fmt::format("POPDIST_REPLICA_INDEX_OFFSET = {} is not a multiple of "
                                               "POPDIST_NUM_LOCAL_REPLICAS = {}; start this program through poprun-emu",
                                               environment.first_replica, environment.local_replicas));
  }
  environment.instance = environment.first_replica / environment.local_replicas;
  return environment;
}

CoordinatorClient::CoordinatorClient(const InstanceEnvironment& environment, OnLost on_lost)
    : environment_(environment),
      on_lost_(std::move(on_lost)),
      connection_(std::make_unique<CoordinatorConnection>(environment.coordinator, environment.token, environment.epoch,
                                                          environment.identity)),
      board_(std::make_unique<ProgressBoard>(environment.first_replica, environment.local_replicas)),
      gate_(std::make_unique<DrainGate>(environment.local_replicas)) {}

CoordinatorClient::~CoordinatorClient() = default;

Result<proto::JoinReply> CoordinatorClient::join(double timeout_seconds, proto::JoinRequest request) {
  // The launcher listens before it starts instances, so connecting is quick, but the launcher may answer slowly.
  const double connect_seconds = std::min(timeout_seconds, kConnectSecondsMax);
  const std::chrono::duration<double> patience(connect_seconds);
  if (!connection_->channel->WaitForConnected(
          std::chrono::system_clock::now() +
          std::chrono::duration_cast<std::chrono::system_clock::duration>(patience))) {
    return poprun::fail(
        ErrorCode::kUnreachable,
        fmt::format("could not connect to the launcher at {} within {} s", connection_->address, connect_seconds),
        {.address = connection_->address});
  }
  grpc::ClientContext context;
  connection_->prepare(context, timeout_seconds);
  context.set_wait_for_ready(true);
  request.set_instance(environment_.instance);
  request.set_host(machine_name());
  request.set_pid(static_cast<std::uint32_t>(getpid()));
  request.set_version(POPRUN_VERSION);
  proto::JoinReply reply;
  const grpc::Status status = connection_->stub->Join(&context, request, &reply);
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    return poprun::fail(
        ErrorCode::kUnreachable,
        fmt::format("no answer from the launcher at {} within {} s", connection_->address, timeout_seconds),
        {.address = connection_->address});
  }
  if (status.error_code() == grpc::StatusCode::ABORTED) {
    on_lost_();
  }
  if (!status.ok()) {
    return poprun::fail(ErrorCode::kInfrastructure, fmt::format("the launcher at {} refused this instance: {}",
                                                                connection_->address, status.error_message()));
  }
  const std::chrono::milliseconds interval{reply.heartbeat_interval_ms()};
  heartbeat_ = std::make_unique<Heartbeat>(*connection_, *board_, *gate_, environment_.instance, interval, on_lost_);
  return reply;
}

void CoordinatorClient::progress(ReplicaId replica, std::uint64_t step, std::string_view activity) {
  board_->write(replica, step, activity);
}

void CoordinatorClient::operators(ReplicaId replica, std::uint64_t steps, double seconds) {
  board_->operators(replica, steps, seconds);
}

void CoordinatorClient::begin_parts(ReplicaId replica, std::uint64_t parts) {
  gate_->begin_parts(index_of(replica) - environment_.first_replica, parts);
}

bool CoordinatorClient::begin_part(ReplicaId replica) {
  if (gate_->holds()) {
    board_->write(replica, "waiting for the launcher to announce where the job stops");
  }
  return gate_->begin_part(index_of(replica) - environment_.first_replica);
}

bool CoordinatorClient::stops(ReplicaId replica) const {
  return gate_->stops(index_of(replica) - environment_.first_replica);
}

void CoordinatorClient::waits_for_data(ReplicaId replica, bool waits) {
  board_->waits_for_data(replica, waits);
}

void CoordinatorClient::data_loads(ReplicaId replica, unsigned percent) {
  board_->data_loads(replica, percent);
}

std::chrono::steady_clock::time_point CoordinatorClient::last_excuse() const {
  return heartbeat_->last_excuse();
}

std::uint64_t CoordinatorClient::checkpoint_after() const {
  return heartbeat_->checkpoint_after();
}

namespace {

Error stopped_sending(std::string_view what, const std::string& why) {
  return {ErrorCode::kInfrastructure, fmt::format("the launcher stopped sending {}: {}", what, why)};
}

/// Reads a stream to its end. `what` describes the content of the stream in errors.
template <typename Piece>
Status read_pieces(grpc::ClientReader<Piece>& stream, grpc::ClientContext& context, std::string_view what,
                   const std::function<Status(const Piece&)>& on_piece) {
  Piece piece;
  while (stream.Read(&piece)) {
    Status taken = on_piece(piece);
    if (!taken) {
      context.TryCancel();
      stream.Finish();
      return taken;
    }
  }
  const grpc::Status status = stream.Finish();
  if (!status.ok()) {
    return tl::unexpected<Error>{stopped_sending(what, status.error_message())};
  }
  return {};
}

}  // namespace

Status CoordinatorClient::receive_weights(const OnChunk& on_chunk) {
  grpc::ClientContext context;
  connection_->prepare(context, kWeightsSecondsMax);
  const auto stream = connection_->stub->SendWeights(&context, proto::WeightsRequest{});
  return read_pieces(*stream, context, "the initial weights", on_chunk);
}

Result<OnnxFile> CoordinatorClient::receive_model() {
  grpc::ClientContext context;
  connection_->prepare(context, kWeightsSecondsMax);
  const auto stream = connection_->stub->SendModel(&context, proto::ModelRequest{});
  constexpr std::string_view kWhat = "the ONNX model";
  OnnxFile file;
  bool complete = false;
  const std::function<Status(const proto::OnnxModelPiece&)> append = [&](const auto& piece) {
    file.name = piece.file();
    file.bytes += piece.data();
    complete = piece.last();
    return Status{};
  };
  POPRUN_TRY(read_pieces(*stream, context, kWhat, append));
  if (!complete) {
    return tl::unexpected<Error>{stopped_sending(kWhat, "the end is missing")};
  }
  return file;
}

Status CoordinatorClient::report(proto::ReportItem item) {
  {
    const std::lock_guard lock(reports_mutex_);
    if (reports_ == nullptr) {
      reports_ = std::make_unique<ReportStream>(*connection_);
    }
  }
  return reports_->send(std::move(item));
}

Status CoordinatorClient::finish() {
  ReportStream* reports = nullptr;
  {
    const std::lock_guard lock(reports_mutex_);
    reports = reports_.get();
  }
  return reports == nullptr ? Status{} : reports->finish();
}

void CoordinatorClient::fail(ReplicaId replica, const Error& error, const std::vector<std::string>& recent_calls) {
  proto::Failure failure = failure_of(error);
  failure.set_instance(environment_.instance);
  failure.set_replica(index_of(replica));
  failure.set_host(machine_name());
  *failure.mutable_progress() = board_->progress(replica);
  failure.mutable_recent_calls()->Assign(recent_calls.begin(), recent_calls.end());
  grpc::ClientContext context;
  connection_->prepare(context, kFailSecondsMax);
  proto::FailReply reply;
  // If the call fails, the launcher is gone, and on_lost ends this process.
  const grpc::Status status = connection_->stub->Fail(&context, failure, &reply);
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    log::write(log::Level::kError, log::replica_source(index_of(replica), failure.host()),
               fmt::format("the launcher at {} did not release this instance within {} s; the instance exits: {}",
                           connection_->address, kFailSecondsMax, error.message));
  }
}

void CoordinatorClient::leave() {
  if (heartbeat_ != nullptr) {
    heartbeat_->leave();
  }
}

}  // namespace poprun
