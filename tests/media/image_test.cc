// Tests DecodeImage with every kind of image. images/make_images.py made the files and, with
// Pillow, the pixels that they must decode to.
#include "cluster/media/image.h"

#include <QDir>
#include <QFile>
#include <QtTest>
#include <algorithm>
#include <cstdlib>

#include "cluster/base/status.h"
#include "tests/test_main.h"

namespace onepiece::media {
namespace {

QByteArray Read(const QString& name) {
  QFile file(QString(ONEPIECE_TEST_IMAGES) + '/' + name);
  return file.open(QIODevice::ReadOnly) ? file.readAll() : QByteArray();
}

absl::StatusOr<Image> Decode(const QByteArray& file) {
  return DecodeImage(
      std::as_bytes(std::span(file.constData(), static_cast<std::size_t>(file.size()))));
}

std::string Reason(const QByteArray& file) { return base::GetReason(Decode(file).status()).reason; }

/// Returns the largest difference of one sample, or 255 when the sizes differ.
int Difference(const Image& image, const QByteArray& expected) {
  if (static_cast<qsizetype>(image.rgb.size()) != expected.size()) return 255;
  int most = 0;
  for (std::size_t i = 0; i < image.rgb.size(); ++i) {
    const auto theirs = static_cast<unsigned char>(expected[static_cast<qsizetype>(i)]);
    most = std::max(most, std::abs(std::to_integer<int>(image.rgb[i]) - theirs));
  }
  return most;
}

void PutBe(QByteArray& file, qsizetype at, quint32 value) {
  for (int i = 0; i < 4; ++i) file[at + i] = static_cast<char>(value >> (24 - 8 * i));
}

}  // namespace

class ImageTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Decode_GivesWhatTheReferenceGives_data() {
    QTest::addColumn<QString>("name");
    for (const QString& file : QDir(ONEPIECE_TEST_IMAGES).entryList({"*.rgb"}, QDir::Files))
      QTest::newRow(qPrintable(file)) << file.chopped(4);
  }
  void Decode_GivesWhatTheReferenceGives() {
    QFETCH(QString, name);
    const auto image = Decode(Read(name));
    QVERIFY2(image.ok(), image.status().ToString().c_str());
    const int difference = Difference(*image, Read(name + ".rgb"));
    // The lossy formats leave rounding to the decoder.
    const int allowed = name.endsWith(".jpg") || name.contains("lossy.webp") ? 2 : 0;
    QVERIFY2(difference <= allowed, qPrintable(QString("differs by %1").arg(difference)));
  }

  void Images_AreAllThere() {
    QVERIFY(QDir(ONEPIECE_TEST_IMAGES).entryList({"*.rgb"}, QDir::Files).size() >= 30);
  }

  void Orientation_TurnsSidesToo() {
    for (int value = 1; value <= 8; ++value) {
      const auto image = Decode(Read(QString("orientation_%1.jpg").arg(value)));
      QVERIFY2(image.ok(), image.status().ToString().c_str());
      QCOMPARE(image->width, value < 5 ? 24 : 16);
      QCOMPARE(image->height, value < 5 ? 16 : 24);
    }
  }

  void Orientation_ThatIsDamagedIsIgnored() {
    QByteArray file = Read("orientation_6.jpg");
    const qsizetype tiff = file.indexOf("Exif") + 6;
    QVERIFY(tiff > 6);
    PutBe(file, tiff + 4, 0xfffffff0);  // The directory begins far beyond the end of the file.
    const auto image = Decode(file);
    QVERIFY2(image.ok(), image.status().ToString().c_str());
    QCOMPARE(image->width, 24);
  }

  void TwentyMegapixels_AreTaken() {
    const auto image = Decode(Read("20_megapixels.png"));
    QVERIFY2(image.ok(), image.status().ToString().c_str());
    QCOMPARE(image->width, 5000);
    QCOMPARE(image->height, 4000);
    QVERIFY(image->rgb.back() == std::byte{255});
  }

  void SizeInTheHeader_IsCheckedFirst() {
    QByteArray file = Read("rgb.png");
    PutBe(file, 16, 16385);
    QCOMPARE(Reason(file), "IMAGE_TOO_LARGE");
    PutBe(file, 16, 10000);
    PutBe(file, 20, 10000);
    QCOMPARE(Reason(file), "IMAGE_TOO_LARGE");
    PutBe(file, 20, 0);
    QCOMPARE(Reason(file), "BAD_IMAGE");
  }

  void MoreThanOneFrame_IsRefused() {
    for (const char* name : {"animated.gif", "animated.webp", "animated.png"}) {
      const auto image = Decode(Read(name));
      QCOMPARE(base::GetReason(image.status()).reason, "IMAGE_ANIMATED");
      QVERIFY2(base::Message(image.status()).find("3 frames") != std::string::npos,
               image.status().ToString().c_str());
    }
  }

  void WhatIsNoImage_IsRefused() {
    QCOMPARE(Reason({}), "BAD_IMAGE");
    QCOMPARE(Reason(QByteArray(5000, 'x')), "BAD_IMAGE");
    // libav's own probing would follow this playlist.
    QCOMPARE(Reason("#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nfile:///etc/hostname\n"),
             "BAD_IMAGE");
    for (const char* begin : {"\x89PNG\r\n\x1a\n", "\xff\xd8\xff", "RIFF    WEBP", "GIF89a", "BM"})
      QCOMPARE(Reason(begin), "BAD_IMAGE");
  }

  void CutShort_IsRefused_data() {
    QTest::addColumn<QString>("name");
    for (const char* name : {"rgb.png", "420.jpg", "progressive.jpg", "lossy.webp", "lossless.webp",
                             "still.gif", "rgb.bmp", "cmyk.jpg", "gray16.png"})
      QTest::newRow(name) << name;
  }
  void CutShort_IsRefused() {
    QFETCH(QString, name);
    const QByteArray file = Read(name);
    QVERIFY(!file.isEmpty());
    for (qsizetype size = 0; size < file.size() - 1; ++size)
      QVERIFY2(Reason(file.left(size)) == "BAD_IMAGE", qPrintable(QString::number(size)));
  }

  void DamagedPixels_AreRefused() {
    // Half of the entropy-coded data is missing, and the end marker is there.
    const QByteArray jpeg = Read("444.jpg");
    const qsizetype scan = jpeg.indexOf("\xff\xda");
    QVERIFY(scan > 0);
    QCOMPARE(Reason(jpeg.left(scan + 60) + "\xff\xd9"), "BAD_IMAGE");
    QByteArray png = Read("rgb16.png");
    png[600] = static_cast<char>(png[600] ^ 1);
    QCOMPARE(Reason(png), "BAD_IMAGE");
  }
};

}  // namespace onepiece::media

ONEPIECE_TEST(onepiece::media::ImageTest)
#include "image_test.moc"
