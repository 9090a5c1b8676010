/* Tensors on the CPU between pages that may not be touched, in any process:

       LD_PRELOAD=guarded_memory.so GUARDED_MEMORY=end python …       (or =begin)

   torch asks the C library for memory by posix_memalign, also inside of its kernels. Each piece gets
   addresses for itself, which come up again only when all others were used: what is touched beside a
   piece, or after it was freed, stops the process. New memory holds 0xFF bytes: NaN, or -1. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE 4096ul
#define SLOT (1ul << 28) /* addresses of one piece, which lies in their middle */
#define SLOTS (1ul << 17)
#define LARGEST (SLOT / 4) /* bytes of a piece; larger ones are not guarded */
#define ALIGNMENT 64ul     /* that of torch's memory */

static char *range;
static int is_at_end;
static _Atomic size_t bytes_in[SLOTS]; /* by slot: those that may be touched, 0 where it is free */
static _Atomic size_t next_slot;

__attribute__((constructor)) static void begin(void) {
    const char *side = getenv("GUARDED_MEMORY");
    if (side == NULL) return;
    is_at_end = strcmp(side, "end") == 0;
    void *addresses =
        mmap(NULL, SLOT * SLOTS, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (addresses == MAP_FAILED) abort();
    range = addresses;
}

static void *guarded(size_t size) {
    size_t inside = size == 0 ? PAGE : (size + PAGE - 1) / PAGE * PAGE;
    for (size_t tried = 0; tried < SLOTS; tried++) {
        size_t slot = atomic_fetch_add(&next_slot, 1) % SLOTS, none = 0;
        if (!atomic_compare_exchange_strong(&bytes_in[slot], &none, inside)) continue;
        char *start = range + slot * SLOT + SLOT / 2;
        if (mprotect(start, inside, PROT_READ | PROT_WRITE) != 0) abort();
        memset(start, 0xFF, inside);
        return is_at_end ? start + inside - size : start;
    }
    return NULL;
}

int posix_memalign(void **piece, size_t alignment, size_t size) {
    static int (*plain)(void **, size_t, size_t);
    if (range != NULL && alignment == ALIGNMENT && size <= LARGEST) {
        *piece = guarded(size);
        return *piece == NULL ? ENOMEM : 0;
    }
    if (plain == NULL) plain = (int (*)(void **, size_t, size_t))dlsym(RTLD_NEXT, "posix_memalign");
    return plain(piece, alignment, size);
}

void free(void *piece) {
    static void (*plain)(void *);
    size_t place = (size_t)((char *)piece - range);
    if (range != NULL && place < SLOT * SLOTS) {
        size_t slot = place / SLOT;
        void *start = range + slot * SLOT + SLOT / 2;
        size_t inside = bytes_in[slot];
        if (inside == 0) abort(); /* freed twice */
        /* New pages in place of the old ones: nothing is kept of them. */
        if (mmap(start, inside, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
                 -1, 0) == MAP_FAILED)
            abort();
        bytes_in[slot] = 0;
        return;
    }
    if (plain == NULL) plain = (void (*)(void *))dlsym(RTLD_NEXT, "free");
    plain(piece);
}
