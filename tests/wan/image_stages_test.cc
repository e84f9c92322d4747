// Runs image to video through the four stages and hands artifacts on as the runtime does.
#include <QtTest>
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "cluster/base/status.h"
#include "cluster/media/media.h"
#include "stages/tensor/torch_convert.h"
#include "stages/wan/stages.h"
#include "tests/reason.h"
#include "tests/test_main.h"
#include "tests/wan/models.h"
#include "tests/wan/stage_context.h"

namespace onepiece::wan {
namespace {

using Artifacts = std::vector<sdk::Artifact>;

sdk::Parameters ImageJob(const char* prompt) { return ClipOf(prompt, 5, "png"); }

/// Returns the first frame of a recorded clip, U8 [64, 64, 3].
at::Tensor RecordedImage(const std::string& reference) {
  const auto file =
      *tensor::SafetensorsFile::Open(kModels + "/reference/" + reference + ".safetensors");
  return *tensor::ViewTensor(file, *file->index().Find("image"));
}

sdk::Artifact Png(const std::string& name, const at::Tensor& pixels) {
  const std::span<const std::byte> rgb(static_cast<const std::byte*>(pixels.data_ptr()),
                                       static_cast<std::size_t>(pixels.numel()));
  return message::BytesArtifact(name, "image/png",
                                *media::EncodePng({rgb, 1, pixels.size(0), pixels.size(1)}, 0));
}

double Psnr(const at::Tensor& a, const at::Tensor& b) {
  const double error = (a.to(at::kDouble) - b.to(at::kDouble)).square().mean().item<double>();
  return 10 * std::log10(255.0 * 255.0 / error);
}

/// Returns the horizontal centre of the pixels that are redder than green and blue.
double RedCentre(const at::Tensor& frame) {
  const at::Tensor values = frame.to(at::kDouble);
  const at::Tensor red =
      (values.select(2, 0) - at::maximum(values.select(2, 1), values.select(2, 2)) - 60)
          .clamp_min(0);
  const at::Tensor columns = at::arange(frame.size(1), at::TensorOptions(at::kDouble));
  return ((red * columns).sum() / red.sum()).item<double>();
}

}  // namespace

class ImageStagesTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void initTestCase() {
    for (auto* stage : {&text_, &encode_, &diffusion_, &decode_}) {
      const absl::Status status =
          (*stage)->Load({.model_dir = kModels + "/tiny-wan-i2v", .threads = 1});
      QVERIFY2(status.ok(), status.ToString().c_str());
    }
  }

  void Run_StartsFromTheImageAndMovesAsPrompted() {
    const at::Tensor image = RecordedImage("i2v_0");
    TestContext context(ImageJob("a red circle moving right"));
    const Artifacts joined = Conditioning(context, {Png("image", image)});
    const auto latents = diffusion_->Run(context, joined);
    QVERIFY2(latents.ok(), base::Message(latents.status()).c_str());
    const auto outputs = decode_->Run(context, *latents);
    QVERIFY2(outputs.ok(), base::Message(outputs.status()).c_str());
    const at::Tensor first = Frame(*outputs, "frame_0000"), last = Frame(*outputs, "frame_0008");
    const double psnr = Psnr(first, image), way = RedCentre(last) - RedCentre(first);
    qInfo("first frame against the image: %.1f dB, moved right by %.1f pixels", psnr, way);
    QVERIFY(psnr > 20);
    QVERIFY(way > 8);
  }

  void Run_TakesImagesOfAnySize() {
    sdk::Parameters parameters = ImageJob("a red circle");
    parameters["steps"] = std::int64_t{1};
    parameters["width"] = std::int64_t{80};
    parameters["height"] = std::int64_t{48};
    parameters["num_frames"] = std::int64_t{5};
    for (const auto& [height, width] : {std::pair{16, 16}, {17, 90}, {300, 200}}) {
      TestContext context(parameters);
      const Artifacts joined = Conditioning(
          context, {Png("image", at::full({height, width, 3}, 90, at::TensorOptions(at::kByte)))});
      const auto latents = diffusion_->Run(context, joined);
      QVERIFY2(latents.ok(), base::Message(latents.status()).c_str());
      QVERIFY((latents->front().shape == std::vector<std::int64_t>{1, 16, 2, 6, 10}));
    }
  }

  void TextEncode_LooksAtAnImageOnlyWhenThereIsOne() {
    TestContext without(ImageJob("a star")), with(ImageJob("a star"));
    QCOMPARE(text_->Run(without, {})->size(), std::size_t{2});
    const auto outputs = text_->Run(with, {Png("image", RecordedImage("i2v_1"))});
    QVERIFY2(outputs.ok(), base::Message(outputs.status()).c_str());
    QCOMPARE(outputs->back().name, std::string("image_embeds"));
    QVERIFY((outputs->back().shape == std::vector<std::int64_t>{1, 17, 64}));
    QVERIFY(with.progress.back() == std::pair(3, 3));
  }

  void Run_RefusesWhatIsNoImage() {
    TestContext context(ImageJob("a star"));
    const sdk::Artifact good = Png("image", RecordedImage("i2v_1"));
    sdk::Artifact bad = good;
    bad.media_type = "video/mp4";
    QCOMPARE(Reason(encode_->Run(context, {bad}).status()), std::string("BAD_ARTIFACT"));
    QCOMPARE(Reason(text_->Run(context, {bad}).status()), std::string("BAD_ARTIFACT"));
    bad = good;
    bad.name = "last_image";
    QCOMPARE(Reason(encode_->Run(context, {bad}).status()), std::string("BAD_ARTIFACT"));
    const sdk::Artifact cut =
        message::BytesArtifact("image", "image/png", std::string(good.data.text().substr(0, 99)));
    const absl::Status status = encode_->Run(context, {cut}).status();
    QCOMPARE(status.code(), absl::StatusCode::kInvalidArgument);
    QVERIFY2(base::Message(status).find("image") != std::string::npos,
             base::Message(status).c_str());
    sdk::Parameters still = ImageJob("a star");
    still["num_frames"] = std::int64_t{1};
    TestContext one_frame(still);
    bad = good;
    bad.name = "last_image";
    QCOMPARE(Reason(encode_->Run(one_frame, {good, bad}).status()), std::string("BAD_PARAMETER"));
  }

  void Diffusion_SaysWhichConditioningDoesNotFit() {
    sdk::Parameters parameters = ImageJob("a star");
    parameters["steps"] = std::int64_t{1};
    TestContext context(parameters);
    const sdk::Artifact image = Png("image", RecordedImage("i2v_1"));
    const Artifacts joined = Conditioning(context, {image});
    const auto without = [&](const std::string& name) {
      Artifacts rest = joined;
      std::erase_if(rest, [&](const sdk::Artifact& artifact) { return artifact.name == name; });
      return rest;
    };
    const auto refused = [&](const Artifacts& inputs, const char* says) {
      const absl::Status status = diffusion_->Run(context, inputs).status();
      QCOMPARE(Reason(status), std::string("BAD_ARTIFACT"));
      QVERIFY2(base::Message(status).find(says) != std::string::npos,
               base::Message(status).c_str());
    };
    refused(without("condition"), "artifact condition: missing");
    refused(without("image_embeds"), "artifact image_embeds: missing");

    sdk::Artifact last = image;
    last.name = "last_image";
    Artifacts two = without("image_embeds");
    two.push_back(text_->Run(context, {image, last})->back());
    refused(two, "no last_image");

    parameters["num_frames"] = std::int64_t{13};
    TestContext longer(parameters);
    const absl::Status status = diffusion_->Run(longer, joined).status();
    QVERIFY2(base::Message(status).find("num_frames") != std::string::npos,
             base::Message(status).c_str());

    const auto text_only = MakeDiffusionStage();
    QVERIFY(text_only->Load({.model_dir = kModels + "/tiny-wan-t2v"}).ok());
    QVERIFY(text_only->Run(context, joined).status().code() == absl::StatusCode::kInvalidArgument);
    two = without("condition");
    std::erase_if(two, [](const auto& artifact) { return artifact.name == "image_embeds"; });
    QVERIFY(text_only->Run(context, two).ok());
  }

 private:
  /// Returns the inputs of the diffusion stage: the outputs of text_encode and of vae_encode.
  Artifacts Conditioning(TestContext& context, const Artifacts& images) {
    auto joined = text_->Run(context, images), condition = encode_->Run(context, images);
    if (!joined.ok() || !condition.ok()) {
      QTest::qFail((joined.ok() ? condition : joined).status().ToString().c_str(), __FILE__,
                   __LINE__);
      return {};
    }
    joined->insert(joined->end(), condition->begin(), condition->end());
    return *joined;
  }
  static at::Tensor Frame(const Artifacts& outputs, const char* name) {
    const auto frames = *media::Decode(message::FindArtifact(outputs, name)->data.bytes());
    return at::from_blob(const_cast<char*>(frames.rgb.data()), {frames.height, frames.width, 3},
                         at::TensorOptions(at::kByte))
        .clone();
  }

  std::unique_ptr<sdk::Stage> text_ = MakeTextEncodeStage(), encode_ = MakeVaeEncodeStage(),
                              diffusion_ = MakeDiffusionStage(), decode_ = MakeVaeDecodeStage();
};

}  // namespace onepiece::wan

ONEPIECE_TEST(onepiece::wan::ImageStagesTest)
#include "image_stages_test.moc"
