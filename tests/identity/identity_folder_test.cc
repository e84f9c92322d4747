#include "cluster/identity/identity_folder.h"

#include <sys/stat.h>

#include <QTemporaryDir>
#include <QtTest>

#include "cluster/base/status.h"
#include "cluster/identity/secret_files.h"
#include "tests/identity/sample.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::identity {

using testing::kNow;

class IdentityFolderTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void init() {
    temp_ = std::make_unique<QTemporaryDir>();
    folder_ = temp_->filePath("identity").toStdString();
    authority_ = std::make_unique<Authority>(*Authority::Create("pirates", kNow));
    issued_ = std::make_unique<testing::Issued>(testing::Issue(*authority_, testing::Node()));
    QVERIFY(Save(*issued_).ok());
    files_ = FilesOf(folder_, kNodeName);
  }

  void Load_GivesWhatWasSaved() {
    const auto loaded = LoadIdentity(folder_, kNodeName, kNow);
    QVERIFY2(loaded.ok(), loaded.status().ToString().c_str());
    QVERIFY(loaded->subject == testing::Node());
    QCOMPARE(loaded->certificate.Fingerprint(), issued_->certificate.Fingerprint());
    QCOMPARE(loaded->key.PublicKeyHash(), issued_->key.PublicKeyHash());
    for (const std::string& path : {files_.key, files_.certificate, files_.authorities}) {
      struct stat about {};
      QCOMPARE(stat(path.c_str(), &about), 0);
      QCOMPARE(about.st_mode & 07777, mode_t{0600});
    }
  }

  void Load_SaysWhichFileIsWrong() {
    const auto refused = [&](base::WallTime now = kNow) {
      return LoadIdentity(folder_, kNodeName, now).status();
    };
    const absl::Status expired = refused(kNow + 91 * kDay);
    QCOMPARE(Reason(expired), std::string("CERTIFICATE_EXPIRED"));
    QVERIFY(base::Message(expired).starts_with(files_.certificate));

    QVERIFY(WriteSecretFile(files_.key, PrivateKey::Generate().ToPem()).ok());
    const absl::Status mismatch = refused();
    QCOMPARE(Reason(mismatch), std::string("KEY_MISMATCH"));
    QVERIFY(base::Message(mismatch).starts_with(files_.key));

    QVERIFY(WriteSecretFile(files_.key, issued_->key.ToPem().substr(0, 100)).ok());
    QCOMPARE(Reason(refused()), std::string("HALF_WRITTEN"));
    QVERIFY(WriteSecretFile(files_.key, issued_->key.ToPem()).ok());

    const Authority other = *Authority::Create("pirates", kNow);
    QVERIFY(WriteSecretFile(files_.authorities, other.certificate().ToPem()).ok());
    QCOMPARE(Reason(refused()), std::string("FOREIGN_CA"));
    QCOMPARE(unlink(files_.authorities.c_str()), 0);
    QCOMPARE(Reason(refused()), std::string("NO_FILE"));
  }

  void Load_RefusesWideModes() {
    QCOMPARE(chmod(files_.key.c_str(), 0644), 0);
    QCOMPARE(Reason(LoadIdentity(folder_, kNodeName, kNow).status()), std::string("MODE_TOO_WIDE"));
    QCOMPARE(chmod(files_.key.c_str(), 0600), 0);
    QCOMPARE(chmod(folder_.c_str(), 0755), 0);
    QCOMPARE(Reason(LoadIdentity(folder_, kNodeName, kNow).status()), std::string("MODE_TOO_WIDE"));
  }

  // A renewal with the same key is one rename, so no reader ever sees two files that do not match.
  void Save_OfTheSameKey_LeavesItsFile() {
    struct stat before {
    }, after{};
    QCOMPARE(stat(files_.key.c_str(), &before), 0);
    const Certificate renewed =
        *authority_->Issue(SigningRequest::Make(issued_->key), testing::Node(), kNow + 60 * kDay);
    QVERIFY(SaveIdentity(folder_, kNodeName, issued_->key, renewed,
                         TrustBundle(authority_->certificate()))
                .ok());
    QCOMPARE(stat(files_.key.c_str(), &after), 0);
    QCOMPARE(before.st_ino, after.st_ino);
    QCOMPARE(LoadIdentity(folder_, kNodeName, kNow + 60 * kDay)->certificate.Fingerprint(),
             renewed.Fingerprint());
    QCOMPARE(Reason(SaveIdentity(folder_, kNodeName, PrivateKey::Generate(), renewed,
                                 TrustBundle(authority_->certificate()))),
             std::string("KEY_MISMATCH"));
  }

  void Authority_IsReadBack_AndNeverReplaced() {
    const std::string folder = temp_->filePath("ca").toStdString();
    QVERIFY(SaveAuthority(folder, *authority_).ok());
    const auto loaded = LoadAuthority(folder);
    QVERIFY(loaded.ok());
    QCOMPARE(loaded->certificate().Fingerprint(), authority_->certificate().Fingerprint());
    QCOMPARE(Reason(SaveAuthority(folder, *Authority::Create("pirates", kNow))),
             std::string("CA_EXISTS"));
    QVERIFY(LoadAuthority(folder).ok());
    const std::string key = folder + "/ca.key";
    QCOMPARE(chmod(key.c_str(), 0644), 0);
    const absl::Status wide = LoadAuthority(folder).status();
    QCOMPARE(Reason(wide), std::string("MODE_TOO_WIDE"));
    QVERIFY(base::Message(wide).find("chmod 600 " + key) != std::string::npos);
    QCOMPARE(unlink(key.c_str()), 0);
    QCOMPARE(Reason(LoadAuthority(folder).status()), std::string("NO_FILE"));
  }

 private:
  absl::Status Save(const testing::Issued& issued) {
    return SaveIdentity(folder_, kNodeName, issued.key, issued.certificate,
                        TrustBundle(authority_->certificate()));
  }

  std::unique_ptr<QTemporaryDir> temp_;
  std::string folder_;
  IdentityFiles files_;
  std::unique_ptr<Authority> authority_;
  std::unique_ptr<testing::Issued> issued_;
};

}  // namespace onepiece::identity

ONEPIECE_TEST(onepiece::identity::IdentityFolderTest)
#include "identity_folder_test.moc"
