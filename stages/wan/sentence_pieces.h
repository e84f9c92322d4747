// The sentencepiece library behind a door of its own: its header declares an absl::string_view that clashes with
// Abseil's, so no file may include both. Private to stages/wan.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace onepiece::wan {

/// A sentencepiece model. Const methods are thread-safe.
class SentencePieces {
 public:
  /// Null when the bytes are no model; then `error` says why.
  static std::unique_ptr<SentencePieces> Parse(std::string_view model, std::string& error);
  virtual ~SentencePieces() = default;
  /// False on failure; then `error` says why.
  virtual bool Encode(std::string_view text, std::vector<int>& ids, std::string& error) const = 0;
  [[nodiscard]] virtual int pad_id() const = 0;
  [[nodiscard]] virtual int eos_id() const = 0;
  [[nodiscard]] virtual int unk_id() const = 0;
  [[nodiscard]] virtual int size() const = 0;
};

}  // namespace onepiece::wan
