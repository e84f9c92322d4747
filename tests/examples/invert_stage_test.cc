#include <QtTest>
#include <string>
#include <vector>

#include "stages/sdk/plugin_loader.h"
#include "stages/sdk/stage.h"
#include "tests/test_main.h"

namespace onepiece::sdk {
namespace {

class TestContext final : public StageContext {
 public:
  explicit TestContext(Parameters parameters) : parameters_(std::move(parameters)) {}
  const base::Uid& uid() const override { return uid_; }
  const Parameters& parameters() const override { return parameters_; }
  absl::Status Progress(int step, int steps) override {
    seen += std::to_string(step) + "/" + std::to_string(steps) + " ";
    return step == cancel_at ? absl::CancelledError("test") : absl::OkStatus();
  }

  std::string seen;
  int cancel_at = 0;

 private:
  base::Uid uid_;
  Parameters parameters_;
};

std::vector<Artifact> TwoFrames() {
  return {{.name = "frames",
           .dtype = message::DType::kU8,
           .shape = {2, 1, 1, 3},
           .data = message::Buffer::FromString(std::string("\x00\x10\xff\x01\x80\xfe", 6))}};
}

}  // namespace

class InvertStageTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void initTestCase() {
    const absl::Status status =
        loader_.LoadDirectory(ONEPIECE_BINARY_DIR "/tests/plugins/examples");
    QVERIFY2(status.ok(), status.ToString().c_str());
    auto stage = loader_.Create("invert");
    QVERIFY2(stage.ok(), stage.status().ToString().c_str());
    stage_ = std::move(*stage);
    QVERIFY(stage_->Load({}).ok());
  }
  void cleanupTestCase() { stage_->Unload(); }

  void Run_InvertsAndReportsProgress() {
    TestContext context({});
    const auto outputs = stage_->Run(context, TwoFrames());
    QVERIFY2(outputs.ok(), outputs.status().ToString().c_str());
    QCOMPARE(outputs->size(), std::size_t{1});
    const Artifact& inverted = outputs->front();
    QCOMPARE(inverted.name, std::string("inverted"));
    QVERIFY((inverted.shape == std::vector<std::int64_t>{2, 1, 1, 3}));
    QVERIFY(inverted.data.text() == std::string("\xff\xef\x00\xfe\x7f\x01", 6));
    QCOMPARE(context.seen, std::string("1/2 2/2 "));
  }

  void Guide_ShowsThisStage() {
    QFile guide(ONEPIECE_SOURCE_DIR "/docs/stage-authors.md"),
        source(ONEPIECE_SOURCE_DIR "/tests/examples/invert_stage.cc");
    QVERIFY(guide.open(QIODevice::ReadOnly) && source.open(QIODevice::ReadOnly));
    const QByteArray code = source.readAll();
    const QByteArray stage =
        code.mid(code.indexOf("class InvertStage"),
                 code.indexOf("class InvertPlugin") - code.indexOf("class InvertStage"));
    QVERIFY(stage.size() > 500);
    QVERIFY2(guide.readAll().contains(stage.trimmed()),
             "copy the stage into docs/stage-authors.md");
  }

  void Run_ZeroStrengthChangesNothing() {
    TestContext context({{"strength", 0.0}});
    const auto outputs = stage_->Run(context, TwoFrames());
    QVERIFY(outputs.ok());
    QVERIFY(outputs->front().data.text() == TwoFrames().front().data.text());
  }

  void Run_StopsWhenCancelled() {
    TestContext context({});
    context.cancel_at = 1;
    QCOMPARE(stage_->Run(context, TwoFrames()).status().code(), absl::StatusCode::kCancelled);
    QCOMPARE(context.seen, std::string("1/2 "));
  }

  void Run_RefusesWhatItCannotTake() {
    TestContext too_strong({{"strength", 1.5}});
    QCOMPARE(stage_->Run(too_strong, TwoFrames()).status().code(),
             absl::StatusCode::kInvalidArgument);
    TestContext context({});
    std::vector<Artifact> flat = TwoFrames();
    flat[0].shape = {6};
    QCOMPARE(stage_->Run(context, flat).status().code(), absl::StatusCode::kInvalidArgument);
  }

 private:
  PluginLoader loader_;
  std::unique_ptr<Stage> stage_;
};

}  // namespace onepiece::sdk

ONEPIECE_TEST(onepiece::sdk::InvertStageTest)
#include "invert_stage_test.moc"
