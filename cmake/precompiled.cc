// Owns a precompiled header (onepiece_precompiled); never run.
int main() {}
