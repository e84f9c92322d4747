// Tests a whole workflow as one stage: it makes what the single stages make, and it can be watched,
// stopped and resumed.
#include <QtTest>
#include <algorithm>
#include <string>
#include <vector>

#include "cluster/base/status.h"
#include "cluster/media/media.h"
#include "cluster/message/message.h"
#include "stages/runtime/stage_runner.h"
#include "stages/wan/stages.h"
#include "tests/test_main.h"
#include "tests/wan/models.h"
#include "tests/wan/stage_context.h"

namespace onepiece::wan {
namespace {

using Artifacts = std::vector<sdk::Artifact>;

/// Always with the same UID, which the files name.
message::Message FusedJob(bool image) {
  static const base::Uid uid = base::Uid::GenerateRandom();
  message::Message job;
  job.header.uid = uid;
  job.header.deadline = base::SystemClock().Now() + std::chrono::hours(1);
  job.parameters = ClipOf("a red circle moving right", 3, "png");
  job.parameters["steps"] = std::int64_t{4};
  if (image) {
    const std::vector<std::byte> grey(32 * 32 * 3, std::byte{120});
    job.artifacts = {
        message::BytesArtifact("image", "image/png", *media::EncodePng({grey, 1, 32, 32}, 0))};
  }
  return job;
}

std::unique_ptr<sdk::Stage> Loaded(std::unique_ptr<sdk::Stage> stage, bool image) {
  const absl::Status status = stage->Load(
      {.model_dir = kModels + (image ? "/tiny-wan-i2v" : "/tiny-wan-t2v"), .threads = 1});
  if (!status.ok()) QTest::qFail(status.ToString().c_str(), __FILE__, __LINE__);
  return stage;
}

std::unique_ptr<sdk::Stage> Fused(bool image) {
  return Loaded(image ? MakeImageToVideoStage() : MakeTextToVideoStage(), image);
}

/// Runs the job through the stages of the workflow, each in an object of its own.
absl::StatusOr<Artifacts> RunOneByOne(bool image) {
  message::Message job = FusedJob(image);
  const auto text = Loaded(MakeTextEncodeStage(), image);
  ONEPIECE_ASSIGN_OR_RETURN(Artifacts joined, runtime::RunStage(*text, job, {}));
  if (image) {
    const auto encode = Loaded(MakeVaeEncodeStage(), image);
    ONEPIECE_ASSIGN_OR_RETURN(const Artifacts condition, runtime::RunStage(*encode, job, {}));
    joined.insert(joined.end(), condition.begin(), condition.end());
  }
  job.artifacts = joined;
  const auto diffusion = Loaded(MakeDiffusionStage(), image);
  ONEPIECE_ASSIGN_OR_RETURN(job.artifacts, runtime::RunStage(*diffusion, job, {}));
  const auto decode = Loaded(MakeVaeDecodeStage(), image);
  return runtime::RunStage(*decode, job, {});
}

bool SameBytes(const Artifacts& a, const Artifacts& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].name != b[i].name || a[i].data.text() != b[i].data.text()) return false;
  }
  return true;
}

}  // namespace

class FusedStageTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Run_MakesWhatTheStagesMakeOneByOne_data() {
    QTest::addColumn<bool>("image");
    QTest::newRow("text to video") << false;
    QTest::newRow("image to video") << true;
  }
  void Run_MakesWhatTheStagesMakeOneByOne() {
    QFETCH(bool, image);
    const auto expected = RunOneByOne(image);
    QVERIFY2(expected.ok(), expected.status().ToString().c_str());
    const auto fused = Fused(image);
    const auto outputs = runtime::RunStage(*fused, FusedJob(image), {});
    QVERIFY2(outputs.ok(), outputs.status().ToString().c_str());
    QVERIFY(message::FindArtifact(*outputs, "frames_sha256") != nullptr);
    QVERIFY(SameBytes(*outputs, *expected));
  }

  void Run_ReportsStepsOfTheWhole() {
    const auto fused = Fused(false);
    std::vector<int> seen;
    int total = 0;
    const runtime::RunOptions options = {.cancelled = {}, .progress = [&](int step, int steps) {
                                           seen.push_back(step);
                                           total = steps;
                                         }};
    QVERIFY(runtime::RunStage(*fused, FusedJob(false), options).ok());
    QCOMPARE(total, 6);  // Text, four steps of the diffusion, frames.
    QVERIFY(std::ranges::is_sorted(seen));
    QCOMPARE(seen.front(), 1);
    QCOMPARE(seen.back(), 6);
  }

  void Run_StopsWhenCancelled() {
    const auto fused = Fused(false);
    int last = 0;
    const runtime::RunOptions options = {.cancelled = [&] { return last == 3; },
                                         .progress = [&](int step, int) { last = step; }};
    QVERIFY(absl::IsCancelled(runtime::RunStage(*fused, FusedJob(false), options).status()));
    QCOMPARE(last, 3);
  }

  void Run_GoesOnElsewhere() {
    const auto fused = Fused(false);
    const auto whole = runtime::RunStage(*fused, FusedJob(false), {});
    message::Message job = FusedJob(false);
    Artifacts saved;
    const runtime::RunOptions options = {.cancelled = {},
                                         .progress = {},
                                         .hand_over = [](int step) { return step == 3; },
                                         .saved = &saved};
    QCOMPARE(base::GetReason(runtime::RunStage(*fused, job, options).status()).reason,
             std::string(runtime::kHandedOver));
    QVERIFY(!saved.empty());
    job.artifacts = saved;
    int first = 0;
    const runtime::RunOptions rest = {.cancelled = {}, .progress = [&](int step, int) {
                                        if (first <= 1) first = step;
                                      }};
    const auto other = Fused(false);
    const auto outputs = runtime::RunStage(*other, job, rest);
    QVERIFY2(outputs.ok(), outputs.status().ToString().c_str());
    QCOMPARE(first, 4);  // Two steps of the diffusion were done.
    QVERIFY(SameBytes(*outputs, *whole));
  }

  void Info_AsksForWhatNoPartMakes() {
    const sdk::StageInfo info = MakeImageToVideoStage()->Info();
    QVERIFY((info.inputs == std::vector<std::string>{"image"}));
    QVERIFY(std::ranges::count(info.optional_inputs, "last_image") == 1);
    QVERIFY((info.outputs == std::vector<std::string>{"frames_sha256"}));
    QVERIFY(MakeTextToVideoStage()->Info().inputs.empty());
  }
};

}  // namespace onepiece::wan

ONEPIECE_TEST(onepiece::wan::FusedStageTest)
#include "fused_stage_test.moc"
