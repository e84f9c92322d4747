// Owns a precompiled header (onepiece_precompiled_tests); never run.
int main() {}
