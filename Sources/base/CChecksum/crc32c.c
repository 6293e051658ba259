// CRC-32C by the processor's own instruction where it has one, by table elsewhere.
//
// One stream of the x86 instruction is bound by its latency of three cycles, so long buffers are
// cut into three lanes that run side by side; the lanes are then joined by shifting the first two
// over the zeros that the later lanes stand for (a 4 x 256 table per lane length, made once).
#include "CChecksum.h"
#include <string.h>
#include <pthread.h>

#define POLYNOMIAL 0x82f63b78u

static uint32_t byte_table[8][256];

// Lane lengths: long lanes for segment scans, short ones for entries of a few hundred bytes.
#define LONG_LANE 4096
#define SHORT_LANE 128
static uint32_t long_shift[4][256];
static uint32_t short_shift[4][256];
static pthread_once_t tables_made = PTHREAD_ONCE_INIT;

static uint32_t step_zero_bytes(uint32_t crc, size_t count) {
    while (count--) crc = byte_table[0][crc & 0xff] ^ (crc >> 8);
    return crc;
}

static void make_shift(uint32_t shift[4][256], size_t lane) {
    // The shift is linear, so 32 single bits make all the tables.
    uint32_t of_bit[32];
    for (int bit = 0; bit < 32; bit++) of_bit[bit] = step_zero_bytes(1u << bit, lane);
    for (int part = 0; part < 4; part++)
        for (int value = 0; value < 256; value++) {
            uint32_t sum = 0;
            for (int bit = 0; bit < 8; bit++)
                if (value >> bit & 1) sum ^= of_bit[part * 8 + bit];
            shift[part][value] = sum;
        }
}

static void make_tables(void) {
    for (uint32_t value = 0; value < 256; value++) {
        uint32_t crc = value;
        for (int bit = 0; bit < 8; bit++) crc = crc & 1 ? crc >> 1 ^ POLYNOMIAL : crc >> 1;
        byte_table[0][value] = crc;
    }
    for (int row = 1; row < 8; row++)
        for (int value = 0; value < 256; value++)
            byte_table[row][value] =
                byte_table[0][byte_table[row - 1][value] & 0xff] ^ (byte_table[row - 1][value] >> 8);
    make_shift(long_shift, LONG_LANE);
    make_shift(short_shift, SHORT_LANE);
}

static uint32_t by_table(uint32_t crc, const uint8_t *bytes, size_t length) {
    while (length >= 8) {
        uint64_t word;
        memcpy(&word, bytes, 8);
        word ^= crc;
        crc = byte_table[7][word & 0xff] ^ byte_table[6][word >> 8 & 0xff] ^ byte_table[5][word >> 16 & 0xff]
            ^ byte_table[4][word >> 24 & 0xff] ^ byte_table[3][word >> 32 & 0xff] ^ byte_table[2][word >> 40 & 0xff]
            ^ byte_table[1][word >> 48 & 0xff] ^ byte_table[0][word >> 56];
        bytes += 8, length -= 8;
    }
    while (length--) crc = byte_table[0][(crc ^ *bytes++) & 0xff] ^ (crc >> 8);
    return crc;
}

uint32_t tw_crc32c_portable(uint32_t crc, const void *bytes, size_t length) {
    pthread_once(&tables_made, make_tables);
    return ~by_table(~crc, bytes, length);
}

#if defined(__x86_64__)
#define HARDWARE __attribute__((target("sse4.2")))
#define STEP8(crc, word) __builtin_ia32_crc32di(crc, word)
#define STEP1(crc, byte) __builtin_ia32_crc32qi(crc, byte)
static int has_hardware(void) { return __builtin_cpu_supports("sse4.2"); }
#elif defined(__aarch64__)
#include <sys/auxv.h>
#define HARDWARE __attribute__((target("+crc")))
#define STEP8(crc, word) __builtin_arm_crc32cd(crc, word)
#define STEP1(crc, byte) __builtin_arm_crc32cb(crc, byte)
static int has_hardware(void) { return (getauxval(AT_HWCAP) & (1 << 7)) != 0; }
#endif

#ifdef HARDWARE
static inline uint32_t shifted(uint32_t shift[4][256], uint32_t crc) {
    return shift[0][crc & 0xff] ^ shift[1][crc >> 8 & 0xff] ^ shift[2][crc >> 16 & 0xff] ^ shift[3][crc >> 24];
}

static inline uint64_t word_at(const uint8_t *bytes) {
    uint64_t word;
    memcpy(&word, bytes, 8);
    return word;
}

HARDWARE static const uint8_t *three_lanes(
    uint32_t *crc, const uint8_t *bytes, size_t *length, size_t lane, uint32_t shift[4][256]
) {
    while (*length >= 3 * lane) {
        uint64_t first = *crc, second = 0, third = 0;
        for (size_t at = 0; at < lane; at += 8) {
            first = STEP8(first, word_at(bytes + at));
            second = STEP8(second, word_at(bytes + at + lane));
            third = STEP8(third, word_at(bytes + at + 2 * lane));
        }
        *crc = shifted(shift, shifted(shift, (uint32_t)first) ^ (uint32_t)second) ^ (uint32_t)third;
        bytes += 3 * lane, *length -= 3 * lane;
    }
    return bytes;
}

HARDWARE static uint32_t by_hardware(uint32_t crc, const uint8_t *bytes, size_t length) {
    bytes = three_lanes(&crc, bytes, &length, LONG_LANE, long_shift);
    bytes = three_lanes(&crc, bytes, &length, SHORT_LANE, short_shift);
    uint64_t wide = crc;
    while (length >= 8) {
        wide = STEP8(wide, word_at(bytes));
        bytes += 8, length -= 8;
    }
    crc = (uint32_t)wide;
    while (length--) crc = STEP1(crc, *bytes++);
    return crc;
}
#endif

uint32_t tw_crc32c(uint32_t crc, const void *bytes, size_t length) {
    pthread_once(&tables_made, make_tables);
#ifdef HARDWARE
    if (has_hardware()) return ~by_hardware(~crc, bytes, length);
#endif
    return ~by_table(~crc, bytes, length);
}
