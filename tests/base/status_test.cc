#include "cluster/base/status.h"

#include <QtTest>

#include "tests/test_main.h"

namespace onepiece::base {
namespace {

using Metadata = std::map<std::string, std::string>;

absl::Status Error(const std::string& reason, Metadata metadata) {
  return MakeError(absl::StatusCode::kAborted, reason, "m", std::move(metadata));
}

}  // namespace

class StatusTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Reason_IsWhatWasGiven_data() {
    QTest::addColumn<QString>("value");
    QTest::newRow("plain") << "encode";
    QTest::newRow("empty") << "";
    QTest::newRow("looks like the payload") << "3:abc4:";
    QTest::newRow("digits") << "12";
    QTest::newRow("quotes and lines") << "\"a\"\n[1,\t{2}]";
    QTest::newRow("not ASCII") << QString(QChar(0x436)) + QChar(0);
    QTest::newRow("long") << QString(100'000, 'x');
  }
  void Reason_IsWhatWasGiven() {
    QFETCH(QString, value);
    const std::string text = value.toStdString();
    const Metadata metadata = {{"pool", text}, {"zone", "z"}, {"k" + text, ""}};
    const ErrorReason reason = GetReason(Error("OVERLOADED", metadata));
    QCOMPARE(reason.reason, std::string("OVERLOADED"));
    QCOMPARE(reason.metadata, metadata);
    QCOMPARE(GetReason(Error(text, {})).reason, text);
  }

  void Reason_IsUtf8_WhateverItQuotes() {
    const ErrorReason reason = GetReason(Error("BAD", {{"field", "a\xff\xfe z"}}));
    QCOMPARE(reason.metadata, (Metadata{{"field", "a?? z"}}));
  }

  void SetReason_ReplacesTheOldOne() {
    absl::Status status = Error("OLD", {{"a", "1"}});
    SetReason(status, {"NEW", {{"b", "2"}}});
    QCOMPARE(GetReason(status).reason, std::string("NEW"));
    QCOMPARE(GetReason(status).metadata, (Metadata{{"b", "2"}}));
  }

  void Annotate_KeepsCodeAndReason() {
    const absl::Status status = Annotate(Error("BUSY", {{"a", "1"}}), "opening x");
    QVERIFY(status.code() == absl::StatusCode::kAborted);
    QCOMPARE(Message(status), std::string("opening x: m"));
    QCOMPARE(GetReason(status).reason, std::string("BUSY"));
    QCOMPARE(GetReason(status).metadata, (Metadata{{"a", "1"}}));
  }

  void GetReason_IsEmptyWithoutOne() {
    QVERIFY(GetReason(absl::OkStatus()).reason.empty());
    QVERIFY(GetReason(absl::AbortedError("m")).reason.empty());
  }
};

}  // namespace onepiece::base

ONEPIECE_TEST(onepiece::base::StatusTest)
#include "status_test.moc"
