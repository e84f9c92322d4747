// Tests a second model family, tests/examples/family. It is built outside the tree against the
// installed SDK and then loaded beside Wan's plug-in.
#include <QTemporaryDir>
#include <QtTest>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "stages/sdk/plugin_loader.h"
#include "tests/examples/installed_sdk.h"
#include "tests/tensor/safetensors_bytes.h"
#include "tests/test_main.h"
#include "tests/wan/stage_context.h"

namespace onepiece::examples {
namespace {

const std::string kWanPlugin = ONEPIECE_BINARY_DIR "/lib/onepiece/stages/wan.so";
const std::string kWanModel = ONEPIECE_SOURCE_DIR "/resources/models/tiny-wan-t2v";
constexpr float kValues[] = {0.5F, -0.25F};  // The toy's factors for its two channels.

std::string Bytes(const std::vector<float>& values) {
  std::string bytes(values.size() * sizeof(float), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

std::vector<float> Floats(const sdk::Artifact& artifact) {
  std::vector<float> values(artifact.data.size() / sizeof(float));
  std::memcpy(values.data(), artifact.data.bytes().data(), values.size() * sizeof(float));
  return values;
}

void WriteJson(const std::string& path, const nlohmann::json& json) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  tensor::WriteFile(path, json.dump());
}

/// Writes a model of the toy family.
void WriteModel(const std::string& dir) {
  WriteJson(dir + "/model_index.json", {{"transformer", {"toy", "ToyTransformer"}}});
  WriteJson(dir + "/transformer/config.json", {{"_class_name", "ToyTransformer"}, {"channels", 2}});
  WriteJson(dir + "/scheduler/scheduler_config.json",
            {{"_class_name", "FlowMatchEulerDiscreteScheduler"}});
  const nlohmann::json header = {
      {"to_v.weight", {{"dtype", "F32"}, {"shape", {2, 2}}, {"data_offsets", {0, 16}}}}};
  tensor::WriteFile(dir + "/transformer/model.safetensors",
                    tensor::SafetensorsBytes(header.dump(), Bytes({kValues[0], 0, 0, kValues[1]})));
}

/// One pixel of latents in one frame.
sdk::Parameters Job(std::int64_t steps) {
  return {{"seed", std::int64_t{3}},   {"steps", steps},
          {"guidance_scale", 1.0},     {"width", std::int64_t{8}},
          {"height", std::int64_t{8}}, {"num_frames", std::int64_t{1}}};
}

}  // namespace

class FamilyTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void initTestCase() {
    const std::string wrong = BuildAgainstSdk(
        dir_.filePath("sdk"), ONEPIECE_SOURCE_DIR "/tests/examples/family", dir_.filePath("build"));
    QVERIFY2(wrong.empty(), wrong.c_str());
    for (const std::string& path : {Path("build/family.so"), kWanPlugin}) {
      const absl::Status status = loader_.LoadFile(path);
      QVERIFY2(status.ok(), status.ToString().c_str());
    }
    WriteModel(Path("model"));
    auto stage = loader_.Create("toy_diffusion");
    QVERIFY2(stage.ok(), stage.status().ToString().c_str());
    stage_ = *std::move(stage);
    const absl::Status loaded = stage_->Load({.model_dir = Path("model")});
    QVERIFY2(loaded.ok(), loaded.ToString().c_str());
  }

  void Run_TakesItsStepsFromWhatIsGiven() {
    constexpr int kSteps = 4;
    wan::TestContext context(Job(kSteps));
    const auto outputs =
        stage_->Run(context, {{.name = "latents",
                               .dtype = message::DType::kF32,
                               .shape = {1, 2, 1, 1, 1},
                               .media_type = {},
                               .data = message::Buffer::FromString(Bytes({1, 2}))}});
    QVERIFY2(outputs.ok(), outputs.status().ToString().c_str());
    QCOMPARE(context.progress.size(), std::size_t{kSteps});
    // A single pixel attends to itself: x becomes x (1 + value · (sigma' - sigma)) in every step,
    // with sigmas that fall evenly from 1 to 1/1000, and then 0.
    std::vector<double> sigmas;
    for (int i = 0; i < kSteps; ++i) sigmas.push_back(1 - 0.999 * i / (kSteps - 1));
    sigmas.push_back(0);
    const std::vector<float> made = Floats(outputs->front());
    QCOMPARE(made.size(), std::size_t{2});
    for (std::size_t channel = 0; channel < 2; ++channel) {
      double expected = 1.0 + static_cast<double>(channel);
      for (std::size_t i = 0; i < kSteps; ++i)
        expected *= 1 + kValues[channel] * (sigmas[i + 1] - sigmas[i]);
      QVERIFY2(std::abs(made[channel] - expected) < 1e-5, std::to_string(made[channel]).c_str());
    }
  }

  void Run_DrawsNoiseFromTheSeed() {
    wan::TestContext context(Job(1)), again(Job(1));
    const auto one = stage_->Run(context, {}), two = stage_->Run(again, {});
    QVERIFY2(one.ok() && two.ok(), one.status().ToString().c_str());
    QVERIFY(Floats(one->front()) == Floats(two->front()));
    QVERIFY(Floats(one->front())[0] != 0);
  }

  void Run_RefusesWhatItsGeometryRefuses() {
    sdk::Parameters parameters = Job(1);
    parameters["num_frames"] = std::int64_t{5};
    wan::TestContext context(parameters);
    QCOMPARE(stage_->Run(context, {}).status().code(), absl::StatusCode::kInvalidArgument);
  }

  void Metrics_TellTheWeights() {
    const auto metrics = stage_->Metrics();
    QVERIFY(!metrics.empty());
    QCOMPARE(metrics.front().name, std::string("weight_bytes"));
    QCOMPARE(metrics.front().value, 16.0);
  }

  void ToolsFor_KnowsTheTwoFamiliesApart() {
    const auto toys = loader_.ToolsFor(Path("model"), ""), wans = loader_.ToolsFor(kWanModel, "");
    QVERIFY2(toys.ok() && wans.ok(), toys.status().ToString().c_str());
    QCOMPARE((*toys)->Inspect(Path("model"), "")->model, "a toy in " + Path("model"));
    QCOMPARE((*wans)->Inspect(kWanModel, "")->model, std::string("tiny-wan-t2v"));
    QVERIFY((*toys)->ContentHash(Path("model/transformer")).ok());
  }

 private:
  std::string Path(const char* name) const { return dir_.filePath(name).toStdString(); }

  QTemporaryDir dir_;
  sdk::PluginLoader loader_;
  std::unique_ptr<sdk::Stage> stage_;
};

}  // namespace onepiece::examples

ONEPIECE_TEST(onepiece::examples::FamilyTest)
#include "family_test.moc"
