#include "launcher/job/dataset_of.h"

#include <optional>

#include <asio/io_context.hpp>

#include "launcher/job/data_service.h"
#include "launcher/process/supervisor.h"
#include "launcher/wire/security.h"

namespace poprun::launcher {

Result<proto::Dataset> dataset_of(const Options& options, Console& console) {
  POPRUN_ASSIGN(const Security security, job_security(options.tls_files, /*leaves_loopback=*/false));
  std::optional<Result<proto::Dataset>> answer;
  asio::io_context loop;
  Supervisor supervisor(loop);
  DataService data(loop, supervisor, console, options,
                   {.program = path_beside_us("poprun-emu-hostio"),
                    .own_address = "127.0.0.1",
                    .security = security,
                    .only_describe = true},
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
