#include "cluster/workflow/parameter_check.h"

#include <QtTest>
#include <limits>

#include "cluster/base/status.h"
#include "google/protobuf/text_format.h"
#include "tests/test_main.h"

namespace onepiece::workflow {
namespace {

v1::Workflow Schema() {
  v1::Workflow workflow;
  const bool parsed = google::protobuf::TextFormat::ParseFromString(
      R"pb(
        app_id: "app"
        parameters { name: "prompt" type: STRING required: true max_bytes: 16 }
        parameters {
          name: "format"
          type: STRING
          default_value: "mp4"
          allowed_values: "mp4"
          allowed_values: "png"
        }
        parameters {
          name: "width"
          type: INTEGER
          default_value: "64"
          minimum: 16
          maximum: 512
          multiple_of: 16
        }
        parameters {
          name: "num_frames"
          type: INTEGER
          default_value: "9"
          minimum: 1
          maximum: 81
          multiple_of: 4
          multiple_offset: 1
        }
        parameters { name: "guidance" type: NUMBER default_value: "5.5" minimum: 0 maximum: 30 }
        parameters { name: "loop" type: BOOLEAN default_value: "true" })pb",
      &workflow);
  Q_ASSERT(parsed);
  return workflow;
}

google::protobuf::Value Text(std::string text) {
  google::protobuf::Value value;
  value.set_string_value(std::move(text));
  return value;
}

google::protobuf::Value Number(double number) {
  google::protobuf::Value value;
  value.set_number_value(number);
  return value;
}

google::protobuf::Struct WithPrompt(const std::string& name = "",
                                    const google::protobuf::Value& value = {}) {
  google::protobuf::Struct given;
  (*given.mutable_fields())["prompt"] = Text("a red star");
  if (!name.empty()) (*given.mutable_fields())[name] = value;
  return given;
}

}  // namespace

class ParameterCheckTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Defaults_AreFilledInWithTheirTypes() {
    const auto checked = CheckParameters(Schema(), WithPrompt());
    QVERIFY(checked.ok());
    QCOMPARE(checked->size(), std::size_t{6});
    QCOMPARE(std::get<std::string>(checked->at("format")), std::string("mp4"));
    QCOMPARE(std::get<std::int64_t>(checked->at("width")), std::int64_t{64});
    QCOMPARE(std::get<double>(checked->at("guidance")), 5.5);
    QCOMPARE(std::get<bool>(checked->at("loop")), true);
  }

  void Given_ValuesWinAndKeepTheirTypes() {
    const auto checked = CheckParameters(Schema(), WithPrompt("num_frames", Number(13)));
    QVERIFY(checked.ok());
    QCOMPARE(std::get<std::int64_t>(checked->at("num_frames")), std::int64_t{13});
  }

  void Refused_WithTheFieldAndTheReason_data() {
    QTest::addColumn<QString>("field");
    QTest::addColumn<QByteArray>("text");
    QTest::addColumn<double>("number");  // NaN means that the text column has the value.
    QTest::addColumn<QString>("why");
    const double none = std::numeric_limits<double>::quiet_NaN();
    const double infinite = std::numeric_limits<double>::infinity();
    QTest::newRow("empty prompt") << "prompt" << QByteArray("") << none << "must not be empty";
    QTest::newRow("blank prompt") << "prompt" << QByteArray(" \n ") << none << "must not be empty";
    QTest::newRow("long prompt") << "prompt" << QByteArray(100'000, 'x') << none << "100000 bytes";
    QTest::newRow("broken UTF-8") << "prompt" << QByteArray("\xff\xfe") << none << "UTF-8";
    QTest::newRow("number for a string") << "prompt" << QByteArray() << 3.0 << "must be a string";
    QTest::newRow("value not allowed") << "format" << QByteArray("gif") << none << "mp4, png";
    QTest::newRow("string for a number")
        << "width" << QByteArray("64") << none << "must be a number";
    QTest::newRow("not a multiple") << "width" << QByteArray() << 65.0 << "multiple of 16";
    QTest::newRow("absurd size") << "width" << QByteArray() << 1e9 << "16 to 512";
    QTest::newRow("fraction") << "width" << QByteArray() << 64.5 << "integer";
    QTest::newRow("infinite") << "width" << QByteArray() << infinite << "finite";
    QTest::newRow("wrong frames") << "num_frames" << QByteArray() << 8.0 << "multiple of 4 plus 1";
    QTest::newRow("negative") << "guidance" << QByteArray() << -1.0 << "0 to 30";
    QTest::newRow("string for a boolean")
        << "loop" << QByteArray("true") << none << "true or false";
    QTest::newRow("unknown name") << "stepz" << QByteArray() << 3.0 << "not a parameter of app";
  }
  void Refused_WithTheFieldAndTheReason() {
    QFETCH(QString, field);
    QFETCH(QByteArray, text);
    QFETCH(double, number);
    QFETCH(QString, why);
    const auto value = text.isNull() ? Number(number) : Text(text.toStdString());
    const auto checked = CheckParameters(Schema(), WithPrompt(field.toStdString(), value));
    QCOMPARE(checked.status().code(), absl::StatusCode::kInvalidArgument);
    const auto reason = base::GetReason(checked.status());
    QCOMPARE(reason.reason, std::string("INVALID_PARAMETERS"));
    QVERIFY(reason.metadata.contains(field.toStdString()));
    QVERIFY2(QString::fromStdString(reason.metadata.at(field.toStdString())).contains(why),
             reason.metadata.at(field.toStdString()).c_str());
  }

  void Violations_AreNamedAllAtOnce() {
    google::protobuf::Struct given;
    (*given.mutable_fields())["width"] = Number(1);
    (*given.mutable_fields())["speed"] = Number(1);
    const auto reason = base::GetReason(CheckParameters(Schema(), given).status());
    QCOMPARE(reason.metadata.size(), std::size_t{3});
    QCOMPARE(reason.metadata.at("prompt"), std::string("is required"));
  }

  void Prompts_OfAnyScriptPass() {
    for (const char* prompt : {"красный круг", "赤い円", "دائرة", "🔴➡️"}) {
      google::protobuf::Struct given;
      (*given.mutable_fields())["prompt"] = Text(prompt);
      v1::Workflow schema = Schema();
      schema.mutable_parameters(0)->set_max_bytes(64);
      QVERIFY(CheckParameters(schema, given).ok());
    }
  }
};

}  // namespace onepiece::workflow

ONEPIECE_TEST(onepiece::workflow::ParameterCheckTest)
#include "parameter_check_test.moc"
