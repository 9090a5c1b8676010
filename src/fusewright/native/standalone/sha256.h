/* SHA-256, as FIPS 180-4 defines it. */
#ifndef FUSEWRIGHT_SHA256_H
#define FUSEWRIGHT_SHA256_H

#include <stddef.h>
#include <stdint.h>

enum { SHA256_BYTES = 32 };

/* The digest of two pieces of memory, one behind the other. */
void sha256_of_two(const uint8_t *first, size_t first_size, const uint8_t *second,
                   size_t second_size, uint8_t digest[SHA256_BYTES]);

#endif
