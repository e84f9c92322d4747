// Tests the log as other processes read it: the ring of lines, and TailLogs over gRPC.
#include <QtTest>
#include <limits>
#include <thread>

#include "cluster/base/status.h"
#include "cluster/rpc/channel.h"
#include "cluster/rpc/server.h"
#include "cluster/telemetry/log_ring.h"
#include "cluster/telemetry/telemetry_service.h"
#include "spdlog/spdlog.h"
#include "tests/eventually.h"
#include "tests/test_main.h"

namespace onepiece::telemetry {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
constexpr auto kLimit = seconds(20);

void Say(LogRing& ring, spdlog::level::level_enum level, const std::string& text) {
  ring.log(spdlog::details::log_msg("test", level, text));
}

QStringList Texts(const LogRing::News& news) {
  QStringList texts;
  for (const v1::LogLine& line : news.lines) texts << QString::fromStdString(line.text());
  return texts;
}

struct Server {
  Server() {
    server.AddService(service);
    if (!server.Start().ok()) qFatal("Start failed");
    stub = v1::TelemetryService::NewStub(rpc::MakeChannel(server.address()));
  }
  // Before the service ends, whose handlers may be under way.
  ~Server() { server.Shutdown(base::Duration::zero()); }
  LogRing ring;
  Spans spans{"n"};
  rpc::Server server{rpc::ServerOptions{}};
  TelemetryService service{
      spans, ring, server.stopping(), {.node_id = "n", .heartbeat = milliseconds(600)}};
  std::unique_ptr<v1::TelemetryService::Stub> stub;
};

// One caller. Its call has a deadline, so that it ends when nothing comes.
class Caller {
 public:
  explicit Caller(Server& server, int backlog = 0, v1::LogLevel level = v1::LOG_LEVEL_UNSPECIFIED) {
    rpc::SetTimeout(context_, kLimit);
    v1::TailLogsRequest request;
    request.set_backlog(backlog);
    request.set_min_level(level);
    reader_ = server.stub->TailLogs(&context_, request);
  }
  ~Caller() {
    context_.TryCancel();
    if (!finished_) (void)Finish();
  }
  bool Read(v1::TailLogsResponse& response) { return reader_->Read(&response); }
  v1::TailLogsResponse Next() {
    v1::TailLogsResponse response;
    if (!Read(response)) qFatal("the stream ended: %s", base::Message(Finish()).c_str());
    return response;
  }
  absl::Status Finish() {
    finished_ = true;
    v1::TailLogsResponse response;
    while (reader_->Read(&response)) continue;
    return rpc::FromGrpc(reader_->Finish());
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::TailLogsResponse>> reader_;
  bool finished_ = false;
};

}  // namespace

class LogsTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Take_GivesEachLineOnce_OfTheLevel() {
    LogRing ring;
    for (const char* text : {"a", "b", "c"}) Say(ring, spdlog::level::info, text);
    Say(ring, spdlog::level::debug, "hidden");
    Say(ring, spdlog::level::err, "d");
    LogRing::Cursor cursor = ring.Begin(v1::LOG_INFO, 2);
    const LogRing::News news = ring.Take(cursor, 10);
    QCOMPARE(Texts(news), (QStringList{"c", "d"}));
    QCOMPARE(news.dropped, std::uint64_t{0});
    QCOMPARE(news.lines[1].level(), v1::LOG_ERROR);
    // Numbers count every line of the process.
    QCOMPARE(news.lines[0].number(), std::uint64_t{3});
    QCOMPARE(news.lines[1].number(), std::uint64_t{5});
    QVERIFY(news.lines[0].unix_ns() > 1'000'000'000'000'000'000);
    QVERIFY(ring.Take(cursor, 10).lines.empty());
    Say(ring, spdlog::level::critical, "e");
    Say(ring, spdlog::level::warn, "f");
    QCOMPARE(Texts(ring.Take(cursor, 1)), QStringList{"e"});
    QCOMPARE(Texts(ring.Take(cursor, 1)), QStringList{"f"});
    LogRing::Cursor everything = ring.Begin(v1::LOG_DEBUG, 1000);
    QCOMPARE(ring.Take(everything, 100).lines.size(), std::size_t{7});
    LogRing::Cursor nothing = ring.Begin(v1::LOG_DEBUG, 0);
    QVERIFY(ring.Take(nothing, 100).lines.empty());
  }

  void Take_CountsWhatWasTooFast() {
    LogRing ring(4);
    LogRing::Cursor all = ring.Begin(v1::LOG_DEBUG, 0), errors = ring.Begin(v1::LOG_ERROR, 0);
    Say(ring, spdlog::level::err, "first");
    for (int i = 0; i < 6; ++i) Say(ring, spdlog::level::info, std::to_string(i));
    // The ring of four has dropped "first", 0 and 1.
    const LogRing::News news = ring.Take(all, 2);
    QCOMPARE(news.dropped, std::uint64_t{3});
    QCOMPARE(Texts(news), (QStringList{"2", "3"}));
    // A caller does not miss lines below its level.
    QCOMPARE(ring.Take(errors, 2).dropped, std::uint64_t{1});
    QCOMPARE(ring.Take(errors, 2).dropped, std::uint64_t{0});
    QCOMPARE(ring.Take(all, 2).dropped, std::uint64_t{0});
    // A backlog has no more lines than the ring keeps.
    LogRing::Cursor late = ring.Begin(v1::LOG_INFO, 100);
    QCOMPARE(ring.Take(late, 100).lines.size(), std::size_t{4});
  }

  void Log_CutsLongText_AndMakesItPresentable() {
    LogRing ring;
    Say(ring, spdlog::level::info, std::string(LogRing::kMaxTextBytes, 'x'));
    Say(ring, spdlog::level::info, std::string(LogRing::kMaxTextBytes + 1, 'x'));
    Say(ring, spdlog::level::info, "\xff");
    LogRing::Cursor cursor = ring.Begin(v1::LOG_INFO, 3);
    const LogRing::News news = ring.Take(cursor, 3);
    QCOMPARE(news.lines[0].text(), std::string(LogRing::kMaxTextBytes, 'x'));
    QVERIFY(news.lines[1].text().ends_with("x…"));
    QCOMPARE(news.lines[1].text().size(), LogRing::kMaxTextBytes);
    QCOMPARE(news.lines[2].text(), std::string("?"));
  }

  void TailLogs_BringsThePastThenWhatComes() {
    Server server;
    for (const char* text : {"a", "b", "c"}) Say(server.ring, spdlog::level::warn, text);
    Caller caller(server, 2);
    v1::TailLogsResponse response = caller.Next();
    QCOMPARE(response.lines_size(), 2);
    QCOMPARE(response.lines(0).text(), std::string("b"));
    QCOMPARE(response.node_id(), std::string("n"));
    Say(server.ring, spdlog::level::debug, "not asked for");
    Say(server.ring, spdlog::level::info, "d");
    while (response.lines_size() == 0 || response.lines(0).text() != "d") response = caller.Next();
    QCOMPARE(response.lines_size(), 1);
    QCOMPARE(response.dropped(), std::uint64_t{0});
    // An empty response ends the silence.
    QCOMPARE(caller.Next().lines_size(), 0);
  }

  void TailLogs_SaysWhenThereAreNoMore() {
    Server server;
    for (int i = 0; i < 512; ++i) Say(server.ring, spdlog::level::info, "x");
    Caller caller(server, std::numeric_limits<int>::max());
    QCOMPARE(caller.Next().lines_size(), 256);
    QCOMPARE(caller.Next().lines_size(), 256);
    QCOMPARE(caller.Next().lines_size(), 0);
    Server empty;
    QCOMPARE(Caller(empty, 10).Next().lines_size(), 0);
  }

  void TailLogs_SlowCallerIsToldWhatItMissed() {
    Server server;
    Caller caller(server);
    (void)caller.Next();
    // Nobody reads now, and these are more lines than all buffers on the way hold.
    const std::string text(4000, 'x');
    constexpr std::uint64_t kLines = 20'000;
    for (std::uint64_t i = 0; i < kLines; ++i) Say(server.ring, spdlog::level::info, text);
    std::uint64_t dropped = 0, lines = 0, last = 0;
    while (last < kLines) {
      const v1::TailLogsResponse response = caller.Next();
      dropped += response.dropped();
      lines += static_cast<std::uint64_t>(response.lines_size());
      if (response.lines_size() > 0) last = response.lines().rbegin()->number();
    }
    QVERIFY(dropped > 0);
    QCOMPARE(dropped + lines, kLines);
  }

  void TailLogs_CallersAreBounded() {
    Server server;
    std::vector<std::unique_ptr<Caller>> callers;
    for (int i = 0; i < TelemetryService::kMaxTails; ++i) {
      callers.push_back(std::make_unique<Caller>(server));
      (void)callers.back()->Next();
    }
    const absl::Status refused = Caller(server).Finish();
    QVERIFY(absl::IsResourceExhausted(refused));
    QCOMPARE(base::GetReason(refused).reason, std::string("TOO_MANY_TAILS"));
    callers.pop_back();
    QVERIFY(testing::Eventually(kLimit, [&] {
      v1::TailLogsResponse response;
      return Caller(server).Read(response);
    }));
  }

  void TailLogs_RefusesNonsense() {
    Server server;
    QCOMPARE(base::GetReason(Caller(server, -1).Finish()).reason, std::string("BAD_BACKLOG"));
    QCOMPARE(base::GetReason(Caller(server, 1, static_cast<v1::LogLevel>(9)).Finish()).reason,
             std::string("BAD_LEVEL"));
  }

  void TailLogs_EndsAtShutdown() {
    Server server;
    Caller caller(server);
    (void)caller.Next();
    QElapsedTimer timer;
    timer.start();
    server.server.Shutdown(seconds(10));
    QVERIFY(timer.elapsed() < 9'000);
    QCOMPARE(base::GetReason(caller.Finish()).reason, std::string("SHUTTING_DOWN"));
  }

  void TailLogs_LogsNothingItself() {
    auto ring = std::make_shared<LogRing>();
    const auto before = spdlog::default_logger();
    auto logger = std::make_shared<spdlog::logger>("test", ring);
    logger->set_level(spdlog::level::trace);
    spdlog::set_default_logger(logger);
    {
      Server server;
      for (int i = 0; i < 3; ++i) (void)Caller(server, 10, v1::LOG_DEBUG).Next();
      (void)Caller(server, -1).Finish();
      Caller last(server);
      for (int i = 0; i < 2; ++i) (void)last.Next();
    }
    spdlog::set_default_logger(before);
    LogRing::Cursor cursor = ring->Begin(v1::LOG_DEBUG, 10);
    QVERIFY(ring->Take(cursor, 10).lines.empty());
  }

  void ListSpans_AnswersOverGrpc() {
    Server server;
    const auto uid = base::Uid::GenerateRandom();
    v1::Span span;
    span.set_stage("decode");
    span.set_operation("compute");
    server.spans.Record(uid, span);
    v1::ListSpansRequest request;
    request.set_uid(uid.ToString());
    const auto answer =
        rpc::Call(*server.stub, &v1::TelemetryService::Stub::ListSpans, request, kLimit);
    QVERIFY(answer.ok());
    QCOMPARE(answer->spans_size(), 1);
    QCOMPARE(answer->spans(0).stage(), std::string("decode"));
    request.set_uid("nonsense");
    const auto refused =
        rpc::Call(*server.stub, &v1::TelemetryService::Stub::ListSpans, request, kLimit);
    QCOMPARE(base::GetReason(refused.status()).reason, std::string("BAD_UID"));
  }
};

}  // namespace onepiece::telemetry

ONEPIECE_TEST(onepiece::telemetry::LogsTest)
#include "logs_test.moc"
