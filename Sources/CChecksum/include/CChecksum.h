#pragma once
#include <stddef.h>
#include <stdint.h>

/// CRC-32C (Castagnoli) of `length` bytes, continuing from `crc` (0 to begin).
uint32_t tw_crc32c(uint32_t crc, const void *bytes, size_t length);

/// The same by table alone, so that a test can hold the two against each other.
uint32_t tw_crc32c_portable(uint32_t crc, const void *bytes, size_t length);
