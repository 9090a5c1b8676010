/* A checksum of much memory, as fast as it is read: against damage, not against forgery. */
#ifndef FUSEWRIGHT_CHECKSUM_H
#define FUSEWRIGHT_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

enum { CHECKSUM_LANES = 4, CHECKSUM_WORD = 8 };

/* The CRC-32C of each of four interleaved streams of words of eight bytes: word i belongs to stream
   i modulo 4. `size` is a multiple of 32. Any change of up to 32 bits in a row is seen. */
void checksum(const uint8_t *memory, size_t size, uint32_t sums[CHECKSUM_LANES]);

#endif
