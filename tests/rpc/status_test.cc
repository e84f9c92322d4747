#include "cluster/rpc/status.h"

#include <QtTest>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "tests/test_main.h"

namespace onepiece::rpc {

class StatusTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void RoundTrip_KeepsCodeMessageAndReason() {
    const auto sent =
        base::MakeError(absl::StatusCode::kNotFound, "UNKNOWN_APP", "no app 'x'", {{"app", "x"}});
    const absl::Status got = FromGrpc(ToGrpc(sent));
    QVERIFY(got.code() == absl::StatusCode::kNotFound);
    QCOMPARE(base::Message(got), std::string("no app 'x'"));
    QCOMPARE(base::GetReason(got).reason, std::string("UNKNOWN_APP"));
    QCOMPARE(base::GetReason(got).metadata, (std::map<std::string, std::string>{{"app", "x"}}));
  }

  void RoundTrip_KeepsEveryCode() {
    for (int code = 1; code <= 16; ++code) {
      const absl::Status sent(static_cast<absl::StatusCode>(code), "m");
      QVERIFY(FromGrpc(ToGrpc(sent)) == sent);
    }
    QVERIFY(FromGrpc(ToGrpc(absl::OkStatus())).ok());
  }

  void ToGrpc_SaysWhenToRetryAndWhichFieldIsWrong() {
    google::rpc::Status details;
    QVERIFY(
        details.ParseFromString(ToGrpc(base::MakeError(absl::StatusCode::kResourceExhausted, "BUSY",
                                                       "later", {{kRetryAfterMs, "1500"}}))
                                    .error_details()));
    QCOMPARE(details.details_size(), 2);
    google::rpc::ErrorInfo info;
    QVERIFY(details.details(0).UnpackTo(&info));
    QCOMPARE(info.domain(), std::string("onepiece"));
    google::rpc::RetryInfo retry;
    QVERIFY(details.details(1).UnpackTo(&retry));
    QCOMPARE(retry.retry_delay().seconds(), 1);
    QCOMPARE(retry.retry_delay().nanos(), 500'000'000);

    QVERIFY(
        details.ParseFromString(ToGrpc(base::MakeError(absl::StatusCode::kInvalidArgument,
                                                       "BAD_PARAMETER", "no", {{"field", "steps"}}))
                                    .error_details()));
    google::rpc::BadRequest bad;
    QVERIFY(details.details(1).UnpackTo(&bad));
    QCOMPARE(bad.field_violations(0).field(), std::string("steps"));
  }

  void ToGrpc_LeavesOutARetryTimeThatIsNoNumber() {
    google::rpc::Status details;
    QVERIFY(details.ParseFromString(ToGrpc(base::MakeError(absl::StatusCode::kAborted, "BUSY",
                                                           "later", {{kRetryAfterMs, "soon"}}))
                                        .error_details()));
    QCOMPARE(details.details_size(), 1);
  }

  void ToGrpc_FitsInTrailersAndIsUtf8_WhateverTheErrorQuotes() {
    std::string quoted;
    while (quoted.size() < 100'000) quoted += "жук\xff";
    const grpc::Status sent = ToGrpc(base::MakeError(
        absl::StatusCode::kInvalidArgument, "BAD", quoted, {{"field", quoted}, {"more", quoted}}));
    QVERIFY(3 * sent.error_message().size() + 4 * sent.error_details().size() / 3 < 7900);
    google::rpc::Status details;
    QVERIFY(details.ParseFromString(sent.error_details()));
    QVERIFY(QString::fromStdString(details.message()).startsWith(QString("жук?жук?")));
  }

  void FromGrpc_IgnoresMalformedAndForeignDetails() {
    const grpc::Status malformed(grpc::StatusCode::INTERNAL, "m", "\xff\xff\xff");
    QVERIFY(FromGrpc(malformed) == absl::InternalError("m"));
    google::rpc::Status details;
    google::rpc::ErrorInfo info;
    info.set_domain("elsewhere");
    info.set_reason("X");
    details.add_details()->PackFrom(info);
    const grpc::Status foreign(grpc::StatusCode::INTERNAL, "m", details.SerializeAsString());
    QVERIFY(base::GetReason(FromGrpc(foreign)).reason.empty());
  }
};

}  // namespace onepiece::rpc

ONEPIECE_TEST(onepiece::rpc::StatusTest)
#include "status_test.moc"
