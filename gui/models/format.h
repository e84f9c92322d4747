// How the console writes numbers, times and states. The words are those of the CLI.
//
// Threading: pure functions.
#pragma once

#include <QString>
#include <cstdint>
#include <optional>
#include <string_view>

#include "onepiece/v1/generation.pb.h"
#include "onepiece/v1/node_manager.pb.h"

namespace onepiece::gui {

/// `text` in the user's language, for code outside QObjects. `n` chooses the plural form for "%n".
QString Tr(const char* text, int n = -1);

/// How good or bad a state is. Each tone has a colour, a glyph and a word.
enum class StatusTone { kNeutral, kGood, kBusy, kWarning, kBad, kUnknown };
/// "●", "▲", "✖", "?" …: distinguishes tones without colour.
QString ToneGlyph(StatusTone tone);

/// "4.2 MiB", as the CLI writes it. This and the functions below write "N/A" for NaN.
QString FormatBytes(double bytes);
/// "12.5/s". A rate below 0.01 a second is written per minute, and below 0.01 a minute per hour:
/// "0.24/min", "1.4/h", "< 0.01/h". Only a rate of 0 is "0/s".
QString FormatRate(double per_second);
/// "87 %". nullopt is "N/A", which differs from "0 %".
QString FormatShare(std::optional<double> share);
/// "2.1 ms", "3 m 05 s".
QString FormatSeconds(double seconds);
/// A number in the unit of its series (history::SeriesInfo::unit): "87 %", "4.2 GiB", "42 °C",
/// "310 W".
QString FormatValue(double value, std::string_view unit);
/// "12:04:31", with the date if that is not today. "never" for 0.
QString FormatTime(std::int64_t unix_ms, std::int64_t now_ms);
/// Milliseconds since 1970; 0 if `time` is not set. A time sent by another process is clamped to
/// the year 9999.
std::int64_t ToMs(const google::protobuf::Timestamp& time);
/// "3 s ago"; "in 5 s" for a time in the future; "never" for 0.
QString FormatAge(std::int64_t unix_ms, std::int64_t now_ms);
/// Makes a string from outside safe to show: control characters and directional overrides become
/// visible, and what is longer than `max` characters ends in "…". Every string from outside passes
/// here.
QString SafeText(std::string_view text, int max = 256);

/// Makes a text safe for a tool tip. Qt interprets markup in a tool tip; this escapes it, so that
/// the text is shown as it is.
QString SafeTip(const QString& text);

/// "workers' time", "SM active", "GPU, coarse"
QString SourceName(v1::UtilizationSource source);
QString ActivityName(
    v1::Activity activity);  ///< "serving", "draining", "drained (safe to remove)", …
/// The tone that goes with each name.
StatusTone ActivityTone(v1::Activity activity);
QString JobStateName(v1::Job::State state);
StatusTone JobStateTone(v1::Job::State state);

}  // namespace onepiece::gui
