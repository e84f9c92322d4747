// Compares the embedded model with recorded generations, from stored text embeddings and noise to
// the frames. Tests the promise that a job's numbers depend on its inputs alone.
#include <QElapsedTimer>
#include <QtTest>

#include "cluster/base/status.h"
#include "stages/model/schedulers.h"
#include "stages/tensor/compute.h"
#include "stages/tensor/torch_convert.h"
#include "stages/wan/autoencoder.h"
#include "stages/wan/transformer_3d.h"
#include "stages/wan/umt5_encoder.h"
#include "tests/test_main.h"

namespace onepiece::wan {
namespace {

std::string Models() { return std::string(ONEPIECE_SOURCE_DIR) + "/resources/models/"; }

double RelativeError(const at::Tensor& computed, const at::Tensor& reference) {
  const at::Tensor expected = reference.to(at::kDouble);
  return (computed.to(at::kDouble) - expected).norm().item<double>() /
         expected.norm().item<double>();
}

/// Appends zeros up to the 512 tokens that the model was trained with.
at::Tensor Padded(const at::Tensor& embeddings) {
  return at::constant_pad_nd(embeddings, {0, 0, 0, 512 - embeddings.size(1)});
}

}  // namespace

class ReplayTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void initTestCase() { tensor::SetComputeThreads(1); }

  void Model_ReproducesARecordedGeneration() {
    const auto file = *tensor::SafetensorsFile::Open(Models() + "reference/t2v_0.safetensors");
    const auto recorded = [&](const char* name) {
      return *tensor::ViewTensor(file, *file->index().Find(name));
    };
    const std::string model = Models() + "tiny-wan-t2v";
    const auto encoder = UMT5Encoder::Load(model + "/text_encoder");
    const auto transformer = WanTransformer::Load(model + "/transformer");
    const auto vae = WanVae::Load(model + "/vae");
    const auto config = model::LoadSchedulerConfig(model + "/scheduler");
    QVERIFY(encoder.ok() && transformer.ok() && vae.ok() && config.ok());

    const at::Tensor ids = recorded("input_ids");
    const auto embeddings = encoder->Forward(ids, at::ones_like(ids));
    QVERIFY(RelativeError(*embeddings, recorded("prompt_embeds")) < 1e-4);
    const auto text = *transformer->Prepare(Padded(*embeddings));
    const auto negative = *transformer->Prepare(Padded(recorded("negative_prompt_embeds")));

    QElapsedTimer timer;
    timer.start();
    const auto scheduler = *model::MakeScheduler(*config, 12);
    at::Tensor latents = recorded("latents_init");
    for (int i = 0; i < 12; ++i) {
      const double t = scheduler->timesteps()[static_cast<std::size_t>(i)];
      const at::Tensor with = *transformer->Forward(latents, t, text);
      const at::Tensor without = *transformer->Forward(latents, t, negative);
      if (i == 0) QVERIFY(RelativeError(with, recorded("noise_pred_cond_0")) < 1e-4);
      latents = scheduler->Step(without + (with - without) * 5.0, i, latents);
      if (i == 0) QVERIFY(RelativeError(latents, recorded("latents_after_step_0")) < 1e-4);
    }
    const qint64 diffusion_ms = timer.restart();
    const double latents_error = RelativeError(latents, recorded("latents_final"));
    const auto video = vae->Decode(vae->Denormalise(latents));
    qInfo("12 steps with guidance %lld ms, decode %lld ms, latents' relative error %.1e",
          static_cast<long long>(diffusion_ms), static_cast<long long>(timer.elapsed()),
          latents_error);
    QVERIFY(latents_error < 1e-3);
    QVERIFY2(video.ok(), base::Message(video.status()).c_str());
    const at::Tensor frames =
        ((*video / 2 + 0.5).clamp(0, 1) * 255).round()[0].permute({1, 2, 3, 0});
    const double difference =
        (frames - recorded("video").to(at::kFloat)).abs().mean().item<double>();
    QVERIFY2(difference < 0.1, std::to_string(difference).c_str());
  }

  void Forward_OfABatchEqualsItsParts() {
    const auto transformer = *WanTransformer::Load(Models() + "tiny-wan-t2v/transformer");
    const at::Tensor hidden = at::randn({2, 16, 2, 4, 6}), embeddings = at::randn({2, 8, 64});
    const at::Tensor both = *transformer.Forward(hidden, 500, *transformer.Prepare(embeddings));
    for (int i = 0; i < 2; ++i) {
      const auto text = *transformer.Prepare(embeddings.narrow(0, i, 1));
      QVERIFY(RelativeError(*transformer.Forward(hidden.narrow(0, i, 1), 500, text),
                            both.narrow(0, i, 1)) < 1e-5);
    }
  }

  void Decode_OfOneFrameIsTheFirstOfMany() {
    const auto vae = *WanVae::Load(Models() + "tiny-wan-t2v/vae");
    const at::Tensor z = at::randn({1, 16, 3, 4, 6});
    const at::Tensor many = *vae.Decode(z);
    QCOMPARE(many.sizes().vec(), (std::vector<std::int64_t>{1, 3, 9, 32, 48}));
    QVERIFY(at::equal(*vae.Decode(z.narrow(2, 0, 1)),
                      many.narrow(2, 0, 1)));  // No frame sees a later one.
  }
};

}  // namespace onepiece::wan

ONEPIECE_TEST(onepiece::wan::ReplayTest)
#include "replay_test.moc"
