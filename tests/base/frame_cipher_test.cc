#include "cluster/base/frame_cipher.h"

#include <QtTest>
#include <string>

#include "tests/test_main.h"

namespace onepiece::base {
namespace {

std::span<const std::byte> Bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

struct Frame {
  std::string text;
  FrameCipher::Tag tag;
};

Frame Seal(FrameCipher& cipher, const std::string& clear, const std::string& text) {
  Frame frame{text, {}};
  cipher.Begin();
  cipher.Authenticate(Bytes(clear));
  cipher.Crypt(Bytes(text), reinterpret_cast<std::byte*>(frame.text.data()));
  frame.tag = cipher.Finish();
  return frame;
}

bool Opens(FrameCipher& cipher, const std::string& clear, Frame frame, const std::string& text) {
  cipher.Begin();
  cipher.Authenticate(Bytes(clear));
  cipher.Crypt(Bytes(frame.text), reinterpret_cast<std::byte*>(frame.text.data()));
  return cipher.Check(frame.tag) && frame.text == text;
}

}  // namespace

class FrameCipherTest : public QObject {
  Q_OBJECT

  const std::string key_ = std::string(FrameCipher::kKeyBytes, 'k');
  FrameCipher seal_{key_, FrameCipher::Direction::kSeal};

 private Q_SLOTS:
  // The GCM specification, test case 14: a key, a nonce and a block of zeros.
  void Seal_MatchesTheStandardsExample() {
    FrameCipher cipher(std::string(FrameCipher::kKeyBytes, '\0'), FrameCipher::Direction::kSeal);
    const Frame frame = Seal(cipher, "", std::string(16, '\0'));
    QCOMPARE(QByteArray::fromStdString(frame.text).toHex(),
             QByteArray("cea7403d4d606b6e074ec5d3baf39d18"));
    QCOMPARE(QByteArray(reinterpret_cast<const char*>(frame.tag.data()), frame.tag.size()).toHex(),
             QByteArray("d0d1c8a799996bf0265b98b5d48ab919"));
  }

  void Frames_OpenInTheirPlacesOnly() {
    FrameCipher open(key_, FrameCipher::Direction::kOpen);
    FrameCipher late(key_, FrameCipher::Direction::kOpen);
    const Frame first = Seal(seal_, "header", "text");
    const Frame second = Seal(seal_, "header", "text");
    QVERIFY(first.text != second.text && first.tag != second.tag);
    QVERIFY(Opens(open, "header", first, "text"));
    QVERIFY(!Opens(open, "header", first, "text"));
    QVERIFY(!Opens(late, "header", second, "text"));
    QVERIFY(Opens(late, "header", second, "text"));
    QVERIFY(!Opens(open, "Header", Seal(seal_, "header", "text"), "text"));
  }

  // Both ends change the key at the same frame, and the old one opens nothing any more.
  void Key_ChangesAfterSoManyFrames() {
    FrameCipher seal(key_, FrameCipher::Direction::kSeal);
    FrameCipher open(key_, FrameCipher::Direction::kOpen);
    for (std::uint64_t i = 0; i < FrameCipher::kFramesPerKey; ++i) {
      seal.Begin();
      open.Begin();
    }
    const Frame next = Seal(seal, "header", "text");
    QVERIFY(Opens(open, "header", next, "text"));
    QVERIFY(Opens(open, "header", Seal(seal, "header", "text"), "text"));
  }
};

}  // namespace onepiece::base

ONEPIECE_TEST(onepiece::base::FrameCipherTest)
#include "frame_cipher_test.moc"
