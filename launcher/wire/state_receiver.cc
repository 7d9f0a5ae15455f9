#include "launcher/wire/state_receiver.h"

#include <utility>

#include <asio/post.hpp>

namespace poprun::launcher {
namespace {

grpc::Status status_of(CheckpointWriter::Outcome outcome) {
  switch (outcome) {
    case CheckpointWriter::Outcome::kStored:
      return grpc::Status::OK;
    case CheckpointWriter::Outcome::kFailed:
      return {grpc::StatusCode::UNAVAILABLE, "the checkpoint cannot be written"};
    case CheckpointWriter::Outcome::kRefused:
      return {grpc::StatusCode::FAILED_PRECONDITION, "the folder of checkpoints is another job's"};
    case CheckpointWriter::Outcome::kSuperseded:
      break;
  }
  return {grpc::StatusCode::ABORTED, "a later checkpoint took its place"};
}

class StateReceiver final : public grpc::ServerReadReactor<proto::StatePiece> {
 public:
  StateReceiver(asio::thread_pool& disk, CheckpointWriter& writer, const JobSize& job, Seat seat)
      : disk_(disk), writer_(writer), job_(job), seat_(std::move(seat)) {
    StartRead(&piece_);
  }

  void OnReadDone(bool ok) override {
    asio::post(disk_, [this, ok] { ok ? take_piece() : end(); });
  }
  void OnCancel() override {
    asio::post(disk_, [this] { break_off(); });
  }
  // After whatever was posted before.
  void OnDone() override {
    asio::post(disk_, [this] { delete this; });
  }

 private:
  void take_piece() {
    if (finished_) {
      return;
    }
    if (piece_.has_part() == began_) {  // A part comes first, and once.
      break_off();
      return;
    }
    if (!began_) {
      if (const Status bounded = check_bounds(piece_.part(), job_); !bounded) {
        finish({grpc::StatusCode::INVALID_ARGUMENT, bounded.error().message});
        return;
      }
      began_ = true;
      replica_ = piece_.part().replica();
      writer_.begin(piece_.part(), [this](auto outcome) { finish(status_of(outcome)); });
    } else {
      writer_.write(replica_, piece_.data());
    }
    if (!finished_) {
      StartRead(&piece_);
    }
  }

  void end() {
    if (began_ && !finished_ && !broken_off_) {
      writer_.end(replica_);
    } else {
      break_off();
    }
  }

  void break_off() {
    if (finished_ || std::exchange(broken_off_, true)) {
      return;
    }
    if (began_) {
      writer_.cancel(replica_);
    } else {
      finish({grpc::StatusCode::INVALID_ARGUMENT, "a part is needed first"});
    }
  }

  void finish(const grpc::Status& status) {
    finished_ = true;
    Finish(status);
  }

  asio::thread_pool& disk_;
  CheckpointWriter& writer_;
  JobSize job_;
  Seat seat_;
  proto::StatePiece piece_;
  std::uint32_t replica_ = 0;
  bool began_ = false;
  bool broken_off_ = false;
  bool finished_ = false;
};

}  // namespace

grpc::ServerReadReactor<proto::StatePiece>* receive_state(asio::thread_pool& disk,
                                                          CheckpointWriter& writer,
                                                          const JobSize& job, Seat seat) {
  return new StateReceiver(disk, writer, job, std::move(seat));
}

}  // namespace poprun::launcher
