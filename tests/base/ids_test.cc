#include "cluster/base/ids.h"

#include <QtTest>
#include <set>
#include <type_traits>
#include <unordered_set>

#include "cluster/base/clock.h"
#include "cluster/base/status.h"
#include "tests/test_main.h"

namespace onepiece::base {
namespace {

// Whether `a + b` and `a - b` mean something.
template <typename A, typename B>
concept Adds = requires(A a, B b) {
  a + b;
};
template <typename A, typename B>
concept Subtracts = requires(A a, B b) {
  a - b;
};

}  // namespace

class IdsTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Generate_IsVersion7AndCarriesTheTime() {
    const Uid uid = Uid::Generate(0x0123456789ab);
    const std::string text = uid.ToString();
    QCOMPARE(text.substr(0, 13), std::string("01234567-89ab"));
    QCOMPARE(text[14], '7');
    QVERIFY(std::string_view("89ab").find(text[19]) != std::string_view::npos);
  }

  void Generate_DoesNotRepeat() {
    std::set<Uid> seen;
    for (int i = 0; i < 1000; ++i) seen.insert(Uid::Generate(1));
    QCOMPARE(seen.size(), std::size_t{1000});
  }

  void Parse_ReturnsWhatToStringWroteInAnyCase() {
    const Uid uid = Uid::GenerateRandom();
    QVERIFY(Uid::Parse(uid.ToString()) == uid);
    QVERIFY(Uid::Parse(QString::fromStdString(uid.ToString()).toUpper().toStdString()) == uid);
  }

  void Parse_RefusesMalformedText_data() {
    QTest::addColumn<QString>("text");
    QTest::newRow("empty") << "";
    QTest::newRow("no dashes") << "0123456789abcdef0123456789abcdef";
    QTest::newRow("dash misplaced") << "0123456-789ab-cdef-0123-456789abcdef";
    QTest::newRow("not hex") << "0123456g-89ab-cdef-0123-456789abcdef";
    QTest::newRow("too long") << "01234567-89ab-cdef-0123-456789abcdef0";
  }
  void Parse_RefusesMalformedText() {
    QFETCH(QString, text);
    QVERIFY(!Uid::Parse(text.toStdString()).has_value());
  }

  void StrongId_IsNoIntegerAndNoOtherId() {
    using Left = StrongId<struct LeftTag>;
    using Right = StrongId<struct RightTag>;
    static_assert(!std::is_convertible_v<std::uint64_t, Left>);
    static_assert(!std::is_convertible_v<Left, std::uint64_t>);
    static_assert(!std::is_convertible_v<Left, Right>);
    QVERIFY(Left(1) < Left(2) && Left(2) == Left(2) && Left() == Left(0));
    const std::unordered_set<Left> ids{Left(1), Left(2), Left(1)};
    QCOMPARE(ids.size(), std::size_t{2});
  }

  void Ordinal_IsNoIntegerAndNoOtherOrdinal() {
    using Left = Ordinal<struct LeftTag>;
    using Right = Ordinal<struct RightTag>;
    static_assert(!std::is_convertible_v<std::uint64_t, Left>);
    static_assert(!std::is_convertible_v<Left, std::uint64_t>);
    static_assert(!std::is_convertible_v<Left, Right>);
    static_assert(!std::is_constructible_v<Left, Right>);
    static_assert(Adds<Left, std::uint64_t> && Subtracts<Left, std::uint64_t>);
    static_assert(!Adds<Left, Left> && !Adds<std::uint64_t, Left>);
    static_assert(!Subtracts<Left, Right> && !Subtracts<std::uint64_t, Left>);
  }

  void Ordinal_Counts() {
    using Place = Ordinal<struct PlaceTag>;
    constexpr Place kFifth(5);
    static_assert(std::is_same_v<decltype(kFifth - kFifth), std::uint64_t>);
    QVERIFY(Place() == Place(0) && Place(1) < Place(2));
    QVERIFY(kFifth + 2 == Place(7) && kFifth - 2 == Place(3));
    QCOMPARE(Place(7) - kFifth, std::uint64_t{2});
    Place place = kFifth;
    QVERIFY(++place == Place(6) && place == Place(6));
    const std::unordered_set<Place> places{Place(1), Place(2), Place(1)};
    QCOMPARE(places.size(), std::size_t{2});
  }

  void Reason_SurvivesAnnotate() {
    const auto status =
        Annotate(MakeError(absl::StatusCode::kNotFound, "UNKNOWN_APP", "no app x", {{"app", "x"}}),
                 "submit");
    QCOMPARE(Message(status), std::string("submit: no app x"));
    QCOMPARE(GetReason(status).reason, std::string("UNKNOWN_APP"));
    QCOMPARE(GetReason(status).metadata.at("app"), std::string("x"));
    QVERIFY(GetReason(absl::InternalError("x")).reason.empty());
  }
};

}  // namespace onepiece::base

ONEPIECE_TEST(onepiece::base::IdsTest)
#include "ids_test.moc"
