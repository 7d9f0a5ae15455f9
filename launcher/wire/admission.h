#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/proto_utils.h>

#include "launcher/wire/bounds.h"
#include "replica/base/error.h"
#include "replica/base/grpc/identity.h"

/// Decides which calls to the launcher's service are served, and rejects all others.
namespace poprun::launcher {

inline grpc::Status refused(const Status& status) {
  return status ? grpc::Status::OK : grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, status.error().message);
}

inline grpc::Status wrong_token() {
  return {grpc::StatusCode::UNAUTHENTICATED, "the job token (POPRUN_EMU_TOKEN) is wrong or missing"};
}

inline grpc::Status out_of_bounds(const Status& status) {
  return {grpc::StatusCode::INVALID_ARGUMENT, status.error().message};
}

inline grpc::Status too_many(const char* what) {
  return {grpc::StatusCode::RESOURCE_EXHAUSTED, fmt::format("too many {} at once", what)};
}

/// Returns the status of a call that arrives after the job's end. CoordinatorClient::join recognises the status code.
inline grpc::Status job_is_over() {
  return {grpc::StatusCode::ABORTED, "the job is over"};
}

/// Ends a streaming call immediately.
template <typename Reactor>
class Refusing final : public Reactor {
 public:
  explicit Refusing(const grpc::Status& status) { this->Finish(status); }
  void OnDone() override { delete this; }
};

/// Parses a message. Call this only for an authenticated caller, since a message of 4 MiB can take up 100 MiB.
template <typename Message>
std::optional<Message> message_in(const grpc::ByteBuffer& bytes) {
  grpc::ByteBuffer shared = bytes;
  Message message;
  if (!grpc::SerializationTraits<Message>::Deserialize(&shared, &message).ok()) {
    return std::nullopt;
  }
  return message;
}

template <typename Message>
grpc::Status put(const Message& message, grpc::ByteBuffer& bytes) {
  bool own = false;
  return grpc::SerializationTraits<Message>::Serialize(message, &bytes, &own);
}

inline grpc::Status unreadable() {
  return {grpc::StatusCode::INVALID_ARGUMENT, "the message cannot be read"};
}

/// Serves calls that carry the job's token and epoch and whose messages are within bounds, unless too many are already
/// open.
class Admission {
 public:
  /// `job` must outlive this object.
  Admission(std::string token, std::uint64_t epoch, const JobSize& job)
      : token_(std::move(token)), epoch_(std::to_string(epoch)), job_(job) {}

  /// Returns the message of a call that can be served. Rejects any other call, and returns nothing.
  template <typename Message>
  std::optional<Message> message(const grpc::CallbackServerContext& context, const grpc::ByteBuffer& bytes,
                                 grpc::ServerUnaryReactor& reactor) const {
    if (const auto refusal = refusal_of(context)) {
      reactor.Finish(*refusal);
      return std::nullopt;
    }
    std::optional<Message> message = message_in<Message>(bytes);
    if (!message) {
      reactor.Finish(unreadable());
      return std::nullopt;
    }
    if (const Status bounded = check_bounds(*message, job_); !bounded) {
      reactor.Finish(out_of_bounds(bounded));
      return std::nullopt;
    }
    return message;
  }

  /// Serves a streaming call with the reactor that `make` returns. Rejects the call if the caller does not have the
  /// token or belongs to another attempt, or if `most` calls of this kind are already open. `open` counts the open
  /// calls of this kind.
  template <typename Reactor, typename Make>
  Reactor* serve(const grpc::CallbackServerContext& context, std::atomic<std::uint32_t>& open, std::uint32_t most,
                 const char* what, const Make& make) const {
    if (const auto refusal = refusal_of(context)) {
      return new Refusing<Reactor>(*refusal);
    }
    std::optional<Seat> seat = Seat::take(open, most);
    return seat ? static_cast<Reactor*>(make(*std::move(seat))) : new Refusing<Reactor>(too_many(what));
  }

 private:
  [[nodiscard]] std::optional<grpc::Status> refusal_of(const grpc::CallbackServerContext& context) const {
    const auto given = [&](const char* key) {
      const auto found = context.client_metadata().find(key);
      return found == context.client_metadata().end() ? std::string_view()
                                                      : std::string_view(found->second.data(), found->second.size());
    };
    if (!token_.empty() && !equal_tokens(given("poprun-token"), token_)) {
      return wrong_token();
    }
    if (given("poprun-epoch") != epoch_) {
      return job_is_over();  // The caller belongs to an earlier attempt.
    }
    return std::nullopt;
  }

  const std::string token_;
  const std::string epoch_;
  const JobSize& job_;
};

}  // namespace poprun::launcher
