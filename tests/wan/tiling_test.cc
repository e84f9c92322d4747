// Tests the autoencoder in tiles: smooth content shows no seams, small frames are the same as
// without tiles, and memory grows with the tile and not with the frame.
#include <c10/core/InferenceMode.h>

#include <QtTest>
#include <fstream>

#include "cluster/base/status.h"
#include "stages/wan/autoencoder.h"
#include "stages/wan/autoencoder_tiles.h"
#include "tests/test_main.h"

namespace onepiece::wan {
namespace {

constexpr WanVae::Tiling kTiling{128, 96};

/// Returns the peak memory of this process since the last call, in bytes.
std::int64_t TakePeak() {
  std::int64_t kib = 0;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) kib = std::stoll(line.substr(6));
  }
  std::ofstream("/proc/self/clear_refs") << "5";
  return kib * 1024;
}

/// Returns [1, channels, frames, side, side] with a slow wave, a different one in every channel.
at::Tensor Smooth(std::int64_t channels, std::int64_t frames, std::int64_t side) {
  const at::Tensor along = at::arange(side, at::kFloat) / static_cast<double>(side);
  const at::Tensor phase = at::arange(channels, at::kFloat).view({channels, 1, 1, 1});
  const at::Tensor wave =
      at::sin(2 * along.view({1, 1, side, 1}) + phase) + at::cos(3 * along + phase);
  return (0.3 * wave).expand({channels, frames, side, side}).unsqueeze(0).contiguous();
}

}  // namespace

class TilingTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void initTestCase() {
    auto loaded =
        WanVae::Load(std::string(ONEPIECE_SOURCE_DIR) + "/resources/models/tiny-wan-t2v/vae");
    QVERIFY2(loaded.ok(), base::Message(loaded.status()).c_str());
    vae_ = std::make_unique<WanVae>(*std::move(loaded));
  }

  /// If a result depends on its own place alone, tiles make no difference.
  void RunTiled_OfALocalOperation_IsExact() {
    const c10::InferenceMode guard;
    const at::Tensor z = at::randn({2, 3, 2, 37, 50});
    const auto enlarge = [](const at::Tensor& x) -> absl::StatusOr<at::Tensor> {
      return x.repeat_interleave(8, 3).repeat_interleave(8, 4);
    };
    const auto tiled = vae::RunTiled(z, {16, 12}, {128, 96}, enlarge);
    QVERIFY(tiled.ok());
    QVERIFY(at::allclose(*tiled, *enlarge(z), 1e-6, 1e-6));
  }

  void Decode_CountsChunksOfAllTiles() {
    const c10::InferenceMode guard;
    int chunks = 0, last = 0;
    const auto count = [&](int done, int total) {
      chunks = total;
      last = done;
      return absl::OkStatus();
    };
    const auto tiled = vae_->Decode(Smooth(16, 2, 40), count, kTiling);  // Four tiles on each side.
    QVERIFY(tiled.ok());
    QCOMPARE(chunks, 2 * 16);
    QCOMPARE(last, chunks);
    QVERIFY((tiled->sizes() == at::IntArrayRef{1, 3, 5, 320, 320}));
  }

  void Encode_SmoothVideo_NoSeams() {
    const c10::InferenceMode guard;
    const at::Tensor video = Smooth(3, 5, 320);
    const at::Tensor whole = vae_->Encode(video).value().mean;
    const at::Tensor tiled = vae_->Encode(video, {}, kTiling).value().mean;
    QVERIFY(tiled.sizes() == whole.sizes());
    const double scale = whole.abs().max().item<double>();
    const double mean = (tiled - whole).abs().mean().item<double>() / scale;
    qInfo("tiled against whole: mean %.4f, most %.4f of the greatest value", mean,
          (tiled - whole).abs().max().item<double>() / scale);
    QVERIFY2(mean < 0.01, std::to_string(mean).c_str());
  }

  void OneTile_IsAsWithout() {
    const c10::InferenceMode guard;
    const at::Tensor z = Smooth(16, 2, 16);
    QVERIFY(at::equal(vae_->Decode(z).value(), vae_->Decode(z, {}, kTiling).value()));
  }

  void BadTiling_IsRefused() {
    const at::Tensor z = Smooth(16, 1, 4);
    for (const WanVae::Tiling bad : {WanVae::Tiling{100, 96}, WanVae::Tiling{64, 96},
                                     WanVae::Tiling{64, 0}, WanVae::Tiling{64, 30}}) {
      QVERIFY(absl::IsInvalidArgument(vae_->Decode(z, {}, bad).status()));
    }
  }

  void Decode_LargeFrame_TakesLessMemory() {
    const c10::InferenceMode guard;
    const at::Tensor z = Smooth(16, 2, 80);
    TakePeak();
    QVERIFY(vae_->Decode(z, {}, kTiling).ok());
    const std::int64_t tiled = TakePeak();
    QVERIFY(vae_->Decode(z).ok());
    const std::int64_t whole = TakePeak();
    qInfo("peak of the process: %lld MiB in tiles, %lld MiB whole",
          static_cast<long long>(tiled >> 20), static_cast<long long>(whole >> 20));
    QVERIFY(tiled + (64 << 20) < whole);
  }

 private:
  std::unique_ptr<WanVae> vae_;
};

}  // namespace onepiece::wan

ONEPIECE_TEST(onepiece::wan::TilingTest)
#include "tiling_test.moc"
