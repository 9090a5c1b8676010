/* A call of a package. */
#ifndef FUSEWRIGHT_PACKAGE_CALL_H
#define FUSEWRIGHT_PACKAGE_CALL_H

#include "package_plan.h"

typedef struct {
    AtenTensorHandle tensor; /* owned */
    int64_t number;
} Slot;

/* A run of a block. */
typedef struct {
    const FusewrightPackage *package;
    const Block *block;
    Slot *slots;
    int64_t *numbers;
    int64_t *scratch;
    AtenTensorHandle *returned; /* borrowed from slots or weights, while they live */
    int64_t returned_count;
    AtenTensorHandle *leaves; /* of the entry point: owned */
    int64_t *readings;        /* of the entry point */
    char *message;
    size_t message_size;
} Call;

/* Note why a call fails; false. */
bool package_refuse(Call *call, const char *format, ...);

/* Memory for the slots and numbers of a block. */
bool package_begin(Call *call);

bool package_run_operations(Call *call);

void package_end(Call *call);

/* The tensor at an operand: in a slot, or a weight as ~index; borrowed. */
AtenTensorHandle package_tensor_at(const Call *call, int64_t place);

/* Let a slot own a tensor, or NULL, in place of what it has. */
void package_set_slot(Call *call, int64_t place, AtenTensorHandle tensor);

/* Let a slot own a result; delete it where the slot is NOTHING. */
void package_give_result(Call *call, int64_t place, AtenTensorHandle tensor);

/* Conditions and loops, which run blocks. */
bool package_branch(Call *call, const int64_t *operands);
bool package_while_loop(Call *call, const int64_t *operands);
bool package_scan(Call *call, const int64_t *operands);

/* Whether memory that is written belongs to no other tensor: the code was compiled for tensors
   apart. */
bool package_check_writes(Call *call, const AtenTensorHandle *given);

/* Give written tensors their new values: the caller's, and copies of them in another layout. */
bool package_write_values(Call *call, const AtenTensorHandle *given);

#endif
