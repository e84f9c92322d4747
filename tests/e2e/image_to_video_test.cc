// Runs both shipped applications on one cluster. Image to video shares the text encoder and the
// decoder with text to video, and its death does not harm the other.
#include <signal.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "cluster/local/data_dir.h"
#include "cluster/media/media.h"
#include "tests/e2e/cluster_fixture.h"
#include "tests/e2e/judge.h"
#include "tests/test_main.h"

namespace onepiece::e2e {
namespace {

constexpr std::int64_t kSide = 64;

/// A red disc at the left on black, like the images of the training.
std::string Disc() {
  std::string rgb(static_cast<std::size_t>(kSide * kSide * 3), '\0');
  for (std::int64_t y = 0; y < kSide; ++y) {
    for (std::int64_t x = 0; x < kSide; ++x) {
      const double inside =
          10.5 - std::hypot(static_cast<double>(x - 20), static_cast<double>(y - 32));
      rgb[static_cast<std::size_t>((y * kSide + x) * 3)] =
          static_cast<char>(static_cast<unsigned char>(230 * std::clamp(inside, 0.0, 1.0)));
    }
  }
  return rgb;
}

double Psnr(const std::string& image, const media::Frames& frames) {
  double sum = 0;
  for (std::size_t i = 0; i < image.size(); ++i) {
    const double difference = static_cast<unsigned char>(image[i]) -
                              static_cast<double>(static_cast<unsigned char>(frames.rgb[i]));
    sum += difference * difference;
  }
  return 10 * std::log10(255.0 * 255.0 / (sum / static_cast<double>(image.size())));
}

}  // namespace

class ImageToVideoTest : public ClusterFixture {
  Q_OBJECT
 private Q_SLOTS:
  void initTestCase() {
    const auto png = media::EncodePng({std::as_bytes(std::span(image_)), 1, kSide, kSide}, 0);
    QVERIFY2(png.ok(), png.status().ToString().c_str());
    std::ofstream(cluster_.Path("disc.png"), std::ios::binary) << *png;
    QVERIFY(cluster_.Up());
  }

  void Applications_ShareWhatIsTheSame() {
    QVERIFY(Served("text_encode", "tiny-wan-t2v") > 0);
    QVERIFY(Served("vae_decode", "tiny-wan-t2v") > 0);
    QCOMPARE(Served("text_encode", "tiny-wan-t2v"), Served("text_encode", "tiny-wan-i2v"));
    QCOMPARE(Served("vae_decode", "tiny-wan-t2v"), Served("vae_decode", "tiny-wan-i2v"));
    QVERIFY(Served("diffusion", "tiny-wan-t2v") > 0);
    QVERIFY(Served("diffusion", "tiny-wan-t2v") != Served("diffusion", "tiny-wan-i2v"));
  }

  void Clip_BeginsWithTheImageAndMovesAsThePromptSays() {
    const std::string file = cluster_.Path("clip.mp4");
    const Outcome job =
        cluster_.Run(QStringList{"submit", "--wait", "--json", "-o", QString::fromStdString(file)} +
                     ImageJob("a red circle moving right", "20"));
    QVERIFY2(job.exit_code == 0, (job.err + job.out).c_str());
    // A stage's time may reach the record after the result.
    const std::string uid = job.Document().value("uid", "");
    QVERIFY(Eventually(std::chrono::seconds(10),
                       [&] { return cluster_.Get(uid)["timings"].size() == 4; }));
    const std::string bytes = local::ReadFile(file);
    const auto frames = media::Decode(std::as_bytes(std::span(bytes)));
    QVERIFY2(frames.ok(), frames.status().ToString().c_str());
    const double psnr = Psnr(image_, *frames);
    qInfo("first frame against the image: %.1f dB", psnr);
    QVERIFY(psnr > 20);
    const Verdict verdict = Judge(*frames);
    QCOMPARE(verdict.colour, std::string("red"));
    QCOMPARE(verdict.motion, std::string("right"));

    // The frames are the same without a cluster and as one stage.
    QVERIFY(!FramesHash(job.Document()).empty());
    for (const QString workflow : {"tiny-wan-i2v", "tiny-wan-i2v-fused"}) {
      const Outcome alone = cluster_.Run(
          QStringList{"generate", "--json", "--workflow",
                      ONEPIECE_SOURCE_DIR "/resources/workflows/" + workflow + ".yaml"} +
          ImageJob("a red circle moving right", "20"));
      QVERIFY2(alone.exit_code == 0, alone.err.c_str());
      QCOMPARE(FramesHash(alone.Document()), FramesHash(job.Document()));
    }
  }

  void Image_ThatIsNoneFailsTheJobClearly() {
    std::ofstream(cluster_.Path("noise.png"), std::ios::binary)
        << "\x89PNG\r\n\x1a\nnot an image at all";
    const Outcome job = cluster_.Run({"submit", "--wait", "--json", "--app", "tiny-wan-i2v",
                                      "--image", QString::fromStdString(cluster_.Path("noise.png")),
                                      "--prompt", "a red circle"});
    QCOMPARE(job.exit_code, 1);
    QCOMPARE(job.ErrorReason(), std::string("BAD_IMAGE"));
    const Outcome without =
        cluster_.Run({"submit", "--app", "tiny-wan-i2v", "--prompt", "a red circle"});
    QCOMPARE(without.exit_code, 2);
    QVERIFY2(without.err.find("image") != std::string::npos, without.err.c_str());
  }

  void KilledImageDiffusion_LeavesTextToVideoUntouched() {
    const std::string hurt = cluster_.Submit(ImageJob("a red circle moving right", "100") +
                                             QStringList{"--width", "128", "--height", "128"});
    std::vector<std::string> untouched;
    const auto submit = [&] {
      untouched.push_back(
          cluster_.Submit({"--prompt", "a blue square moving up", "--steps", "20"}));
    };
    submit();  // The proxy admits only these two while it does not know their cost.
    QVERIFY(Eventually(std::chrono::seconds(60), [&] {
      const json job = cluster_.Get(hurt);
      return job.value("stage", "") == "diffusion" && job.value("step", 0) > 0;
    }));
    const int pid = Served("diffusion", "tiny-wan-i2v");
    QVERIFY(pid > 0);
    QCOMPARE(kill(pid, SIGKILL), 0);
    for (int i = 0; i < 2; ++i) submit();
    for (const auto& uid : untouched) {
      const json job = cluster_.Watch(uid);
      QVERIFY2(job.value("state", "") == "SUCCEEDED", job.dump().c_str());
    }
    const json again = cluster_.Watch(hurt);  // It was computed again.
    QVERIFY2(again.value("state", "") == "SUCCEEDED", again.dump().c_str());
    QVERIFY(Eventually(std::chrono::seconds(60), [&] { return cluster_.EveryProcessReady(); }));
    const json after = cluster_.Watch(cluster_.Submit(ImageJob("a red circle moving right", "2")));
    QVERIFY2(after.value("state", "") == "SUCCEEDED", after.dump().c_str());
  }

 private:
  QStringList ImageJob(const char* prompt, const char* steps) const {
    return {"--app",    "tiny-wan-i2v",
            "--image",  QString::fromStdString(cluster_.Path("disc.png")),
            "--prompt", prompt,
            "--steps",  steps,
            "--seed",   "3"};
  }
  /// Returns the process id of the READY instance that serves this stage of the application, or 0.
  int Served(const std::string& stage, const std::string& app) const {
    return cluster_.Serving(stage, app).value("pid", 0);
  }

  const std::string image_ = Disc();
};

}  // namespace onepiece::e2e

ONEPIECE_TEST(onepiece::e2e::ImageToVideoTest)
#include "image_to_video_test.moc"
