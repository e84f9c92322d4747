// Reads sentencepiece's unigram models and turns text into ids as the sentencepiece library does.
//
// Debian's libsentencepiece exports a private copy of an old protobuf, which breaks every process
// that holds the real one (docs/decisions/0004-own-sentencepiece-reader.md). Private to
// stages/model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace onepiece::model {

/// A unigram model.
///
/// Threading: immutable; const methods may be called from any thread.
class SentencePieces {
 public:
  enum class Type : std::uint8_t {
    kNormal = 1,
    kUnknown = 2,
    kControl = 3,
    kUserDefined = 4,
    kUnused = 5,
    kByte = 6
  };

  /// Reads a serialised ModelProto.
  ///
  /// Errors: INVALID_ARGUMENT BAD_TOKENIZER (malformed), UNIMPLEMENTED BAD_TOKENIZER (not a unigram
  /// model, or options that T5 models do not use).
  static absl::StatusOr<SentencePieces> Parse(std::string_view model);

  /// Returns the ids of `text`, which should be UTF-8. Other bytes become U+FFFD. The time is
  /// linear in the length.
  [[nodiscard]] std::vector<int> Encode(std::string_view text) const;

  [[nodiscard]] int size() const { return static_cast<int>(pieces_.size()); }
  [[nodiscard]] std::string_view piece(int id) const { return At(id).text; }
  [[nodiscard]] Type type(int id) const { return At(id).type; }

 private:
  struct Piece {
    std::string text;
    float score = 0;
    Type type = Type::kNormal;
  };
  /// Texts in byte order with their ids. Callers walk them one byte at a time.
  using SortedTexts = std::vector<std::pair<std::string, int>>;

  SentencePieces() = default;
  [[nodiscard]] const Piece& At(int id) const { return pieces_[static_cast<std::size_t>(id)]; }
  absl::Status ReadPiece(std::string_view bytes);
  absl::Status ReadTrainerSpec(std::string_view bytes);
  absl::Status ReadNormalizerSpec(std::string_view bytes);
  absl::Status ReadCharacterMap(std::string_view bytes);
  absl::Status Index();
  [[nodiscard]] std::string Normalize(std::string_view text) const;
  [[nodiscard]] std::pair<std::string_view, std::size_t> NormalizePrefix(
      std::string_view text) const;
  [[nodiscard]] std::vector<std::pair<std::string_view, int>> BestPath(std::string_view text) const;

  std::vector<Piece> pieces_;       // Indexed by id.
  SortedTexts texts_;               // The pieces that text may match.
  SortedTexts user_defined_;        // The pieces that normalisation leaves alone.
  std::vector<int> byte_ids_;       // The pieces <0x00> to <0xFF>. Empty without byte fallback.
  std::vector<std::uint32_t> map_;  // Character map: a double-array trie over UTF-8 ...
  std::string map_texts_;           // ... whose values are offsets of NUL-ended texts here.
  int unknown_id_ = -1;
  float min_score_ = 0, max_score_ = 0;
  bool add_dummy_prefix_ = true, remove_extra_spaces_ = true, escape_spaces_ = true;
  bool byte_fallback_ = false;
};

}  // namespace onepiece::model
