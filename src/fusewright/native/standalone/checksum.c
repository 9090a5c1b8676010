/* CRC-32C (Castagnoli's polynomial), by the processor's instruction where it has one. */
#include "checksum.h"

#include <string.h>

#ifdef __x86_64__
#include <nmmintrin.h>
#endif

#define POLYNOMIAL 0x82f63b78u

static uint32_t add_word(uint32_t sum, uint64_t word)
{
    uint64_t rest = word ^ sum;
    for (int bit = 0; bit < 64; bit++) {
        rest = (rest >> 1) ^ ((rest & 1) != 0 ? POLYNOMIAL : 0);
    }
    return (uint32_t)rest;
}

static void checksum_slowly(const uint8_t *memory, size_t size, uint32_t *sums)
{
    for (size_t at = 0; at < size; at += CHECKSUM_WORD) {
        uint64_t word;
        memcpy(&word, memory + at, sizeof word);
        uint32_t *sum = &sums[at / CHECKSUM_WORD % CHECKSUM_LANES];
        *sum = add_word(*sum, word);
    }
}

#ifdef __x86_64__
__attribute__((target("sse4.2"))) static void checksum_quickly(const uint8_t *memory, size_t size,
                                                               uint32_t *sums)
{
    uint64_t a = sums[0], b = sums[1], c = sums[2], d = sums[3], words[CHECKSUM_LANES];
    for (size_t at = 0; at < size; at += sizeof words) {
        memcpy(words, memory + at, sizeof words);
        a = _mm_crc32_u64(a, words[0]);
        b = _mm_crc32_u64(b, words[1]);
        c = _mm_crc32_u64(c, words[2]);
        d = _mm_crc32_u64(d, words[3]);
    }
    sums[0] = (uint32_t)a, sums[1] = (uint32_t)b, sums[2] = (uint32_t)c, sums[3] = (uint32_t)d;
}
#endif

void checksum(const uint8_t *memory, size_t size, uint32_t sums[CHECKSUM_LANES])
{
    memset(sums, 0xff, CHECKSUM_LANES * sizeof *sums);
#ifdef __x86_64__
    __builtin_cpu_init();
    if (__builtin_cpu_supports("sse4.2")) {
        checksum_quickly(memory, size, sums);
        return;
    }
#endif
    checksum_slowly(memory, size, sums);
}
