// Sends results into a real database.
#include "stages/instance/result_delivery.h"

#include <QtTest>

#include "tests/database/database_cluster.h"
#include "tests/test_main.h"

namespace onepiece::instance {
namespace {

using namespace std::chrono_literals;

message::Message Result(std::size_t bytes) {
  message::Message message;
  message.header.kind = message::Kind::kResult;
  message.header.uid = base::Uid::GenerateRandom();
  message.header.app = "app";
  message.header.attempt = 3;
  message.header.ingress_time = base::SystemClock().WallNow();
  message.header.deadline = base::SystemClock().Now() + 60s;
  message.artifacts.push_back(
      message::BytesArtifact("video", "video/mp4", std::string(bytes, 'v')));
  AddSha256(message.artifacts);
  return message;
}

}  // namespace

class ResultDeliveryTest : public QObject {
  Q_OBJECT

  database::DatabaseCluster cluster_;
  telemetry::Spans spans_{"inst"};

  std::optional<node::Delivered> Put(const message::Message& message) {
    values::ValuePeers peers(cluster_.fabric(), "inst");
    return PutResult(message, *cluster_.view().routing(), peers, spans_, base::SystemClock(),
                     base::SystemClock().Now() + base::Scaled(10s));
  }

 private Q_SLOTS:
  void AddSha256_KnowsTheAnswer_AndKeepsWhatIsThere() {
    // FIPS 180-4's example "abc".
    std::vector<message::Artifact> artifacts = {message::BytesArtifact("a", "", "abc"),
                                                message::BytesArtifact("b", "", "abc"),
                                                {"t", message::DType::kU8, {0}, "", {}}};
    artifacts[1].sha256 = "known";
    AddSha256(artifacts);
    QCOMPARE(QByteArray::fromStdString(artifacts[0].sha256).toHex(),
             QByteArray("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"));
    QCOMPARE(artifacts[1].sha256, std::string("known"));
    QVERIFY(artifacts[2].sha256.empty());
  }

  void WithoutADatabase_ItGoesByMessage() { QVERIFY(!Put(Result(2'000'000)).has_value()); }

  void LargeResult_IsWritten_AndItsHolderIsTheFirstDatabase() {
    cluster_.AddDatabase("db-1");
    cluster_.AddDatabase("db-2");
    const message::Message message = Result(2'000'000);
    const std::string uid = message.header.uid.ToString();
    const auto delivered = Put(message);
    QVERIFY(delivered.has_value());
    QCOMPARE(delivered->endpoint.node_id(), cluster_.Order(uid)[0]);
    QVERIFY(delivered->endpoint.incarnation() > 0);
    QCOMPARE(delivered->attempt, 3u);
    auto& store = cluster_.at(delivered->endpoint.node_id()).node->store();
    QVERIFY(database::Eventually([&] { return store.FindArtifact(uid, "video").ok(); }));
    QVERIFY(store.FindArtifact(uid, "video")->data.text() == message.artifacts[0].data.text());
    const auto spans = spans_.Find(message.header.uid);
    QCOMPARE(spans.size(), std::size_t{1});
    QCOMPARE(spans[0].attributes().at("outcome"), std::string("written"));
  }

  void SmallResult_AndADatabaseThatIsAway_GoByMessage() {
    const message::Message small = Result(1000);
    QVERIFY(!Put(small).has_value());
    QVERIFY(spans_.Find(small.header.uid).empty());
    const message::Message large = Result(2'000'000);
    cluster_.Kill(cluster_.Order(large.header.uid.ToString())[0]);
    QVERIFY(!Put(large).has_value());
  }
};

}  // namespace onepiece::instance

ONEPIECE_TEST(onepiece::instance::ResultDeliveryTest)
#include "result_delivery_test.moc"
