#include "cluster/proxy/submission.h"

#include <QtTest>
#include <functional>

#include "cluster/base/status.h"
#include "cluster/job/job_record.h"

namespace onepiece::proxy {
namespace {

using namespace std::chrono_literals;

constexpr char kRequestId[] = "018f2b1c-0000-4000-8000-0123456789ab";

v1::Workflow TwoStages() {
  v1::Workflow workflow;
  workflow.set_app_id("app");
  workflow.add_stages()->set_stage("encode");
  workflow.add_stages()->set_stage("decode");
  return workflow;
}

}  // namespace

using Spoil = std::function<void(v1::SubmitJobRequest&)>;

class SubmissionTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void MakeUid_IsTheSameForTheSameRequestIdAndSecret() {
    const base::WallTime now = base::FromUnixMs(1'000);
    const base::Uid uid = MakeUid("secret", kRequestId, now);
    QVERIFY(uid == MakeUid("secret", kRequestId, now + 1h));
    QVERIFY(uid == MakeUid("secret", "018F2B1C-0000-4000-8000-0123456789AB", now));
    QVERIFY(uid != MakeUid("other", kRequestId, now));
    QCOMPARE(uid.ToString()[14], '8');
    QVERIFY(std::string_view("89ab").find(uid.ToString()[19]) != std::string_view::npos);
    QVERIFY(MakeUid("secret", "", now) != MakeUid("secret", "", now));
    QCOMPARE(MakeUid("secret", "", now).ToString()[14], '7');
  }

  void Fingerprint_LeavesOutTheRequestIdOnly() {
    v1::SubmitJobRequest request;
    request.set_app_id("app");
    (*request.mutable_parameters()->mutable_fields())["a"].set_number_value(1);
    (*request.mutable_parameters()->mutable_fields())["b"].set_number_value(2);
    const std::string fingerprint = Fingerprint(request);
    request.set_request_id(kRequestId);
    QCOMPARE(Fingerprint(request), fingerprint);
    (*request.mutable_parameters()->mutable_fields())["a"].set_number_value(3);
    QVERIFY(Fingerprint(request) != fingerprint);
  }

  void CheckEnvelope_RefusesBadFields_data() {
    QTest::addColumn<Spoil>("spoil");
    QTest::addColumn<QString>("reason");
    const auto row = [](const char* name, const char* reason, const Spoil& spoil) {
      QTest::newRow(name) << spoil << reason;
    };
    row("request id is no UUID", "BAD_REQUEST_ID", [](auto& r) { r.set_request_id("mine"); });
    row("priority too high", "BAD_PRIORITY", [](auto& r) { r.set_priority(101); });
    row("priority too low", "BAD_PRIORITY", [](auto& r) { r.set_priority(-101); });
    row("deadline in the past", "BAD_DEADLINE",
        [](auto& r) { r.mutable_deadline()->set_seconds(-1); });
    row("deadline of years", "BAD_DEADLINE",
        [](auto& r) { r.mutable_deadline()->set_seconds(1LL << 60); });
    row("deadline not normal", "BAD_DEADLINE",
        [](auto& r) { r.mutable_deadline()->set_nanos(2'000'000'000); });
    row("label without key", "BAD_LABELS", [](auto& r) { (*r.mutable_labels())[""] = "x"; });
    row("label too long", "BAD_LABELS",
        [](auto& r) { (*r.mutable_labels())["k"] = std::string(257, 'x'); });
    row("too many labels", "BAD_LABELS", [](auto& r) {
      for (int i = 0; i < 33; ++i) (*r.mutable_labels())[std::to_string(i)] = "x";
    });
    row("too many parameters", "INVALID_PARAMETERS", [](auto& r) {
      for (int i = 0; i < 257; ++i) {
        (*r.mutable_parameters()->mutable_fields())[std::to_string(i)].set_bool_value(true);
      }
    });
    row("parameters of megabytes", "INVALID_PARAMETERS", [](auto& r) {
      (*r.mutable_parameters()->mutable_fields())["p"].set_string_value(std::string(2 << 20, 'x'));
    });
  }
  void CheckEnvelope_RefusesBadFields() {
    QFETCH(Spoil, spoil);
    QFETCH(QString, reason);
    v1::SubmitJobRequest request;
    QVERIFY(CheckEnvelope(request).ok());
    spoil(request);
    const absl::Status status = CheckEnvelope(request);
    QCOMPARE(status.code(), absl::StatusCode::kInvalidArgument);
    QCOMPARE(QString::fromStdString(base::GetReason(status).reason), reason);
  }

  void MakeRecord_HasDeadlineAndEntrance() {
    v1::SubmitJobRequest request;
    v1::Workflow workflow = TwoStages();
    const base::WallTime now = base::FromUnixMs(5'000);
    v1::JobRecord record = MakeRecord(request, workflow, base::Uid::GenerateRandom(), now, "set-1");
    QCOMPARE(record.job().deadline().seconds(), 605);
    QCOMPARE(record.result_ttl_s(), 3600);
    QCOMPARE(record.job().stage(), std::string("encode"));
    QCOMPARE(record.job().stage_count(), 2);
    QCOMPARE(record.job().workflow_set(), std::string("set-1"));
    workflow.set_default_deadline_s(30);
    QVERIFY(DeadlineOf(request, workflow) == 30s);
    request.mutable_deadline()->set_seconds(7);
    QVERIFY(DeadlineOf(request, workflow) == 7s);
    const message::Message message = MakeMessage(record, {{"steps", std::int64_t{4}}}, 12);
    QCOMPARE(message.header.uid.ToString(), record.job().uid());
    QCOMPARE(message.header.stage, std::string("encode"));
    QCOMPARE(message.header.routing_epoch, std::uint64_t{12});
    QVERIFY(message.header.deadline == now + 600s);
  }

  void SortTimings_FollowsTheStages() {
    const v1::Workflow workflow = TwoStages();
    v1::Job job;
    job.add_timings()->set_stage("decode");
    job.add_timings()->set_stage("encode");
    SortTimings(&workflow, job);
    QCOMPARE(job.timings(0).stage(), std::string("encode"));
    SortTimings(nullptr, job);
    QCOMPARE(job.timings(1).stage(), std::string("decode"));
  }
};

}  // namespace onepiece::proxy

QTEST_GUILESS_MAIN(onepiece::proxy::SubmissionTest)
#include "submission_test.moc"
