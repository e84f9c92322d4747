#include "stages/sdk/parameters.h"

#include <QtTest>
#include <cmath>

#include "cluster/base/status.h"
#include "tests/test_main.h"

namespace onepiece::sdk {
namespace {

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

}  // namespace

class ParametersTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Reads_WhatIsThere() {
    QCOMPARE(StringParameter(parameters_, "prompt").value(), std::string("a star"));
    QCOMPARE(IntParameter(parameters_, "steps", 1, 20).value(), 20);
    QCOMPARE(NumberParameter(parameters_, "scale", 0, 10).value(), 2.5);
    QCOMPARE(NumberParameter(parameters_, "steps", 0, 100).value(), 20.0);
  }

  void Missing_TakesTheFallbackOrFails() {
    QCOMPARE(StringParameter(parameters_, "x", "y").value(), std::string("y"));
    QCOMPARE(IntParameter(parameters_, "x", 1, 2, 2).value(), 2);
    QCOMPARE(NumberParameter(parameters_, "x", 1, 2, 1.5).value(), 1.5);
    QCOMPARE(BoolParameter(parameters_, "x", true).value(), true);
    QCOMPARE(BoolParameter(parameters_, "x").status().code(), kInvalid);
    QCOMPARE(StringParameter(parameters_, "x").status().code(), kInvalid);
    QCOMPARE(IntParameter(parameters_, "x", 1, 2).status().code(), kInvalid);
    QCOMPARE(NumberParameter(parameters_, "x", 1, 2).status().code(), kInvalid);
  }

  void WrongTypeOrValue_NamesTheParameter() {
    QCOMPARE(StringParameter(parameters_, "steps").status().code(), kInvalid);
    QCOMPARE(IntParameter(parameters_, "scale", 0, 10).status().code(), kInvalid);
    QCOMPARE(IntParameter(parameters_, "flag", 0, 10).status().code(), kInvalid);
    QCOMPARE(BoolParameter(parameters_, "steps").status().code(), kInvalid);
    QVERIFY(BoolParameter(parameters_, "flag").ok());
    QCOMPARE(NumberParameter(parameters_, "prompt", 0, 10).status().code(), kInvalid);
    QCOMPARE(NumberParameter(parameters_, "nan", 0, 10).status().code(), kInvalid);
    const absl::Status status = IntParameter(parameters_, "steps", 1, 19).status();
    QCOMPARE(base::Message(status), std::string("steps: 20 is not within 1 to 19"));
    const base::ErrorReason reason = base::GetReason(status);
    QCOMPARE(reason.reason, std::string("BAD_PARAMETER"));
    QCOMPARE(reason.metadata.at("field"), std::string("steps"));
  }

 private:
  const Parameters parameters_{{"prompt", std::string("a star")},
                               {"steps", std::int64_t{20}},
                               {"scale", 2.5},
                               {"flag", true},
                               {"nan", std::nan("")}};
};

}  // namespace onepiece::sdk

ONEPIECE_TEST(onepiece::sdk::ParametersTest)
#include "parameters_test.moc"
