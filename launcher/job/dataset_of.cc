#include "launcher/job/dataset_of.h"

#include <optional>

#include <asio/io_context.hpp>

#include "launcher/job/data_service.h"
#include "launcher/process/programs.h"
#include "launcher/process/supervisor.h"
#include "launcher/wire/job_token.h"

namespace poprun::launcher {

Result<proto::Dataset> dataset_of(const Options& options, Console& console) {
  POPRUN_TRY(check_users_token());
  std::optional<Result<proto::Dataset>> answer;
  asio::io_context loop;
  Supervisor supervisor(loop);
  DataService data(loop, supervisor, console, options,
                   {.program = path_beside_us("poprun-emu-hostio"),
                    .own_address = "127.0.0.1",
                    .token = job_token()},
                   {.on_dataset =
                        [&answer](const Result<ServedDataset>& served) {
                          answer = served.map([](const ServedDataset& s) { return s.dataset; });
                        },
                    .on_end = [](int /*status*/) {}});
  POPRUN_TRY(data.start());
  while (!answer) {
    loop.run_one();
  }
  data.forget();
  supervisor.kill_all();
  return *std::move(answer);
}

}  // namespace poprun::launcher
