// Runs the sentencepiece library in a program of its own, because it cannot share a process with
// protobuf. Usage: sentencepiece_oracle MODEL < texts, each ended by NUL. Prints the ids of each on
// a line.
#include <sentencepiece_processor.h>

#include <iostream>
#include <string>
#include <vector>

int main(int argc, char** argv) {
  sentencepiece::SentencePieceProcessor processor;
  if (argc != 2 || !processor.Load(argv[1]).ok()) return 1;
  for (std::string text; std::getline(std::cin, text, '\0');) {
    std::vector<int> ids;
    if (!processor.Encode(text, &ids).ok()) return 1;
    for (const int id : ids) std::cout << id << ' ';
    std::cout << '\n';
  }
}
