// The stages as a group of workers runs them: the members that the runtime names, which change at
// the checkpoints, and what each worker's run gives.
#include <ATen/ATen.h>

#include <QtTest>
#include <algorithm>
#include <cmath>
#include <memory>
#include <mutex>
#include <optional>

#include "cluster/base/status.h"
#include "stages/runtime/stage_runner.h"
#include "stages/tensor/torch_convert.h"
#include "stages/wan/stages.h"
#include "tests/collectives/thread_group.h"
#include "tests/reason.h"
#include "tests/test_main.h"
#include "tests/wan/models.h"

namespace onepiece::wan {
namespace {

using testing::Patience;
using testing::ThreadGroup;
using testing::ThreadWorld;
using Outputs = std::vector<sdk::Artifact>;
using Workers = std::vector<std::uint32_t>;
using MakeStage = std::unique_ptr<sdk::Stage> (*)();

constexpr int kSharedSteps = 4;

message::Message SharedJob(const char* stage, Outputs artifacts) {
  message::Message job;
  job.header.uid = base::Uid::GenerateRandom();
  job.header.app = "tiny-wan-t2v";
  job.header.stage = stage;
  job.header.deadline = base::SystemClock().Now() + std::chrono::hours(1);
  job.parameters = {{"prompt", std::string("a red circle moving right")},
                    {"negative_prompt", std::string()},
                    {"seed", std::int64_t{3}},
                    {"steps", std::int64_t{kSharedSteps}},
                    {"guidance_scale", 5.0},
                    {"width", std::int64_t{64}},
                    {"height", std::int64_t{64}},
                    {"num_frames", std::int64_t{9}},
                    {"format", std::string("raw")}};
  job.artifacts = std::move(artifacts);
  return job;
}

/// Runs a stage as the instance of worker `worker` would: step i of the job is computed by
/// schedule[i], and the worker comes at step `from`.
class WorkerRun {
 public:
  WorkerRun(ThreadWorld& world, const std::vector<Workers>& schedule, std::uint32_t worker,
            int from)
      : world_(world), schedule_(schedule), worker_(worker), from_(from), done_(from) {}

  absl::StatusOr<Outputs> Run(MakeStage make, const message::Message& job) {
    const auto stage = make();
    ONEPIECE_RETURN_IF_ERROR(stage->Load({.model_dir = kTinyModel, .threads = 1}));
    Outputs saved;
    const runtime::RunOptions options = {.progress = [&](int step, int) { done_ = step; },
                                         .hand_over = [&](int step) { return !IsMember(step); },
                                         .collaboration = [&] { return With(); },
                                         .saved = &saved};
    return runtime::RunStage(*stage, job, options);
  }

 private:
  [[nodiscard]] const Workers& MembersAt(int step) const {
    return schedule_[std::min(static_cast<std::size_t>(step), schedule_.size() - 1)];
  }
  [[nodiscard]] bool IsMember(int step) const {
    return std::ranges::count(MembersAt(step), worker_) > 0;
  }
  sdk::Collaboration With() {
    const Workers& members = MembersAt(done_);
    const auto epoch = static_cast<std::uint64_t>(
        std::min(static_cast<std::size_t>(done_), schedule_.size() - 1) + 1);
    if (!group_ || group_->descriptor().epoch != epoch) {
      const auto rank = std::ranges::find(members, worker_) - members.begin();
      group_.emplace(world_, sdk::GroupDescriptor{.job = "job", .epoch = epoch, .members = members},
                     static_cast<int>(rank));
    }
    sdk::Collaboration with{.group = &*group_, .deadline = Patience, .steps_done = done_};
    for (std::size_t rank = 0; done_ > 0 && rank < members.size(); ++rank) {
      if (std::ranges::count(MembersAt(done_ - 1), members[rank]) == 0)
        with.newcomers.push_back(static_cast<int>(rank));
    }
    return with;
  }

  ThreadWorld& world_;
  const std::vector<Workers>& schedule_;
  const std::uint32_t worker_;
  const int from_;
  int done_;
  std::optional<ThreadGroup> group_;
};

absl::StatusOr<Outputs> ByOneWorker(MakeStage make, const message::Message& job) {
  const auto stage = make();
  ONEPIECE_RETURN_IF_ERROR(stage->Load({.model_dir = kTinyModel, .threads = 1}));
  return runtime::RunStage(*stage, job, {});
}

/// Returns what the workers' last runs gave.
std::vector<absl::StatusOr<Outputs>> ByWorkers(MakeStage make, const message::Message& job,
                                               const std::vector<Workers>& schedule, int workers) {
  ThreadWorld world;
  return testing::RunWorkers<Outputs>(
      workers, [&](std::uint32_t worker) -> absl::StatusOr<Outputs> {
        absl::StatusOr<Outputs> last = Outputs();
        const auto computes = [&](std::size_t step) {
          return std::ranges::count(schedule[step], worker) > 0;
        };
        for (std::size_t step = 0; step < schedule.size(); ++step) {
          if (!computes(step) || (step > 0 && computes(step - 1))) continue;
          last = WorkerRun(world, schedule, worker, static_cast<int>(step)).Run(make, job);
        }
        return last;
      });
}

at::Tensor TensorOf(const Outputs& outputs, const char* name) {
  const sdk::Artifact* artifact = message::FindArtifact(outputs, name);
  return artifact == nullptr ? at::Tensor() : tensor::ToTensor(*artifact)->to(at::kFloat);
}

}  // namespace

class CollaborationTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void initTestCase() {
    const auto embeds = ByOneWorker(MakeTextEncodeStage, SharedJob("text_encode", {}));
    QVERIFY2(embeds.ok(), embeds.status().ToString().c_str());
    embeds_ = *embeds;
    const auto latents = ByOneWorker(MakeDiffusionStage, SharedJob("diffusion", embeds_));
    QVERIFY2(latents.ok(), latents.status().ToString().c_str());
    latents_ = *latents;
  }

  void Diffusion_ByMembersThatChange_IsOneWorkers_data() {
    QTest::addColumn<std::vector<Workers>>("schedule");
    using S = std::vector<Workers>;
    QTest::newRow("two") << S{{0, 1}, {0, 1}, {0, 1}, {0, 1}};
    QTest::newRow("grows") << S{{0}, {0, 1}, {0, 1, 2}, {0, 1, 2, 3}};
    QTest::newRow("shrinks") << S{{0, 1, 2, 3}, {1, 2, 3}, {2, 3}, {3}};
    QTest::newRow("moves") << S{{0, 1}, {2, 1}, {2, 3}, {0, 3}};
  }
  void Diffusion_ByMembersThatChange_IsOneWorkers() {
    QFETCH(std::vector<Workers>, schedule);
    const at::Tensor alone = TensorOf(latents_, "latents");
    const auto results =
        ByWorkers(MakeDiffusionStage, SharedJob("diffusion", embeds_), schedule, 4);
    for (std::uint32_t worker = 0; worker < 4; ++worker) {
      const auto& result = results[worker];
      const auto computes = [&](const Workers& members) {
        return std::ranges::count(members, worker) > 0;
      };
      if (!std::ranges::any_of(schedule, computes)) continue;
      if (!computes(schedule.back())) {
        QCOMPARE(Reason(result.status()), std::string(runtime::kHandedOver));
        continue;
      }
      QVERIFY2(result.ok(), result.status().ToString().c_str());
      const at::Tensor latents = TensorOf(*result, "latents");
      QVERIFY(latents.defined());
      const double error = ((latents - alone).norm() / alone.norm()).item<double>();
      qInfo("worker %u: error %.1e", worker, error);
      QVERIFY(error <= 1e-5);
    }
  }

  void VaeDecode_OfAGroup_TheFirstRankMakesTheVideo() {
    const auto alone = ByOneWorker(MakeVaeDecodeStage, SharedJob("vae_decode", latents_));
    QVERIFY2(alone.ok(), alone.status().ToString().c_str());
    CompareFrames(*alone,
                  ByWorkers(MakeVaeDecodeStage, SharedJob("vae_decode", latents_), {{0, 1, 2}}, 3));
  }

  void TextToVideo_OfAGroup_IsOneWorkers() {
    const auto alone = ByOneWorker(MakeTextToVideoStage, SharedJob("text_to_video", {}));
    QVERIFY2(alone.ok(), alone.status().ToString().c_str());
    CompareFrames(*alone,
                  ByWorkers(MakeTextToVideoStage, SharedJob("text_to_video", {}), {{0, 1}}, 2));
  }

 private:
  static void CompareFrames(const Outputs& alone,
                            const std::vector<absl::StatusOr<Outputs>>& results) {
    for (const auto& result : results) {
      QVERIFY2(result.ok(), result.status().ToString().c_str());
      // All ranks have the same bits.
      QVERIFY(message::FindArtifact(*result, "frames_sha256")->data.text() ==
              message::FindArtifact(*results[0], "frames_sha256")->data.text());
      QCOMPARE(message::FindArtifact(*result, "frames") != nullptr, &result == &results[0]);
    }
    const at::Tensor difference = TensorOf(*results[0], "frames") - TensorOf(alone, "frames");
    // A value that lies between two numbers may be rounded to the other one.
    QVERIFY(difference.abs().max().item<float>() <= 1);
    QVERIFY(difference.abs().mean().item<float>() < 0.01);
  }

  Outputs embeds_, latents_;
};

}  // namespace onepiece::wan

ONEPIECE_TEST(onepiece::wan::CollaborationTest)
#include "collaboration_test.moc"
