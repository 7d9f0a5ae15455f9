#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/answers.pb.h"
#include "replica/base/error.h"

/// Chakra execution traces (MLCommons), which ASTRA-sim and other simulators of networks replay.
namespace poprun::launcher {

/// Writes one step as DIR/step.NPU.et, where NPU r * i + k is IPU k of replica r with i IPUs each, and
/// DIR/comm_groups.json, which lists the NPUs of each group that the attribute `pg_name` of a collective names. Removes
/// earlier traces from the folder. Files of replicas without peers are links to that of replica 0. Returns a line that
/// says what was written. Errors: kUsage above 1,024 NPUs, or if the folder cannot be written; those of
/// write_whole_file.
Result<std::string> write_chakra(const std::string& folder, const std::vector<proto::ChakraTrace>& ipus,
                                 std::uint32_t replicas);

}  // namespace poprun::launcher
