// Tests that a diffusion stage that is stopped after a step and resumed elsewhere gives the same
// bits as an uninterrupted one.
#include <QtTest>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "cluster/base/status.h"
#include "cluster/message/message.h"
#include "stages/runtime/stage_runner.h"
#include "stages/wan/stages.h"
#include "tests/reason.h"
#include "tests/test_main.h"
#include "tests/wan/models.h"

namespace onepiece::wan {
namespace {

namespace fs = std::filesystem;
using Artifacts = std::vector<sdk::Artifact>;

constexpr std::int64_t kSteps = 6;

message::Message ResumedJob() {
  message::Message job;
  job.header.uid = base::Uid::GenerateRandom();
  job.header.app = "tiny-wan-t2v";
  job.header.stage = "diffusion";
  job.header.deadline = base::SystemClock().Now() + std::chrono::hours(1);
  job.parameters = {{"prompt", std::string("a red circle moving right")},
                    {"negative_prompt", std::string()},
                    {"seed", std::int64_t{3}},
                    {"steps", kSteps},
                    {"guidance_scale", 5.0},
                    {"width", std::int64_t{32}},
                    {"height", std::int64_t{32}},
                    {"num_frames", std::int64_t{5}}};
  return job;
}

/// Returns these artifacts as a receiver gets them in a message.
Artifacts Carried(const message::Message& job, const Artifacts& artifacts) {
  message::Message sent = job;
  sent.artifacts = artifacts;
  const auto encoded = message::Encode(sent, {});
  std::string bytes;
  for (const auto& piece : encoded->pieces) {
    bytes.append(reinterpret_cast<const char*>(piece.bytes.data()), piece.bytes.size());
  }
  auto memory = message::AllocateAligned(bytes.size());
  std::memcpy(memory.get(), bytes.data(), bytes.size());
  const message::Buffer buffer(memory, {memory.get(), bytes.size()});
  return message::Decode(buffer, message::Checksum::kVerify, {})->artifacts;
}

struct Ran {
  absl::StatusOr<Artifacts> outputs;
  Artifacts saved;
  int steps = 0;  ///< Steps computed here.
};

/// Loads the stage as another process would, and runs it. Hands over after step `stop_after`.
Ran RunDiffusion(const std::string& model, const message::Message& job, int stop_after = 0) {
  Ran ran{.outputs = Artifacts()};
  const auto stage = MakeDiffusionStage();
  const absl::Status loaded = stage->Load({.model_dir = model, .threads = 1});
  if (!loaded.ok()) {
    ran.outputs = loaded;
    return ran;
  }
  const runtime::RunOptions options = {.cancelled = {},
                                       .progress = [&](int, int) { ++ran.steps; },
                                       .hand_over = [&](int step) { return step == stop_after; },
                                       .saved = &ran.saved};
  ran.outputs = runtime::RunStage(*stage, job, options);
  return ran;
}

bool SameState(const Artifacts& a, const Artifacts& b) {
  return a.size() == 1 && b.size() == 1 && a[0].shape == b[0].shape &&
         a[0].data.text() == b[0].data.text();
}

}  // namespace

class ResumeTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void initTestCase() {
    // The same model with the other scheduler.
    euler_ = folder_.path().toStdString();
    for (const auto& entry : fs::directory_iterator(kTinyModel)) {
      if (entry.path().filename() != "scheduler")
        fs::copy(entry.path(), fs::path(euler_) / entry.path().filename(),
                 fs::copy_options::recursive);
    }
    fs::create_directory(fs::path(euler_) / "scheduler");
    std::ofstream(euler_ + "/scheduler/scheduler_config.json")
        << "{\"_class_name\": \"FlowMatchEulerDiscreteScheduler\", \"shift\": 3.0}";

    const auto text = MakeTextEncodeStage();
    QVERIFY(text->Load({.model_dir = kTinyModel, .threads = 1}).ok());
    auto embeds = runtime::RunStage(*text, ResumedJob(), {});
    QVERIFY2(embeds.ok(), embeds.status().ToString().c_str());
    embeds_ = *std::move(embeds);
  }

  void Run_GoesOnBitForBit_data() {
    QTest::addColumn<bool>("euler");
    QTest::addColumn<int>("stop_after");
    for (const bool euler : {false, true}) {
      for (int k = 1; k <= static_cast<int>(kSteps); ++k) {
        QTest::addRow("%s after step %d", euler ? "euler" : "unipc", k) << euler << k;
      }
    }
  }
  void Run_GoesOnBitForBit() {
    QFETCH(bool, euler);
    QFETCH(int, stop_after);
    const std::string model = euler ? euler_ : kTinyModel;
    message::Message job = ResumedJob();
    job.artifacts = embeds_;
    const Ran whole = RunDiffusion(model, job);
    QVERIFY2(whole.outputs.ok(), whole.outputs.status().ToString().c_str());

    const Ran first = RunDiffusion(model, job, stop_after);
    QCOMPARE(first.outputs.status().code(), absl::StatusCode::kAborted);
    QCOMPARE(Reason(first.outputs.status()), std::string(runtime::kHandedOver));
    QCOMPARE(first.steps, stop_after);
    message::Message rest = job;
    rest.artifacts.insert(rest.artifacts.end(), first.saved.begin(), first.saved.end());
    rest.artifacts = Carried(job, rest.artifacts);
    const Ran second = RunDiffusion(model, rest);
    QVERIFY2(second.outputs.ok(), second.outputs.status().ToString().c_str());
    QCOMPARE(second.steps, static_cast<int>(kSteps) - stop_after);
    QVERIFY(SameState(*whole.outputs, *second.outputs));
  }

  void Run_GoesOnTwice() {
    message::Message job = ResumedJob();
    job.artifacts = embeds_;
    const Ran whole = RunDiffusion(kTinyModel, job);
    for (const int stop_after : {2, 4}) {
      const Ran part = RunDiffusion(kTinyModel, job, stop_after);
      QCOMPARE(Reason(part.outputs.status()), std::string(runtime::kHandedOver));
      job.artifacts = embeds_;
      job.artifacts.insert(job.artifacts.end(), part.saved.begin(), part.saved.end());
    }
    const Ran last = RunDiffusion(kTinyModel, job);
    QVERIFY2(last.outputs.ok(), last.outputs.status().ToString().c_str());
    QVERIFY(SameState(*whole.outputs, *last.outputs));
  }

  void Run_RefusesTheStateOfAnotherJob() {
    message::Message job = ResumedJob();
    job.artifacts = embeds_;
    const Ran part = RunDiffusion(kTinyModel, job, 2);
    job.artifacts.insert(job.artifacts.end(), part.saved.begin(), part.saved.end());
    for (const auto& [name, value] :
         std::vector<std::pair<std::string, sdk::Parameters::mapped_type>>{
             {"seed", std::int64_t{4}}, {"steps", std::int64_t{7}}, {"guidance_scale", 4.0}}) {
      message::Message other = job;
      other.parameters[name] = value;
      QCOMPARE(Reason(RunDiffusion(kTinyModel, other).outputs.status()), std::string("BAD_STATE"));
    }
  }

  void Run_RefusesADamagedState_data() {
    QTest::addColumn<QString>("artifact");
    for (const char* name :
         {"state", "state.latents", "state.rng", "state.newest", "state.last_sample"}) {
      QTest::newRow(name) << name;
    }
  }
  void Run_RefusesADamagedState() {
    QFETCH(QString, artifact);
    message::Message job = ResumedJob();
    job.artifacts = embeds_;
    const Ran part = RunDiffusion(kTinyModel, job, 2);
    for (const bool missing : {false, true}) {
      if (missing && artifact == "state") continue;  // Without a state it is a job from the start.
      message::Message damaged = job;
      for (sdk::Artifact saved : part.saved) {
        if (saved.name == artifact.toStdString()) {
          if (missing) continue;
          saved = message::BytesArtifact(saved.name, "application/json", "{\"version\": 1}");
        }
        damaged.artifacts.push_back(saved);
      }
      const absl::Status status = RunDiffusion(kTinyModel, damaged).outputs.status();
      QVERIFY2(absl::IsInvalidArgument(status), status.ToString().c_str());
    }
  }

 private:
  QTemporaryDir folder_;
  std::string euler_;
  Artifacts embeds_;
};

}  // namespace onepiece::wan

ONEPIECE_TEST(onepiece::wan::ResumeTest)
#include "resume_test.moc"
