// Tests of the page "Jobs", on a cluster that works, refuses and loses answers, and in the past.
#include "gui/views/jobs.h"

#include <QApplication>
#include <QClipboard>
#include <QComboBox>
#include <QLabel>
#include <QListWidget>
#include <QPlainTextEdit>
#include <QPushButton>
#include <QSignalSpy>
#include <QSpinBox>
#include <QTabWidget>
#include <QTableView>
#include <QtTest>
#include <memory>

#include "cluster/base/status.h"
#include "cluster/media/media.h"
#include "cluster/rpc/status.h"
#include "gui/models/keyed_table.h"
#include "gui/views/job_editors.h"
#include "gui/views/job_gantt.h"
#include "gui/views/result_preview.h"
#include "tests/gui/views/live.h"
#include "tests/session/fake_cluster.h"
#include "tests/test_main.h"

namespace onepiece::gui {
namespace {

using testing::FakeCluster;

// An upper bound: waits end long before, but the machine may be busy.
v1::Workflow MakeWorkflow() {
  v1::Workflow workflow;
  workflow.set_app_id("wan");
  workflow.set_name("workflows/wan");
  for (const char* stage : {"text_encode", "diffusion"}) workflow.add_stages()->set_stage(stage);
  const auto add = [&](const char* name, v1::ParameterSpec::Type type, const char* value) {
    v1::ParameterSpec& spec = *workflow.add_parameters();
    spec.set_name(name);
    spec.set_type(type);
    spec.set_default_value(value);
    return &spec;
  };
  auto* prompt = add("prompt", v1::ParameterSpec::STRING, "");
  prompt->set_required(true);
  prompt->set_max_bytes(4096);
  auto* steps = add("steps", v1::ParameterSpec::INTEGER, "20");
  steps->set_minimum(1);
  steps->set_maximum(100);
  add("guidance_scale", v1::ParameterSpec::NUMBER, "5.0")->set_maximum(30);
  add("tiling", v1::ParameterSpec::BOOLEAN, "false");
  auto* format = add("format", v1::ParameterSpec::STRING, "mp4");
  format->add_allowed_values("mp4");
  format->add_allowed_values("png");
  return workflow;
}

v1::Job MakeJob(const std::string& uid, v1::Job::State state, std::int64_t created_s) {
  v1::Job job;
  job.set_uid(uid);
  job.set_app_id("wan");
  job.set_workflow_set("default");
  job.set_state(state);
  job.set_stage("diffusion");
  job.set_stage_index(1);
  job.set_stage_count(2);
  job.mutable_create_time()->set_seconds(created_s);
  return job;
}

/// A video whose frames are as bright as their number says.
std::string MakeVideo(int frames) {
  std::string rgb;
  for (int i = 0; i < frames; ++i) rgb += std::string(64 * 64 * 3, static_cast<char>(i * 20));
  const auto file = media::EncodeMp4({std::as_bytes(std::span(rgb)), frames, 64, 64}, 8);
  return file.ok() ? *file : std::string();
}

grpc::Status Error(absl::StatusCode code, std::string_view reason, std::string_view message,
                   std::map<std::string, std::string> metadata = {}) {
  return rpc::ToGrpc(base::MakeError(code, reason, message, std::move(metadata)));
}

/// The page, with a session to a cluster.
class JobsPage {
 public:
  JobsPage() {
    cluster.SetUp(1);
    cluster.SetWorkflow(MakeWorkflow());
  }
  void Open() {
    session::SessionOptions options;
    options.telemetry_interval = std::chrono::milliseconds(200);
    options.poll_interval = std::chrono::milliseconds(100);
    shown_cluster.Follow(std::make_shared<session::Session>(
        session::ClusterAddress{.name = "test", .nodemanagers = {cluster.address()}}, options));
    view = std::make_unique<JobsView>(shown_cluster);
    QObject::connect(view.get(), &View::Told, [this](const QString& text) { told.append(text); });
    view->resize(1000, 800);
    view->show();
    QTRY_COMPARE_WITH_TIMEOUT(shown_cluster.link().link, session::Link::kLive, kSoonMs);
    shown_cluster.SetMode(ControlMode::kControl);
  }
  [[nodiscard]] QTableView& table() const {
    return *view->findChild<QTableView*>(QStringLiteral("table.jobs"));
  }
  [[nodiscard]] int rows() const { return table().model()->rowCount(); }
  [[nodiscard]] QString cell(int row, JobColumn column) const {
    return table().model()->index(row, static_cast<int>(column)).data().toString();
  }
  [[nodiscard]] QString text(const char* name) const {
    return view->findChild<QLabel*>(QLatin1String(name))->text();
  }
  [[nodiscard]] QPushButton& button(const char* name) const {
    return *view->findChild<QPushButton*>(QLatin1String(name));
  }
  void Select(const std::vector<int>& rows) {
    auto* selection = table().selectionModel();
    selection->clear();
    for (const int row : rows) {
      selection->setCurrentIndex(table().model()->index(row, 0),
                                 QItemSelectionModel::Select | QItemSelectionModel::Rows);
    }
  }
  void ShowTab(const QString& title) {
    auto* tabs = view->findChild<JobDetail*>()->tabs();
    for (int i = 0; i < tabs->count(); ++i) {
      if (tabs->tabText(i) == title) tabs->setCurrentIndex(i);
    }
  }
  /// The operations that the dock lists, newest first.
  QStringList Asked() {
    QStringList asked;
    for (const Operation& operation : shown_cluster.operations().all()) asked << operation.what;
    return asked;
  }
  SubmitDialog* Dialog() {
    view->Submit();
    return view->findChild<SubmitDialog*>();
  }
  FakeCluster cluster;
  ShownCluster shown_cluster;
  std::unique_ptr<JobsView> view;
  QStringList told;
};

template <typename T>
T* Editor(SubmitDialog* dialog, const char* name) {
  return dialog->findChild<T*>(QStringLiteral("parameter.%1").arg(QLatin1String(name)));
}

void PressConfirm(QWidget* window, const char* button) {
  QTRY_VERIFY(window->findChild<QPushButton*>(QLatin1String(button)) != nullptr);
  window->findChild<QPushButton*>(QLatin1String(button))->click();
}

}  // namespace

class GuiJobsViewTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void List_SaysWhatTheClusterSays() {
    JobsPage page;
    auto running = MakeJob("b", v1::Job::RUNNING, 1'700'000'100);
    running.set_step(12);
    running.set_steps(30);
    page.cluster.SetJob(running);
    page.cluster.SetJob(MakeJob("a", v1::Job::SUCCEEDED, 1'700'000'000));
    page.Open();
    QTRY_COMPARE_WITH_TIMEOUT(page.rows(), 2, kSoonMs);
    QCOMPARE(page.cell(0, JobColumn::kUid), QStringLiteral("b"));
    QCOMPARE(page.cell(0, JobColumn::kProgress),
             QStringLiteral("stage 2 of 2 · diffusion · step 12 of 30"));
    QCOMPARE(page.cell(1, JobColumn::kState), QStringLiteral("● succeeded"));
    page.Select({0});
    QTRY_VERIFY(page.text("jobs.detail.title").startsWith(QStringLiteral("b ")));
    // A change must reach the row and the detail.
    running.set_step(13);
    page.cluster.SetJob(running);
    QTRY_VERIFY_WITH_TIMEOUT(
        page.cell(0, JobColumn::kProgress).endsWith(QStringLiteral("step 13 of 30")), kSoonMs);
    QTRY_VERIFY(page.text("jobs.detail.state").endsWith(QStringLiteral("step 13 of 30")));
    page.view->SetFilter(QStringLiteral("nothing like it"));
    QTRY_COMPARE(page.rows(), 0);
    QVERIFY(page.button("jobs.clear").isVisibleTo(page.view.get()));
    // The detail still shows the selected job.
    QVERIFY(page.text("jobs.detail.title").startsWith(QStringLiteral("b ")));
    QSignalSpy cleared(page.view.get(), &View::ClearFilterWanted);
    page.button("jobs.clear").click();
    QCOMPARE(cleared.count(), 1);
    QTRY_COMPARE(page.rows(), 2);
  }

  void Cancel_IsOfTheJobsThatWereAskedAbout() {
    JobsPage page;
    for (int i = 0; i < 4; ++i) {
      page.cluster.SetJob(MakeJob("job-" + std::to_string(i), v1::Job::RUNNING, 1'700'000'000 + i));
    }
    page.Open();
    QTRY_COMPARE_WITH_TIMEOUT(page.rows(), 4, kSoonMs);
    page.Select({1, 2});  // job-2, job-1.
    QTRY_VERIFY(page.button("jobs.do.cancel").isEnabled());
    page.button("jobs.do.cancel").click();
    QTRY_VERIFY(page.view->findChild<QPushButton*>(QStringLiteral("confirm.yes")) != nullptr);
    QCOMPARE(page.button("confirm.yes").text(), QStringLiteral("Cancel 2 jobs"));
    // New jobs push the rows down, and one of them ends.
    page.cluster.SetJob(MakeJob("job-9", v1::Job::RUNNING, 1'700'000'099));
    page.cluster.SetJob(MakeJob("job-1", v1::Job::SUCCEEDED, 1'700'000'001));
    QTRY_COMPARE_WITH_TIMEOUT(page.rows(), 5, kSoonMs);
    page.Select({0});
    PressConfirm(page.view.get(), "confirm.yes");
    QTRY_COMPARE_WITH_TIMEOUT(page.cluster.calls("CancelJob"), 2, kSoonMs);
    QTRY_COMPARE_WITH_TIMEOUT(page.cluster.job("job-2").state(), v1::Job::CANCELLED, kSoonMs);
    QCOMPARE(page.cluster.job("job-9").state(), v1::Job::RUNNING);
    QCOMPARE(page.cluster.job("job-1").state(), v1::Job::SUCCEEDED);
    QTRY_VERIFY_WITH_TIMEOUT(
        page.told.contains(QStringLiteral("Cancel of 1 of 2 jobs acknowledged")), kSoonMs);
    const auto* answers = page.view->findChild<QWidget*>(QStringLiteral("jobs.answers"));
    QVERIFY(answers != nullptr);
    QCOMPARE(answers->findChild<QListWidget*>()->item(0)->text(),
             QStringLiteral("job-1: had ended already, it succeeded"));
    QTRY_VERIFY_WITH_TIMEOUT(page.cell(2, JobColumn::kState).endsWith(QStringLiteral("cancelled")),
                             kSoonMs);
    // There is one operation for all jobs. It says what became of each job that did not end as
    // wished.
    QCOMPARE(page.Asked(), QStringList{QStringLiteral("Cancel 2 jobs")});
    const Operation& operation = page.shown_cluster.operations().all().front();
    QVERIFY(operation.ended_ms != 0);
    QVERIFY2(operation.outcome.message().find("job-1: had ended already") != std::string::npos,
             operation.outcome.ToString().c_str());
  }

  void Delete_ForgetsTheJob() {
    JobsPage page;
    page.cluster.SetJob(MakeJob("gone", v1::Job::SUCCEEDED, 1'700'000'000));
    page.cluster.SetJob(MakeJob("stays", v1::Job::SUCCEEDED, 1'600'000'000));
    page.Open();
    QTRY_COMPARE_WITH_TIMEOUT(page.rows(), 2, kSoonMs);
    page.Select({0});
    QTRY_VERIFY(page.button("jobs.do.delete").isEnabled());
    page.button("jobs.do.delete").click();
    PressConfirm(page.view.get(), "confirm.no");
    QCOMPARE(page.cluster.calls("DeleteJob"), 0);
    QTRY_VERIFY(page.view->findChild<QPushButton*>(QStringLiteral("confirm.yes")) == nullptr);
    page.button("jobs.do.delete").click();
    PressConfirm(page.view.get(), "confirm.yes");
    QTRY_COMPARE_WITH_TIMEOUT(page.told.last(), QStringLiteral("1 of 1 job deleted"), kSoonMs);
    QCOMPARE(page.cluster.calls("DeleteJob"), 1);
    QCOMPARE(page.cluster.job("stays").state(), v1::Job::SUCCEEDED);
    QCOMPARE(page.Asked(), QStringList{QStringLiteral("Delete 1 job")});
    QVERIFY(page.shown_cluster.operations().all().front().outcome.ok());
  }

  void Submit_IsMadeOfTheSchema() {
    JobsPage page;
    page.Open();
    QTRY_VERIFY_WITH_TIMEOUT(
        page.shown_cluster.snapshot()->cluster.value != nullptr &&
            page.shown_cluster.snapshot()->cluster.value->workflows_size() == 1,
        kSoonMs);
    SubmitDialog* dialog = page.Dialog();
    auto* go = dialog->findChild<QPushButton*>(QStringLiteral("jobs.submit.go"));
    QVERIFY(!go->isEnabled());  // A prompt is required.
    Editor<QPlainTextEdit>(dialog, "prompt")->setPlainText(QStringLiteral("it's a cat"));
    QVERIFY(go->isEnabled());
    Editor<QLineEdit>(dialog, "guidance_scale")->setText(QStringLiteral("many"));
    QVERIFY(!go->isEnabled());
    auto* editor =
        static_cast<ParameterEditor*>(Editor<QLineEdit>(dialog, "guidance_scale")->parent());
    QCOMPARE(editor->findChild<QLabel*>(QStringLiteral("problem"))->text(),
             QStringLiteral("✖ must be a number"));
    Editor<QLineEdit>(dialog, "guidance_scale")->setText(QStringLiteral("7.5"));
    Editor<QSpinBox>(dialog, "steps")->setValue(30);
    QVERIFY(Editor<QWidget>(dialog, "tiling") != nullptr);
    QCOMPARE(Editor<QComboBox>(dialog, "format")->count(), 2);
    QCOMPARE(dialog->findChild<QLineEdit*>(QStringLiteral("jobs.submit.line"))->text(),
             QStringLiteral(
                 "onepiece submit --app wan --prompt 'it'\\''s a cat' --steps=30 --guidance=7.5"));
    const std::string id = dialog->request_id();
    QTRY_VERIFY_WITH_TIMEOUT(go->isEnabled(), kSoonMs);
    QTest::keyClick(dialog, Qt::Key_Return, Qt::ControlModifier);
    QTRY_COMPARE_WITH_TIMEOUT(page.cluster.submitted().size(), std::size_t(2), kSoonMs);
    const auto sent = page.cluster.submitted();
    QVERIFY(sent[0].validate_only());
    QVERIFY(!sent[1].validate_only());
    QCOMPARE(page.Asked(), QStringList{QStringLiteral("Submit a job of wan")});
    QCOMPARE(sent[1].request_id(), id);
    QCOMPARE(sent[1].parameters().fields_size(), 3);
    QCOMPARE(sent[1].parameters().fields().at("steps").number_value(), 30.0);
    // The new job is selected as soon as the list has it.
    const QString uid = QStringLiteral("submitted-") + QString::fromStdString(id);
    QTRY_VERIFY_WITH_TIMEOUT(page.text("jobs.detail.title").startsWith(uid), kSoonMs);
    QTRY_COMPARE(page.table().currentIndex().data(kKeyRole).toString(), uid);
    // The dialog begins with the values given last, but makes another job.
    QTRY_VERIFY(page.view->findChild<SubmitDialog*>() == nullptr);
    dialog = page.Dialog();
    QCOMPARE(Editor<QSpinBox>(dialog, "steps")->value(), 30);
    QVERIFY(dialog->request_id() != id);
  }

  void Submit_ALostAnswerMakesNoSecondJob() {
    JobsPage page;
    page.Open();
    QTRY_VERIFY_WITH_TIMEOUT(page.shown_cluster.snapshot()->cluster.value != nullptr, kSoonMs);
    SubmitDialog* dialog = page.Dialog();
    Editor<QPlainTextEdit>(dialog, "prompt")->setPlainText(QStringLiteral("a cat"));
    page.cluster.LoseSubmitAnswers(1'000'000);
    auto* go = dialog->findChild<QPushButton*>(QStringLiteral("jobs.submit.go"));
    go->click();
    QTRY_COMPARE_WITH_TIMEOUT(go->text(), QStringLiteral("Ask again"), kSoonMs);
    QVERIFY(!Editor<QPlainTextEdit>(dialog, "prompt")->isEnabled());
    page.cluster.LoseSubmitAnswers(0);
    go->click();
    QTRY_VERIFY_WITH_TIMEOUT(page.view->findChild<SubmitDialog*>() == nullptr, kSoonMs);
    for (const v1::SubmitJobRequest& request : page.cluster.submitted())
      QCOMPARE(request.request_id(), page.cluster.submitted()[0].request_id());
    QTRY_COMPARE_WITH_TIMEOUT(page.rows(), 1, kSoonMs);
  }

  void Submit_RefusalsAreSaid() {
    JobsPage page;
    page.Open();
    QTRY_VERIFY_WITH_TIMEOUT(page.shown_cluster.snapshot()->cluster.value != nullptr, kSoonMs);
    SubmitDialog* dialog = page.Dialog();
    Editor<QPlainTextEdit>(dialog, "prompt")->setPlainText(QStringLiteral("a cat"));
    auto* go = dialog->findChild<QPushButton*>(QStringLiteral("jobs.submit.go"));
    auto* said = dialog->findChild<QLabel*>(QStringLiteral("jobs.submit.said"));
    page.cluster.Refuse("SubmitJob", Error(absl::StatusCode::kInvalidArgument, "INVALID_PARAMETERS",
                                           "steps must be even", {{"steps", "must be even"}}));
    go->click();
    QTRY_VERIFY_WITH_TIMEOUT(said->text().contains(QStringLiteral("INVALID_PARAMETERS")), kSoonMs);
    QVERIFY(!go->isEnabled());
    Editor<QSpinBox>(dialog, "steps")->setValue(22);  // The refused value is replaced.
    QVERIFY(go->isEnabled());
    page.cluster.Refuse("SubmitJob", Error(absl::StatusCode::kResourceExhausted, "SET_FULL",
                                           "no room", {{"retry_after_ms", "12000"}}));
    go->click();
    QTRY_VERIFY_WITH_TIMEOUT(
        said->text().contains(QStringLiteral("It asks to come again in 12.0 s")), kSoonMs);
    // The operator locks the console.
    page.shown_cluster.SetMode(ControlMode::kObserve);
    QVERIFY(!go->isEnabled());
    QVERIFY(go->toolTip().startsWith(QStringLiteral("Observe mode")));
  }

  void Clone_BeginsWithTheSameValues() {
    JobsPage page;
    auto job = MakeJob("old", v1::Job::SUCCEEDED, 1'700'000'000);
    (*job.mutable_parameters()->mutable_fields())["prompt"].set_string_value("a dog");
    (*job.mutable_parameters()->mutable_fields())["steps"].set_number_value(44);
    page.cluster.SetJob(job);
    page.Open();
    QTRY_COMPARE_WITH_TIMEOUT(page.rows(), 1, kSoonMs);
    page.Select({0});
    QTRY_VERIFY(page.button("jobs.do.clone").isEnabled());
    page.button("jobs.do.clone").click();
    auto* dialog = page.view->findChild<SubmitDialog*>();
    QCOMPARE(Editor<QPlainTextEdit>(dialog, "prompt")->toPlainText(), QStringLiteral("a dog"));
    QCOMPARE(Editor<QSpinBox>(dialog, "steps")->value(), 44);
  }

  void Result_IsSeenAndStaysInTheCluster() {
    JobsPage page;
    page.cluster.SetJob(MakeJob("film", v1::Job::SUCCEEDED, 1'700'000'000));
    page.cluster.SetResult("film", "video/mp4", MakeVideo(12));
    page.Open();
    QTRY_COMPARE_WITH_TIMEOUT(page.rows(), 1, kSoonMs);
    page.Select({0});
    page.ShowTab(QStringLiteral("Result"));
    auto* result = page.view->findChild<ResultPreview*>();
    QTRY_VERIFY(page.button("jobs.result.load").isEnabled());
    page.button("jobs.result.load").click();
    QTRY_COMPARE_WITH_TIMEOUT(result->frames(), 12, kSoonMs);
    QCOMPARE(result->image().size(), QSize(64, 64));
    const int first = qGray(result->image().pixel(32, 32));
    page.button("jobs.result.forward").click();
    QCOMPARE(result->position(), 1);
    result->findChild<QSlider*>()->setValue(11);
    QCOMPARE(result->position(), 11);
    QVERIFY(qGray(result->image().pixel(32, 32)) > first + 150);
    QVERIFY(!page.button("jobs.result.forward").isEnabled());
    page.button("jobs.result.copy").click();
    QCOMPARE(QApplication::clipboard()->text().size(), 64);
    page.button("jobs.result.play").click();  // It plays from the beginning to the end and stops.
    QTRY_COMPARE_WITH_TIMEOUT(result->position(), 3, kSoonMs);
    page.button("jobs.result.play").click();
    QCOMPARE(page.Asked(), QStringList{QStringLiteral("Fetch the result of film")});
    QCOMPARE(page.cluster.calls("AcknowledgeResult"), 0);
    QVERIFY(!page.cluster.job("film").result().fetched());
  }

  void Result_DamagedOrRefusedIsSaid_data() {
    QTest::addColumn<QString>("kind");
    QTest::addColumn<QString>("said");
    QTest::newRow("cut short") << "short"
                               << "BAD_VIDEO";
    QTest::newRow("no video") << "noise"
                              << "BAD_VIDEO";
    QTest::newRow("no preview") << "sound"
                                << "There is no preview of audio/wav";
    QTest::newRow("refused") << "refused"
                             << "RESULT_GONE";
  }
  void Result_DamagedOrRefusedIsSaid() {
    QFETCH(QString, kind);
    QFETCH(QString, said);
    JobsPage page;
    page.cluster.SetJob(MakeJob("film", v1::Job::SUCCEEDED, 1'700'000'000));
    const std::string whole = MakeVideo(12);
    page.cluster.SetResult("film", kind == u"sound" ? "audio/wav" : "video/mp4",
                           kind == u"short"   ? whole.substr(0, whole.size() / 2)
                           : kind == u"noise" ? std::string(500, 'x')
                                              : whole);
    if (kind == u"refused") {
      page.cluster.Refuse("FetchResult", Error(absl::StatusCode::kFailedPrecondition, "RESULT_GONE",
                                               "the result is gone"));
    }
    page.Open();
    QTRY_COMPARE_WITH_TIMEOUT(page.rows(), 1, kSoonMs);
    page.Select({0});
    page.ShowTab(QStringLiteral("Result"));
    auto* result = page.view->findChild<ResultPreview*>();
    QTRY_VERIFY(page.button("jobs.result.load").isEnabled());
    page.button("jobs.result.load").click();
    QTRY_VERIFY2_WITH_TIMEOUT(result->words().contains(said), qPrintable(result->words()), kSoonMs);
    QVERIFY(result->image().isNull());
  }

  void Gantt_ShowsTheSpans() {
    JobsPage page;
    page.cluster.SetJob(MakeJob("traced", v1::Job::RUNNING, 1'700'000'000));
    v1::GetJobTraceResponse trace;
    for (const auto& [operation, start_s] : {std::pair("queue", 1), {"compute", 3}}) {
      v1::Span& span = *trace.add_spans();
      span.set_operation(operation);
      span.set_node("instance-1");
      span.set_stage("diffusion");
      span.set_start_unix_ns((1'700'000'000 + start_s) * 1'000'000'000LL);
      span.set_end_unix_ns(span.start_unix_ns() + 2'000'000'000);
    }
    trace.add_unreachable_nodes("instance-7");
    page.cluster.SetTrace("traced", trace);
    page.Open();
    QTRY_COMPARE_WITH_TIMEOUT(page.rows(), 1, kSoonMs);
    page.Select({0});
    page.ShowTab(QStringLiteral("Gantt"));
    auto* gantt = page.view->findChild<JobGantt*>();
    QTRY_COMPARE_WITH_TIMEOUT(gantt->spans().rows.size(), std::size_t(1), kSoonMs);
    QVERIFY(gantt->words().contains(QStringLiteral("wait 2.0 s · compute 2.0 s")));
    QVERIFY(gantt->words().contains(QStringLiteral("instance-7")));
    const auto* table = gantt->findChild<QTableView*>(QStringLiteral("table.spans"));
    QCOMPARE(table->model()->rowCount(), 2);
    QCOMPARE(table->model()->index(1, 2).data().toString(), QStringLiteral("compute"));
    QCOMPARE(page.Asked().last(), QStringLiteral("Ask for the times of traced"));
  }

  void Past_NothingCanBeDone() {
    ShownCluster shown_cluster;
    JobsView view(shown_cluster);
    view.resize(1000, 800);
    view.show();
    auto snapshot = std::make_shared<session::Snapshot>();
    snapshot->at_ms = 1'800'000'000'000;
    snapshot->recorded = true;
    auto list = std::make_shared<session::JobList>();
    list->jobs = {{std::make_shared<v1::Job>(MakeJob("then", v1::Job::RUNNING, 1'799'999'000)),
                   session::Certainty::kUnknownAtEnd}};
    list->truncated = true;
    snapshot->jobs = {list, snapshot->at_ms, {}};
    session::LinkStatus link;
    link.link = session::Link::kOffline;
    shown_cluster.Show(snapshot, link);
    auto* table = view.findChild<QTableView*>(QStringLiteral("table.jobs"));
    QTRY_COMPARE(table->model()->rowCount(), 1);
    table->selectRow(0);
    QTRY_VERIFY(view.findChild<QLabel*>(QStringLiteral("jobs.detail.state"))
                    ->text()
                    .startsWith(QStringLiteral("? unknown at end of recording")));
    for (const char* name : {"jobs.do.cancel", "jobs.do.delete", "jobs.do.clone", "jobs.do.new job",
                             "jobs.do.save result"}) {
      auto* button = view.findChild<QPushButton*>(QLatin1String(name));
      QVERIFY2(button != nullptr && !button->isEnabled(), name);
      QVERIFY2(!button->toolTip().isEmpty(), name);
    }
    QVERIFY(view.findChild<QLabel*>(QStringLiteral("jobs.banner"))
                ->text()
                .contains(QStringLiteral("Older jobs are left out")));
    auto* tabs = view.findChild<JobDetail*>()->tabs();
    tabs->setCurrentIndex(1);
    QVERIFY(view.findChild<JobGantt*>()->words().contains(QStringLiteral("not recorded")));
    for (const Command& command : view.Commands()) {
      QVERIFY(command.changes_cluster || !command.id.contains(QStringLiteral("submit")));
    }
  }
};

}  // namespace onepiece::gui

ONEPIECE_WIDGET_TEST(onepiece::gui::GuiJobsViewTest)
#include "jobs_test.moc"
