#include "cluster/proxy/submission.h"

#include <QtTest>
#include <functional>
#include <set>

#include "cluster/base/status.h"
#include "cluster/job/job_record.h"
#include "tests/test_main.h"

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
    const base::Uid uid = MakeUid("secret", "default", kRequestId, now);
    QVERIFY(uid == MakeUid("secret", "default", kRequestId, now + 1h));
    QVERIFY(uid == MakeUid("secret", "default", "018F2B1C-0000-4000-8000-0123456789AB", now));
    QVERIFY(uid != MakeUid("other", "default", kRequestId, now));
    const base::Uid foreign = MakeUid("secret", "films", kRequestId, now);
    QVERIFY(foreign != uid && foreign != MakeUid("secret", "games", kRequestId, now));
    // A client repeats a request over an upgrade from a program that knew no tenants.
    QCOMPARE(uid.ToString(), std::string("1ad97a7e-c360-8cae-af5c-76497e1ca615"));
    QCOMPARE(uid.ToString()[14], '8');
    QVERIFY(std::string_view("89ab").find(uid.ToString()[19]) != std::string_view::npos);
    QVERIFY(MakeUid("secret", "default", "", now) != MakeUid("secret", "default", "", now));
    QCOMPARE(MakeUid("secret", "default", "", now).ToString()[14], '7');
  }

  void Fingerprint_LeavesOutTheRequestIdOnly() {
    v1::SubmitJobRequest request;
    request.set_app_id("app");
    (*request.mutable_parameters()->mutable_fields())["a"].set_number_value(1);
    (*request.mutable_parameters()->mutable_fields())["b"].set_number_value(2);
    const auto of = [](const v1::SubmitJobRequest& asked) {
      return Fingerprint(asked, DigestInputs(asked));
    };
    const std::string fingerprint = of(request);
    request.set_request_id(kRequestId);
    request.set_validate_only(true);
    QCOMPARE(of(request), fingerprint);
    // For a new field of the request somebody must decide whether it makes another job.
    QCOMPARE(v1::SubmitJobRequest::descriptor()->field_count(), 8);
    const std::vector<Spoil> changes = {
        [](auto& r) { r.set_app_id("other"); },
        [](auto& r) { (*r.mutable_parameters()->mutable_fields())["a"].set_number_value(3); },
        [](auto& r) { r.mutable_deadline()->set_seconds(9); },
        [](auto& r) { r.set_priority(1); },
        [](auto& r) { (*r.mutable_labels())["k"] = "v"; },
        [](auto& r) { r.add_inputs()->set_name("image"); },
        [](auto& r) { r.mutable_inputs(0)->set_media_type("image/png"); },
        [](auto& r) { r.mutable_inputs(0)->set_data("pixels"); }};
    std::set<std::string> seen = {fingerprint};
    for (const Spoil& change : changes) {
      change(request);
      QVERIFY(seen.insert(of(request)).second);
    }
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
    v1::JobRecord record =
        MakeRecord(request, "films", workflow, base::Uid::GenerateRandom(), now, "set-1");
    QCOMPARE(record.job().deadline().seconds(), 605);
    QCOMPARE(record.result_ttl_s(), 3600);
    QCOMPARE(record.job().stage(), std::string("encode"));
    QCOMPARE(record.job().stage_count(), 2);
    QCOMPARE(record.job().workflow_set(), std::string("set-1"));
    workflow.set_default_deadline_s(30);
    QVERIFY(DeadlineOf(request, workflow) == 30s);
    request.mutable_deadline()->set_seconds(7);
    QVERIFY(DeadlineOf(request, workflow) == 7s);
    const base::MonotonicTime here{5s};
    const message::Message message =
        MakeMessage(record, {{"steps", std::int64_t{4}}}, request, 12, here);
    QCOMPARE(message.header.uid.ToString(), record.job().uid());
    QCOMPARE(message.header.stage, std::string("encode"));
    QCOMPARE(message.header.routing_epoch, std::uint64_t{12});
    QVERIFY(message.header.deadline == here + 600s);
  }

  void Inputs_TravelInTheMessageAndLeaveTheirDigestInTheRecord() {
    v1::SubmitJobRequest request;
    v1::JobInput& image = *request.add_inputs();
    image.set_name("image");
    image.set_media_type("image/png");
    image.set_data("abc");
    const v1::JobRecord record = MakeRecord(
        request, "films", TwoStages(), base::Uid::GenerateRandom(), base::FromUnixMs(1), "set-1");
    QCOMPARE(record.job().inputs_size(), 1);
    const v1::InputDigest& digest = record.job().inputs(0);
    QCOMPARE(digest.name(), std::string("image"));
    QCOMPARE(digest.media_type(), std::string("image/png"));
    QCOMPARE(digest.size_bytes(), 3);
    // FIPS 180-2, example B.1.
    QCOMPARE(digest.sha256(),
             std::string("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"));
    const message::Message message = MakeMessage(record, {}, request, 1, {});
    QCOMPARE(message.artifacts.size(), std::size_t{1});
    QCOMPARE(message.artifacts[0].name, std::string("image"));
    QCOMPARE(message.artifacts[0].media_type, std::string("image/png"));
    QCOMPARE(message.artifacts[0].data.text(), std::string_view("abc"));
    // Not a copy.
    QVERIFY(static_cast<const void*>(message.artifacts[0].data.bytes().data()) ==
            image.data().data());
  }
};

}  // namespace onepiece::proxy

ONEPIECE_TEST(onepiece::proxy::SubmissionTest)
#include "submission_test.moc"
