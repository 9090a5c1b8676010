/* Loads object files of kernels into the process, without a linker and without Python: what
   packages carry. */
#ifndef FUSEWRIGHT_OBJECT_CODE_H
#define FUSEWRIGHT_OBJECT_CODE_H

#include <stddef.h>
#include <stdint.h>

/* Machine code in memory. */
typedef struct ObjectCode ObjectCode;

/* Load a relocatable ELF file for x86-64, of position-independent code. NULL, with a sentence about
   it in `message`, where it is none, is damaged, or needs what is not there. */
ObjectCode *object_code_load(const uint8_t *file, size_t size, char *message,
                             size_t message_size);

/* The address of a global symbol; NULL where there is none. */
void *object_code_symbol(const ObjectCode *code, const char *name);

void object_code_free(ObjectCode *code);

/* Whether this processor and system have a feature, by the name that compilers give it, such as
   `avx2`; -1: nothing is known by this name. */
int processor_has(const char *feature);

#endif
