// Whether the processor's own instruction and the table agree, whatever the length and wherever it begins.
#include "CChecksum.h"
#include <stdio.h>

static unsigned char bytes[40000];

int main(void) {
    unsigned state = 1;
    for (size_t at = 0; at < sizeof bytes; at++) bytes[at] = (state = state * 1664525u + 1013904223u) >> 24;
    if (tw_crc32c(0, "123456789", 9) != 0xe3069283u) return puts("the check value is another"), 1;
    for (size_t length = 0; length < sizeof bytes; length += 1 + length / 7)
        for (size_t from = 0; from < 9 && from + length <= sizeof bytes; from++)
            if (tw_crc32c(7, bytes + from, length) != tw_crc32c_portable(7, bytes + from, length))
                return printf("%zu bytes from %zu differ\n", length, from), 1;
    return 0;
}
