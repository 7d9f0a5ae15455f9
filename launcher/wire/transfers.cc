#include "launcher/wire/transfers.h"

#include <algorithm>
#include <fstream>
#include <string_view>
#include <utility>

#include <asio/post.hpp>
#include <fmt/format.h>

namespace poprun::launcher {
namespace {

constexpr std::size_t kPieceBytesMax = 1 << 20;

class TensorSender final : public grpc::ServerWriteReactor<proto::TensorChunk> {
 public:
  TensorSender(std::span<const Tensor> tensors, Seat seat) : tensors_(tensors), seat_(std::move(seat)) { send_next(); }
  void OnWriteDone(bool ok) override { ok ? send_next() : Finish(grpc::Status::CANCELLED); }
  void OnDone() override { delete this; }

 private:
  void send_next() {
    if (tensor_ == tensors_.size()) {
      Finish(grpc::Status::OK);
      return;
    }
    const Tensor& tensor = tensors_[tensor_];
    const std::size_t bytes = std::min(kPieceBytesMax, tensor.data.size() - sent_);
    chunk_.set_name(tensor.name);
    chunk_.set_type(element_type(tensor.dtype));
    chunk_.mutable_shape()->Assign(tensor.shape.begin(), tensor.shape.end());
    chunk_.set_data(tensor.data.substr(sent_, bytes));
    sent_ += bytes;
    chunk_.set_last(sent_ == tensor.data.size());
    if (chunk_.last()) {
      ++tensor_;
      sent_ = 0;
    }
    StartWrite(&chunk_);
  }

  std::span<const Tensor> tensors_;
  Seat seat_;
  std::size_t tensor_ = 0;
  std::size_t sent_ = 0;
  proto::TensorChunk chunk_;
};

class OnnxSender final : public grpc::ServerWriteReactor<proto::OnnxModelPiece> {
 public:
  OnnxSender(const OnnxFile& file, Seat seat) : rest_(file.bytes), seat_(std::move(seat)) {
    piece_.set_file(file.name);
    send_next();
  }
  void OnWriteDone(bool ok) override { ok ? send_next() : Finish(grpc::Status::CANCELLED); }
  void OnDone() override { delete this; }

 private:
  void send_next() {
    if (rest_.empty()) {
      Finish(grpc::Status::OK);
      return;
    }
    const std::string_view data = rest_.substr(0, kPieceBytesMax);
    rest_.remove_prefix(data.size());
    piece_.set_data(data.data(), data.size());
    piece_.set_last(rest_.empty());
    StartWrite(&piece_);
  }

  std::string_view rest_;
  Seat seat_;
  proto::OnnxModelPiece piece_;
};

/// Returns the tensors of a safetensors file in the order of their data.
Result<std::vector<StoredTensor>> stored_in(const std::string& path) {
  POPRUN_ASSIGN(TensorList list, list_safetensors(path));
  std::vector<StoredTensor> tensors;
  for (TensorEntry& entry : list.entries) {
    tensors.push_back({.name = std::move(entry.name),
                       .dtype = std::move(entry.dtype),
                       .shape = std::move(entry.shape),
                       .path = path,
                       .offset = list.data_begin + entry.begin,
                       .bytes = entry.end - entry.begin});
  }
  return tensors;
}

class StoredSender final : public grpc::ServerWriteReactor<proto::TensorChunk> {
 public:
  StoredSender(Result<std::vector<StoredTensor>> tensors, Seat seat)
      : tensors_(std::move(tensors)), seat_(std::move(seat)) {
    if (!tensors_) {
      Finish({grpc::StatusCode::DATA_LOSS, tensors_.error().message});
      return;
    }
    send_next();
  }
  void OnWriteDone(bool ok) override { ok ? send_next() : Finish(grpc::Status::CANCELLED); }
  void OnDone() override { delete this; }

 private:
  void send_next() {
    if (tensor_ == tensors_->size()) {
      Finish(grpc::Status::OK);
      return;
    }
    const StoredTensor& tensor = (*tensors_)[tensor_];
    std::string& data = *chunk_.mutable_data();
    data.resize(std::min<std::uint64_t>(kPieceBytesMax, tensor.bytes - sent_));
    if (!read(tensor, data)) {
      Finish({grpc::StatusCode::DATA_LOSS, fmt::format("{}: tensor '{}' cannot be read", tensor.path, tensor.name)});
      return;
    }
    chunk_.set_name(tensor.name);
    chunk_.set_type(element_type(tensor.dtype));
    chunk_.mutable_shape()->Assign(tensor.shape.begin(), tensor.shape.end());
    sent_ += data.size();
    chunk_.set_last(sent_ == tensor.bytes);
    if (chunk_.last()) {
      ++tensor_;
      sent_ = 0;
    }
    StartWrite(&chunk_);
  }

  /// Reads the next bytes of a tensor.
  bool read(const StoredTensor& tensor, std::string& data) {
    if (tensor.path != path_) {
      path_ = tensor.path;
      file_ = std::ifstream(path_, std::ios::binary);
    }
    return file_.seekg(static_cast<std::streamoff>(tensor.offset + sent_)) &&
           file_.read(data.data(), static_cast<std::streamsize>(data.size()));
  }

  Result<std::vector<StoredTensor>> tensors_;
  std::string path_;
  std::ifstream file_;
  Seat seat_;
  std::size_t tensor_ = 0;
  std::uint64_t sent_ = 0;
  proto::TensorChunk chunk_;
};

grpc::Status status_of(CheckpointWriter::Outcome outcome) {
  switch (outcome) {
    case CheckpointWriter::Outcome::kStored:
      return grpc::Status::OK;
    case CheckpointWriter::Outcome::kFailed:
      return {grpc::StatusCode::UNAVAILABLE, "the checkpoint cannot be written"};
    case CheckpointWriter::Outcome::kRefused:
      return {grpc::StatusCode::FAILED_PRECONDITION, "the checkpoint folder belongs to a different job"};
    case CheckpointWriter::Outcome::kSuperseded:
      break;
  }
  return {grpc::StatusCode::ABORTED, "a later checkpoint replaced this one"};
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
  // The deletion runs after everything that was posted earlier.
  void OnDone() override {
    asio::post(disk_, [this] { delete this; });
  }

 private:
  void take_piece() {
    if (finished_) {
      return;
    }
    if (piece_.has_part() == began_) {  // The first piece, and no other, must describe the part.
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
      finish({grpc::StatusCode::INVALID_ARGUMENT, "the first piece must describe the part"});
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

grpc::ServerWriteReactor<proto::TensorChunk>* send_state(const std::string& path, Seat seat) {
  return new StoredSender(stored_in(path), std::move(seat));
}

grpc::ServerWriteReactor<proto::TensorChunk>* send_stored(std::vector<StoredTensor> tensors, Seat seat) {
  return new StoredSender(std::move(tensors), std::move(seat));
}

grpc::ServerWriteReactor<proto::TensorChunk>* send_tensors(std::span<const Tensor> tensors, Seat seat) {
  return new TensorSender(tensors, std::move(seat));
}

grpc::ServerWriteReactor<proto::OnnxModelPiece>* send_onnx_file(const OnnxFile& file, Seat seat) {
  return new OnnxSender(file, std::move(seat));
}

grpc::ServerReadReactor<proto::StatePiece>* receive_state(asio::thread_pool& disk, CheckpointWriter& writer,
                                                          const JobSize& job, Seat seat) {
  return new StateReceiver(disk, writer, job, std::move(seat));
}

}  // namespace poprun::launcher
