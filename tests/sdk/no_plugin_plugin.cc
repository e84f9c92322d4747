// A plug-in whose entry point returns nothing.
#include "stages/sdk/stage.h"

extern "C" __attribute__((visibility("default"))) onepiece::sdk::PluginEntry
onepiece_stage_plugin() {
  return {};
}
