#include "stages/wan/sentence_pieces.h"

#include <sentencepiece_processor.h>

namespace onepiece::wan {
namespace {

class Processor final : public SentencePieces {
 public:
  bool Load(std::string_view model, std::string& error) {
    const auto status = processor_.LoadFromSerializedProto(model);
    if (!status.ok()) error = status.ToString();
    return status.ok();
  }
  bool Encode(std::string_view text, std::vector<int>& ids, std::string& error) const override {
    const auto status = processor_.Encode(text, &ids);
    if (!status.ok()) error = status.ToString();
    return status.ok();
  }
  int pad_id() const override { return processor_.pad_id(); }
  int eos_id() const override { return processor_.eos_id(); }
  int unk_id() const override { return processor_.unk_id(); }
  int size() const override { return processor_.GetPieceSize(); }

 private:
  sentencepiece::SentencePieceProcessor processor_;
};

}  // namespace

std::unique_ptr<SentencePieces> SentencePieces::Parse(std::string_view model, std::string& error) {
  auto processor = std::make_unique<Processor>();
  if (!processor->Load(model, error)) return nullptr;
  return processor;
}

}  // namespace onepiece::wan
