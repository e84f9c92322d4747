// How connections over UCX prove who they are, and their frames that they are the next ones. No UCX
// takes part: whatever a network could do to the messages is done to them here.
#include "cluster/fabric/ucx/ucx_seal.h"

#include <QtTest>
#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "cluster/fabric/ucx/ucx_session.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::fabric {
namespace {

constexpr std::size_t kSmallBytes = 256;

UcxAgreement SomeAgreement(FrameProtection protection) {
  return {.offer_secret = std::string(kUcxSecretBytes, 'o'),
          .grant_secret = std::string(kUcxSecretBytes, 'g'),
          .protection = protection,
          .key = 7,
          .length_bytes = kSmallBytes,
          .address = "ucx-1"};
}

/// A frame on its way.
struct Sent {
  std::vector<std::byte> header;
  std::vector<std::byte> payload;
};

/// The dialling end of a connection.
struct Dialled {
  explicit Dialled(const UcxAgreement& agreement)
      : nonce(NewUcxSecret()),
        hello(UcxHello{.nonce = nonce, .tag = agreement.HelloTag(nonce)}.Serialize()),
        sealer(agreement.protection, agreement.KeyToOwner(nonce)) {}
  Sent Seal(const UcxOp& op, std::vector<std::byte> payload = {}) {
    const UcxSealedHeader header =
        sealer.Seal(std::as_bytes(std::span(&op, 1)), payload, payload.data());
    return {{header.bytes.begin(), header.bytes.begin() + static_cast<std::ptrdiff_t>(header.size)},
            std::move(payload)};
  }
  /// The next write of this word to the region's start.
  Sent Write(std::uint64_t value) {
    std::vector<std::byte> payload(sizeof value);
    std::memcpy(payload.data(), &value, sizeof value);
    return Seal({.sequence = sequence++, .kind = UcxKind::kWriteWords, .length_bytes = 8},
                std::move(payload));
  }

  const std::string nonce;
  const std::string hello;
  UcxSealer sealer;
  std::uint64_t sequence = 0;
};

bool Welcomes(UcxSession& session, const std::string& hello) {
  const auto answer = session.Judge(hello);
  return answer.has_value() && answer->verdict == UcxVerdict::kWelcome;
}

}  // namespace

class UcxSealTest : public QObject {
  Q_OBJECT

  std::array<std::uint64_t, kSmallBytes / 8> memory_{};
  std::span<std::byte> region() { return std::as_writable_bytes(std::span(memory_)); }
  UcxSession Session(FrameProtection protection) {
    return {SomeAgreement(protection), region(), Rights::kReadWrite};
  }
  static FrameProtection Protection() {
    QFETCH_GLOBAL(int, protection);
    return static_cast<FrameProtection>(protection);
  }
  static bool Sees(UcxOpener& opener, const Sent& sent) {
    return opener.Open(sent.header, sent.payload).has_value();
  }
  static bool Refuses(UcxSession& session, const Sent& sent) {
    (void)session.Take(sent.header, sent.payload);
    return session.refused();
  }

 private Q_SLOTS:
  void initTestCase_data() {
    QTest::addColumn<int>("protection");
    QTest::newRow("none") << static_cast<int>(FrameProtection::kNone);
    QTest::newRow("mac") << static_cast<int>(FrameProtection::kMac);
    QTest::newRow("aead") << static_cast<int>(FrameProtection::kAead);
  }
  void init() { memory_.fill(0); }

  void Open_GivesWhatWasSealed() {
    const UcxAgreement agreement = SomeAgreement(Protection());
    Dialled dialled(agreement);
    UcxOpener opener(agreement.protection, agreement.KeyToOwner(dialled.nonce));
    for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{kUcxChunkBytes}}) {
      const UcxOp op{.sequence = size, .kind = UcxKind::kWrite};
      std::vector<std::byte> payload(size, std::byte{0x5a});
      const Sent sent = dialled.Seal(op, payload);
      const bool hidden = agreement.protection == FrameProtection::kAead;
      QCOMPARE(size > 0 && sent.payload != payload, size > 0 && hidden);
      QCOMPARE(std::memcmp(sent.header.data(), &op, sizeof op) != 0, hidden);
      const auto frame = opener.Open(sent.header, sent.payload);
      QVERIFY(frame.has_value());
      QCOMPARE(frame->header.size(), sizeof op);
      QCOMPARE(std::memcmp(frame->header.data(), &op, sizeof op), 0);
      QVERIFY(std::ranges::equal(frame->payload, payload));
    }
  }

  // Each bit of a frame. Without protection only the password is checked.
  void Take_RefusesAFlippedBit() {
    const bool checks_all = Protection() != FrameProtection::kNone;
    const std::size_t header_bits = 8 * (sizeof(UcxOp) + kUcxTagBytes);
    for (std::size_t bit = checks_all ? 0 : 8 * sizeof(UcxOp); bit < header_bits + 64; ++bit) {
      if (!checks_all && bit >= header_bits) break;
      UcxSession session = Session(Protection());
      Dialled dialled(SomeAgreement(Protection()));
      QVERIFY(Welcomes(session, dialled.hello));
      Sent sent = dialled.Write(1);
      auto& bytes = bit < header_bits ? sent.header : sent.payload;
      const std::size_t at = bit < header_bits ? bit : bit - header_bits;
      bytes[at / 8] ^= static_cast<std::byte>(1 << at % 8);
      const auto outcome = session.Take(sent.header, sent.payload);
      QVERIFY(session.refused() && outcome.answers && outcome.bytes.empty());
      QCOMPARE(memory_[0], std::uint64_t{0});
      // It is answered once. Nothing is executed any more.
      const Sent next = dialled.Write(2);
      QVERIFY(!session.Take(next.header, next.payload).answers);
      QCOMPARE(memory_[0], std::uint64_t{0});
    }
  }

  void Take_RefusesWhatIsRepeatedLeftOutOrMoved() {
    for (const int attack : {0, 1, 2}) {
      UcxSession session = Session(Protection());
      Dialled dialled(SomeAgreement(Protection()));
      QVERIFY(Welcomes(session, dialled.hello));
      const Sent one = dialled.Write(1), two = dialled.Write(2), three = dialled.Write(3);
      QVERIFY(!Refuses(session, one));
      QVERIFY(Refuses(session, attack == 0 ? one : three));
      if (attack == 1) QVERIFY(Refuses(session, two));
      QCOMPARE(memory_[0], std::uint64_t{1});
    }
  }

  void Take_RefusesWhatIsTooShortOrTooLong() {
    for (std::size_t size = 0; size <= sizeof(UcxOp) + kUcxTagBytes + 8; ++size) {
      if (size == sizeof(UcxOp) + kUcxTagBytes) continue;
      UcxSession session = Session(Protection());
      Dialled dialled(SomeAgreement(Protection()));
      QVERIFY(Welcomes(session, dialled.hello));
      Sent sent = dialled.Write(1);
      sent.header.resize(size);
      QVERIFY(Refuses(session, sent));
      QCOMPARE(memory_[0], std::uint64_t{0});
    }
    for (const std::size_t size : {std::size_t{0}, std::size_t{7}, std::size_t{9},
                                   std::size_t{kUcxChunkBytes} + 1, std::size_t{1} << 20}) {
      UcxSession session = Session(Protection());
      Dialled dialled(SomeAgreement(Protection()));
      QVERIFY(Welcomes(session, dialled.hello));
      Sent sent = dialled.Write(1);
      sent.payload.resize(size);
      QVERIFY(Refuses(session, sent));
      QCOMPARE(memory_[0], std::uint64_t{0});
    }
  }

  // The owner's own frames do not come back to it, nor those of another connection.
  void Open_RefusesFramesOfAnotherDirectionOrConnection() {
    const UcxAgreement agreement = SomeAgreement(Protection());
    Dialled ours(agreement), others(agreement);
    UcxOpener to_dialler(agreement.protection, agreement.KeyToDialler(ours.nonce));
    QVERIFY(!Sees(to_dialler, ours.Write(1)));
    UcxOpener to_owner(agreement.protection, agreement.KeyToOwner(ours.nonce));
    QVERIFY(!Sees(to_owner, others.Write(1)));
    // After one frame that is none nothing opens.
    QVERIFY(!Sees(to_owner, ours.Write(1)));
  }

  void Judge_WelcomesOnlyWhoKnowsTheAgreement() {
    UcxSession session = Session(Protection());
    std::vector<UcxAgreement> wrong(6, SomeAgreement(Protection()));
    wrong[0].offer_secret[31] ^= 1;
    wrong[1].grant_secret[0] ^= 1;
    wrong[2].protection =
        Protection() == FrameProtection::kMac ? FrameProtection::kNone : FrameProtection::kMac;
    wrong[3].key ^= 1;
    wrong[4].length_bytes += 8;
    wrong[5].address += "x";
    for (const UcxAgreement& agreement : wrong) {
      const auto answer = session.Judge(Dialled(agreement).hello);
      QVERIFY(answer.has_value() && answer->verdict == UcxVerdict::kWrongRegion);
      QVERIFY(answer->tag.empty());
    }
    const std::string hello = Dialled(SomeAgreement(Protection())).hello;
    for (std::size_t i = 0; i < hello.size(); ++i) {
      std::string bent = hello;
      bent[i] ^= 0x10;
      QVERIFY(!Welcomes(session, bent));
      QVERIFY(!Welcomes(session, hello.substr(0, i)));
    }
    // However many were wrong, the right one is welcome; and it is welcome once.
    QVERIFY(!session.Judge("x").has_value());
    QVERIFY(Welcomes(session, hello));
    QVERIFY(!session.Judge(hello).has_value());
    QVERIFY(!session.refused());
  }

  void Judge_AnswersAFewWrongHellos() {
    UcxSession session = Session(Protection());
    for (int i = 0; i < kUcxMaxRefusals; ++i) QVERIFY(session.Judge("nonsense").has_value());
    QVERIFY(!session.Judge("nonsense").has_value());
  }

  // An owner proves itself too: without the agreement nobody makes this tag.
  void Welcome_DependsOnTheAgreementAndTheNonce() {
    const UcxAgreement agreement = SomeAgreement(Protection());
    UcxAgreement other = agreement;
    other.grant_secret[3] ^= 1;
    const std::string nonce = NewUcxSecret();
    QVERIFY(agreement.WelcomeTag(nonce) != other.WelcomeTag(nonce));
    QVERIFY(agreement.WelcomeTag(nonce) != agreement.WelcomeTag(NewUcxSecret()));
    QVERIFY(agreement.WelcomeTag(nonce) != agreement.HelloTag(nonce));
  }

  void Take_BeforeTheWelcomeDoesNothing() {
    UcxSession session = Session(Protection());
    Dialled dialled(SomeAgreement(Protection()));
    const Sent early = dialled.Write(1);
    QVERIFY(!session.Take(early.header, early.payload).answers);
    QCOMPARE(memory_[0], std::uint64_t{0});
    QVERIFY(!session.refused());  // Strangers do not shut the door to the peer.
    QVERIFY(Welcomes(session, dialled.hello));
  }

  void Parse_RefusesOffersOfTheOldProtocolAndOthers() {
    const UcxOffer offer{.protection = Protection(),
                         .secret = NewUcxSecret(),
                         .sources = {std::string(4, '1'), std::string(16, '2')}};
    Offer whole{.backend = kUcxBackend, .peer = {}, .details = offer.Serialize()};
    const auto parsed = UcxOffer::Parse(whole);
    QVERIFY(parsed.ok());
    QCOMPARE(parsed->secret, offer.secret);
    QVERIFY(parsed->protection == offer.protection);
    QVERIFY(parsed->sources == offer.sources);
    const std::string bytes = whole.details;
    for (std::size_t size = 0; size < bytes.size(); ++size) {  // Version 1 had the first 16 bytes.
      whole.details = bytes.substr(0, size);
      QCOMPARE(Reason(UcxOffer::Parse(whole).status()), std::string("WRONG_FABRIC"));
    }
    whole.details = bytes;
    whole.details[8] = 1;
    QCOMPARE(Reason(UcxOffer::Parse(whole).status()), std::string("WRONG_FABRIC"));
    whole.details = bytes;
    whole.details[16] = 0;  // No protection is named.
    QCOMPARE(Reason(UcxOffer::Parse(whole).status()), std::string("WRONG_FABRIC"));
    UcxOffer many = offer;
    many.sources.assign(kUcxMaxSources + 1, "1234");
    whole.details = many.Serialize();
    QCOMPARE(Reason(UcxOffer::Parse(whole).status()), std::string("WRONG_FABRIC"));
    many.sources = {"12345"};
    whole.details = many.Serialize();
    QCOMPARE(Reason(UcxOffer::Parse(whole).status()), std::string("WRONG_FABRIC"));
  }
};

}  // namespace onepiece::fabric

ONEPIECE_TEST(onepiece::fabric::UcxSealTest)
#include "ucx_seal_test.moc"
