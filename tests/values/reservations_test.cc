// Reservations: their bounds, their leases, and when their room is used again.
#include "cluster/values/reservations.h"

#include <unistd.h>

#include <QtTest>
#include <memory>
#include <string>

#include "cluster/base/status.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::values {
namespace {

using Fate = Reservations::Fate;
constexpr base::Duration kLease = std::chrono::seconds(10);
constexpr base::Duration kFenceLimit = std::chrono::seconds(60);
constexpr base::Duration kMoment = std::chrono::milliseconds(1);

}  // namespace

class ReservationsTest : public QObject {
  Q_OBJECT

  std::unique_ptr<fabric::Fabric> fabric_;
  base::ManualClock clock_;
  std::shared_ptr<Slabs> slabs_;
  std::unique_ptr<Reservations> reservations_;

  std::uint64_t Open(std::uint64_t bytes, std::uint64_t request = 0) {
    return *reservations_->Add({"writer", *slabs_->Take(bytes), std::string("note"), request});
  }
  void Sweep() {
    reservations_->Expire();
    reservations_->Reclaim();
  }
  // This process may write into the reservation's segment.
  void LetIn(std::uint32_t segment) {
    const auto dialer = *fabric_->Dial();
    QVERIFY(slabs_->Enroll(segment, "writer", dialer->offer(), fabric::Rights::kReadWrite).ok());
  }

 private Q_SLOTS:
  void init() {
    fabric_ = *fabric::Fabric::Open("shm://reservations-" + std::to_string(getpid()));
    slabs_ = Slabs::Create(*fabric_, {.segment_bytes = 1 << 20}, clock_);
    reservations_ = std::make_unique<Reservations>(
        slabs_,
        ReservationsOptions{
            .budget_bytes = 1000, .max_open = 4, .lease = kLease, .fence_limit = kFenceLimit},
        clock_);
  }
  void cleanup() {
    reservations_.reset();
    slabs_.reset();
    fabric_.reset();
  }

  void Take_EndsIt() {
    const std::uint64_t id = Open(100);
    QCOMPARE(reservations_->stats().open_bytes, std::uint64_t{100});
    auto taken = reservations_->Take(id);
    QVERIFY(taken.has_value());
    QCOMPARE(taken->slab.bytes.size(), std::size_t{100});
    QCOMPARE(std::any_cast<std::string>(taken->note), std::string("note"));
    QVERIFY(!reservations_->Take(id).has_value());
    QCOMPARE(reservations_->Renew(id), Fate::kNone);
    QCOMPARE(reservations_->stats().open, std::size_t{0});
    QCOMPARE(slabs_->stats().slabs, std::uint64_t{1});
    taken.reset();
    QCOMPARE(slabs_->stats().slabs, std::uint64_t{0});
  }

  void Add_IsBoundedInNumberAndBytes() {
    (void)Open(900);
    QVERIFY(!reservations_->CheckRoom(101).ok() && reservations_->CheckRoom(100).ok());
    const auto refused = reservations_->Add({"writer", *slabs_->Take(101), {}});
    QCOMPARE(Reason(refused.status()), std::string("TOO_MANY_RESERVATIONS"));
    for (int i = 0; i < 3; ++i) (void)Open(1);
    QVERIFY(!reservations_->CheckRoom(1).ok());
  }

  void Lease_IsOverInTime_UnlessItIsRenewed() {
    const std::uint64_t renewed = Open(100), forgotten = Open(200);
    clock_.Advance(base::Scaled(kLease) - kMoment);
    Sweep();
    QCOMPARE(reservations_->stats().open, std::size_t{2});
    QCOMPARE(reservations_->Renew(renewed), Fate::kOpen);
    clock_.Advance(kMoment);
    Sweep();
    QCOMPARE(reservations_->stats().over, std::uint64_t{1});
    QCOMPARE(reservations_->Renew(forgotten), Fate::kOver);
    QVERIFY(!reservations_->Take(forgotten).has_value());
    QCOMPARE(reservations_->Renew(renewed), Fate::kOpen);
    QCOMPARE(slabs_->stats().slabs, std::uint64_t{1});
  }

  // The caller knows better: the reservation may still be taken. It is asked once for each lease.
  void Expire_AsksWhoeverKnows() {
    const std::uint64_t taken = Open(100), renewed = Open(100), lost = Open(100);
    int asked = 0;
    bool may_end = false;
    const auto expire = [&] {
      reservations_->Expire([&] {
        ++asked;
        return [&may_end] { return may_end; };
      });
    };
    expire();
    QCOMPARE(asked, 0);
    clock_.Advance(base::Scaled(kLease));
    expire();
    expire();
    QCOMPARE(asked, 1);
    QCOMPARE(reservations_->stats().over, std::uint64_t{0});
    QVERIFY(reservations_->Take(taken).has_value());
    QCOMPARE(reservations_->Renew(renewed), Fate::kOpen);
    may_end = true;
    expire();
    QCOMPARE(reservations_->Renew(lost), Fate::kOver);
    clock_.Advance(base::Scaled(kLease));
    may_end = false;
    expire();
    QCOMPARE(asked, 2);
    QCOMPARE(reservations_->Renew(renewed), Fate::kOpen);
  }

  // A writer that was only slow must not write over what comes next.
  void RoomOfASlowWriter_WaitsForIt() {
    const auto slab = *slabs_->Take(100);
    LetIn(slab.place.segment);
    const std::uint64_t id = Open(100), other = Open(100);
    clock_.Advance(base::Scaled(kLease));
    Sweep();
    QCOMPARE(slabs_->stats().slabs, std::uint64_t{3});
    QCOMPARE(reservations_->Renew(id), Fate::kOver);
    QVERIFY(reservations_->GiveUp(id) && !reservations_->GiveUp(id));
    QCOMPARE(slabs_->stats().slabs, std::uint64_t{2});
    clock_.Advance(base::Scaled(kFenceLimit) - kMoment);
    Sweep();
    QCOMPARE(slabs_->stats().slabs, std::uint64_t{2});
    clock_.Advance(kMoment);
    Sweep();
    QCOMPARE(slabs_->stats().slabs, std::uint64_t{1});
    QCOMPARE(reservations_->Renew(other), Fate::kOver);
    // This process lives, and may write into that segment at any time. Nobody gets it.
    const auto next = *slabs_->Take(100);
    QVERIFY(next.place.segment != slab.place.segment);
  }

  // A writer that has died writes nothing more.
  void RoomOfADeadWriter_IsUsedAgain() {
    const auto slab = *slabs_->Take(100);
    (void)Open(100);
    clock_.Advance(base::Scaled(kLease) + base::Scaled(kFenceLimit));
    Sweep();
    QCOMPARE(slabs_->stats().slabs, std::uint64_t{1});
    QCOMPARE(slabs_->Take(100)->place.segment, slab.place.segment);
  }

  void Spoil_IsRememberedAsOver() {
    const std::uint64_t spoilt = Open(100), taken = Open(100);
    QVERIFY(reservations_->Take(spoilt).has_value() && reservations_->Take(taken).has_value());
    reservations_->Spoil(spoilt);
    QCOMPARE(reservations_->Renew(spoilt), Fate::kOver);
    QCOMPARE(reservations_->Renew(taken), Fate::kNone);
  }

  void Find_KnowsARequestWhileItsReservationIsOpen() {
    const std::uint64_t id = Open(100, 7);
    (void)Open(100);
    QVERIFY(!reservations_->Find("writer", 0, 100).has_value());
    QVERIFY(!reservations_->Find("another", 7, 100).has_value());
    QVERIFY(!reservations_->Find("writer", 7, 101).has_value());
    const auto twice = reservations_->Add({"writer", *slabs_->Take(100), {}, 7});
    QCOMPARE(Reason(twice.status()), std::string("ALREADY_RESERVED"));
    clock_.Advance(base::Scaled(kLease) - kMoment);
    const auto known = reservations_->Find("writer", 7, 100);
    QVERIFY(known.has_value() && known->id == id);
    clock_.Advance(base::Scaled(kLease) - kMoment);
    Sweep();
    QCOMPARE(reservations_->stats().open, std::size_t{1});
    clock_.Advance(kMoment);
    Sweep();
    QVERIFY(!reservations_->Find("writer", 7, 100).has_value());
  }
};

}  // namespace onepiece::values

ONEPIECE_TEST(onepiece::values::ReservationsTest)
#include "reservations_test.moc"
