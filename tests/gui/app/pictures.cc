#include "tests/gui/app/pictures.h"

#include <QDir>
#include <QLocale>
#include <algorithm>
#include <cstdlib>

namespace onepiece::testing {
namespace {

constexpr int kChannelTolerance = 24;  ///< Of 255 steps.
constexpr int kOtherPixels = 2000;     ///< One pixel in so many may differ by more.

bool Alike(QRgb a, QRgb b) {
  return std::abs(qRed(a) - qRed(b)) <= kChannelTolerance &&
         std::abs(qGreen(a) - qGreen(b)) <= kChannelTolerance &&
         std::abs(qBlue(a) - qBlue(b)) <= kChannelTolerance;
}

}  // namespace

void FixAppearance() {
  qputenv("FONTCONFIG_FILE", ONEPIECE_SOURCE_DIR "/tests/gui/app/goldens/fonts.conf");
  qputenv("TZ", "UTC");
  qputenv("QT_SCALE_FACTOR", "1");
  qputenv("QT_FONT_DPI", "96");
  QLocale::setDefault(QLocale::c());
}

QString ComparePicture(const QImage& picture, const QString& name, const QString& approved_folder,
                       const QString& output_folder) {
  const QString approved_path = approved_folder + u'/' + name + QStringLiteral(".png");
  const QImage now = picture.convertToFormat(QImage::Format_RGB32);
  if (qEnvironmentVariableIntValue("ONEPIECE_UPDATE_GOLDENS") == 1) {
    const bool same = QImage(approved_path).convertToFormat(QImage::Format_RGB32) == now;
    return same || now.save(approved_path, "PNG", 0) ? QString()
                                                     : approved_path + " cannot be written";
  }
  const QImage approved = QImage(approved_path).convertToFormat(QImage::Format_RGB32);
  if (approved == now) return {};
  QDir().mkpath(output_folder);
  const QString base = output_folder + u'/' + name;
  now.save(base + QStringLiteral(".actual.png"));
  if (approved.isNull()) {
    return QStringLiteral(
               "there is no approved picture %1. Look at %2.actual.png; "
               "ONEPIECE_UPDATE_GOLDENS=1 approves it.")
        .arg(approved_path, base);
  }
  if (approved.size() != now.size()) {
    return QStringLiteral("it is %1 by %2, approved was %3 by %4: %5.actual.png")
        .arg(now.width())
        .arg(now.height())
        .arg(approved.width())
        .arg(approved.height())
        .arg(base);
  }
  QImage difference =
      now.convertToFormat(QImage::Format_Grayscale8).convertToFormat(QImage::Format_RGB32);
  int others = 0;
  QRect where;
  for (int y = 0; y < now.height(); ++y) {
    for (int x = 0; x < now.width(); ++x) {
      if (Alike(now.pixel(x, y), approved.pixel(x, y))) continue;
      ++others;
      where |= QRect(x, y, 1, 1);
      difference.setPixel(x, y, qRgb(255, 0, 0));
    }
  }
  if (others * kOtherPixels <= now.width() * now.height()) return {};
  difference.save(base + QStringLiteral(".diff.png"));
  return QStringLiteral(
             "%1 pixels differ, all in %2,%3 to %4,%5: %6.actual.png, %6.diff.png. If "
             "that is how it shall look, ONEPIECE_UPDATE_GOLDENS=1 approves it.")
      .arg(others)
      .arg(where.left())
      .arg(where.top())
      .arg(where.right())
      .arg(where.bottom())
      .arg(base);
}

}  // namespace onepiece::testing
