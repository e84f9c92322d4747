// The context of a stage in a test: parameters, every step that the stage reports, a cancellation.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "stages/sdk/stage.h"

namespace onepiece::wan {

class TestContext final : public sdk::StageContext {
 public:
  explicit TestContext(sdk::Parameters parameters) : parameters_(std::move(parameters)) {}
  const base::Uid& uid() const override { return uid_; }
  const sdk::Parameters& parameters() const override { return parameters_; }
  absl::Status Progress(int step, int steps) override {
    progress.emplace_back(step, steps);
    return step == cancel_at ? absl::CancelledError("test") : absl::OkStatus();
  }

  std::vector<std::pair<int, int>> progress;
  int cancel_at = -1;

 private:
  base::Uid uid_;
  sdk::Parameters parameters_;
};

/// Settings: twenty steps of a clip like those that the shipped models were trained on.
inline sdk::Parameters ClipOf(const char* prompt, std::int64_t seed, const char* format) {
  return {{"prompt", std::string(prompt)},
          {"negative_prompt", std::string()},
          {"seed", seed},
          {"steps", std::int64_t{20}},
          {"guidance_scale", 5.0},
          {"width", std::int64_t{64}},
          {"height", std::int64_t{64}},
          {"num_frames", std::int64_t{9}},
          {"format", std::string(format)},
          {"fps", std::int64_t{16}}};
}

}  // namespace onepiece::wan
