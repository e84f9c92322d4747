// How places for streams are shared out among callers.
#include "cluster/rpc/stream_shares.h"

#include <QtTest>
#include <string>
#include <vector>

#include "cluster/base/status.h"
#include "cluster/rpc/status.h"
#include "tests/test_main.h"

namespace onepiece::rpc {
namespace {

StreamShares::Options Places(std::size_t places) {
  return {.places = places, .reason = "TOO_MANY", .what = "things", .advice = "ask later"};
}

/// Takes as many places as the caller gets.
std::vector<StreamShares::Place> TakeAll(StreamShares& shares, const std::string& name) {
  std::vector<StreamShares::Place> places;
  for (;;) {
    auto place = shares.Take(ShareHolder(name));
    if (!place.ok()) return places;
    places.push_back(*std::move(place));
  }
}

}  // namespace

class StreamSharesTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Callers_LeaveRoomForOneMore() {
    StreamShares shares(Places(120));
    const auto first = TakeAll(shares, "a");
    QCOMPARE(first.size(), std::size_t{60});
    std::vector<std::vector<StreamShares::Place>> others;
    for (const char* name : {"b", "c", "d", "e"}) {
      QVERIFY(!shares.Take(ShareHolder("a")).ok());
      others.push_back(TakeAll(shares, name));
      QVERIFY(!others.back().empty());
    }
    QVERIFY(shares.taken() < 120);
  }

  void Places_ComeBack() {
    StreamShares shares(Places(10));
    for (int i = 0; i < 3; ++i) QCOMPARE(TakeAll(shares, "a").size(), std::size_t{5});
    QCOMPARE(shares.taken(), std::size_t{0});
    auto kept = *shares.Take(ShareHolder("a"));
    StreamShares::Place moved = std::move(kept);
    QCOMPARE(shares.taken(), std::size_t{1});
    moved = {};
    QCOMPARE(shares.taken(), std::size_t{0});
  }

  void Refusal_SaysWhyAndWhatToDo() {
    StreamShares shares(Places(2));
    const auto mine = *shares.Take(ShareHolder("a"));
    const absl::Status share = shares.Take(ShareHolder("a")).status();
    QVERIFY(absl::IsResourceExhausted(share));
    QCOMPARE(base::Message(share), std::string("this client has its share, 1 of the 2 places for "
                                               "things: ask later"));
    QCOMPARE(base::GetReason(share).reason, std::string("TOO_MANY"));
    QVERIFY(base::GetReason(share).metadata.contains(kRetryAfterMs));
    const auto theirs = *shares.Take(ShareHolder("b"));
    QCOMPARE(base::Message(shares.Take(ShareHolder("c")).status()),
             std::string("all 2 places for things are taken: ask later"));
  }
};

}  // namespace onepiece::rpc

ONEPIECE_TEST(onepiece::rpc::StreamSharesTest)
#include "stream_shares_test.moc"
