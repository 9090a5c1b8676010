/* A call of a package. */
#ifndef FUSEWRIGHT_PACKAGE_CALL_H
#define FUSEWRIGHT_PACKAGE_CALL_H

#include "package_plan.h"

typedef struct {
    AtenTensorHandle tensor; /* owned */
    int64_t number;
} Slot;

typedef struct {
    const FusewrightPackage *package;
    Slot *slots;
    int64_t *numbers;
    int64_t *scratch;
    AtenTensorHandle *leaves; /* owned */
    int64_t *readings;
    AtenTensorHandle *returned; /* borrowed from slots or weights, while they live */
    int64_t returned_count;
    char *message;
    size_t message_size;
} Call;

/* Note why a call fails; false. */
bool package_refuse(Call *call, const char *format, ...);

/* Whether memory that is written belongs to no other tensor: the code was compiled for tensors
   apart. */
bool package_check_writes(Call *call, const AtenTensorHandle *given);

/* Give written tensors their new values: the caller's, and copies of them in another layout. */
bool package_write_values(Call *call, const AtenTensorHandle *given);

#endif
