// Tests wrong component folders, and the tensors that the configurations of the published
// checkpoints call for.
#include <QtTest>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cluster/base/status.h"
#include "stages/wan/autoencoder.h"
#include "stages/wan/clip_vision.h"
#include "stages/wan/inspect.h"
#include "stages/wan/stages.h"
#include "stages/wan/transformer_3d.h"
#include "stages/wan/umt5_encoder.h"
#include "stages/wan/verify_reference.h"
#include "tests/model/component_copy.h"
#include "tests/test_main.h"
#include "tests/wan/models.h"
#include "tests/wan/stage_context.h"

namespace onepiece::wan {
namespace {

namespace fs = std::filesystem;

/// A copy of a recorded component.
class Copy : public model::ComponentCopy {
 public:
  explicit Copy(const std::string& name) : ComponentCopy(Golden(name)) {}
};

using model::CompareError;

}  // namespace

class WeightsTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Load_RefusesATransformerConfigThatDoesNotFit_data() {
    QTest::addColumn<QByteArray>("patch");
    QTest::addColumn<int>("code");
    QTest::addColumn<QString>("says");
    const int invalid = static_cast<int>(absl::StatusCode::kInvalidArgument);
    const int unimplemented = static_cast<int>(absl::StatusCode::kUnimplemented);
    QTest::newRow("other width") << QByteArray(R"({"ffn_dim":97})") << invalid
                                 << "tensor \"blocks.0.ffn.net.0.proj.weight\" has shape [96, 48]";
    QTest::newRow("more layers") << QByteArray(R"({"num_layers":3})") << invalid
                                 << "tensor \"blocks.2.scale_shift_table\" is missing";
    QTest::newRow("fewer layers") << QByteArray(R"({"num_layers":1})") << invalid << "is unknown";
    QTest::newRow("absurd layers")
        << QByteArray(R"({"num_layers":1000000000})") << invalid << "num_layers";
    QTest::newRow("2^64") << QByteArray(R"({"num_layers":18446744073709551615})") << invalid
                          << "num_layers";
    QTest::newRow("text") << QByteArray(R"({"num_layers":"2"})") << invalid << "num_layers";
    QTest::newRow("absent") << QByteArray(R"({"text_dim":null})") << invalid
                            << "text_dim: is missing";
    QTest::newRow("patch of two") << QByteArray(R"({"patch_size":[1,2]})") << invalid
                                  << "patch_size";
    QTest::newRow("epsilon 0") << QByteArray(R"({"eps":0})") << invalid << "eps";
    QTest::newRow("image, no projections")
        << QByteArray(R"({"image_dim":48})") << invalid << "added_kv_proj_dim";
    QTest::newRow("projections, no image")
        << QByteArray(R"({"added_kv_proj_dim":48})") << invalid << "added_kv_proj_dim";
    QTest::newRow("positions, no image")
        << QByteArray(R"({"pos_embed_seq_len":34})") << invalid << "pos_embed_seq_len";
    QTest::newRow("image to video")
        << QByteArray(R"({"image_dim":48,"added_kv_proj_dim":48})") << invalid
        << "tensor \"condition_embedder.image_embedder.norm1.weight\" is missing";
    QTest::newRow("other norm") << QByteArray(R"({"qk_norm":"layer_norm"})") << unimplemented
                                << "qk_norm";
  }
  void Load_RefusesATransformerConfigThatDoesNotFit() {
    QFETCH(QByteArray, patch);
    QFETCH(int, code);
    QFETCH(QString, says);
    const Copy copy("transformer_t2v");
    copy.Patch(nlohmann::json::parse(patch.toStdString()));
    CompareError(WanTransformer::Load(copy.path()).status(), static_cast<absl::StatusCode>(code),
                 qPrintable(says));
  }

  void Load_RefusesVaeVariants() {
    const Copy copy("vae_bf16");
    copy.Patch({{"is_residual", true}});
    CompareError(WanVae::Load(copy.path()).status(), absl::StatusCode::kUnimplemented,
                 "is_residual");
    copy.Patch({{"is_residual", false}, {"patch_size", 2}});
    CompareError(WanVae::Load(copy.path()).status(), absl::StatusCode::kUnimplemented,
                 "patch_size");
    copy.Patch({{"patch_size", nullptr}, {"base_dim", 8}});
    CompareError(WanVae::Load(copy.path()).status(), absl::StatusCode::kInvalidArgument,
                 "encoder.conv_in.weight");
    copy.Patch({{"base_dim", 4}, {"temperal_downsample", {true}}});
    CompareError(WanVae::Load(copy.path()).status(), absl::StatusCode::kInvalidArgument,
                 "temperal_downsample");
  }

  void Load_RefusesTruncatedWeights() {
    const Copy copy("umt5");
    fs::resize_file(copy.path() + "/model.safetensors",
                    fs::file_size(copy.path() + "/model.safetensors") - 1);
    const absl::Status status = UMT5Encoder::Load(copy.path()).status();
    QCOMPARE(base::GetReason(status).reason, std::string("BAD_SAFETENSORS"));
  }

  void Load_RefusesWeightsOfIntegers() {
    const Copy copy("umt5");
    std::string bytes(
        (std::stringstream() << std::ifstream(copy.path() + "/model.safetensors").rdbuf()).str());
    const std::size_t dtype = bytes.find("\"F32\"");
    QVERIFY(dtype != std::string::npos);
    copy.Write("model.safetensors", bytes.replace(dtype, 5, "\"I32\""));
    CompareError(UMT5Encoder::Load(copy.path()).status(), absl::StatusCode::kInvalidArgument,
                 "dtype I32");
  }

  void Load_RefusesWeightsThatAreNotFinite() {
    for (const std::uint32_t bits : {0x7FC00000U, 0x7F800000U, 0xFF800000U}) {
      const Copy copy("umt5");
      std::fstream stream(copy.path() + "/model.safetensors",
                          std::ios::in | std::ios::out | std::ios::binary);
      stream.seekp(-4, std::ios::end);  // The last value of the last tensor.
      stream.write(reinterpret_cast<const char*>(&bits), 4);
      stream.close();
      CompareError(UMT5Encoder::Load(copy.path()).status(), absl::StatusCode::kInvalidArgument,
                   "not finite");
    }
  }

  void Load_ClipVisionRefusesWhatDoesNotFit() {
    const Copy copy("clip_vision");
    QVERIFY(ClipVision::Load(copy.path()).ok());
    const auto refused = [&](const nlohmann::json& patch, absl::StatusCode code, const char* says) {
      const Copy patched("clip_vision");
      patched.Patch(patch);
      CompareError(ClipVision::Load(patched.path()).status(), code, says);
    };
    const auto invalid = absl::StatusCode::kInvalidArgument;
    refused({{"num_attention_heads", 5}}, invalid, "hidden_size");
    refused({{"image_size", 40}}, invalid, "position_embedding.weight");
    refused({{"patch_size", 64}}, invalid, "patch_size");
    refused({{"num_hidden_layers", 4}}, invalid, "layers.3");
    refused({{"hidden_act", "relu"}}, absl::StatusCode::kUnimplemented, "hidden_act");
    const auto model = ClipVision::Load(Golden("clip_vision"));
    QCOMPARE(model->Forward(at::zeros({1, 3, 24, 32})).status().code(), invalid);
    QVERIFY(model->Forward(at::zeros({2, 3, 32, 32})).ok());
  }

  void Forward_OfImageToVideoNeedsItsImage() {
    const auto transformer = WanTransformer::Load(Golden("transformer_i2v"));
    QVERIFY2(transformer.ok(), base::Message(transformer.status()).c_str());
    const at::Tensor hidden = at::zeros({1, 36, 1, 4, 4});
    const at::Tensor text = at::zeros({1, 4, 32});
    const auto refused = [&](const at::Tensor& image, const char* says) {
      CompareError(transformer->Prepare(text, image).status(), absl::StatusCode::kInvalidArgument,
                   says);
    };
    refused({}, "needs image embeddings");
    refused(at::zeros({1, 17, 47}), "[batch * 1, tokens, 48]");
    refused(at::zeros({2, 17, 48}), "different batches");
    QVERIFY(
        transformer->Forward(hidden, 1, *transformer->Prepare(text, at::zeros({1, 3, 48}))).ok());
  }

  void Forward_RefusesInputsThatDoNotFit() {
    const auto transformer = WanTransformer::Load(Golden("transformer_t2v"));
    QVERIFY(transformer.ok());
    const auto text = transformer->Prepare(at::zeros({1, 4, 32}));
    QVERIFY(text.ok());
    QCOMPARE(transformer->Prepare(at::zeros({1, 4, 31})).status().code(),
             absl::StatusCode::kInvalidArgument);
    QCOMPARE(transformer->Prepare(at::zeros({1, 4, 32}), at::zeros({1, 4, 48})).status().code(),
             absl::StatusCode::kInvalidArgument);
    for (const at::Tensor& hidden :
         {at::zeros({1, 16, 1, 1, 4}), at::zeros({1, 15, 1, 4, 4}), at::zeros({16, 4, 4}),
          at::zeros({2, 16, 1, 4, 4}), at::zeros({1, 16, 1025, 2, 2})}) {
      QCOMPARE(transformer->Forward(hidden, 1, *text).status().code(),
               absl::StatusCode::kInvalidArgument);
    }
    QVERIFY(transformer->Forward(at::zeros({1, 16, 1, 4, 4}), 1, *text).ok());
    const auto encoder = UMT5Encoder::Load(Golden("umt5"));
    const at::Tensor mask = at::ones({1, 1}, at::kLong);
    QCOMPARE(encoder->Forward(at::full({1, 1}, 97, at::kLong), mask).status().code(),
             absl::StatusCode::kInvalidArgument);
    QCOMPARE(encoder->Forward(at::full({1, 1}, -1, at::kLong), mask).status().code(),
             absl::StatusCode::kInvalidArgument);
    QVERIFY(encoder->Forward(at::full({1, 1}, 96, at::kLong), mask).ok());
  }

  void Decode_StopsWhenProgressSaysSo() {
    const auto vae = WanVae::Load(Golden("vae_bf16"));
    QVERIFY(vae.ok());
    int calls = 0;
    const auto video = vae->Decode(at::zeros({1, 16, 3, 2, 2}), [&](int done, int total) {
      ++calls;
      return done == 2 && total == 3 ? absl::CancelledError("enough") : absl::OkStatus();
    });
    QCOMPARE(video.status().code(), absl::StatusCode::kCancelled);
    QCOMPARE(calls, 2);
  }

  void InspectModel_CountsTheEmbeddedModel() {
    const auto report = InspectModel(kTinyModel + "/");
    QVERIFY2(report.ok(), base::Message(report.status()).c_str());
    QCOMPARE(report->model, std::string("tiny-wan-t2v"));
    QVERIFY2(report->problems.empty(),
             report->problems.empty() ? "" : report->problems.front().c_str());
    QCOMPARE(report->components.size(), std::size_t{5});
    QCOMPARE(report->stages.size(), std::size_t{3});
    std::int64_t bytes = 0;
    for (const auto& component : report->components) {
      QVERIFY2(!component.stage.empty(), component.name.c_str());
      for (const auto& group : component.weights) bytes += group.bytes;
    }
    QVERIFY2(bytes > 7'000'000 && bytes < 7'487'020,
             std::to_string(bytes).c_str());  // The files without their headers.
    for (const auto& stage : report->stages)
      QVERIFY2(stage.weight_bytes > 0 && stage.activation_bytes > 0, stage.stage.c_str());
  }

  void Load_RefusesModelsWithTwoTransformers_data() {
    QTest::addColumn<QString>("index");
    QTest::addColumn<bool>("folder");
    QTest::addColumn<QString>("field");  // Empty when the folder is good.
    QTest::newRow("named") << R"({"transformer_2": ["diffusers", "WanTransformer3DModel"]})"
                           << false << "transformer_2";
    QTest::newRow("there") << "{}" << true << "transformer_2";
    QTest::newRow("boundary") << R"({"boundary_ratio": 0.875})" << false << "boundary_ratio";
    QTest::newRow("timesteps") << R"({"expand_timesteps": true})" << false << "expand_timesteps";
    QTest::newRow("one") << R"({"transformer_2": [null, null], "expand_timesteps": false})" << false
                         << "";
  }
  void Load_RefusesModelsWithTwoTransformers() {
    QFETCH(QString, index);
    QFETCH(bool, folder);
    QFETCH(QString, field);
    const model::ComponentCopy copy(kTinyModel);
    copy.Patch(nlohmann::json::parse(index.toStdString()), "model_index.json");
    if (folder) fs::create_directory(copy.path() + "/transformer_2");
    const auto stage = MakeDiffusionStage();
    const absl::Status status = stage->Load({.model_dir = copy.path()});
    const auto report = InspectModel(copy.path());
    QVERIFY2(report.ok(), base::Message(report.status()).c_str());
    if (field.isEmpty()) {
      QVERIFY2(status.ok(), status.ToString().c_str());
      QVERIFY(report->problems.empty());
      return;
    }
    CompareError(status, absl::StatusCode::kUnimplemented, field.toUtf8().constData());
    QVERIFY(std::ranges::any_of(report->problems, [&](const std::string& problem) {
      return QString::fromStdString(problem).contains(field);
    }));
    const auto verified = VerifyReference(copy.path(), kModels + "/reference/t2v_0.safetensors", 1);
    CompareError(verified.status(), absl::StatusCode::kUnimplemented, field.toUtf8().constData());
  }

  /// Weights on the CPU are views of the files. A job that met other weights fails, and says why.
  void Run_NoticesWeightsThatAreOverwritten_data() {
    QTest::addColumn<bool>("truncated");
    QTest::newRow("truncated") << true;
    QTest::newRow("overwritten") << false;
  }
  void Run_NoticesWeightsThatAreOverwritten() {
    QFETCH(bool, truncated);
    const model::ComponentCopy copy(kTinyModel);
    const auto stage = MakeTextEncodeStage();
    QVERIFY(stage->Load({.model_dir = copy.path()}).ok());
    for (const auto& entry : fs::directory_iterator(copy.path() + "/text_encoder")) {
      if (entry.path().extension() != ".safetensors") continue;
      const auto size = fs::file_size(entry);
      if (truncated) {
        fs::resize_file(entry, size / 2);
      } else {
        std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(static_cast<std::streamoff>(size - 4096));
        file << std::string(4096, 'x');
        file.close();
        fs::last_write_time(entry, fs::last_write_time(entry) + std::chrono::seconds(1));
      }
    }
    // A prompt that no other test has left in the cache.
    TestContext context(ClipOf(truncated ? "a kite" : "a drum", 3, "mp4"));
    const auto outputs = stage->Run(context, {});
    QCOMPARE(base::GetReason(outputs.status()).reason, std::string("MODEL_CHANGED"));
  }

  void InspectModel_NamesWhatDoesNotFit() {
    const Copy copy("transformer_t2v");
    copy.Patch({{"ffn_dim", 97}});
    const auto report = InspectModel(copy.path());
    QVERIFY(report.ok());
    QCOMPARE(report->problems.size(), std::size_t{1});
    QVERIFY(report->problems.front().find("ffn.net.0.proj.weight") != std::string::npos);
  }
};

}  // namespace onepiece::wan

ONEPIECE_TEST(onepiece::wan::WeightsTest)
#include "weights_test.moc"
