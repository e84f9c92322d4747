#include "stages/wan/stages.h"

#include <ATen/ATen.h>

#include <QtTest>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "cluster/base/status.h"
#include "cluster/media/media.h"
#include "stages/wan/family.h"
#include "tests/test_main.h"
#include "tests/wan/models.h"
#include "tests/wan/stage_context.h"

namespace onepiece::wan {
namespace {

using Artifacts = std::vector<sdk::Artifact>;

sdk::Parameters ClipJob(const char* prompt) { return ClipOf(prompt, 3, "mp4"); }

std::string Sha(const Artifacts& artifacts) {
  const sdk::Artifact* sha = message::FindArtifact(artifacts, "frames_sha256");
  return sha == nullptr ? "" : std::string(sha->data.text());
}

/// Returns the horizontal centre of the pixels that are redder than green and blue.
double RedCentre(const media::Frames& frames, std::int64_t t) {
  double sum = 0, weight = 0;
  for (std::int64_t i = 0; i < frames.height * frames.width; ++i) {
    const auto* rgb = reinterpret_cast<const unsigned char*>(frames.rgb.data()) +
                      (t * frames.height * frames.width + i) * 3;
    const double red = std::max(0, rgb[0] - std::max(rgb[1], rgb[2]) - 60);
    sum += red * static_cast<double>(i % frames.width);
    weight += red;
  }
  return weight > 0 ? sum / weight : std::nan("");
}

}  // namespace

class StagesTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void initTestCase() {
    for (const auto& stage : stages_) {
      const absl::Status status = stage->Load({.model_dir = kTinyModel, .threads = 1});
      QVERIFY2(status.ok(), status.ToString().c_str());
    }
  }

  void Run_MakesTheVideoThatThePromptSays() {
    TestContext context(ClipJob("a red circle moving right"));
    const Artifacts outputs = RunAll(context);
    const sdk::Artifact* video = message::FindArtifact(outputs, "video");
    QVERIFY(video != nullptr);
    QCOMPARE(video->media_type, std::string("video/mp4"));
    const auto frames = media::Decode(video->data.bytes());
    QVERIFY2(frames.ok(), frames.status().ToString().c_str());
    QCOMPARE(frames->count, 9);
    QCOMPARE(frames->width, 64);
    QVERIFY(RedCentre(*frames, 8) - RedCentre(*frames, 0) > 8);
    QCOMPARE(Sha(outputs).size(), std::size_t{64});
  }

  // The noise comes from the CPU whatever the device, so only rounding may differ.
  void Run_OnAGpu_MakesTheSameVideo() {
    if (!at::hasCUDA()) QSKIP("LibTorch sees no GPU");
    const Stages stages = {MakeTextEncodeStage(), MakeDiffusionStage(), MakeVaeDecodeStage()};
    for (const auto& stage : stages) {
      const absl::Status status =
          stage->Load({.device = "cuda:0", .model_dir = kTinyModel, .threads = 1});
      QVERIFY2(status.ok(), status.ToString().c_str());
    }
    sdk::Parameters parameters = ClipJob("a red circle moving right");
    parameters["format"] = std::string("png");
    TestContext here(parameters), there(parameters);
    const Artifacts expected = RunAll(here), made = RunAll(there, stages);
    QCOMPARE(made.size(), expected.size());
    QCOMPARE(made.front().media_type, std::string("image/png"));
    for (std::size_t i = 0; i < made.size() && made[i].media_type == "image/png"; ++i) {
      const auto ours = media::Decode(made[i].data.bytes()),
                 theirs = media::Decode(expected[i].data.bytes());
      QVERIFY(ours.ok() && theirs.ok() && ours->rgb.size() == theirs->rgb.size());
      double difference = 0;
      for (std::size_t k = 0; k < ours->rgb.size(); ++k) {
        difference += std::abs(static_cast<unsigned char>(ours->rgb[k]) -
                               static_cast<unsigned char>(theirs->rgb[k]));
      }
      difference /= static_cast<double>(ours->rgb.size());
      QVERIFY2(difference < 0.1, (made[i].name + ": " + std::to_string(difference)).c_str());
    }
  }

  void Run_ReportsEveryStep() {
    TestContext context(ClipJob("a blue star"));
    RunAll(context);
    std::vector<std::pair<int, int>> expected = {{1, 2}, {2, 2}};
    for (int i = 1; i <= 20; ++i) expected.emplace_back(i, 20);
    for (int i = 1; i <= 4; ++i)
      expected.emplace_back(i, 4);  // Three frames of latents and the encoder.
    QVERIFY(context.progress == expected);
  }

  void Run_SameJobGivesTheSameFrames() {
    TestContext once(ClipJob("a green square moving up")),
        again(ClipJob("a green square moving up"));
    const std::string sha = Sha(RunAll(once));
    QCOMPARE(Sha(RunAll(again)), sha);
    sdk::Parameters other = ClipJob("a green square moving up");
    other["seed"] = std::int64_t{4};
    TestContext other_seed(other);
    QVERIFY(Sha(RunAll(other_seed)) != sha);
  }

  void Run_TextThatWasEncodedIsNotEncodedAgain() {
    // Returns the number of hits. Writes the embeddings to `out`.
    const auto run = [](sdk::Stage& stage, const char* prompt, Artifacts& out) {
      const auto hits = [&] {
        for (const auto& metric : stage.Metrics()) {
          if (metric.name == "conditioning_cache_hits_total") return metric.value;
        }
        return -1.0;
      };
      const double before = hits();
      TestContext context(ClipJob(prompt));
      out = stage.Run(context, {}).value();
      return static_cast<int>(hits() - before);
    };
    Artifacts first, again, other, two_threads;
    run(*text_, "a yellow star moving down", first);
    QCOMPARE(run(*text_, "a yellow star moving down", again), 2);
    QVERIFY(run(*text_, "a yellow star moving up", other) < 2);
    for (std::size_t i = 0; i < first.size(); ++i) {
      QCOMPARE(again[i].name, first[i].name);
      QCOMPARE(again[i].shape, first[i].shape);
      QVERIFY(again[i].data.text() == first[i].data.text());  // Bit for bit.
    }
    QVERIFY(other[0].data.text() != first[0].data.text());
    // Sums differ with the number of threads, so the results of one thread are not those of two.
    const auto parallel = MakeTextEncodeStage();
    QVERIFY(parallel->Load({.model_dir = kTinyModel, .threads = 2}).ok());
    QCOMPARE(run(*parallel, "a yellow star moving down", two_threads), 0);
  }

  void Load_RefusesAPrecisionThatItCannotCompute() {
    const absl::Status status =
        MakeTextEncodeStage()->Load({.model_dir = kTinyModel, .precision = "f16"});
    QCOMPARE(base::GetReason(status).reason, std::string("BAD_PRECISION"));
  }

  void Run_PngFormatGivesTheSameFrames() {
    sdk::Parameters parameters = ClipJob("a white square");
    TestContext mp4(parameters);
    const std::string sha = Sha(RunAll(mp4));
    parameters["format"] = std::string("png");
    TestContext png(parameters);
    const Artifacts outputs = RunAll(png);
    QCOMPARE(outputs.size(), std::size_t{10});
    QCOMPARE(outputs[8].name, std::string("frame_0008"));
    QCOMPARE(outputs[8].media_type, std::string("image/png"));
    QVERIFY(media::Decode(outputs[8].data.bytes()).ok());
    QCOMPARE(Sha(outputs), sha);
  }

  void Run_NegativePromptCountsOnlyWithGuidance() {
    sdk::Parameters with = ClipJob("a red circle"), without = ClipJob("a red circle");
    with["steps"] = without["steps"] = std::int64_t{3};
    with["negative_prompt"] = std::string("a blue star");
    for (const auto& [guidance, same] : {std::pair(1.0, true), std::pair(4.0, false)}) {
      with["guidance_scale"] = without["guidance_scale"] = guidance;
      TestContext a(with), b(without);
      QCOMPARE(Sha(RunAll(a)) == Sha(RunAll(b)), same);
    }
  }

  void Run_OtherSizesAndOneFrame() {
    sdk::Parameters parameters = ClipJob("a red circle");
    parameters["steps"] = std::int64_t{2};
    parameters["width"] = std::int64_t{96};
    parameters["height"] = std::int64_t{32};
    parameters["num_frames"] = std::int64_t{1};
    TestContext context(parameters);
    const Artifacts outputs = RunAll(context);
    const sdk::Artifact* video = message::FindArtifact(outputs, "video");
    QVERIFY(video != nullptr);
    const auto frames = media::Decode(video->data.bytes());
    QVERIFY(frames.ok());
    QCOMPARE(frames->count, 1);
    QCOMPARE(frames->width, 96);
    QCOMPARE(frames->height, 32);
  }

  void Run_StopsWhenCancelled() {
    TestContext context(ClipJob("a red circle"));
    auto embeds = text_->Run(context, {});
    QVERIFY(embeds.ok());
    TestContext cancelled(ClipJob("a red circle"));
    cancelled.cancel_at = 3;
    QCOMPARE(diffusion_->Run(cancelled, *embeds).status().code(), absl::StatusCode::kCancelled);
    QCOMPARE(cancelled.progress.size(), std::size_t{3});
  }

  void Run_TakesAnyPrompt() {
    sdk::Parameters parameters = ClipJob("");
    TestContext empty(parameters);
    QCOMPARE(text_->Run(empty, {}).value()[0].shape[1], 1);
    parameters["prompt"] = std::string(100'000, 'a') + " 红色 🦀";
    TestContext huge(parameters);
    QVERIFY(text_->Run(huge, {}).ok());
    std::string words;
    while (words.size() < 100'000) words += "a red circle ";
    parameters["prompt"] = words;
    TestContext long_prompt(parameters);
    QCOMPARE(text_->Run(long_prompt, {}).value()[0].shape[1], 512);
  }

  void Run_RefusesBadParameters() {
    sdk::Parameters parameters = ClipJob("\xff\xfe");
    TestContext not_text(parameters);
    QCOMPARE(text_->Run(not_text, {}).status().code(), absl::StatusCode::kInvalidArgument);
    parameters = ClipJob("a red circle");
    parameters["width"] = std::int64_t{72};
    parameters["format"] = std::string("gif");
    TestContext context(parameters);
    const auto embeds = text_->Run(context, {});
    QVERIFY(embeds.ok());
    QCOMPARE(diffusion_->Run(context, *embeds).status().code(), absl::StatusCode::kInvalidArgument);
    QCOMPARE(base::GetReason(vae_->Run(context, {}).status()).metadata.at("field"),
             std::string("format"));
    parameters.erase("prompt");
    TestContext no_prompt(parameters);
    QCOMPARE(text_->Run(no_prompt, {}).status().code(), absl::StatusCode::kInvalidArgument);
  }

  void Geometry_IsThatOfThePublishedModels() {
    const auto size = [](std::int64_t width, std::int64_t height, std::int64_t frames) {
      return model::ReadVideoSize({{"width", width}, {"height", height}, {"num_frames", frames}},
                                  kGeometry);
    };
    const auto published = size(1280, 720, 81);
    QVERIFY2(published.ok(), published.status().ToString().c_str());
    QVERIFY(
        (published->LatentShape(kGeometry, 16) == std::array<std::int64_t, 5>{1, 16, 21, 90, 160}));
    QCOMPARE(base::Message(size(1288, 720, 81).status()),
             std::string("width: 1288 is not a multiple of 16"));
    QCOMPARE(base::Message(size(1280, 720, 80).status()),
             std::string("num_frames: 80 is not 4k + 1"));
    QVERIFY(!size(2048, 2048, 257).ok());
  }

  void Run_RefusesBadArtifacts() {
    TestContext context(ClipJob("a red circle"));
    const auto embeds = text_->Run(context, {});
    QVERIFY(embeds.ok());
    QCOMPARE(base::GetReason(diffusion_->Run(context, {}).status()).reason,
             std::string("BAD_ARTIFACT"));
    Artifacts unfit = *embeds;
    unfit[0].shape = {1, unfit[0].shape[1] * 2, 32};
    QCOMPARE(base::GetReason(diffusion_->Run(context, unfit).status()).reason,
             std::string("BAD_ARTIFACT"));
    unfit = *embeds;
    unfit[0].shape[1] += 1;  // More than its bytes.
    QCOMPARE(diffusion_->Run(context, unfit).status().code(), absl::StatusCode::kInvalidArgument);
    unfit = *embeds;
    unfit[1].dtype = message::DType::kI32;
    QCOMPARE(base::GetReason(diffusion_->Run(context, unfit).status()).reason,
             std::string("BAD_ARTIFACT"));
    const std::vector<float> nan(16, std::nanf(""));
    sdk::Artifact latents{
        .name = "latents", .dtype = message::DType::kF32, .shape = {1, 16, 1, 1, 1}};
    latents.data =
        message::Buffer::FromString(std::string(reinterpret_cast<const char*>(nan.data()), 64));
    QCOMPARE(base::GetReason(vae_->Run(context, {latents}).status()).reason,
             std::string("BAD_ARTIFACT"));
    latents.shape = {1, 4, 1, 2, 2};
    latents.data = message::Buffer::FromString(std::string(64, '\0'));
    QCOMPARE(base::GetReason(vae_->Run(context, {latents}).status()).reason,
             std::string("BAD_ARTIFACT"));
  }

  void Load_SaysWhatIsWrong() {
    for (const auto& make :
         {&MakeTextEncodeStage, &MakeVaeEncodeStage, &MakeDiffusionStage, &MakeVaeDecodeStage}) {
      const auto stage = make();
      QCOMPARE(stage->Load({.model_dir = "/nonexistent"}).code(), absl::StatusCode::kNotFound);
      QCOMPARE(stage->Load({}).code(), absl::StatusCode::kInvalidArgument);
      QCOMPARE(stage->Load({.model_dir = kTinyModel, .threads = 0}).code(),
               absl::StatusCode::kInvalidArgument);
      QCOMPARE(stage->Load({.device = "abacus", .model_dir = kTinyModel}).code(),
               absl::StatusCode::kInvalidArgument);
    }
  }

  void Load_WorksAgainAfterUnload() {
    const auto stage = MakeTextEncodeStage();
    for (int i = 0; i < 2; ++i) {
      QVERIFY(stage->Load({.model_dir = kTinyModel}).ok());
      TestContext context(ClipJob("a red circle"));
      QVERIFY(stage->Run(context, {}).ok());
      stage->Unload();
    }
  }

 private:
  using Stages = std::array<std::unique_ptr<sdk::Stage>, 3>;

  /// Runs the three stages one after the other. Fails the test if a stage fails.
  Artifacts RunAll(TestContext& context) { return RunAll(context, stages_); }
  Artifacts RunAll(TestContext& context, const Stages& stages) {
    Artifacts artifacts;
    for (const auto& stage : stages) {
      auto outputs = stage->Run(context, artifacts);
      if (!outputs.ok()) {
        QTest::qFail(outputs.status().ToString().c_str(), __FILE__, __LINE__);
        return {};
      }
      artifacts = std::move(*outputs);
    }
    return artifacts;
  }

  const Stages stages_ = {MakeTextEncodeStage(), MakeDiffusionStage(), MakeVaeDecodeStage()};
  sdk::Stage* const text_ = stages_[0].get();
  sdk::Stage* const diffusion_ = stages_[1].get();
  sdk::Stage* const vae_ = stages_[2].get();
};

}  // namespace onepiece::wan

ONEPIECE_TEST(onepiece::wan::StagesTest)
#include "stages_test.moc"
