#pragma once
#include <stddef.h>
#include <stdint.h>

/// CRC-32C (Castagnoli) of `length` bytes, continuing from `crc` (0 to begin).
uint32_t tw_crc32c(uint32_t crc, const void *bytes, size_t length);

/// The same by table alone, so that a test can hold the two against each other.
uint32_t tw_crc32c_portable(uint32_t crc, const void *bytes, size_t length);

/// Asks for the cache line at an address that will be read soon. It need not be an address of anything.
static inline void tw_prefetch(const void *address) { __builtin_prefetch(address, 0, 3); }
