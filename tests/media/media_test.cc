#include "cluster/media/media.h"

#include <QtTest>
#include <cmath>
#include <cstdlib>
#include <string>

#include "tests/test_main.h"

namespace onepiece::media {
namespace {

/// Makes frames with a red square of side 16 on black, which moves right by 3 pixels per frame.
Frames MovingSquare(std::int64_t count, std::int64_t height, std::int64_t width) {
  Frames frames{std::string(static_cast<std::size_t>(count * height * width * 3), '\0'), count,
                height, width, 16};
  for (std::int64_t t = 0; t < count; ++t) {
    for (std::int64_t y = 16; y < 32; ++y) {
      for (std::int64_t x = 8 + 3 * t; x < 24 + 3 * t && x < width; ++x) {
        frames.rgb[static_cast<std::size_t>(((t * height + y) * width + x) * 3)] =
            static_cast<char>(230);
      }
    }
  }
  return frames;
}

double MeanAbsDifference(const Frames& a, const Frames& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.rgb.size(); ++i) {
    sum += std::abs(static_cast<unsigned char>(a.rgb[i]) - static_cast<unsigned char>(b.rgb[i]));
  }
  return sum / static_cast<double>(a.rgb.size());
}

std::span<const std::byte> Bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

}  // namespace

class MediaTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Mp4_KeepsEveryFrameAndItsPicture() {
    const Frames frames = MovingSquare(9, 64, 64);
    const auto file = EncodeMp4(frames.view());
    QVERIFY2(file.ok(), file.status().ToString().c_str());
    const auto decoded = Decode(Bytes(*file));
    QVERIFY2(decoded.ok(), decoded.status().ToString().c_str());
    QCOMPARE(decoded->count, 9);
    QCOMPARE(decoded->height, 64);
    QCOMPARE(decoded->width, 64);
    QCOMPARE(decoded->fps, 16.0);
    QVERIFY(MeanAbsDifference(frames, *decoded) < 2.0);
  }

  void Mp4_OneFrame() {
    const auto file = EncodeMp4(MovingSquare(1, 64, 64).view(), 24);
    QVERIFY2(file.ok(), file.status().ToString().c_str());
    const auto decoded = Decode(Bytes(*file));
    QVERIFY2(decoded.ok(), decoded.status().ToString().c_str());
    QCOMPARE(decoded->count, 1);
  }

  void Mp4_IndexComesBeforeTheData() {
    const auto file = EncodeMp4(MovingSquare(9, 64, 64).view());
    QVERIFY(file.ok());
    const auto moov = file->find("moov"), mdat = file->find("mdat");
    QVERIFY(moov != std::string::npos && mdat != std::string::npos);
    QVERIFY(moov < mdat);
  }

  void Mp4_SameFramesGiveTheSameBytes() {
    const Frames frames = MovingSquare(33, 96, 128);
    const auto once = EncodeMp4(frames.view()), again = EncodeMp4(frames.view());
    QVERIFY(once.ok() && again.ok());
    QVERIFY(*once == *again);
  }

  void Mp4_OddSidesLoseTheLastRowAndColumn() {
    const auto file = EncodeMp4(MovingSquare(5, 63, 65).view());
    QVERIFY2(file.ok(), file.status().ToString().c_str());
    const auto decoded = Decode(Bytes(*file));
    QVERIFY(decoded.ok());
    QCOMPARE(decoded->height, 62);
    QCOMPARE(decoded->width, 64);
  }

  void Clip_IsAPartOfTheWhole_data() {
    QTest::addColumn<int>("first");
    QTest::addColumn<int>("max_frames");
    QTest::addColumn<int>("wanted_first");
    QTest::addColumn<int>("wanted_count");
    QTest::newRow("all") << 0 << 100 << 0 << 9;
    QTest::newRow("begin") << 0 << 3 << 0 << 3;
    QTest::newRow("middle") << 4 << 3 << 4 << 3;
    QTest::newRow("end") << 7 << 3 << 7 << 2;
    QTest::newRow("beyond: the last") << 50 << 3 << 8 << 1;
    QTest::newRow("no room: one") << 2 << 0 << 2 << 1;
    QTest::newRow("before the begin") << -5 << 2 << 0 << 2;
  }
  void Clip_IsAPartOfTheWhole() {
    QFETCH(int, first);
    QFETCH(int, max_frames);
    QFETCH(int, wanted_first);
    QFETCH(int, wanted_count);
    const auto file = EncodeMp4(MovingSquare(9, 64, 64).view());
    QVERIFY(file.ok());
    const auto whole = Decode(Bytes(*file));
    QVERIFY(whole.ok());
    const std::size_t frame_bytes = 64 * 64 * 3;
    const auto max_bytes = static_cast<std::size_t>(max_frames) * frame_bytes;
    const auto clip = DecodeClip(Bytes(*file), first, max_bytes, {});
    QVERIFY2(clip.ok(), clip.status().ToString().c_str());
    QCOMPARE(clip->first, wanted_first);
    QCOMPARE(clip->frames.count, wanted_count);
    QCOMPARE(clip->total, 9);
    QCOMPARE(clip->frames.fps, 16.0);
    const auto from = static_cast<std::size_t>(wanted_first) * frame_bytes;
    QVERIFY(clip->frames.rgb ==
            whole->rgb.substr(from, static_cast<std::size_t>(wanted_count) * frame_bytes));
  }

  void Clip_CanBeStopped() {
    const auto file = EncodeMp4(MovingSquare(9, 64, 64).view());
    QVERIFY(file.ok());
    std::stop_source stop;
    stop.request_stop();
    QVERIFY(absl::IsCancelled(DecodeClip(Bytes(*file), 0, 1 << 20, stop.get_token()).status()));
    QVERIFY(absl::IsInvalidArgument(DecodeClip(Bytes("nothing"), 0, 1 << 20, {}).status()));
  }

  void Png_IsLossless() {
    const Frames frames = MovingSquare(3, 63, 65);
    const auto file = EncodePng(frames.view(), 2);
    QVERIFY2(file.ok(), file.status().ToString().c_str());
    QVERIFY(file->starts_with("\x89PNG"));
    const auto decoded = Decode(Bytes(*file));
    QVERIFY2(decoded.ok(), decoded.status().ToString().c_str());
    QCOMPARE(decoded->count, 1);
    QVERIFY(decoded->rgb == frames.rgb.substr(std::size_t{2} * 63 * 65 * 3));
  }

  void Encode_RejectsWhatDoesNotFit() {
    const Frames frames = MovingSquare(3, 64, 64);
    FramesView view = frames.view();
    view.count = 4;
    QCOMPARE(EncodeMp4(view).status().code(), absl::StatusCode::kInvalidArgument);
    view.count = 0;
    QCOMPARE(EncodeMp4(view).status().code(), absl::StatusCode::kInvalidArgument);
    QCOMPARE(EncodeMp4(frames.view(), 0).status().code(), absl::StatusCode::kInvalidArgument);
    QCOMPARE(EncodeMp4(frames.view(), kMaxFps + 1).status().code(),
             absl::StatusCode::kInvalidArgument);
    QCOMPARE(EncodePng(frames.view(), 3).status().code(), absl::StatusCode::kOutOfRange);
    QCOMPARE(EncodePng({frames.view().rgb.first(15 * 15 * 3), 1, 15, 15}, 0).status().code(),
             absl::StatusCode::kInvalidArgument);
  }

  void Decode_RejectsWhatIsNoVideo() {
    const auto file = EncodeMp4(MovingSquare(9, 64, 64).view());
    QVERIFY(file.ok());
    QCOMPARE(Decode({}).status().code(), absl::StatusCode::kInvalidArgument);
    QCOMPARE(Decode(Bytes(std::string(5000, 'x'))).status().code(),
             absl::StatusCode::kInvalidArgument);
    QCOMPARE(Decode(Bytes(file->substr(0, file->find("mdat")))).status().code(),
             absl::StatusCode::kInvalidArgument);
  }
};

}  // namespace onepiece::media

ONEPIECE_TEST(onepiece::media::MediaTest)
#include "media_test.moc"
