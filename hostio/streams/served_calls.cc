#include "hostio/streams/served_calls.h"

#include <optional>
#include <string>

#include <fmt/format.h>
#include <grpcpp/impl/codegen/proto_utils.h>

#include "hostio/sampling/sampling.h"
#include "hostio/streams/dataset_store.h"
#include "hostio/streams/wire.h"
#include "replica/base/text.h"

namespace poprun::hostio {
namespace {

constexpr std::uint64_t kCreditsMax = 1 << 20;

grpc::Status source_too_long() {
  return {grpc::StatusCode::INVALID_ARGUMENT, fmt::format("a source is limited to {} B", kSourceBytesMax)};
}

grpc::Status status_of(const Error& error) {
  switch (error.code) {
    case ErrorCode::kUsage:
      return {grpc::StatusCode::INVALID_ARGUMENT, error.message};
    case ErrorCode::kData:
      return {grpc::StatusCode::DATA_LOSS, error.message};
    case ErrorCode::kUnreachable:
    case ErrorCode::kBug:
    case ErrorCode::kHostResources:
    case ErrorCode::kInfrastructure:
    case ErrorCode::kOutOfMemory:
      break;
  }
  return {grpc::StatusCode::INTERNAL, error.message};
}

/// One replica's stream. It lives until both gRPC has finished with it and the dataset store has answered, in either
/// order. It is therefore owned by shared_ptrs: the stream itself holds one until OnDone, and the request to the store
/// holds one. One read is always pending until the end, so the stream notices a client that goes away. At most one
/// write is pending, and the end waits for it.
class ServedPull final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                         public Waiting,
                         public std::enable_shared_from_this<ServedPull> {
 public:
  static ServedPull* start(DatasetStore& datasets, NewsThread& news, const std::shared_ptr<Room>& room,
                           grpc::Status admission) {
    const auto call = std::make_shared<ServedPull>(datasets, news);
    call->self_ = call;
    if (admission.ok()) {
      if (room->enter()) {
        call->room_ = room;
      } else {
        admission = {grpc::StatusCode::RESOURCE_EXHAUSTED,
                     fmt::format("the data server already has {} streams, its maximum", Room::kStreamsMax)};
      }
    }
    if (admission.ok()) {
      call->StartRead(&call->request_);
    } else {
      call->end(std::move(admission));
    }
    return call.get();
  }

  ServedPull(DatasetStore& datasets, NewsThread& news) : datasets_(datasets), news_(news) {}

  ServedPull(const ServedPull&) = delete;
  ServedPull& operator=(const ServedPull&) = delete;
  ~ServedPull() override {
    if (room_ != nullptr) {
      room_->leave(reserved_);
    }
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      end({grpc::StatusCode::CANCELLED, "the client disconnected"});
      return;
    }
    proto::PullRequest request;
    const bool parsed = grpc::SerializationTraits<proto::PullRequest>::Deserialize(&request_, &request).ok();
    if (parsed && request.has_open() && !opened_) {
      opened_ = true;
      open(request.open());
    } else if (parsed && request.has_credit() && opened_) {
      {
        const std::lock_guard lock(mutex_);
        credits_ = std::min(credits_ + request.credit().batches(), kCreditsMax);
      }
      advance();
    } else {
      end({grpc::StatusCode::INVALID_ARGUMENT,
           "the first message of a stream must be `open`, and all others `credit`"});
      return;
    }
    StartRead(&request_);
  }

  void OnWriteDone(bool ok) override {
    {
      const std::lock_guard lock(mutex_);
      writing_ = false;
    }
    if (ok) {
      advance();
    } else {
      end({grpc::StatusCode::CANCELLED, "the client disconnected"});
    }
  }

  void OnDone() override { self_.reset(); }

  bool send_news() override {
    proto::Batch news;
    *news.mutable_loading() = datasets_.loading(selection_.source());
    {
      const std::lock_guard lock(mutex_);
      if (finished_ || outcome_ || sampler_) {
        return false;
      }
      if (writing_) {
        return true;  // The client has not taken the previous message yet.
      }
      bool own = false;
      if (!grpc::SerializationTraits<proto::Batch>::Serialize(news, &batch_, &own).ok()) {
        return true;
      }
      writing_ = true;
    }
    StartWrite(&batch_);
    return true;
  }

 private:
  void open(const proto::Open& open) {
    selection_ = open.selection();
    sequence_ = open.first_sequence();
    credits_ = std::min<std::uint64_t>(open.credits(), kCreditsMax);
    if (selection_.source().size() > kSourceBytesMax) {
      end(source_too_long());
      return;
    }
    if (selection_.fingerprint().empty()) {
      end({grpc::StatusCode::INVALID_ARGUMENT,
           "selection: the fingerprint that Describe returned is missing; is the job running a different version?"});
      return;
    }
    datasets_.load_then(
        selection_.source(), selection_.fingerprint(),
        [self = shared_from_this()](const Result<DatasetStore::Loaded>& dataset) { self->begin(dataset); });
    news_.add(weak_from_this());
  }

  void begin(const Result<DatasetStore::Loaded>& dataset) {
    const Result<Sampler> sampler =
        dataset.and_then([&](const DatasetStore::Loaded& loaded) { return sampler_for(loaded->description()); });
    if (!sampler) {
      end(status_of(sampler.error()));
      return;
    }
    const std::uint64_t bytes = batch_bytes((*dataset)->description(), selection_.micro_batch_size());
    if (!room_->take(bytes)) {
      end({grpc::StatusCode::RESOURCE_EXHAUSTED,
           fmt::format("other streams already use the data server's memory for batches; this stream needs {} of it",
                       mebibytes_text(bytes))});
      return;
    }
    reserved_ = bytes;
    {
      const std::lock_guard lock(mutex_);
      dataset_ = *dataset;
      sampler_ = *sampler;
    }
    advance();
  }

  [[nodiscard]] Result<Sampler> sampler_for(const proto::Dataset& description) const {
    POPRUN_ASSIGN(Sampler sampler, Sampler::make(selection_, items_of(description, selection_.split())));
    const std::uint64_t bytes = batch_bytes(description, selection_.micro_batch_size());
    if (bytes > kBatchBytesMax) {
      return fail(ErrorCode::kUsage, fmt::format("a micro-batch of {} samples of \"{}\" needs {}, but a host stream "
                                                 "message can hold at most {}; use a smaller data.micro-batch-size",
                                                 grouped(selection_.micro_batch_size()), selection_.source(),
                                                 mebibytes_text(bytes), mebibytes_text(kBatchBytesMax)));
    }
    return sampler;
  }

  /// Ends the stream with the first status given, once no write is pending.
  void end(grpc::Status status) {
    {
      const std::lock_guard lock(mutex_);
      if (!outcome_) {
        outcome_ = std::move(status);
      }
    }
    advance();
  }

  /// Starts the next write or the end, whichever is due. It decides under the lock and acts outside it; `writing_` and
  /// `finished_` keep other threads away in the meantime.
  void advance() {
    {
      const std::lock_guard lock(mutex_);
      if (writing_ || finished_) {
        return;
      }
      if (!outcome_ && sampler_ && sequence_ >= sampler_->batch_count()) {
        outcome_ = grpc::Status::OK;
      }
      if (!outcome_) {
        if (!sampler_ || credits_ == 0) {
          return;
        }
        Result<grpc::ByteBuffer> batch = encode_batch(dataset_, selection_.split(), *sampler_, sequence_);
        if (batch) {
          batch_ = std::move(*batch);
          ++sequence_;
          --credits_;
          writing_ = true;
        } else {
          outcome_ = status_of(batch.error());
        }
      }
      finished_ = outcome_.has_value();
    }
    if (finished_) {
      Finish(*outcome_);
    } else {
      StartWrite(&batch_);
    }
  }

  DatasetStore& datasets_;
  NewsThread& news_;
  std::shared_ptr<ServedPull> self_;
  std::shared_ptr<Room> room_;  ///< Set once the stream is admitted.
  std::uint64_t reserved_ = 0;  ///< Bytes reserved in the room.
  grpc::ByteBuffer request_;    ///< Request of the read in progress.
  bool opened_ = false;         ///< Used only by the reader.
  proto::Selection selection_;  ///< Constant once the stream is opened.

  std::mutex mutex_;  ///< Guards all members below.
  DatasetStore::Loaded dataset_;
  std::optional<Sampler> sampler_;
  std::uint64_t sequence_ = 0;
  std::uint64_t credits_ = 0;
  grpc::ByteBuffer batch_;  ///< Batch of the write in progress.
  bool writing_ = false;
  std::optional<grpc::Status> outcome_;
  bool finished_ = false;
};

/// A request for a description. It lives until both gRPC has finished with it and the dataset store has answered, as
/// does a ServedPull; a cancelled call does not wait for the answer.
class DescribeCall final : public grpc::ServerWriteReactor<proto::DescribeReply>,
                           public Waiting,
                           public std::enable_shared_from_this<DescribeCall> {
 public:
  static DescribeCall* start(DatasetStore& datasets, NewsThread& news, const grpc::Status& admission,
                             const proto::DescribeRequest& request) {
    const auto call = std::make_shared<DescribeCall>(datasets, request.source());
    call->self_ = call;
    if (!admission.ok()) {
      call->end(admission);
      return call.get();
    }
    const bool will_pull = !request.only_describe();
    datasets.describe_then(request.source(), will_pull, [call, will_pull](const Result<proto::Dataset>& description) {
      if (description && will_pull) {
        // The client will pull soon, so the load starts now. An error is reported again at the pull.
        call->datasets_.load_soon(call->source_, description->fingerprint());
      }
      call->end(description);
    });
    news.add(call);
    return call.get();
  }

  DescribeCall(DatasetStore& datasets, std::string source) : datasets_(datasets), source_(std::move(source)) {}

  void OnWriteDone(bool ok) override {
    {
      const std::lock_guard lock(mutex_);
      writing_ = false;
    }
    if (!ok) {
      end({grpc::StatusCode::CANCELLED, "the client disconnected"});
    }
    advance();
  }
  void OnCancel() override { end({grpc::StatusCode::CANCELLED, "the client disconnected"}); }
  void OnDone() override { self_.reset(); }

  bool send_news() override {
    const proto::Loading loading = datasets_.describing(source_);
    {
      const std::lock_guard lock(mutex_);
      if (outcome_) {
        return false;
      }
      if (writing_) {
        return true;
      }
      writing_ = true;
      *reply_.mutable_loading() = loading;
    }
    StartWrite(&reply_);
    return true;
  }

 private:
  /// Ends the call with the first status given, once no write is pending.
  void end(const grpc::Status& status) {
    {
      const std::lock_guard lock(mutex_);
      outcome_ = outcome_.value_or(status);
    }
    advance();
  }
  void end(const Result<proto::Dataset>& description) {
    {
      const std::lock_guard lock(mutex_);
      if (!outcome_ && description) {
        dataset_ = *description;
      }
    }
    end(description ? grpc::Status::OK : status_of(description.error()));
  }

  void advance() {
    {
      const std::lock_guard lock(mutex_);
      if (writing_ || finished_ || !outcome_) {
        return;
      }
      finished_ = true;
      if (outcome_->ok()) {
        *reply_.mutable_dataset() = dataset_;
      }
    }
    if (outcome_->ok()) {
      StartWriteAndFinish(&reply_, grpc::WriteOptions(), *outcome_);
    } else {
      Finish(*outcome_);
    }
  }

  DatasetStore& datasets_;
  const std::string source_;
  std::shared_ptr<DescribeCall> self_;

  std::mutex mutex_;  ///< Guards all members below.
  proto::Dataset dataset_;
  proto::DescribeReply reply_;  ///< Reply of the write in progress.
  bool writing_ = false;
  std::optional<grpc::Status> outcome_;
  bool finished_ = false;
};

}  // namespace

grpc::ServerWriteReactor<proto::DescribeReply>* serve_describe(DatasetStore& datasets, NewsThread& news,
                                                               const grpc::Status& admission,
                                                               const proto::DescribeRequest& request) {
  const bool too_long = admission.ok() && request.source().size() > kSourceBytesMax;
  return DescribeCall::start(datasets, news, too_long ? source_too_long() : admission, request);
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* serve_pull(DatasetStore& datasets, NewsThread& news,
                                                                        const std::shared_ptr<Room>& room,
                                                                        const grpc::Status& admission) {
  return ServedPull::start(datasets, news, room, admission);
}

}  // namespace poprun::hostio
