#include "replica/link/launcher_ports.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "replica/base/text.h"
#include "replica/link/launcher_link.h"
#include "replica/link/streams_up.h"

namespace poprun {
namespace {

constexpr std::chrono::milliseconds kLastPatience{600'000};
constexpr std::chrono::seconds kFailedPatience{5};  // A failed replica has an error to report.
constexpr std::chrono::seconds kBetweenTries{2};
// The time limit of a part is kSendSecondsMax plus the time to send, sync and read back its bytes at the slowest rate.
constexpr double kSendSecondsMax = 600;
constexpr double kSlowestBytesPerSecond = 8e6;
constexpr double kReadSecondsMax = 3600;  // Covers all variables of a state.

/// Returns whether a failed attempt can be repeated.
bool may_be_sent_again(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::UNAVAILABLE;
}

grpc::Status send_part(const CoordinatorConnection& connection, grpc::ClientContext& context,
                       const proto::StatePart& part, std::span<const std::byte> bytes) {
  connection.prepare(context, kSendSecondsMax + static_cast<double>(bytes.size()) / kSlowestBytesPerSecond);
  proto::StoreStateReply reply;
  const auto stream = connection.stub->StoreState(&context, &reply);
  proto::StatePiece piece;
  *piece.mutable_part() = part;
  bool open = stream->Write(piece);
  while (open && !bytes.empty()) {
    const auto data = bytes.first(std::min(kPieceBytes, bytes.size()));
    bytes = bytes.subspan(data.size());
    piece.set_data(data.data(), data.size());
    open = stream->Write(piece);
  }
  if (open) {
    stream->WritesDone();
  }
  return stream->Finish();
}

constexpr std::size_t kChunkBytes = 1 << 20;

/// StepMetrics and EvaluationMetrics share these fields with StepReport and EvaluationReport.
template <typename Metrics, typename Report>
void fill(Metrics& metrics, const Report& report) {
  metrics.set_step(report.step);
  metrics.set_epoch(report.epoch);
  metrics.set_loss(report.loss);
  metrics.set_accuracy(report.accuracy);
  metrics.set_wall_seconds(report.wall_seconds);
  metrics.set_device_seconds(report.device_seconds);
  metrics.mutable_elapsed()->set_wall_seconds(report.elapsed.wall);
  metrics.mutable_elapsed()->set_data_seconds(report.elapsed.data);
  metrics.mutable_elapsed()->set_saving_seconds(report.elapsed.saving);
}

/// Calls `take` with each piece of a tensor.
template <typename Take>
void for_chunks(std::string_view name, std::string_view type, std::span<const std::int64_t> shape,
                std::span<const std::byte> data, Take take) {
  std::size_t sent = 0;
  do {
    const auto piece = data.subspan(sent, std::min(kChunkBytes, data.size() - sent));
    sent += piece.size();
    proto::TensorChunk chunk;
    chunk.set_name(std::string{name});
    chunk.set_type(std::string{type});
    chunk.mutable_shape()->Add(shape.begin(), shape.end());
    chunk.set_data(piece.data(), piece.size());
    chunk.set_last(sent == data.size());
    take(std::move(chunk));
  } while (sent < data.size());
}

}  // namespace

bool LauncherCheckpoints::is_due(std::uint64_t step) const {
  return (every_ > 0 && step % every_ == 0) || client_.checkpoint_after() == step;
}

/// Sets whether to give up the current part, instead of retrying, if the launcher's disk rejects it.
void LauncherCheckpoints::give_up(bool given_up) {
  {
    const std::lock_guard lock(mutex_);
    given_up_ = given_up;
  }
  changed_.notify_all();
}

std::optional<std::span<std::byte>> LauncherCheckpoints::begin(proto::StatePart part, bool is_last) {
  if (sending_.valid()) {
    give_up(true);
    const bool sent = sending_.wait_for(is_last ? kLastPatience : patience_) == std::future_status::ready;
    give_up(false);
    if (!sent) {
      return std::nullopt;
    }
    sending_.get();
  }
  part_ = std::move(part);
  std::size_t bytes = 0;
  for (const proto::StateSlice& slice : part_.slices()) {
    bytes += slice.bytes();
  }
  bytes_.resize(bytes);
  return std::span(bytes_);
}

void LauncherCheckpoints::send() {
  sending_ = std::async(std::launch::async, [this] { run(); });
}

void LauncherCheckpoints::settle(std::span<const std::uint64_t> last_steps, std::chrono::seconds patience) {
  if (!sending_.valid()) {
    return;
  }
  // If the checkpoint was requested late, some replicas may have finished without sending their parts.
  if (std::ranges::count(last_steps, last_step()) < part_.parts()) {
    abandon();
  }
  sending_.wait_for(patience);
  give_up(true);
  sending_.get();
}

/// Aborts the transfer of the last part, unless the launcher has received the part.
void LauncherCheckpoints::abandon() {
  const std::lock_guard lock(mutex_);
  abandoned_ = true;
  if (call_ != nullptr) {
    call_->TryCancel();
  }
  changed_.notify_all();
}

LauncherCheckpoints::~LauncherCheckpoints() {
  if (sending_.valid()) {
    give_up(true);
    sending_.wait_for(kFailedPatience);
    abandon();
    sending_.wait();
  }
}

void LauncherCheckpoints::run() {
  std::unique_lock lock(mutex_);
  while (!abandoned_) {
    grpc::ClientContext context;
    call_ = &context;
    lock.unlock();
    const grpc::Status status = send_part(client_.connection(), context, part_, bytes_);
    lock.lock();
    call_ = nullptr;
    const auto stops = [this] { return given_up_ || abandoned_; };
    if (!may_be_sent_again(status) || changed_.wait_for(lock, kBetweenTries, stops)) {
      return;
    }
  }
}

/// A SendState call in progress.
class StateStream {
 public:
  explicit StateStream(const CoordinatorConnection& connection) {
    connection.prepare(context_, kReadSecondsMax);
    stream_ = connection.stub->SendState(&context_, proto::StateRequest{});
  }
  StateStream(const StateStream&) = delete;
  StateStream& operator=(const StateStream&) = delete;
  ~StateStream() {
    context_.TryCancel();
    stream_->Finish();
  }

  bool read(proto::TensorChunk& chunk) { return stream_->Read(&chunk); }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<proto::TensorChunk>> stream_;
};

LauncherState::LauncherState(CoordinatorClient& client) : client_(client) {}

LauncherState::~LauncherState() = default;

Status LauncherState::read(const proto::StateVariable& variable, std::span<std::byte> into) {
  if (stream_ == nullptr) {
    stream_ = std::make_unique<StateStream>(client_.connection());
  }
  proto::TensorChunk chunk;
  do {
    if (!stream_->read(chunk)) {
      return fail(ErrorCode::kInfrastructure,
                  fmt::format("the launcher stopped sending the checkpoint at '{}'", variable.name()));
    }
    const bool fits = chunk.name() == variable.name() && chunk.type() == variable.type() &&
                      std::ranges::equal(chunk.shape(), variable.shape()) && chunk.data().size() <= into.size();
    if (!fits) {
      return fail(
          ErrorCode::kData,
          fmt::format(
              "the checkpoint belongs to a different job: it contains '{}' {} [{}], but this job has '{}' {} [{}]",
              chunk.name(), chunk.type(), fmt::join(chunk.shape(), ", "), variable.name(), variable.type(),
              fmt::join(variable.shape(), ", ")));
    }
    std::memcpy(into.data(), chunk.data().data(), chunk.data().size());
    into = into.subspan(chunk.data().size());
  } while (!chunk.last());
  if (!into.empty()) {
    return fail(ErrorCode::kData, fmt::format("the checkpoint contains {} B of '{}', but {} B are needed",
                                              variable.bytes() - into.size(), variable.name(), variable.bytes()));
  }
  return {};
}

void LauncherReporter::step(const StepReport& report) {
  proto::ReportItem item;
  fill(*item.mutable_step(), report);
  item.mutable_step()->set_learning_rate(report.learning_rate);
  send(std::move(item));
}

void LauncherReporter::evaluation(const EvaluationReport& report) {
  proto::ReportItem item;
  fill(*item.mutable_evaluation(), report);
  item.mutable_evaluation()->set_items(report.items);
  send(std::move(item));
}

void LauncherReporter::note(const proto::Note& note) {
  proto::ReportItem item;
  *item.mutable_note() = note;
  send(std::move(item));
}

void LauncherReporter::weights(std::string_view name, std::string_view type, std::span<const std::int64_t> shape,
                               std::span<const std::byte> data) {
  for_chunks(name, type, shape, data, [this](proto::TensorChunk chunk) {
    proto::ReportItem item;
    *item.mutable_weights() = std::move(chunk);
    send(std::move(item));
  });
}

void LauncherReporter::dump(std::uint64_t step, std::string_view name, std::string_view type,
                            std::span<const std::int64_t> shape, std::span<const std::byte> data) {
  for_chunks(name, type, shape, data, [this, step](proto::TensorChunk chunk) {
    proto::ReportItem item;
    item.mutable_dumped()->set_step(step);
    *item.mutable_dumped()->mutable_chunk() = std::move(chunk);
    send(std::move(item));
  });
}

void LauncherReporter::send(proto::ReportItem item) {
  if (status_) {
    status_ = client_.report(std::move(item));
  }
}

Status LauncherOutfeed::push(std::uint64_t batch, std::string_view type, std::span<const std::int64_t> shape,
                             std::span<const std::byte> data) {
  std::vector<std::uint64_t> items(static_cast<std::size_t>(shape[0]));
  const std::size_t counted = items_of_(batch, items);
  const std::size_t row_bytes = data.size() / items.size();
  for (std::size_t row = 0; row < counted; ++row) {
    for (std::size_t sent = 0; sent < row_bytes; sent += kPieceBytes) {
      const auto piece = data.subspan(row * row_bytes + sent, std::min(kPieceBytes, row_bytes - sent));
      proto::ReportItem report;
      proto::OutputPiece& output = *report.mutable_output();
      output.set_type(std::string{type});
      output.mutable_shape()->Add(shape.begin(), shape.end());
      output.set_shape(0, static_cast<std::int64_t>(items_));
      output.set_offset(items[row] * row_bytes + sent);
      output.set_data(piece.data(), piece.size());
      POPRUN_TRY(client_.report(std::move(report)));
    }
  }
  return {};
}

}  // namespace poprun
