#include "replica/loops/loop.h"

#include <chrono>

namespace poprun {

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Result<std::unique_ptr<Engine>> load_engine(const Program& program, const LoopPorts& ports, HostIo& host,
                                            const EngineOptions& options, const std::uint64_t& step) {
  const auto tell = [&progress = ports.progress, self = ports.communicator.self(), &step](std::string_view activity) {
    progress.progress(self, step, activity);
  };
  tell("preparing the engine");
  POPRUN_ASSIGN(std::unique_ptr<Engine> engine,
                Engine::create(program, ports.communicator, host, options, tell, ports.memory));
  POPRUN_TRY(engine->run(name_of(JobFunction::kLoad)));
  engine->reset_clocks();
  return engine;
}

}  // namespace poprun
