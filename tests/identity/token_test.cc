#include "cluster/identity/token.h"

#include <QtTest>
#include <set>

#include "cluster/base/status.h"
#include "tests/identity/sample.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::identity {
namespace {

const std::string kHash(kHashBytes, '\x7f');

bool Mentions(const absl::Status& status, const std::string& text) {
  return base::Message(status).find(text) != std::string::npos;
}

}  // namespace

class TokenTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void JoinToken_IsParsedBack() {
    const JoinToken token = JoinToken::Generate(kHash);
    const std::string text = token.Format();
    QCOMPARE(text.size(), std::size_t{3 + 43 + 1 + 43});
    QVERIFY(text.starts_with("OP1"));
    QVERIFY(*JoinToken::Parse(text) == token);
  }

  void BearerToken_IsParsedBack() {
    const BearerToken token = BearerToken::Generate();
    QVERIFY(*BearerToken::Parse(token.Format()) == token);
  }

  void Secrets_Differ() {
    std::set<std::string> secrets;
    for (int i = 0; i < 100; ++i) secrets.insert(BearerToken::Generate().secret);
    QCOMPARE(secrets.size(), std::size_t{100});
  }

  void JoinToken_DamagedAnywhere_SaysWhichPart() {
    const std::string text = JoinToken::Generate(kHash).Format();
    const auto refused = [](const std::string& damaged) {
      return JoinToken::Parse(damaged).status();
    };
    QVERIFY(Mentions(refused(""), "begins with OP1"));
    QVERIFY(Mentions(refused("K10" + text.substr(3)), "begins with OP1"));
    QVERIFY(Mentions(refused(text.substr(0, 46)), "no '.'"));
    QVERIFY(Mentions(refused(text.substr(0, 60)), "secret has 13 characters instead of 43"));
    QVERIFY(Mentions(refused(text + "\n"), "secret has 44"));
    QVERIFY(Mentions(refused("OP1" + text.substr(5)), "CA hash has 41"));
    std::string wrong = text;
    wrong[10] = '+';
    QVERIFY(Mentions(refused(wrong), "CA hash has a character"));
    wrong = text;
    wrong[60] = ' ';
    QVERIFY(Mentions(refused(wrong), "secret has a character"));
    QVERIFY(Mentions(refused(BearerToken::Generate().Format()), "not one to join"));
    QVERIFY(Mentions(BearerToken::Parse(text).status(), "not one for calls"));
  }

  // Base64 has spare bits in its last character. Were they ignored, one secret had four texts.
  void Token_HasOneText() {
    const std::string text = BearerToken::Generate().Format();
    int accepted = 0;
    for (const char c :
         std::string("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"))
      accepted += BearerToken::Parse(text.substr(0, text.size() - 1) + c).ok() ? 1 : 0;
    QCOMPARE(accepted, 16);
  }

  void Error_NeverRepeatsTheSecret() {
    const std::string text = JoinToken::Generate(kHash).Format();
    for (std::size_t i = 0; i < text.size(); ++i) {
      const absl::Status status = JoinToken::Parse(text.substr(0, i)).status();
      QVERIFY(!status.ok());
      if (i > 55) QVERIFY(!Mentions(status, text.substr(47, i - 47)));
    }
  }

  void Stored_IsAHash() {
    const BearerToken token = BearerToken::Generate();
    const std::string hash = HashOfSecret(token.secret);
    QCOMPARE(hash.size(), kHashBytes);
    QVERIFY(hash != token.secret);
    QVERIFY(SecretMatches(token.secret, hash));
    for (std::size_t i = 0; i < hash.size(); ++i) {
      std::string secret = token.secret, stored = hash;
      secret[i] = static_cast<char>(secret[i] ^ 1);
      QVERIFY(!SecretMatches(secret, hash));
      stored[i] = static_cast<char>(stored[i] ^ 1);
      QVERIFY(!SecretMatches(token.secret, stored));
    }
    QVERIFY(!SecretMatches(token.secret, hash.substr(0, 31)));
    QVERIFY(!SecretMatches(token.secret, ""));
    QCOMPARE(TokenId(hash).size(), std::size_t{16});
  }

  void CheckJoinToken_Refuses() {
    const JoinToken token = JoinToken::Generate(kHash);
    JoinTokenRecord record{.secret_hash = HashOfSecret(token.secret),
                           .roles = {Role::kInstance},
                           .uses_left = 1,
                           .expires = testing::kNow + kJoinTokenLife};
    QVERIFY(CheckJoinToken(record, token.secret, testing::kNow).ok());
    const base::Duration tick(1);
    QVERIFY(CheckJoinToken(record, token.secret, record.expires - tick).ok());
    const absl::Status expired = CheckJoinToken(record, token.secret, record.expires);
    QCOMPARE(Reason(expired), std::string("TOKEN_EXPIRED"));
    QVERIFY2(Mentions(expired, "2026-11-26T01:00:00Z"), base::Message(expired).c_str());
    record.uses_left = 0;
    QCOMPARE(Reason(CheckJoinToken(record, token.secret, testing::kNow)),
             std::string("TOKEN_USED"));
    // Who does not know the secret learns nothing of the token.
    const std::string other = JoinToken::Generate(kHash).secret;
    QCOMPARE(Reason(CheckJoinToken(record, other, record.expires)), std::string("WRONG_TOKEN"));
  }

  void CheckBearerToken_Refuses() {
    const BearerToken token = BearerToken::Generate();
    const BearerTokenRecord record{.secret_hash = HashOfSecret(token.secret),
                                   .name = "ci",
                                   .tenant = "films",
                                   .scopes = {Scope::kSubmit},
                                   .expires = testing::kNow};
    QVERIFY(CheckBearerToken(record, token.secret, testing::kNow - kDay).ok());
    QCOMPARE(Reason(CheckBearerToken(record, token.secret, testing::kNow)),
             std::string("TOKEN_EXPIRED"));
    QCOMPARE(Reason(CheckBearerToken(record, BearerToken::Generate().secret, testing::kNow)),
             std::string("WRONG_TOKEN"));
  }
};

}  // namespace onepiece::identity

ONEPIECE_TEST(onepiece::identity::TokenTest)
#include "token_test.moc"
