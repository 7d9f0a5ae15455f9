#pragma once

#include <string>
#include <vector>

#include <google/protobuf/repeated_field.h>

#include "replica/base/error.h"
#include "replica/graph/graph.h"
#include "replica/machine/machine.h"
#include "replica/machine/step_tensors.h"

/// Code shared by stream_in and stream_out.
namespace poprun {

inline Status verify_stream(const Operation& operation) {
  const auto found = operation.attributes.values().find("stream");
  if (found == operation.attributes.values().end() || !std::holds_alternative<std::string>(found->second)) {
    return fail(ErrorCode::kUsage, operation.kind + " needs stream=\"NAME\"");
  }
  return {};
}

inline const std::string& stream_of(const Operation& operation) {
  return operation.attributes.text("stream");
}

inline std::vector<HostTensor> host_tensors(const google::protobuf::RepeatedField<std::uint32_t>& ids,
                                            const Machine& machine) {
  std::vector<HostTensor> tensors;
  tensors.reserve(static_cast<std::size_t>(ids.size()));
  for (const std::uint32_t id : ids) {
    tensors.push_back(machine.tensor(id));
  }
  return tensors;
}

}  // namespace poprun
