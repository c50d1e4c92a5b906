/* tape.c - programs, faults and schedules of the simulator, drawn by a fuzzer
 *
 * The first two bytes of the input are a seed, the others the tape that is drawn from until it is
 * over; from there on the seed draws. A rule that breaks is a crash. `sim` repeats a seed, and this
 * a tape.
 */

#include "fuzz.h"
#include "program.h"

#define MOST_STEPS 40
#define MOST_US 4000000

/* Short enough to run some hundred times a second. */
static void shorten(void) {
    if (program.step_count > MOST_STEPS) {
        int i, from = program.step_count - MOST_STEPS; /* the faults come last */
        for (i = 0; i < from; i++) {
            program.steps[i].skipped = true;
        }
    }
    if (program.end_us > MOST_US) {
        program.end_us = MOST_US;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint64_t seed = 1;
    fuzz_begin();
    if (size >= 2) {
        seed += (uint64_t)data[0] << 8 | data[1];
        data += 2;
        size -= 2;
    }
    program_draw(seed, data, size);
    shorten();
    program_run();
    return 0;
}
