#include "launcher/wire/coordinator.h"

#include <atomic>
#include <chrono>
#include <map>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include <asio/post.hpp>
#include <fmt/format.h>
#include <grpcpp/grpcpp.h>

#include "launcher/wire/admission.h"
#include "launcher/wire/transfers.h"
#include "proto/coordinator.grpc.pb.h"
#include "replica/base/grpc/channel.h"
#include "replica/base/grpc/listener.h"
#include "replica/base/rare.h"

namespace poprun::launcher {
namespace {

constexpr std::chrono::milliseconds kShutdownGrace{200};
constexpr int kReceivedBytesMax = 4 << 20;
constexpr std::uint32_t kFailuresOfAnInstanceMax = 4;
constexpr int kOtherCallsMax = 16;  // Per connection, beyond the parts of checkpoints.

/// Each kind of call has its own reactor. The messages of Join and Fail arrive unparsed, as bytes.
using ServiceBase = proto::Coordinator::WithRawCallbackMethod_Join<
    proto::Coordinator::WithCallbackMethod_Heartbeat<proto::Coordinator::WithCallbackMethod_Report<
        proto::Coordinator::WithRawCallbackMethod_Fail<proto::Coordinator::WithCallbackMethod_SendWeights<
            proto::Coordinator::WithCallbackMethod_SendModel<proto::Coordinator::WithCallbackMethod_StoreState<
                proto::Coordinator::WithCallbackMethod_SendState<proto::Coordinator::Service>>>>>>>>;

/// The reactors post events to the loop, which starts their next operation. Only one thread at a time uses a reactor.
class Service final : public Coordinator, public ServiceBase {
 public:
  Service(asio::io_context& loop, CoordinatorEvents& events, Setup setup)
      : loop_(loop), events_(events), setup_(std::move(setup)), admission_(setup_.token, setup_.epoch, setup_.job) {}

  Status listen() {
    POPRUN_ASSIGN(listener_, Listener::open(setup_.bind_host, 0));
    grpc::ServerBuilder builder;
    listener_->feed(builder, setup_.identity);
    // The calls that send the parts of a checkpoint all stay open until the last part has arrived.
    bound_clients(builder, static_cast<int>(setup_.job.replicas_per_instance) + kOtherCallsMax);
    builder.SetMaxReceiveMessageSize(kReceivedBytesMax);
    // Replicas send keepalive pings, which must not count as abuse.
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5000);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    listener_->start();
    return {};
  }

  [[nodiscard]] int port() const override { return listener_->port(); }

  void open(const proto::JoinReply& reply) override {
    reply_ = reply;
    for (const PendingJoin& join : std::exchange(pending_joins_, {})) {
      answer(join);
    }
  }

  void request_drain() override {
    wish_.set_drain(true);
    tell_wish();
  }

  void stop_after(std::uint64_t last_part) override {
    wish_.set_last_part(last_part);
    tell_wish();
  }

  void request_checkpoint(std::uint64_t step) override {
    wish_.set_checkpoint_after(step);
    tell_wish();
  }

  void excuse(bool excused) override {
    if (wish_.excused() != excused) {
      wish_.set_excused(excused);
      tell_wish();
    }
  }

  void close() override {
    closed_ = true;
    for (const PendingJoin& join : std::exchange(pending_joins_, {})) {
      join.reactor->Finish(job_is_over());
    }
    for (grpc::ServerUnaryReactor* failed : std::exchange(failed_, {})) {
      failed->Finish(grpc::Status::OK);
    }
  }

  void stop(const std::function<void()>& stopped) override {
    close();
    // Shutdown waits for calls that need the loop in order to end, so it cannot run on the loop.
    try {
      stopper_ = std::thread([this, stopped] {
        server_->Shutdown(std::chrono::system_clock::now() + kShutdownGrace);
        listener_->stop();
        asio::post(loop_, stopped);
      });
    } catch (const std::system_error&) {  // No thread is available, so the calls end with the process.
      asio::post(loop_, stopped);
    }
  }

  ~Service() override {
    if (stopper_.joinable()) {
      stopper_.join();
    }
  }

  grpc::ServerUnaryReactor* Join(grpc::CallbackServerContext* context, const grpc::ByteBuffer* bytes,
                                 grpc::ByteBuffer* reply) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    std::optional<proto::JoinRequest> asked = admission_.message<proto::JoinRequest>(*context, *bytes, *reactor);
    if (!asked) {
      return reactor;
    }
    asio::post(loop_, [this, reactor, request = *std::move(asked), reply] {
      if (closed_) {
        POPRUN_RARE("coordinator.join-too-late");
        reactor->Finish(job_is_over());
      } else if (const Status taken = events_.on_join(request); !taken) {
        reactor->Finish(refused(taken));
      } else if (reply_) {
        answer({reactor, reply});
      } else {
        pending_joins_.push_back({reactor, reply});
      }
    });
    return reactor;
  }

  grpc::ServerBidiReactor<proto::Beat, proto::Directive>* Heartbeat(grpc::CallbackServerContext* context) override {
    return admission_.serve<grpc::ServerBidiReactor<proto::Beat, proto::Directive>>(
        *context, heartbeats_open_, two_of_each_instance(), "heartbeats",
        [&](Seat seat) { return new HeartbeatReactor(*this, std::move(seat)); });
  }

  grpc::ServerReadReactor<proto::ReportItem>* Report(grpc::CallbackServerContext* context,
                                                     proto::ReportReply* /*reply*/) override {
    return admission_.serve<grpc::ServerReadReactor<proto::ReportItem>>(
        *context, reports_open_, two_of_each_instance(), "reports",
        [&](Seat seat) { return new ReportReactor(*this, std::move(seat)); });
  }

  grpc::ServerUnaryReactor* Fail(grpc::CallbackServerContext* context, const grpc::ByteBuffer* bytes,
                                 grpc::ByteBuffer* reply) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    std::optional<proto::Failure> told = admission_.message<proto::Failure>(*context, *bytes, *reactor);
    if (!told) {
      return reactor;
    }
    if (const grpc::Status written = put(proto::FailReply{}, *reply); !written.ok()) {
      reactor->Finish(written);
      return reactor;
    }
    asio::post(loop_, [this, reactor, failure = *std::move(told)] {
      if (++failures_[failure.instance()] > kFailuresOfAnInstanceMax) {
        reactor->Finish(too_many("failures"));
        return;
      }
      events_.on_failure(failure);
      if (closed_) {
        reactor->Finish(grpc::Status::OK);
      } else {
        failed_.push_back(reactor);
      }
    });
    return reactor;
  }

  grpc::ServerWriteReactor<proto::TensorChunk>* SendWeights(grpc::CallbackServerContext* context,
                                                            const proto::WeightsRequest* /*request*/) override {
    return admission_.serve<grpc::ServerWriteReactor<proto::TensorChunk>>(
        *context, sends_open_, two_of_each_instance(), "transfers",
        [&](Seat seat) {
          return setup_.initial_weights.empty() ? send_stored(setup_.onnx_model.weights, std::move(seat))
                                                : send_tensors(setup_.initial_weights, std::move(seat));
        });
  }

  grpc::ServerWriteReactor<proto::OnnxModelPiece>* SendModel(grpc::CallbackServerContext* context,
                                                             const proto::ModelRequest* /*request*/) override {
    return admission_.serve<grpc::ServerWriteReactor<proto::OnnxModelPiece>>(
        *context, sends_open_, two_of_each_instance(), "transfers",
        [&](Seat seat) { return send_onnx_file(setup_.onnx_model, std::move(seat)); });
  }

  grpc::ServerReadReactor<proto::StatePiece>* StoreState(grpc::CallbackServerContext* context,
                                                         proto::StoreStateReply* /*reply*/) override {
    return admission_.serve<grpc::ServerReadReactor<proto::StatePiece>>(
        *context, parts_open_, two_of_each_replica(), "parts of checkpoints",
        [&](Seat seat) { return receive_state(disk_, setup_.checkpoints, setup_.job, std::move(seat)); });
  }

  grpc::ServerWriteReactor<proto::TensorChunk>* SendState(grpc::CallbackServerContext* context,
                                                          const proto::StateRequest* /*request*/) override {
    return admission_.serve<grpc::ServerWriteReactor<proto::TensorChunk>>(
        *context, states_open_, two_of_each_replica(), "checkpoints",
        [&](Seat seat) { return send_state(setup_.resumed_state, std::move(seat)); });
  }

 private:
  struct PendingJoin {
    grpc::ServerUnaryReactor* reactor;
    grpc::ByteBuffer* reply;
  };

  class HeartbeatReactor final : public grpc::ServerBidiReactor<proto::Beat, proto::Directive> {
   public:
    HeartbeatReactor(Service& service, Seat seat) : service_(service), seat_(std::move(seat)) { StartRead(&beat_); }

    void OnReadDone(bool ok) override {
      asio::post(service_.loop_, [this, ok] { ok ? take_beat() : end(); });
    }
    void OnWriteDone(bool ok) override {
      asio::post(service_.loop_, [this, ok] {
        writing_ = false;
        if (ok) {
          tell_wish();
        }
      });
    }
    void OnCancel() override { cancelled_ = true; }
    // Only here is it certain whether the other side ended the call or died.
    void OnDone() override {
      asio::post(service_.loop_, [this] {
        service_.heartbeats_.erase(this);
        if (known_) {
          service_.events_.on_leave(instance_, !cancelled_);
        }
        delete this;
      });
    }

    void tell_wish() {
      if (told_ != service_.wishes_ && !writing_ && !ended_) {
        told_ = service_.wishes_;
        writing_ = true;
        directive_ = service_.wish_;
        StartWrite(&directive_);
      }
    }

   private:
    void take_beat() {
      Status bounded = check_bounds(beat_, service_.setup_.job);
      if (bounded && known_ && beat_.instance() != instance_) {
        bounded = fail(ErrorCode::kUsage, "all heartbeats of a call must come from the same instance");
      }
      if (!bounded) {
        refuse(bounded.error());
        return;
      }
      known_ = true;
      instance_ = beat_.instance();
      service_.heartbeats_.insert(this);
      service_.events_.on_beat(beat_);
      tell_wish();
      StartRead(&beat_);
    }

    /// Reports a bug, because our own instances never send such a heartbeat.
    void refuse(const Error& error) {
      POPRUN_RARE("coordinator.refused-heartbeat");
      ended_ = true;
      if (known_) {
        proto::Failure failure;
        failure.set_instance(instance_);
        failure.set_replica(instance_ * service_.setup_.job.replicas_per_instance);
        failure.set_exit_code(static_cast<std::uint32_t>(exit_code_of(ErrorCode::kBug)));
        failure.set_message(fmt::format("the launcher refused this instance's heartbeat: {}", error.message));
        service_.events_.on_failure(failure);
      }
      Finish(out_of_bounds(tl::unexpected<Error>{error}));
    }

    void end() {
      ended_ = true;
      Finish(grpc::Status::OK);
    }

    Service& service_;
    Seat seat_;
    proto::Beat beat_;
    proto::Directive directive_;  ///< The last directive sent.
    std::uint32_t instance_ = 0;
    bool known_ = false;
    std::uint32_t told_ = 0;  ///< The service's number for the directive that was sent last.
    bool writing_ = false;
    bool ended_ = false;
    std::atomic<bool> cancelled_ = false;
  };

  class ReportReactor final : public grpc::ServerReadReactor<proto::ReportItem> {
   public:
    ReportReactor(Service& service, Seat seat) : service_(service), seat_(std::move(seat)) { StartRead(&item_); }
    void OnReadDone(bool ok) override {
      asio::post(service_.loop_, [this, ok] { ok ? take_item() : end(); });
    }
    void OnDone() override { delete this; }

   private:
    void take_item() {
      if (const Status bounded = check_bounds(item_, service_.setup_.job); !bounded) {
        Finish(out_of_bounds(bounded));
        return;
      }
      is_of_replica_0_ = is_of_replica_0_ || !(item_.has_output() || item_.has_traced());
      const Status taken = service_.events_.on_report(item_);
      taken ? StartRead(&item_) : Finish(refused(taken));
    }
    void end() { Finish(is_of_replica_0_ ? refused(service_.events_.on_report_end()) : grpc::Status::OK); }

    Service& service_;
    Seat seat_;
    proto::ReportItem item_;
    bool is_of_replica_0_ = false;  ///< Only its report contains the profile.
  };

  [[nodiscard]] std::uint32_t two_of_each_instance() const { return 2 * setup_.job.instances; }
  [[nodiscard]] std::uint32_t two_of_each_replica() const {
    return two_of_each_instance() * setup_.job.replicas_per_instance;
  }

  void tell_wish() {
    ++wishes_;
    for (HeartbeatReactor* heartbeat : heartbeats_) {
      heartbeat->tell_wish();
    }
  }

  void answer(const PendingJoin& join) {
    proto::JoinReply reply = *reply_;
    reply.set_seconds_since_launch(monotonic_seconds() - setup_.launched_at);
    join.reactor->Finish(put(reply, *join.reply));
  }

  asio::io_context& loop_;
  CoordinatorEvents& events_;
  Setup setup_;
  Admission admission_;
  std::unique_ptr<Listener> listener_;

  // Numbers of open calls. An instance may have two, because one may be left over from a link that was cut.
  std::atomic<std::uint32_t> heartbeats_open_ = 0;
  std::atomic<std::uint32_t> reports_open_ = 0;
  std::atomic<std::uint32_t> sends_open_ = 0;   ///< Weights and models.
  std::atomic<std::uint32_t> parts_open_ = 0;   ///< Parts of checkpoints.
  std::atomic<std::uint32_t> states_open_ = 0;  ///< States of checkpoints to resume from.

  asio::thread_pool disk_{1};  ///< Thread that writes checkpoints.

  // Owned by the loop's thread.
  std::optional<proto::JoinReply> reply_;
  std::vector<PendingJoin> pending_joins_;
  std::vector<grpc::ServerUnaryReactor*> failed_;    ///< Failed instances that wait for permission to exit.
  std::map<std::uint32_t, std::uint32_t> failures_;  ///< Number of failures of each instance.
  std::set<HeartbeatReactor*> heartbeats_;
  proto::Directive wish_;
  std::uint32_t wishes_ = 0;
  bool closed_ = false;

  std::unique_ptr<grpc::Server> server_;
  std::thread stopper_;
};

}  // namespace

Result<std::unique_ptr<Coordinator>> Coordinator::start(asio::io_context& loop, CoordinatorEvents& events,
                                                        Setup setup) {
  auto service = std::make_unique<Service>(loop, events, std::move(setup));
  POPRUN_TRY(service->listen());
  return service;
}

double monotonic_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace poprun::launcher
