#include "stages/sdk/group.h"

#include "cluster/base/status.h"
#include "tests/test_main.h"

namespace onepiece::sdk {

class GroupTest : public QObject {
  Q_OBJECT

 private Q_SLOTS:
  void BadDescriptors_AreNamed_data() {
    using Members = std::vector<std::uint32_t>;
    using Offsets = std::vector<std::int64_t>;
    QTest::addColumn<Members>("members");
    QTest::addColumn<Offsets>("offsets");
    QTest::addColumn<QString>("says");
    QTest::newRow("nobody") << Members{} << Offsets{} << "no members";
    QTest::newRow("twice") << Members{4, 2, 4} << Offsets{} << "worker 4 twice";
    QTest::newRow("few offsets") << Members{4, 2} << Offsets{0, 5} << "2 offsets";
    QTest::newRow("begin") << Members{4, 2} << Offsets{1, 5, 6} << "begin at 0";
    QTest::newRow("fall") << Members{4, 2} << Offsets{0, 5, 4} << "must not fall";
  }
  void BadDescriptors_AreNamed() {
    QFETCH(std::vector<std::uint32_t>, members);
    QFETCH(std::vector<std::int64_t>, offsets);
    QFETCH(QString, says);
    const absl::Status status =
        CheckDescriptor({.job = "j", .members = members, .offsets = offsets});
    QCOMPARE(base::GetReason(status).reason, std::string("BAD_GROUP"));
    QVERIFY2(QString::fromStdString(base::Message(status)).contains(says),
             base::Message(status).c_str());
  }

  void Parts_AreEven_OrTheDescriptors() {
    using Offsets = std::vector<std::int64_t>;
    GroupDescriptor group{.job = "j", .members = {7, 3, 5}};
    QVERIFY(CheckDescriptor(group).ok());
    QCOMPARE(*PartOffsets(group, 8), (Offsets{0, 3, 6, 8}));
    QCOMPARE(*PartOffsets(group, 2), (Offsets{0, 1, 2, 2}));
    group.offsets = {0, 0, 7, 8};
    QVERIFY(CheckDescriptor(group).ok());
    QCOMPARE(*PartOffsets(group, 8), group.offsets);
    QCOMPARE(base::GetReason(PartOffsets(group, 9).status()).reason, std::string("BAD_GROUP"));
  }

  void Errors_NameTheirRank() {
    const absl::Status lost =
        RankError(absl::StatusCode::kUnavailable, "RANK_LOST", 3, "its process is dead");
    QCOMPARE(FailedRank(lost), 3);
    QCOMPARE(base::Message(lost), std::string("rank 3: its process is dead"));
    QCOMPARE(base::GetReason(lost).reason, std::string("RANK_LOST"));
    QCOMPARE(FailedRank(absl::OkStatus()), -1);
    QCOMPARE(FailedRank(absl::InternalError("x")), -1);
  }
};

}  // namespace onepiece::sdk

ONEPIECE_TEST(onepiece::sdk::GroupTest)
#include "group_test.moc"
