// Tests the reading of component folders and scheduler settings, whatever the model.
#include "stages/model/weights.h"

#include <QTemporaryDir>
#include <QtTest>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cluster/base/status.h"
#include "stages/model/schedulers.h"
#include "tests/model/component_copy.h"
#include "tests/test_main.h"

namespace onepiece::model {
namespace {

namespace fs = std::filesystem;

std::string Model() { return std::string(ONEPIECE_SOURCE_DIR) + "/resources/models/tiny-wan-t2v"; }

/// Returns whether every weight of the component can be loaded.
absl::Status LoadAll(const std::string& dir) {
  ONEPIECE_ASSIGN_OR_RETURN(const ComponentFiles files, ComponentFiles::Open(dir));
  WeightBinder weights(files, at::kCPU);
  for (const auto& [name, place] : files.tensors()) weights.Get(name, place.entry->shape);
  ONEPIECE_RETURN_IF_ERROR(CheckFit(files, weights.specs()));
  return weights.status();
}

}  // namespace

class WeightsTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Open_RefusesFoldersThatAreNoComponent() {
    const ComponentCopy copy(Model() + "/text_encoder");
    QCOMPARE(ComponentFiles::Open(copy.path() + "/absent").status().code(),
             absl::StatusCode::kNotFound);
    copy.Write("config.json", "{\"architectures\":");
    QCOMPARE(base::GetReason(ComponentFiles::Open(copy.path()).status()).reason,
             std::string("BAD_CONFIG"));
    copy.Write("config.json", std::string(2 << 20, ' '));
    CompareError(ComponentFiles::Open(copy.path()).status(), absl::StatusCode::kInvalidArgument,
                 "too large");
    fs::remove(copy.path() + "/config.json");
    QCOMPARE(ComponentFiles::Open(copy.path()).status().code(), absl::StatusCode::kNotFound);
  }

  void Open_ReadsShardsAsTheIndexSays() {
    const ComponentCopy copy(Model() + "/text_encoder");
    nlohmann::json weight_map;
    const ComponentFiles files = *ComponentFiles::Open(copy.path());
    for (const auto& [name, place] : files.tensors()) weight_map[name] = "model.safetensors";
    copy.Write("b.safetensors", tensor::SafetensorsBytes("{}", ""));
    CompareError(ComponentFiles::Open(copy.path()).status(), absl::StatusCode::kInvalidArgument,
                 "needs one");
    const std::string index = "model.safetensors.index.json";
    copy.Write(index, nlohmann::json{{"weight_map", weight_map}}.dump());
    QVERIFY(LoadAll(copy.path()).ok());
    copy.Patch({{"weight_map", {{"shared.weight", "b.safetensors"}}}}, index);
    CompareError(ComponentFiles::Open(copy.path()).status(), absl::StatusCode::kInvalidArgument,
                 "shared.weight");
    copy.Patch({{"weight_map", {{"shared.weight", "../model.safetensors"}}}}, index);
    CompareError(ComponentFiles::Open(copy.path()).status(), absl::StatusCode::kInvalidArgument,
                 "shared.weight");
    copy.Patch({{"weight_map", {{"shared.weight", "c.safetensors"}}}}, index);
    QCOMPARE(ComponentFiles::Open(copy.path()).status().code(), absl::StatusCode::kNotFound);
  }

  void LoadSchedulerConfig_ReadsTheModelsAndRefusesVariants() {
    const auto config = LoadSchedulerConfig(Model() + "/scheduler");
    QVERIFY2(config.ok(), base::Message(config.status()).c_str());
    QVERIFY(config->kind == SchedulerConfig::Kind::kUniPC && config->shift == 3.0 &&
            config->solver_order == 2);
    const QTemporaryDir dir;
    for (const char* patch : {R"({"solver_type":"bh1"})", R"({"prediction_type":"epsilon"})",
                              R"({"use_karras_sigmas":true})", R"({"disable_corrector":[0]})",
                              R"({"_class_name":"DDIMScheduler"})", R"({"solver_order":3})"}) {
      nlohmann::json json = ReadJson(Model() + "/scheduler/scheduler_config.json");
      json.merge_patch(nlohmann::json::parse(patch));
      tensor::WriteFile(dir.filePath("scheduler_config.json").toStdString(), json.dump());
      QCOMPARE(LoadSchedulerConfig(dir.path().toStdString()).status().code(),
               absl::StatusCode::kUnimplemented);
    }
    QCOMPARE(MakeScheduler(*config, 0).status().code(), absl::StatusCode::kInvalidArgument);
    QCOMPARE(MakeScheduler(*config, kMaxSteps + 1).status().code(),
             absl::StatusCode::kInvalidArgument);
  }

  void ParsePrecision_Names() {
    QCOMPARE(ParsePrecision("f32", at::kCPU).value(), at::kFloat);
    QCOMPARE(ParsePrecision("bf16", at::kCPU).value(), at::kBFloat16);
    QCOMPARE(ParsePrecision("f16", at::Device(at::kCUDA, 0)).value(), at::kHalf);
    for (const char* bad : {"f16", "int8", ""}) {
      const auto refused = ParsePrecision(bad, at::kCPU);
      QVERIFY(absl::IsInvalidArgument(refused.status()));
      QVERIFY2(base::Message(refused.status()).find("f32") != std::string::npos,
               base::Message(refused.status()).c_str());
    }
  }
};

}  // namespace onepiece::model

ONEPIECE_TEST(onepiece::model::WeightsTest)
#include "weights_test.moc"
