// A plug-in of another ABI: its plug-in pointer must never be followed.
#include "stages/sdk/stage.h"

extern "C" __attribute__((visibility("default"))) onepiece::sdk::PluginEntry
onepiece_stage_plugin() {
  return {onepiece::sdk::kPluginAbi + 1, reinterpret_cast<const onepiece::sdk::Plugin*>(1)};
}
