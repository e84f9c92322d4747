// The source file of every target that owns a precompiled header (onepiece_precompiled). Nobody
// runs it.
int main() {}
