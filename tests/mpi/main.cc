#include <cstdio>
#include <string>

#include <gtest/gtest.h>
#include <mpi.h>

/// Runs the tests on all ranks in step. Rank 0 prints everything, the others only their failures. The exit code is the
/// highest of all ranks.
namespace {

class FailurePrinter final : public ::testing::EmptyTestEventListener {
 public:
  explicit FailurePrinter(int rank) : rank_(rank) {}

  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (result.failed()) {
      const std::string place = result.file_name() == nullptr
                                    ? "unknown place"
                                    : std::string(result.file_name()) + ":" + std::to_string(result.line_number());
      std::fprintf(stderr, "rank %d: %s: %s\n", rank_, place.c_str(), result.message());
    }
  }

 private:
  int rank_;
};

}  // namespace

int main(int argc, char** argv) {
  int level = MPI_THREAD_SINGLE;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &level);
  ::testing::InitGoogleTest(&argc, argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank != 0) {
    auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new FailurePrinter(rank));  // GoogleTest owns it.
  }
  const int mine = RUN_ALL_TESTS();
  int worst = 0;
  MPI_Allreduce(&mine, &worst, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  MPI_Finalize();
  return worst;
}
