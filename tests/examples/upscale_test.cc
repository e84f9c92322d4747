// Tests docs/examples/upscale as a reader would use it: built outside the tree against the
// installed SDK, then run in a workflow of a cluster.
#include <filesystem>
#include <string>

#include "cluster/local/data_dir.h"
#include "cluster/media/media.h"
#include "tests/e2e/cluster_fixture.h"
#include "tests/examples/installed_sdk.h"
#include "tests/test_main.h"

namespace onepiece::e2e {
namespace {

namespace fs = std::filesystem;

constexpr char kExample[] = ONEPIECE_SOURCE_DIR "/docs/examples/upscale";
constexpr char kPlugins[] = ONEPIECE_BINARY_DIR "/lib/onepiece/stages";

}  // namespace

class UpscaleTest : public ClusterFixture {
  Q_OBJECT
 private Q_SLOTS:
  void initTestCase() {
    const std::string wrong = examples::BuildAgainstSdk(Path("sdk"), kExample, Path("build"));
    QVERIFY2(wrong.empty(), wrong.c_str());
    // The plug-in lies beside the product's own plug-ins, as in an installation.
    const fs::path plugins = cluster_.Path("stages");
    fs::create_directories(plugins);
    for (const auto& entry : fs::directory_iterator(kPlugins)) {
      fs::create_symlink(entry.path(), plugins / entry.path().filename());
    }
    fs::copy_file(cluster_.Path("build") + "/upscale.so", plugins / "upscale.so");
    qputenv("ONEPIECE_PLUGIN_DIR", QByteArray::fromStdString(plugins.string()));
  }

  void Workflow_MakesLargerFrames() {
    QVERIFY(cluster_.UpWith(std::string("workflow_files: [") + kExample + "/upscale.yaml]\n"));
    const QString video = Path("video.mp4");
    const Outcome job = cluster_.Run({"submit", "--app", "tiny-wan-t2v-upscaled", "--prompt",
                                      "a red circle moving right", "--steps", "2", "--param",
                                      "scale=3", "--wait", "-o", video});
    QVERIFY2(job.exit_code == 0, (job.err + cluster_.Logs()).c_str());
    const std::string file = local::ReadFile(video.toStdString());
    const auto frames = media::Decode(std::as_bytes(std::span(file)));
    QVERIFY2(frames.ok(), frames.status().ToString().c_str());
    QCOMPARE(frames->count, std::int64_t{9});
    QCOMPARE(frames->width, std::int64_t{192});
    QCOMPARE(frames->height, std::int64_t{192});
  }

  void Scale_BeyondItsSchemaIsRefusedAtTheDoor() {
    const Outcome job = cluster_.Run({"submit", "--app", "tiny-wan-t2v-upscaled", "--prompt",
                                      "a red circle moving right", "--param", "scale=9"});
    QCOMPARE(job.exit_code, 2);
    QVERIFY2(job.err.find("scale") != std::string::npos, job.err.c_str());
  }

 private:
  QString Path(const char* name) const { return QString::fromStdString(cluster_.Path(name)); }
};

}  // namespace onepiece::e2e

ONEPIECE_TEST(onepiece::e2e::UpscaleTest)
#include "upscale_test.moc"
