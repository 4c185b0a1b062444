/* A checksum of a state's bytes.  */

#ifndef MEMBPTT_CHECKSUM_H
#define MEMBPTT_CHECKSUM_H

#include <stdint.h>
#include <string.h>

/* A sum that every single changed, missing or moved byte changes: each word goes through a bijection
   of the sum so far. It begins from the step. */
static inline uint64_t state_checksum(const char *data, long nbytes, long step)
{
    uint64_t h = 0x9e3779b97f4a7c15u ^ (uint64_t)step;
    for (long i = 0; i < nbytes; i += 8) {
        uint64_t word = 0;
        memcpy(&word, data + i, (size_t)(nbytes - i < 8 ? nbytes - i : 8));
        h = (h ^ word) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    return h;
}

#endif
