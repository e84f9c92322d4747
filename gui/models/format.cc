#include "gui/models/format.h"

#include <QCoreApplication>
#include <QDateTime>
#include <QLocale>
#include <algorithm>
#include <array>
#include <cmath>

namespace onepiece::gui {

QString Tr(const char* text, int n) {
  return QCoreApplication::translate("onepiece::gui", text, nullptr, n);
}

namespace {

/// As many digits as matter: 4200, 42.0, 4.2, 0.42, 0.0042. Only 0 is "0".
QString Digits(double value) {
  const double magnitude = std::abs(value);
  if (magnitude > 0 && magnitude < 0.1) return QString::number(value, 'g', 2);
  const int decimals = magnitude == 0 || magnitude >= 100 ? 0 : magnitude >= 1 ? 1 : 2;
  return QString::number(value, 'f', decimals);
}

/// Whether a character changes how the text around it reads, or cannot be seen at all.
bool IsTreacherous(char32_t c) {
  if (c < 0x20 || (c >= 0x7f && c <= 0x9f)) return true;
  if (c >= 0x202a && c <= 0x202e) return true;  // Embeddings and overrides of direction.
  if (c >= 0x2066 && c <= 0x2069) return true;  // Isolates.
  if (c == 0x200e || c == 0x200f || c == 0x061c) return true;  // Marks of direction.
  if (c == 0x200b || c == 0x2060 || c == 0xfeff) return true;  // Zero width.
  return c == 0x2028 || c == 0x2029;                           // Line and paragraph separators.
}

}  // namespace

QString ToneGlyph(StatusTone tone) {
  switch (tone) {
    case StatusTone::kNeutral:
      return QStringLiteral("○");
    case StatusTone::kGood:
      return QStringLiteral("●");
    case StatusTone::kBusy:
      return QStringLiteral("◐");
    case StatusTone::kWarning:
      return QStringLiteral("▲");
    case StatusTone::kBad:
      return QStringLiteral("✖");
    case StatusTone::kUnknown:
      return QStringLiteral("?");
  }
  return QStringLiteral("?");
}

QString FormatBytes(double bytes) {
  static constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  if (!std::isfinite(bytes)) return Tr("N/A");
  std::size_t unit = 0;
  while (std::abs(bytes) >= 1024 && unit + 1 < kUnits.size()) {
    bytes /= 1024;
    ++unit;
  }
  return QStringLiteral("%1 %2")
      .arg(QString::number(bytes, 'f', unit == 0 ? 0 : 1))
      .arg(QLatin1String(kUnits[unit]));
}

QString FormatRate(double per_second) {
  if (!std::isfinite(per_second)) return Tr("N/A");
  // The unit is the shortest one in which the number is not a tiny fraction.
  constexpr double kLeast = 0.01;
  const double magnitude = std::abs(per_second);
  if (magnitude == 0 || magnitude >= kLeast) return Digits(per_second) + QStringLiteral("/s");
  if (magnitude * 60 >= kLeast) return Digits(per_second * 60) + QStringLiteral("/min");
  if (magnitude * 3600 >= kLeast) return Digits(per_second * 3600) + QStringLiteral("/h");
  return per_second > 0 ? QStringLiteral("< 0.01/h") : QStringLiteral("> -0.01/h");
}

QString FormatShare(std::optional<double> share) {
  if (!share.has_value() || !std::isfinite(*share)) return Tr("N/A");
  return QString::number(std::round(*share * 100)) + QStringLiteral(" %");
}

QString FormatSeconds(double seconds) {
  if (!std::isfinite(seconds)) return Tr("N/A");
  const double length = std::abs(seconds);
  if (length == 0) return QStringLiteral("0 s");
  if (length < 1e-3) return Digits(seconds * 1e6) + QStringLiteral(" µs");
  if (length < 1) return Digits(seconds * 1e3) + QStringLiteral(" ms");
  if (length < 60) return Digits(seconds) + QStringLiteral(" s");
  // Nobody measures more than a century: the number is not a duration.
  if (length > 3.2e9) return Tr("N/A");
  const auto whole = static_cast<qint64>(std::llround(length));
  const QString sign = seconds < 0 ? QStringLiteral("-") : QString();
  const auto two = [](qint64 number) { return QString::number(number).rightJustified(2, u'0'); };
  if (whole < 3600) return sign + QStringLiteral("%1 m %2 s").arg(whole / 60).arg(two(whole % 60));
  if (whole < 86400) {
    return sign + QStringLiteral("%1 h %2 m").arg(whole / 3600).arg(two(whole / 60 % 60));
  }
  return sign + QStringLiteral("%1 d %2 h").arg(whole / 86400).arg(two(whole / 3600 % 24));
}

QString FormatValue(double value, std::string_view unit) {
  if (!std::isfinite(value)) return Tr("N/A");
  if (unit == "ratio") return FormatShare(value);
  if (unit == "bytes") return FormatBytes(value);
  if (unit == "bytes/s") {
    if (value > 0 && value < 1) return QStringLiteral("< 1 B/s");
    return FormatBytes(value) + QStringLiteral("/s");
  }
  if (unit == "1/s") return FormatRate(value);
  if (unit == "s") return FormatSeconds(value);
  if (unit == "ms") return FormatSeconds(value * 1e-3);
  const QString digits =
      value == std::round(value) ? QString::number(value, 'f', 0) : Digits(value);
  if (unit == "celsius") return digits + QStringLiteral(" °C");
  if (unit == "watts") return digits + QStringLiteral(" W");
  if (unit == "s2") return digits + QStringLiteral(" s²");
  return digits;
}

QString FormatTime(std::int64_t unix_ms, std::int64_t now_ms) {
  if (unix_ms <= 0) return Tr("never");
  const QDateTime time = QDateTime::fromMSecsSinceEpoch(unix_ms);
  if (!time.isValid()) return Tr("N/A");
  const bool today = time.date() == QDateTime::fromMSecsSinceEpoch(now_ms).date();
  return time.toString(today ? QStringLiteral("HH:mm:ss") : QStringLiteral("yyyy-MM-dd HH:mm:ss"));
}

QString FormatAge(std::int64_t unix_ms, std::int64_t now_ms) {
  if (unix_ms <= 0) return Tr("never");
  // Clocks differ a little, so up to two seconds ahead is "now". What is further ahead is shown.
  const std::int64_t age_ms = now_ms - unix_ms;
  if (age_ms < -2000) return Tr("in %1").arg(FormatSeconds(std::round(-age_ms * 1e-3)));
  if (age_ms < 1000) return Tr("now");
  const double seconds = std::floor(static_cast<double>(age_ms) * 1e-3);
  return Tr("%1 ago").arg(seconds < 60 ? QStringLiteral("%1 s").arg(seconds)
                                       : FormatSeconds(seconds));
}

QString SafeText(std::string_view text, int max) {
  // Only what can be shown is converted: nobody reads 10 kB in a cell. A character takes at most 4
  // bytes in UTF-8.
  const std::size_t bytes =
      std::min<std::size_t>(text.size(), static_cast<std::size_t>(max) * 4 + 4);
  const QList<uint> points = QString::fromUtf8(text.data(), static_cast<qsizetype>(bytes)).toUcs4();
  QString safe;
  int shown = 0;
  for (const uint point : points) {
    if (shown == max) return safe + u'…';
    if (point < 0x20) {
      safe += QChar(0x2400 + point);  // Pictures of control characters: "␊".
    } else if (IsTreacherous(point)) {
      safe += QStringLiteral("\\u%1").arg(point, 4, 16, QLatin1Char('0'));
    } else {
      const char32_t one = point;
      safe += QString::fromUcs4(&one, 1);
    }
    ++shown;
  }
  return bytes < text.size() ? safe + u'…' : safe;
}

QString SafeTip(const QString& text) {
  if (!text.contains(u'<') && !text.contains(u'&')) return text;
  return QStringLiteral("<p style='white-space:pre-wrap'>%1</p>").arg(text.toHtmlEscaped());
}

std::int64_t ToMs(const google::protobuf::Timestamp& time) {
  constexpr std::int64_t kYear10000 = 253'402'300'800;
  return std::clamp<std::int64_t>(time.seconds(), 0, kYear10000) * 1000 + time.nanos() / 1'000'000;
}

QString SourceName(v1::UtilizationSource source) {
  switch (source) {
    case v1::WORKERS:
      return Tr("workers' time");
    case v1::SM_ACTIVE:
      return Tr("SM active");
    case v1::GPU_COARSE:
      return Tr("GPU, coarse");
    default:
      return Tr("source unknown");
  }
}

QString ActivityName(v1::Activity activity) {
  switch (activity) {
    case v1::IDLE:
      return Tr("idle");
    case v1::LOADING:
      return Tr("loading");
    case v1::SERVING:
      return Tr("serving");
    case v1::DRAINING:
      return Tr("draining");
    case v1::DRAINED:
      return Tr("drained (safe to remove)");
    case v1::QUARANTINED:
      return Tr("quarantined");
    case v1::STUCK:
      return Tr("stuck");
    default:
      return Tr("unknown");
  }
}

StatusTone ActivityTone(v1::Activity activity) {
  switch (activity) {
    case v1::IDLE:
    case v1::DRAINED:
      return StatusTone::kNeutral;
    case v1::LOADING:
    case v1::DRAINING:
      return StatusTone::kBusy;
    case v1::SERVING:
      return StatusTone::kGood;
    case v1::QUARANTINED:
      return StatusTone::kWarning;
    case v1::STUCK:
      return StatusTone::kBad;
    default:
      return StatusTone::kUnknown;
  }
}

QString JobStateName(v1::Job::State state) {
  switch (state) {
    case v1::Job::QUEUED:
      return Tr("queued");
    case v1::Job::RUNNING:
      return Tr("running");
    case v1::Job::SUCCEEDED:
      return Tr("succeeded");
    case v1::Job::FAILED:
      return Tr("failed");
    case v1::Job::CANCELLED:
      return Tr("cancelled");
    case v1::Job::EXPIRED:
      return Tr("expired");
    default:
      return Tr("unknown");
  }
}

StatusTone JobStateTone(v1::Job::State state) {
  switch (state) {
    case v1::Job::RUNNING:
      return StatusTone::kBusy;
    case v1::Job::SUCCEEDED:
      return StatusTone::kGood;
    case v1::Job::FAILED:
      return StatusTone::kBad;
    case v1::Job::EXPIRED:
      return StatusTone::kWarning;
    case v1::Job::QUEUED:
    case v1::Job::CANCELLED:
      return StatusTone::kNeutral;
    default:
      return StatusTone::kUnknown;
  }
}

}  // namespace onepiece::gui
