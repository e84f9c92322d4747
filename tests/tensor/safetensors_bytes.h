// Builds safetensors files, good and bad ones, for tests.
#pragma once

#include <cstdint>
#include <fstream>
#include <span>
#include <string>

namespace onepiece::tensor {

/// Returns length, header and data as a file holds them.
inline std::string SafetensorsBytes(const std::string& header, const std::string& data) {
  std::string file;
  for (int shift = 0; shift < 64; shift += 8) {
    file.push_back(static_cast<char>(static_cast<std::uint64_t>(header.size()) >> shift & 0xff));
  }
  return file + header + data;
}

inline std::span<const std::byte> AsBytes(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

inline void WriteFile(const std::string& path, const std::string& bytes) {
  std::ofstream stream(path, std::ios::binary | std::ios::trunc);
  stream.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

}  // namespace onepiece::tensor
