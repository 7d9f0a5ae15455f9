#include "launcher/verdict/same_numerics.h"

#include <gmock/gmock.h>

namespace poprun::launcher::same_numerics_test {
namespace {

proto::JoinRequest request(const std::string& host, const std::vector<std::string>& isas,
                           const std::string& onednn = "2.6.3", std::uint64_t libm = 7) {
  proto::JoinRequest request;
  request.set_host(host);
  request.mutable_cpu_isas()->Assign(isas.begin(), isas.end());
  request.set_onednn_version(onednn);
  request.set_libm_digest(libm);
  return request;
}

std::string error_of(const proto::JoinRequest& first, const proto::JoinRequest& other,
                     const std::string& cpu_isa = "") {
  const Status same = check_same_numerics(first, other, cpu_isa);
  return same ? "no error" : same.error().message;
}

const std::vector<std::string> kOld = {"sse41", "avx", "avx2"};
const std::vector<std::string> kVnni = {"sse41", "avx", "avx2", "avx2_vnni"};
const std::vector<std::string> kNew = {"sse41", "avx", "avx2", "avx512_core"};

TEST(SameNumerics, RefusesDifferentInstructionSetsAndNamesACommonOne) {
  EXPECT_EQ(error_of(request("a", kNew), request("b", kNew)), "no error");
  EXPECT_EQ(error_of(request("a", kNew), request("b", kOld)),
            "host a computes with avx512_core, but host b computes with avx2: results would depend on where a replica "
            "runs; use --cpu-isa avx2, or hosts with identical processors");
  EXPECT_THAT(error_of(request("a", kNew), request("b", kVnni)), ::testing::HasSubstr("use --cpu-isa avx2, or"));
}

TEST(SameNumerics, RefusesAHostWithoutTheChosenInstructionSet) {
  EXPECT_EQ(error_of(request("a", kOld), request("a", kOld), "avx2"), "no error");
  EXPECT_EQ(error_of(request("a", kOld), request("a", kOld), "avx512_core"),
            "host a computes with avx2, not with --cpu-isa avx512_core; use --cpu-isa avx2, or a different host");
  EXPECT_EQ(error_of(request("a", kOld), request("a", kOld), "avx"),
            "host a computes with avx2, not with --cpu-isa avx; remove ONEDNN_MAX_CPU_ISA from its "
            "environment");
}

TEST(SameNumerics, RefusesDifferentLibraries) {
  EXPECT_EQ(error_of(request("a", kNew), request("b", kNew, "3.1.0")),
            "host a has oneDNN 2.6.3, but host b has oneDNN 3.1.0; install the same version on all hosts");
  EXPECT_THAT(error_of(request("a", kNew), request("b", kNew, "2.6.3", 8)),
              ::testing::StartsWith("the C libraries of hosts a and b round exp"));
}

}  // namespace
}  // namespace poprun::launcher::same_numerics_test
