#include "launcher/version.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <google/protobuf/stubs/common.h>
#include <grpcpp/grpcpp.h>

#include "launcher/outputs/answer_text.h"
#include "replica/device/device.h"

namespace poprun::launcher {

std::string version_lines() {
#ifdef __clang__
  const std::string compiler = fmt::format("clang {}", __clang_version__);
#else
  const std::string compiler = fmt::format("g++ {}", __VERSION__);
#endif
  return fmt::format(
      "poprun-emu {}\n"
      "commit {}\n"
      "compiler {}\n"
      "chips {}\n"
      "schema of --format json {}\n"
      "gRPC {}\n"
      "Protobuf {}\n",
      POPRUN_VERSION, POPRUN_COMMIT, compiler, fmt::join(device_names(), " "), kAnswerSchema, grpc::Version(),
      google::protobuf::internal::VersionString(GOOGLE_PROTOBUF_VERSION));
}

}  // namespace poprun::launcher
