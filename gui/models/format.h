// How the console writes numbers, times and states: one place, the CLI's words.
//
// Threading  Pure functions.
#pragma once

#include <QString>
#include <cstdint>
#include <optional>
#include <string_view>

#include "onepiece/v1/generation.pb.h"
#include "onepiece/v1/node_manager.pb.h"

namespace onepiece::gui {

/// What a state means, apart from its colour: every tone has a glyph and a word too.
enum class StatusTone { kNeutral, kGood, kBusy, kWarning, kBad, kUnknown };
/// "●", "▲", "✖", "?" …: told apart without colour.
QString ToneGlyph(StatusTone tone);

/// "4.2 MiB" (as the CLI writes it), "12.5/s", "87 %", "2.1 ms", "3 m 05 s". What is no number
/// (NaN) is "N/A".
QString FormatBytes(double bytes);
/// Below 0.01 a second it is per minute, below 0.01 a minute per hour: "0.24/min", "1.4/h",
/// "< 0.01/h". Only 0 is "0/s".
QString FormatRate(double per_second);
QString FormatShare(std::optional<double> share);  ///< nullopt: "N/A", which is not "0 %".
QString FormatSeconds(double seconds);
/// A number of a series in its unit (history::SeriesInfo::unit): "87 %", "4.2 GiB", "42 °C",
/// "310 W".
QString FormatValue(double value, std::string_view unit);
/// "12:04:31", with the date when it is not today's.
QString FormatTime(std::int64_t unix_ms, std::int64_t now_ms);
/// Milliseconds since 1970; 0 when it is not set. Times of strangers are kept within the year 9999.
std::int64_t ToMs(const google::protobuf::Timestamp& time);
/// "3 s ago"
QString FormatAge(std::int64_t unix_ms, std::int64_t now_ms);
/// Control characters and directional overrides made visible, cut after `max` characters with "…":
/// for every string that comes from outside.
QString SafeText(std::string_view text, int max = 256);

/// For a tool tip, which looks for markup: what is shown is `text` as it stands.
QString SafeTip(const QString& text);

/// "workers' time", "SM active", "GPU, coarse"
QString SourceName(v1::UtilizationSource source);
QString ActivityName(
    v1::Activity activity);  ///< "serving", "draining", "drained (safe to remove)", …
StatusTone ActivityTone(v1::Activity activity);
QString JobStateName(v1::Job::State state);
StatusTone JobStateTone(v1::Job::State state);

}  // namespace onepiece::gui
