/// A replica that computes nothing and misbehaves on demand, to test the launcher alone. The environment selects the
/// fault: FAKE_MODE applies to the instance FAKE_INSTANCE; all others behave.
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include <unistd.h>

#include "proto/answers.pb.h"
#include "replica/link/launcher_link.h"

namespace poprun {
namespace {

std::string variable(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? "" : text;
}

void talk() {
  std::printf("%s\n", std::string(10000, 'x').c_str());
  std::printf("half");
  std::fflush(stdout);
  usleep(50000);
  std::printf(" and half\n[replica 1 @ here] W tagged at its source\n");
  std::fflush(stdout);
}

class Fake {
 public:
  Fake(CoordinatorClient& client, InstanceEnvironment environment)
      : client_(client), environment_(std::move(environment)) {
    if (variable("FAKE_INSTANCE") == std::to_string(environment_.instance)) {
      mode_ = variable("FAKE_MODE");
    }
  }

  int run() {
    if (mode_ == "absent") {
      sleep(1000);
    }
    if (mode_ == "killed-early") {
      std::raise(SIGKILL);
    }
    if (!client_.join(30)) {
      return 75;
    }
    if (mode_ == "exit") {
      return 7;
    }
    if (mode_ == "fail") {
      client_.fail(ReplicaId{environment_.first_replica},
                   {ErrorCode::kOutOfMemory, "out of memory: needs 2 B, had 1 B\na table"}, {});
      return 86;
    }
    if (mode_ == "talk") {
      talk();
    }
    if (mode_ == "floods") {
      for (int line = 0; line < 200000; ++line) {
        std::printf("%060d\n", line);
      }
      std::fflush(stdout);
    }
    return train();
  }

 private:
  int train() {
    const std::uint64_t steps = variable("FAKE_STEPS").empty() ? 3 : std::stoull(variable("FAKE_STEPS"));
    std::uint64_t step = 0;
    proto::ReportItem shape;
    shape.mutable_shape()->set_total_steps(steps);
    if (environment_.instance == 0 && !client_.report(shape)) {
      return 75;
    }
    const ReplicaId self{environment_.first_replica};
    while (step < steps && (mode_ == "deaf" || client_.begin_part(self))) {
      client_.progress(self, ++step, "pretending");
      client_.operators(self, step, static_cast<double>(step) * (mode_ == "slow" ? 2.5 : 1));
      proto::ReportItem item;
      item.mutable_step()->set_step(step);
      if (environment_.instance == 0 && !client_.report(item)) {
        return 75;
      }
      usleep(10000);
    }
    if (mode_ == "evaluates" || mode_ == "saves-slowly") {
      sleep(5);
    }
    if (environment_.instance == 0 && mode_ != "no-profile") {
      proto::ReportItem item;
      item.mutable_profile()->mutable_outcome()->set_steps(step);
      item.mutable_profile()->mutable_outcome()->set_drained(step < steps);
      item.mutable_profile()->mutable_outcome()->set_test_accuracy(-1);
      if (!client_.report(item) || !client_.finish()) {
        return 75;
      }
    }
    client_.leave();
    if (mode_ == "lingers") {
      sleep(1000);
    }
    return mode_ == "dies-late" ? 9 : 0;
  }

  CoordinatorClient& client_;
  InstanceEnvironment environment_;
  std::string mode_;
};

int run() {
  const auto environment = read_instance_environment();
  if (!environment) {
    return 64;
  }
  CoordinatorClient client(*environment, [] { ::_exit(75); });
  return Fake(client, *environment).run();
}

}  // namespace
}  // namespace poprun

int main(int argc, char** argv) {
  if (argc > 1) {
    poprun::proto::CompileAnswer answer;  // Text in it is printed as it is.
    answer.set_passes("asked " + std::string{argv[1]} + "\n");
    return std::fputs(answer.SerializeAsString().c_str(), stdout) < 0 ? 1 : 0;
  }
  return poprun::run();
}
