// docs/examples/upscale as its reader would use it: built outside the tree against the installed
// SDK, then run in a workflow of a cluster.
#include <QtTest>
#include <filesystem>
#include <fstream>
#include <string>

#include "cluster/media/media.h"
#include "tests/e2e/cluster_under_test.h"

namespace onepiece::e2e {
namespace {

namespace fs = std::filesystem;

constexpr char kExample[] = ONEPIECE_SOURCE_DIR "/docs/examples/upscale";
constexpr char kPlugins[] = ONEPIECE_BINARY_DIR "/lib/onepiece/stages";
constexpr int kBuildTimeoutMs = 300'000;

/// Empty when the program ends well, else what it said.
std::string RunTool(const QString& program, const QStringList& arguments) {
  QProcess process;
  process.setProcessChannelMode(QProcess::MergedChannels);
  process.start(program, arguments);
  const bool ended = process.waitForFinished(kBuildTimeoutMs);
  if (ended && process.exitStatus() == QProcess::NormalExit && process.exitCode() == 0) return "";
  return program.toStdString() + ": " + process.readAll().toStdString();
}

}  // namespace

class UpscaleTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void initTestCase() {
    const QString sdk = Path("sdk"), build = Path("build");
    QCOMPARE(
        RunTool("cmake", {"--install", ONEPIECE_BINARY_DIR, "--component", "sdk", "--prefix", sdk}),
        std::string());
    QCOMPARE(RunTool("cmake", {"-S", kExample, "-B", build, "-DCMAKE_PREFIX_PATH=" + sdk}),
             std::string());
    QCOMPARE(RunTool("cmake", {"--build", build}), std::string());
    // Beside the product's own plug-ins, as in an installation.
    const fs::path plugins = cluster_.Path("stages");
    fs::create_directories(plugins);
    for (const auto& entry : fs::directory_iterator(kPlugins)) {
      fs::create_symlink(entry.path(), plugins / entry.path().filename());
    }
    fs::copy_file(cluster_.Path("build") + "/upscale.so", plugins / "upscale.so");
    qputenv("ONEPIECE_PLUGIN_DIR", QByteArray::fromStdString(plugins.string()));
    std::ofstream(cluster_.Path("cluster.yaml"))
        << "workflow_files: [" << kExample << "/upscale.yaml]\n";
  }
  void cleanupTestCase() { QCOMPARE(cluster_.DownAndListLeftovers(), std::string()); }

  void Workflow_MakesLargerFrames() {
    const Outcome up = cluster_.Run({"up", "--config", Path("cluster.yaml")});
    QVERIFY2(up.exit_code == 0, (up.err + cluster_.Logs()).c_str());
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

  ClusterUnderTest cluster_;
};

}  // namespace onepiece::e2e

QTEST_GUILESS_MAIN(onepiece::e2e::UpscaleTest)
#include "upscale_test.moc"
