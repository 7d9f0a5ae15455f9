#include "collectives/mpi/mpi_link.h"

#include <span>
#include <utility>

namespace poprun::collectives {

bool complete(std::span<MPI_Request> requests, Clock::time_point limit) {
  return poll(limit, [&] { return test_all(requests); });
}

Result<std::shared_ptr<MpiLink>> MpiLink::create(std::size_t replicas, Clock::time_point limit,
                                                 LastExcuse last_excuse) {
  std::unique_ptr<MpiLink> link(new MpiLink(replicas, std::move(last_excuse)));
  MPI_Comm_rank(MPI_COMM_WORLD, &link->rank_);
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Comm_idup(MPI_COMM_WORLD, &link->world_, &request);
  if (!complete(std::span(&request, 1), limit)) {
    // MPI would write into the object if the missing process came after all.
    static_cast<void>(link.release());
    return fail(ErrorCode::kInfrastructure,
                "a process of the job exited while the exchange was starting");
  }
  return std::shared_ptr<MpiLink>(std::move(link));
}

MpiLink::~MpiLink() {
  if (!abandoned_ && world_ != MPI_COMM_NULL) {
    MPI_Comm_free(&world_);
  }
}

}  // namespace poprun::collectives
