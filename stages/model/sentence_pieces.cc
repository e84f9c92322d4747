#include "stages/model/sentence_pieces.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <limits>

#include "cluster/base/status.h"

namespace onepiece::model {
namespace {

constexpr std::string_view kSpace = "\xe2\x96\x81";        // U+2581, what spaces become.
constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD, what invalid bytes become.
constexpr float kUnknownPenalty = 10;

absl::Status Malformed(std::string_view what) {
  return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_TOKENIZER",
                         "no sentencepiece model: " + std::string(what));
}

absl::Status Unsupported(std::string_view what) {
  return base::MakeError(absl::StatusCode::kUnimplemented, "BAD_TOKENIZER",
                         "sentencepiece model: " + std::string(what) + " is not supported");
}

/// One field of a serialised protobuf message.
struct Field {
  std::uint32_t number = 0;
  std::uint64_t value = 0;  ///< The value of varint and fixed fields.
  std::string_view bytes;   ///< The bytes of length-delimited fields.
};

/// Walks the fields of a serialised protobuf message.
class FieldReader {
 public:
  explicit FieldReader(std::string_view bytes) : rest_(bytes) {}

  /// Returns the next field, or nullopt at the end and on malformed bytes. malformed() tells these
  /// two apart.
  std::optional<Field> Next() {
    if (rest_.empty() || malformed_) return std::nullopt;
    const std::uint64_t tag = Varint();
    Field field{.number = static_cast<std::uint32_t>(tag >> 3)};
    switch (tag & 7) {
      case 0:
        field.value = Varint();
        break;
      case 1:
        field.value = Fixed(8);
        break;
      case 2:
        field.bytes = Take(Varint());
        break;
      case 5:
        field.value = Fixed(4);
        break;
      default:
        malformed_ = true;
    }
    if (malformed_) return std::nullopt;
    return field;
  }
  [[nodiscard]] bool malformed() const { return malformed_; }

 private:
  std::string_view Take(std::uint64_t count) {
    if (count > rest_.size()) malformed_ = true;
    if (malformed_) return {};
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }
  std::uint64_t Fixed(std::size_t count) {
    std::uint64_t value = 0;
    const std::string_view bytes = Take(count);
    std::memcpy(&value, bytes.data(), bytes.size());  // Little-endian, like all our hosts.
    return value;
  }
  std::uint64_t Varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const std::string_view byte = Take(1);
      if (malformed_) return 0;
      value |= (static_cast<std::uint64_t>(byte[0]) & 0x7F) << shift;
      if ((byte[0] & 0x80) == 0) return value;
    }
    malformed_ = true;
    return 0;
  }

  std::string_view rest_;
  bool malformed_ = false;
};

/// Returns the length of the character that begins with `lead`, by the lead byte alone.
std::size_t CharacterBytes(char lead) {
  return "\1\1\1\1\1\1\1\1\1\1\1\1\2\2\3\4"[static_cast<unsigned char>(lead) >> 4];
}

/// Returns the length of the valid UTF-8 character at the start of `text`, or 0 if there is none.
std::size_t ValidCharacterBytes(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto follows = [&](std::size_t count) {
    if (text.size() <= count) return false;
    for (std::size_t i = 1; i <= count; ++i) {
      if ((byte(i) & 0xC0) != 0x80) return false;
    }
    return true;
  };
  if (byte(0) < 0x80) return 1;
  if (byte(0) >= 0xC2 && byte(0) <= 0xDF && follows(1)) return 2;
  if (byte(0) >= 0xE0 && byte(0) <= 0xEF && follows(2)) {
    const bool overlong = byte(0) == 0xE0 && byte(1) < 0xA0;
    const bool surrogate = byte(0) == 0xED && byte(1) >= 0xA0;
    return overlong || surrogate ? 0 : 3;
  }
  if (byte(0) >= 0xF0 && byte(0) <= 0xF4 && follows(3)) {
    const bool overlong = byte(0) == 0xF0 && byte(1) < 0x90;
    const bool too_large = byte(0) == 0xF4 && byte(1) >= 0x90;
    return overlong || too_large ? 0 : 4;
  }
  return 0;
}

/// The texts of a sorted list that begin with the bytes fed so far.
class PrefixWalk {
 public:
  using Entry = std::pair<std::string, int>;

  explicit PrefixWalk(const std::vector<Entry>& texts)
      : begin_(texts.data()), end_(texts.data() + texts.size()) {}

  /// Returns false if no text continues with `next`.
  bool Feed(char next) {
    const auto key = static_cast<unsigned char>(next);
    const std::size_t depth = depth_++;
    // All texts in the range begin alike. One that ends here sorts before those that go on.
    begin_ = std::partition_point(begin_, end_, [&](const Entry& entry) {
      return entry.first.size() <= depth || static_cast<unsigned char>(entry.first[depth]) < key;
    });
    end_ = std::partition_point(begin_, end_, [&](const Entry& entry) {
      return static_cast<unsigned char>(entry.first[depth]) == key;
    });
    return begin_ != end_;
  }
  /// Returns the id of the text that has just been fed to its end, or -1.
  ///
  /// REQUIRES: Feed returned true.
  [[nodiscard]] int id() const { return begin_->first.size() == depth_ ? begin_->second : -1; }

 private:
  const Entry* begin_;
  const Entry* end_;
  std::size_t depth_ = 0;
};

std::size_t LongestMatch(const std::vector<PrefixWalk::Entry>& texts, std::string_view text) {
  PrefixWalk walk(texts);
  std::size_t longest = 0;
  for (std::size_t i = 0; i < text.size() && walk.Feed(text[i]); ++i) {
    if (walk.id() >= 0) longest = i + 1;
  }
  return longest;
}

// A unit of Darts-clone's double array: label, offset to the children, or a leaf's value.
bool HasLeaf(std::uint32_t unit) { return ((unit >> 8) & 1) != 0; }
std::uint32_t Label(std::uint32_t unit) { return unit & (0x80000000U | 0xFF); }
std::uint32_t Offset(std::uint32_t unit) { return (unit >> 10) << ((unit & (1U << 9)) >> 6); }
std::uint32_t LeafValue(std::uint32_t unit) { return unit & 0x7FFFFFFF; }

}  // namespace

absl::StatusOr<SentencePieces> SentencePieces::Parse(std::string_view model) {
  SentencePieces pieces;
  FieldReader reader(model);
  while (const auto field = reader.Next()) {
    absl::Status status;
    if (field->number == 1) status = pieces.ReadPiece(field->bytes);
    if (field->number == 2) status = pieces.ReadTrainerSpec(field->bytes);
    if (field->number == 3) status = pieces.ReadNormalizerSpec(field->bytes);
    if (!status.ok()) return status;
  }
  if (reader.malformed()) return Malformed("malformed bytes");
  ONEPIECE_RETURN_IF_ERROR(pieces.Index());
  return pieces;
}

absl::Status SentencePieces::ReadPiece(std::string_view bytes) {
  Piece piece;
  FieldReader reader(bytes);
  while (const auto field = reader.Next()) {
    if (field->number == 1) piece.text = field->bytes;
    if (field->number == 2) {
      const auto bits = static_cast<std::uint32_t>(field->value);
      std::memcpy(&piece.score, &bits, sizeof bits);
    }
    if (field->number == 3) {
      if (field->value < 1 || field->value > 6) return Malformed("unknown type of piece");
      piece.type = static_cast<Type>(field->value);
    }
  }
  if (reader.malformed()) return Malformed("malformed piece");
  if (piece.text.empty()) return Malformed("empty piece");
  pieces_.push_back(std::move(piece));
  return absl::OkStatus();
}

absl::Status SentencePieces::ReadTrainerSpec(std::string_view bytes) {
  constexpr std::uint32_t kModelType = 3, kSpaceAsSuffix = 24, kByteFallback = 35;
  constexpr std::uint64_t kUnigram = 1;
  FieldReader reader(bytes);
  while (const auto field = reader.Next()) {
    if (field->number == kModelType && field->value != kUnigram) {
      return Unsupported("a type other than unigram");
    }
    if (field->number == kSpaceAsSuffix && field->value != 0) {
      return Unsupported("treat_whitespace_as_suffix");
    }
    if (field->number == kByteFallback) byte_fallback_ = field->value != 0;
  }
  return reader.malformed() ? Malformed("malformed trainer_spec") : absl::OkStatus();
}

absl::Status SentencePieces::ReadNormalizerSpec(std::string_view bytes) {
  FieldReader reader(bytes);
  while (const auto field = reader.Next()) {
    if (field->number == 2) ONEPIECE_RETURN_IF_ERROR(ReadCharacterMap(field->bytes));
    if (field->number == 3) add_dummy_prefix_ = field->value != 0;
    if (field->number == 4) remove_extra_spaces_ = field->value != 0;
    if (field->number == 5) escape_spaces_ = field->value != 0;
  }
  return reader.malformed() ? Malformed("malformed normalizer_spec") : absl::OkStatus();
}

absl::Status SentencePieces::ReadCharacterMap(std::string_view bytes) {
  if (bytes.empty()) return absl::OkStatus();
  std::uint32_t trie_bytes = 0;
  if (bytes.size() < sizeof trie_bytes) return Malformed("malformed character map");
  std::memcpy(&trie_bytes, bytes.data(), sizeof trie_bytes);
  bytes.remove_prefix(sizeof trie_bytes);
  if (trie_bytes > bytes.size() || trie_bytes % 4 != 0 || trie_bytes == 0) {
    return Malformed("malformed character map");
  }
  map_.resize(trie_bytes / 4);
  std::memcpy(map_.data(), bytes.data(), trie_bytes);
  map_texts_ = bytes.substr(trie_bytes);
  map_texts_ += '\0';  // Ends the last text even if the file does not.
  return absl::OkStatus();
}

absl::Status SentencePieces::Index() {
  min_score_ = std::numeric_limits<float>::max();
  max_score_ = std::numeric_limits<float>::min();  // As in the library: never below about 0.
  byte_ids_.assign(byte_fallback_ ? 256 : 0, -1);
  for (int id = 0; id < size(); ++id) {
    const Piece& piece = At(id);
    if (piece.type == Type::kUnknown) {
      if (unknown_id_ >= 0) return Malformed("two unknown pieces");
      unknown_id_ = id;
    } else if (piece.type == Type::kByte && byte_fallback_) {
      unsigned int byte = 0;
      if (std::sscanf(piece.text.c_str(), "<0x%2X>", &byte) != 1)
        return Malformed("bad byte piece");
      byte_ids_[byte] = id;
    } else if (piece.type == Type::kNormal) {
      min_score_ = std::min(min_score_, piece.score);
      max_score_ = std::max(max_score_, piece.score);
    }
    if (piece.type == Type::kUserDefined) user_defined_.emplace_back(piece.text, id);
    if (piece.type == Type::kNormal || piece.type == Type::kUserDefined ||
        piece.type == Type::kUnused) {
      texts_.emplace_back(piece.text, id);
    }
  }
  if (unknown_id_ < 0) return Malformed("no unknown piece");
  if (std::find(byte_ids_.begin(), byte_ids_.end(), -1) != byte_ids_.end()) {
    return Malformed("byte fallback without all 256 bytes");
  }
  std::sort(texts_.begin(), texts_.end());
  std::sort(user_defined_.begin(), user_defined_.end());
  const auto same = [](const auto& a, const auto& b) { return a.first == b.first; };
  if (std::adjacent_find(texts_.begin(), texts_.end(), same) != texts_.end()) {
    return Malformed("a piece is there twice");
  }
  return absl::OkStatus();
}

/// The normalised form of the start of `text`, and how many of its bytes it replaces.
std::pair<std::string_view, std::size_t> SentencePieces::NormalizePrefix(
    std::string_view text) const {
  if (const std::size_t length = LongestMatch(user_defined_, text); length > 0) {
    return {text.substr(0, length), length};
  }
  std::size_t longest = 0;
  std::uint32_t value = 0;
  std::uint32_t node = map_.empty() ? 0 : Offset(map_[0]);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    node ^= byte;
    if (node >= map_.size() || Label(map_[node]) != byte) break;
    const std::uint32_t unit = map_[node];
    node ^= Offset(unit);
    if (HasLeaf(unit) && node < map_.size()) {
      longest = i + 1;
      value = LeafValue(map_[node]);
    }
  }
  if (longest > 0 && value < map_texts_.size()) return {map_texts_.c_str() + value, longest};
  const std::size_t length = ValidCharacterBytes(text);
  if (length == 0) return {kReplacement, 1};
  return {text.substr(0, length), length};
}

std::string SentencePieces::Normalize(std::string_view text) const {
  const std::string_view space = escape_spaces_ ? kSpace : " ";
  std::string out;
  while (remove_extra_spaces_ && !text.empty()) {
    const auto [prefix, used] = NormalizePrefix(text);
    if (prefix != " ") break;
    text.remove_prefix(used);
  }
  if (text.empty()) return out;
  if (add_dummy_prefix_) out += space;
  bool after_space = remove_extra_spaces_;
  while (!text.empty()) {
    auto [prefix, used] = NormalizePrefix(text);
    text.remove_prefix(used);
    while (after_space && prefix.starts_with(' ')) prefix.remove_prefix(1);
    if (prefix.empty()) continue;
    for (const char c : prefix) {
      if (c == ' ') {
        out += space;
      } else {
        out += c;
      }
    }
    after_space = remove_extra_spaces_ && prefix.ends_with(' ');
  }
  while (remove_extra_spaces_ && out.ends_with(space)) out.resize(out.size() - space.size());
  return out;
}

/// Returns the most likely way to cut normalised text into pieces (Viterbi). Unknown characters are
/// cut one by one. Scores are floats, summed in the library's order so that ties fall the same way.
std::vector<std::pair<std::string_view, int>> SentencePieces::BestPath(
    std::string_view text) const {
  struct Best {
    float score = 0;
    int id = -1;
    std::size_t start = std::string_view::npos;  // npos: not reached yet.
  };
  std::vector<Best> best(text.size() + 1);
  const auto offer = [&](std::size_t end, std::size_t start, int id, double score) {
    Best& at = best[end];
    if (at.start == std::string_view::npos || score > static_cast<double>(at.score)) {
      at = {static_cast<float>(score), id, start};
    }
  };
  const float unknown_score = min_score_ - kUnknownPenalty;
  for (std::size_t start = 0; start < text.size();) {
    // Every start has been reached: each turn offers the end of its character, by a piece or as
    // unknown.
    const float score_here = best[start].score;
    const std::size_t character = std::min(CharacterBytes(text[start]), text.size() - start);
    bool character_known = false;
    PrefixWalk walk(texts_);
    for (std::size_t end = start + 1; end <= text.size() && walk.Feed(text[end - 1]); ++end) {
      const int id = walk.id();
      if (id < 0 || At(id).type == Type::kUnused) continue;
      const std::size_t length = end - start;
      const double score = At(id).type == Type::kUserDefined
                               ? static_cast<float>(length) * max_score_ - 0.1
                               : At(id).score;
      offer(end, start, id, score + score_here);
      if (length == character) character_known = true;
    }
    if (!character_known) {
      offer(start + character, start, unknown_id_, unknown_score + score_here);
    }
    start += character;
  }
  std::vector<std::pair<std::string_view, int>> path;
  for (std::size_t end = text.size(); end > 0; end = best[end].start) {
    path.emplace_back(text.substr(best[end].start, end - best[end].start), best[end].id);
  }
  std::reverse(path.begin(), path.end());
  return path;
}

std::vector<int> SentencePieces::Encode(std::string_view text) const {
  std::vector<int> ids;
  const std::string normalized = Normalize(text);
  for (const auto& [piece, id] : BestPath(normalized)) {
    if (id == unknown_id_ && byte_fallback_) {
      for (const char c : piece) ids.push_back(byte_ids_[static_cast<unsigned char>(c)]);
    } else if (id != unknown_id_ || ids.empty() || ids.back() != unknown_id_) {
      ids.push_back(id);  // A run of unknown characters is one unknown piece.
    }
  }
  return ids;
}

}  // namespace onepiece::model
