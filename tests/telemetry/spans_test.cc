#include "cluster/telemetry/spans.h"

#include <QtTest>
#include <thread>

#include "nlohmann/json.hpp"
#include "tests/test_main.h"

namespace onepiece::telemetry {
namespace {

using std::chrono::milliseconds;

v1::Span MakeSpan(const char* node, const char* stage, const char* operation, std::int64_t start,
                  std::int64_t end) {
  v1::Span span;
  span.set_node(node);
  span.set_stage(stage);
  span.set_operation(operation);
  span.set_start_unix_ns(start);
  span.set_end_unix_ns(end);
  return span;
}

}  // namespace

class SpansTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void ScopedSpan_RecordsItsLifeAndAttributes() {
    base::ManualClock clock;
    Spans spans("instance-1", clock);
    const base::Uid uid = base::Uid::GenerateRandom();
    const std::int64_t start = clock.WallNow().time_since_epoch().count();
    {
      ScopedSpan span(spans, uid, "compute", "diffusion");
      span.Set("steps", "20");
      clock.Advance(milliseconds(5));
    }
    const auto found = spans.Find(uid);
    QCOMPARE(found.size(), std::size_t{1});
    QCOMPARE(found[0].uid(), uid.ToString());
    QCOMPARE(found[0].node(), std::string("instance-1"));
    QCOMPARE(found[0].operation(), std::string("compute"));
    QCOMPARE(found[0].stage(), std::string("diffusion"));
    QCOMPARE(found[0].start_unix_ns(), start);
    QCOMPARE(found[0].end_unix_ns(), start + 5'000'000);
    QCOMPARE(found[0].attributes().at("steps"), std::string("20"));
  }

  void Find_ReturnsOneJobsSpansInOrderOfTheirStart() {
    Spans spans("n");
    const auto uid = base::Uid::GenerateRandom();
    spans.Record(uid, MakeSpan("", "", "late", 20, 30));
    spans.Record(base::Uid::GenerateRandom(), MakeSpan("", "", "other", 5, 6));
    spans.Record(uid, MakeSpan("", "", "early", 10, 11));
    const auto found = spans.Find(uid);
    QCOMPARE(found.size(), std::size_t{2});
    QCOMPARE(found[0].operation(), std::string("early"));
    QCOMPARE(found[1].operation(), std::string("late"));
  }

  void Record_ForgetsTheOldestBeyondItsCapacity() {
    Spans spans("n", base::SystemClock(), 3);
    const auto uid = base::Uid::GenerateRandom();
    for (int i = 0; i < 5; ++i) spans.Record(uid, MakeSpan("", "", "x", i, i));
    const auto found = spans.Find(uid);
    QCOMPARE(found.size(), std::size_t{3});
    QCOMPARE(found[0].start_unix_ns(), 2);
  }

  void Record_BoundsAttributes() {
    Spans spans("n");
    v1::Span span;
    for (int i = 0; i < 100; ++i)
      (*span.mutable_attributes())[std::to_string(i)] = std::string(10'000, 'x');
    const auto uid = base::Uid::GenerateRandom();
    spans.Record(uid, std::move(span));
    QVERIFY(spans.Find(uid)[0].ByteSizeLong() < 16 * 300);
  }

  void Record_IsSafeFromManyThreads() {
    Spans spans("n", base::SystemClock(), 1000);
    const auto uid = base::Uid::GenerateRandom();
    {
      std::vector<std::jthread> threads;
      for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&] {
          for (int i = 0; i < 200; ++i) ScopedSpan span(spans, uid, "x");
        });
      }
    }
    QCOMPARE(spans.Find(uid).size(), std::size_t{800});
  }

  void WriteChromeTrace_HasOneProcessPerNodeAndMicroseconds() {
    const std::vector<v1::Span> spans = {
        MakeSpan("proxy-1", "", "submit", 1'000'000, 3'500'000),
        MakeSpan("instance-1", "decode", "compute", 2'000'000, 2'000'500)};
    const auto trace = nlohmann::json::parse(WriteChromeTrace(spans));
    std::map<std::string, int> process_of;
    std::map<std::string, nlohmann::json> event_of;
    for (const auto& event : trace.at("traceEvents")) {
      if (event.at("name") == "process_name")
        process_of[event.at("args").at("name")] = event.at("pid");
      if (event.at("ph") == "X") event_of[event.at("name")] = event;
    }
    QCOMPARE(process_of.size(), std::size_t{2});
    QCOMPARE(event_of.at("submit").at("ts").get<double>(), 0.0);
    QCOMPARE(event_of.at("submit").at("dur").get<double>(), 2500.0);
    QCOMPARE(event_of.at("submit").at("pid").get<int>(), process_of.at("proxy-1"));
    QCOMPARE(event_of.at("compute").at("ts").get<double>(), 1000.0);
    QCOMPARE(event_of.at("compute").at("dur").get<double>(), 0.5);
    QCOMPARE(event_of.at("compute").at("pid").get<int>(), process_of.at("instance-1"));
  }

  void WriteChromeTrace_OfNothingIsAnEmptyTrace() {
    QVERIFY(nlohmann::json::parse(WriteChromeTrace({})).at("traceEvents").empty());
  }
};

}  // namespace onepiece::telemetry

ONEPIECE_TEST(onepiece::telemetry::SpansTest)
#include "spans_test.moc"
