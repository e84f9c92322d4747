#include "stages/model/prompt_cleaning.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/utf8.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <new>

#include "cluster/base/status.h"
#include "stages/model/html_entities.h"

namespace onepiece::model {
namespace {

absl::Status BadPrompt(std::string_view message) {
  return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_PROMPT", message);
}

void AppendUtf8(std::string& text, char32_t character) {
  std::array<char, U8_MAX_LENGTH> bytes{};
  std::size_t length = 0;
  U8_APPEND_UNSAFE(bytes.data(), length, character);
  text.append(bytes.data(), length);
}

/// Returns the offset of the first byte that is not UTF-8, or -1.
std::int32_t FindInvalidUtf8(std::string_view text) {
  const auto length = static_cast<std::int32_t>(text.size());
  for (std::int32_t i = 0; i < length;) {
    const std::int32_t start = i;
    UChar32 character = 0;
    U8_NEXT(text.data(), i, length, character);
    if (character < 0) return start;
  }
  return -1;
}

/// Returns the character that numeric reference `number` stands for by HTML5's rules, or 0 if there
/// is none.
char32_t NumericReference(std::uint32_t number) {
  // 0x80 to 0x9F mean Windows-1252 if that has a character there.
  static constexpr std::array<char16_t, 32> kWindows1252 = {
      0x20AC, 0x81,   0x201A, 0x192,  0x201E, 0x2026, 0x2020, 0x2021, 0x2C6,  0x2030, 0x160,
      0x2039, 0x152,  0x8D,   0x17D,  0x8F,   0x90,   0x2018, 0x2019, 0x201C, 0x201D, 0x2022,
      0x2013, 0x2014, 0x2DC,  0x2122, 0x161,  0x203A, 0x153,  0x9D,   0x17E,  0x178};
  if (number >= 0x80 && number <= 0x9F) return kWindows1252[number - 0x80];
  if (number == 0 || number > 0x10FFFF || U_IS_SURROGATE(number)) return 0xFFFD;
  const bool control =
      number < 0x20 && number != '\t' && number != '\n' && number != '\f' && number != '\r';
  if (control || number == 0x7F || U_IS_UNICODE_NONCHAR(number)) return 0;
  return number;
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsHexDigit(char c) { return IsDigit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
bool IsAlphanumeric(char c) {
  return IsDigit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/// Resolves the numeric reference at the start of `text` ("&#...") into `out`. Returns its length,
/// or 0 if there is no valid reference.
std::size_t ResolveNumber(std::string_view text, std::string& out) {
  const bool hex = text.size() > 2 && (text[2] == 'x' || text[2] == 'X');
  std::size_t end = hex ? 3 : 2;
  const std::size_t digits = end;
  std::uint32_t number = 0;
  for (; end < text.size() && (hex ? IsHexDigit(text[end]) : IsDigit(text[end])); ++end) {
    const char c = text[end];
    const std::uint32_t digit = IsDigit(c) ? c - '0' : (c | 0x20) - 'a' + 10;
    number = std::min<std::uint32_t>(number * (hex ? 16 : 10) + digit,
                                     0x110000);  // More digits change nothing.
  }
  if (end == digits) return 0;
  if (end < text.size() && text[end] == ';') ++end;
  if (const char32_t character = NumericReference(number); character != 0)
    AppendUtf8(out, character);
  return end;
}

/// Resolves a named reference ("&eacute;", "&eacute") in the same way.
std::size_t ResolveName(std::string_view text, std::string& out) {
  std::size_t end = 1;
  // The bound keeps the whole time linear: the letters behind each "&" are read only as far as a
  // name can reach.
  while (end < text.size() && end <= kLongestHtmlEntity && IsAlphanumeric(text[end])) ++end;
  const std::string_view name = text.substr(1, end - 1);
  const HtmlEntity* entity = nullptr;
  std::size_t used = 0;
  if (end < text.size() && text[end] == ';' && (entity = FindHtmlEntity(name)) != nullptr) {
    used = end + 1;
  } else {
    // Finds the longest prefix that needs no semicolon: "&notit;" is "¬it;".
    for (std::size_t length = std::min(name.size(), kLongestBareHtmlEntity); length >= 2;
         --length) {
      entity = FindHtmlEntity(name.substr(0, length));
      if (entity != nullptr && entity->without_semicolon) {
        used = length + 1;
        break;
      }
    }
  }
  if (used == 0) return 0;
  AppendUtf8(out, entity->first);
  if (entity->second != 0) AppendUtf8(out, entity->second);
  return used;
}

/// Returns whether the reference's regular expression takes the character for white space:
/// Unicode's white space and the four ASCII separators.
bool IsSpace(UChar32 character) {
  return u_isUWhiteSpace(character) || (character >= 0x1C && character <= 0x1F);
}

std::string CollapseSpaces(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  bool space = false;
  const auto length = static_cast<std::int32_t>(text.size());
  for (std::int32_t i = 0; i < length;) {
    const std::int32_t start = i;
    UChar32 character = 0;
    U8_NEXT(text.data(), i, length, character);
    if (IsSpace(character)) {
      space = !out.empty();
      continue;
    }
    if (space) out += ' ';
    space = false;
    out.append(text.substr(static_cast<std::size_t>(start), static_cast<std::size_t>(i - start)));
  }
  return out;
}

}  // namespace

std::string UnescapeHtml(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t plain = std::min(text.find('&'), text.size());
    out.append(text.substr(0, plain));
    text.remove_prefix(plain);
    if (text.empty()) break;
    const bool number = text.size() > 1 && text[1] == '#';
    std::size_t used = number ? ResolveNumber(text, out) : ResolveName(text, out);
    if (used == 0) {
      out += '&';
      used = 1;
    }
    text.remove_prefix(used);
  }
  return out;
}

absl::StatusOr<std::string> CleanPrompt(std::string_view prompt) {
  if (prompt.size() > kMaxPromptBytes) {
    return BadPrompt("the prompt has " + std::to_string(prompt.size()) + " bytes; the limit is " +
                     std::to_string(kMaxPromptBytes));
  }
  if (const std::int32_t offset = FindInvalidUtf8(prompt); offset >= 0) {
    return BadPrompt("the prompt is not UTF-8 (byte " + std::to_string(offset) + ")");
  }
  UErrorCode error = U_ZERO_ERROR;
  const icu::Normalizer2* nfc = icu::Normalizer2::getNFCInstance(error);
  std::string composed;
  if (U_SUCCESS(error)) {
    icu::StringByteSink<std::string> sink(&composed);
    nfc->normalizeUTF8(0, {prompt.data(), static_cast<std::int32_t>(prompt.size())}, sink, nullptr,
                       error);
  }
  if (U_FAILURE(error)) {
    return base::MakeError(absl::StatusCode::kInternal, "ICU_FAILED",
                           std::string("Unicode normalisation: ") + u_errorName(error));
  }
  return CollapseSpaces(UnescapeHtml(UnescapeHtml(composed)));
}

}  // namespace onepiece::model
