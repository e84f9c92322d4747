// onepiece-finetune trains a model at low priority. It may be stopped at any moment
// (docs/elasticity.md, "Idle work").
#include <csignal>
#include <ctime>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/str_format.h"
#include "cluster/base/status.h"
#include "stages/finetune/trainer.h"

namespace {

using namespace onepiece;

// The time for a checkpoint after SIGTERM. The process does not wait for one that takes longer; the
// checkpoints on the disk stay whole.
// The time is below the 300 ms after which an instance kills its idle work
// (LowPriorityChild::kTermLimit).
constexpr long kStopLimitNs = 200'000'000;

volatile std::sig_atomic_t stop_requested = 0;
timer_t stop_timer;

/// Ends the run at the next clip, or by SIGALRM when the limit passes.
void RequestStop(int) {
  stop_requested = 1;
  itimerspec limit{};
  limit.it_value.tv_nsec = kStopLimitNs;
  timer_settime(stop_timer, 0, &limit, nullptr);
}

void CatchSignals() {
  sigevent event{};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGALRM;
  // The timer comes before the handlers, which start it.
  timer_create(CLOCK_MONOTONIC, &event, &stop_timer);
  struct sigaction action {};
  action.sa_handler = RequestStop;
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
}

struct Arguments {
  finetune::TrainerOptions trainer;
  std::string checkpoints;
  std::int64_t steps = 0, checkpoint_every = 50;
  bool json = false;
};

absl::Status Train(Arguments arguments) {
  ONEPIECE_ASSIGN_OR_RETURN(const auto folder,
                            finetune::CheckpointFolder::Open(arguments.checkpoints));
  arguments.trainer.checkpoint = folder.Latest();
  ONEPIECE_ASSIGN_OR_RETURN(const auto trainer, finetune::Trainer::Open(arguments.trainer));
  while (stop_requested == 0 && (arguments.steps == 0 || trainer->steps() < arguments.steps)) {
    const auto loss = trainer->Step([] { return stop_requested != 0; });
    if (absl::IsCancelled(loss.status())) break;
    if (!loss.ok()) return loss.status();
    if (arguments.json) {
      std::cout << nlohmann::json({{"step", trainer->steps()}, {"loss", *loss}}).dump()
                << std::endl;
    } else {
      std::cout << absl::StrFormat("step %d: loss %.5f", trainer->steps(), *loss) << std::endl;
    }
    if (trainer->steps() % arguments.checkpoint_every == 0)
      ONEPIECE_RETURN_IF_ERROR(trainer->Save(folder));
  }
  return trainer->steps() > 0 ? trainer->Save(folder) : absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app(
      "Fine-tunes a text-to-video model on clips made in code; goes on from its last checkpoint.");
  app.add_option("--model", arguments.trainer.model_dir, "Model folder")->required();
  app.add_option("--checkpoint", arguments.checkpoints, "Folder of the run's checkpoints")
      ->required();
  app.add_option("--steps", arguments.steps, "Steps in all (default 0: until it is stopped)")
      ->check(CLI::Range(0, 99'999'999));
  app.add_option("--checkpoint-every", arguments.checkpoint_every,
                 "Steps between checkpoints (default 50)")
      ->check(CLI::Range(1, 1'000'000));
  app.add_option("--threads", arguments.trainer.threads, "Threads (default 1)")
      ->check(CLI::Range(1, 1024));
  app.add_option("--seed", arguments.trainer.seed,
                 "The same seed gives the same losses (default 0)")
      ->check(CLI::NonNegativeNumber);
  app.add_flag("--json", arguments.json, "One JSON object a line: step, loss");
  CLI11_PARSE(app, argc, argv);
  CatchSignals();
  const absl::Status status = Train(arguments);
  if (status.ok()) return 0;
  std::cerr << "onepiece-finetune: " << base::Message(status) << std::endl;
  return 1;
}
