#include "replica/timeline/host_traffic.h"

#include <cstdint>

#include "replica/base/error.h"

namespace poprun {
namespace {

using Steps = google::protobuf::RepeatedPtrField<proto::Step>;
using Ids = google::protobuf::RepeatedField<std::uint32_t>;

Bytes bytes_of(const Program& program, const Ids& tensors) {
  Bytes bytes;
  for (const std::uint32_t id : tensors) {
    bytes += Bytes{static_cast<std::int64_t>(program.tensors(static_cast<int>(id)).bytes())};
  }
  return bytes;
}

void add(const Program& program, const Steps& steps, std::int64_t times, HostTraffic& total) {
  for (const proto::Step& step : steps) {
    if (step.has_repeat()) {
      add(program, step.repeat().steps(), times * step.repeat().count(), total);
    } else if (step.has_call()) {
      const proto::Function* callee = find_function(program, step.call().function());
      POPRUN_CHECK(callee != nullptr);
      add(program, callee->steps(), times, total);
    }
    total.to_device += bytes_of(program, step.stream_in().tensors()) * times;
    total.from_device += bytes_of(program, step.stream_out().tensors()) * times;
  }
}

}  // namespace

HostTraffic host_traffic(const Program& program, const proto::Function& function) {
  HostTraffic total;
  add(program, function.steps(), 1, total);
  return total;
}

}  // namespace poprun
