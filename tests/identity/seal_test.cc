#include "cluster/identity/seal.h"

#include <sys/stat.h>

#include <QTemporaryDir>
#include <QtTest>
#include <set>

#include "cluster/base/status.h"
#include "cluster/identity/certificate.h"
#include "cluster/identity/secret_files.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::identity {
namespace {

const std::string kKey(kSealKeyBytes, '\x21');
const std::string kSalt(kWrapSaltBytes, '\x42');

std::string Flipped(std::string bytes, std::size_t i) {
  bytes[i] = static_cast<char>(bytes[i] ^ 1);
  return bytes;
}

}  // namespace

class SealTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Sealed_IsUnsealed() {
    for (const std::string& text : {std::string(), std::string("x"), std::string(5000, 'k')}) {
      const std::string sealed = Seal(kKey, text, "authority pirates");
      QCOMPARE(sealed.size(), text.size() + 1 + 12 + 16);
      QCOMPARE(*Unseal(kKey, sealed, "authority pirates"), text);
    }
  }

  void Sealed_HidesTheText_AndDiffersEachTime() {
    const std::string text(64, 'k');
    std::set<std::string> seen;
    for (int i = 0; i < 100; ++i) {
      const std::string sealed = Seal(kKey, text, "");
      QVERIFY(sealed.find("kkk") == std::string::npos);
      seen.insert(sealed);
    }
    QCOMPARE(seen.size(), std::size_t{100});
  }

  void Unseal_OtherKeyOrContext_Refused() {
    const std::string sealed = Seal(kKey, "secret", "authority pirates");
    QCOMPARE(Reason(Unseal(Flipped(kKey, 31), sealed, "authority pirates").status()),
             std::string("BAD_SEAL"));
    QCOMPARE(Reason(Unseal(kKey, sealed, "authority marines").status()), std::string("BAD_SEAL"));
    QCOMPARE(Reason(Unseal(kKey, sealed, "").status()), std::string("BAD_SEAL"));
  }

  void Unseal_DamagedAnywhere_Refused() {
    const std::string sealed = Seal(kKey, "secret", "c");
    for (std::size_t i = 0; i < sealed.size(); ++i) {
      QCOMPARE(Reason(Unseal(kKey, Flipped(sealed, i), "c").status()), std::string("BAD_SEAL"));
      QCOMPARE(Reason(Unseal(kKey, sealed.substr(0, i), "c").status()), std::string("BAD_SEAL"));
    }
    QCOMPARE(Reason(Unseal(kKey, sealed + "x", "c").status()), std::string("BAD_SEAL"));
  }

  void SealKey_IsRandom() {
    QCOMPARE(MakeSealKey().size(), kSealKeyBytes);
    QVERIFY(MakeSealKey() != MakeSealKey());
  }

  void SealKeyFile_IsReadBack_AndSecret() {
    const QTemporaryDir temporary;
    const std::string folder = temporary.path().toStdString() + "/identity";
    QCOMPARE(Reason(ReadSealKeyFile(folder).status()), std::string("NO_FILE"));
    const std::string key = MakeSealKey();
    QVERIFY(WriteSealKeyFile(folder, key).ok());
    QCOMPARE(*ReadSealKeyFile(folder), key);
    QVERIFY(WriteSealKeyFile(folder, key).ok());
    struct stat about {};
    QCOMPARE(stat(SealKeyPath(folder).c_str(), &about), 0);
    QCOMPARE(about.st_mode & 07777, mode_t{0600});
  }

  // Whoever overwrote the only copy of the key would lose the CA.
  void SealKeyFile_OfAnotherKey_IsNotReplaced() {
    const QTemporaryDir temporary;
    const std::string folder = temporary.path().toStdString() + "/identity";
    QVERIFY(WriteSealKeyFile(folder, kKey).ok());
    QCOMPARE(Reason(WriteSealKeyFile(folder, MakeSealKey())), std::string("OTHER_SEAL_KEY"));
    QCOMPARE(*ReadSealKeyFile(folder), kKey);
  }

  void SealKeyFile_ThatIsNoKey_Refused() {
    const QTemporaryDir temporary;
    const std::string folder = temporary.path().toStdString() + "/identity";
    QVERIFY(EnsureSecretFolder(folder).ok());
    for (const std::string& text :
         {std::string("00"), std::string(64, 'g'), std::string(64, 'A'), std::string(66, '0')}) {
      QVERIFY(WriteSecretFile(SealKeyPath(folder), text).ok());
      QCOMPARE(Reason(ReadSealKeyFile(folder).status()), std::string("BAD_SEAL_KEY"));
      QCOMPARE(Reason(WriteSealKeyFile(folder, kKey)), std::string("BAD_SEAL_KEY"));
    }
    QCOMPARE(chmod(SealKeyPath(folder).c_str(), 0644), 0);
    QCOMPARE(Reason(ReadSealKeyFile(folder).status()), std::string("MODE_TOO_WIDE"));
  }

  void WrapKey_DependsOnPassphraseAndSalt() {
    const std::string key = *WrapKeyOf("a passphrase", kSalt);
    QCOMPARE(key.size(), kSealKeyBytes);
    QCOMPARE(*WrapKeyOf("a passphrase", kSalt), key);
    QVERIFY(*WrapKeyOf("a passphrasf", kSalt) != key);
    QVERIFY(*WrapKeyOf("a passphrase", Flipped(kSalt, 15)) != key);
    QCOMPARE(Reason(WrapKeyOf("", kSalt).status()), std::string("EMPTY_PASSPHRASE"));
    QCOMPARE(Reason(WrapKeyOf("p", kSalt.substr(1)).status()), std::string("BAD_SALT"));
  }

  // A backup of today is opened by a program of tomorrow: the parameters are part of the format.
  // The value was computed with Python's hashlib.scrypt.
  void WrapKey_IsScrypt() {
    QCOMPARE(ToHex(*WrapKeyOf("passphrase", "0123456789abcdef")),
             std::string("28b9004db320ccf5a03eb0765f99531507a1f019d8e28ad5ef8eae0377a23a47"));
  }
};

}  // namespace onepiece::identity

ONEPIECE_TEST(onepiece::identity::SealTest)
#include "seal_test.moc"
