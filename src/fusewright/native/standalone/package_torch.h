/* Functions of libtorch, and of the OpenMP that it runs on, found by name. */
#ifndef FUSEWRIGHT_PACKAGE_TORCH_H
#define FUSEWRIGHT_PACKAGE_TORCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fusewright_package.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CPU = 0 }; /* a type of device */

typedef struct {
    int32_t (*get_data_ptr)(AtenTensorHandle, void **);
    int32_t (*get_dim)(AtenTensorHandle, int64_t *);
    int32_t (*get_sizes)(AtenTensorHandle, int64_t **);
    int32_t (*get_strides)(AtenTensorHandle, int64_t **);
    int32_t (*get_offset)(AtenTensorHandle, int64_t *);
    int32_t (*get_dtype)(AtenTensorHandle, int32_t *);
    int32_t (*get_device_type)(AtenTensorHandle, int32_t *);
    size_t (*element_size)(int32_t);
    int32_t (*empty_strided)(int64_t, const int64_t *, const int64_t *, int32_t, int32_t, int32_t,
                             AtenTensorHandle *);
    int32_t (*reinterpret)(AtenTensorHandle, int64_t, const int64_t *, const int64_t *, int64_t,
                           AtenTensorHandle *);
    int32_t (*place_in)(AtenTensorHandle, int64_t, int32_t, int64_t, const int64_t *,
                        const int64_t *, AtenTensorHandle *);
    int32_t (*from_blob)(void *, int64_t, const int64_t *, const int64_t *, int64_t, int32_t,
                         int32_t, int32_t, AtenTensorHandle *);
    int32_t (*new_handle)(AtenTensorHandle, AtenTensorHandle *);
    int32_t (*delete_tensor)(AtenTensorHandle);
    int32_t (*copy)(AtenTensorHandle, AtenTensorHandle, int32_t);
    int32_t (*mm_out)(AtenTensorHandle, AtenTensorHandle, AtenTensorHandle);
    int32_t (*bmm_out)(AtenTensorHandle, AtenTensorHandle, AtenTensorHandle);
    int32_t (*addmm_out)(AtenTensorHandle, AtenTensorHandle, AtenTensorHandle, AtenTensorHandle,
                         float, float);
    int32_t (*call_dispatcher)(const char *, const char *, uint64_t *);
    bool (*grad_mode_is_enabled)(void);
    void (*grad_mode_set_enabled)(bool);
    uint64_t (*abi_version)(void);
    const char *(*last_error)(void); /* may be absent */
    int32_t (*new_list)(size_t, void **);
    int32_t (*list_push)(void *, uint64_t);
    int32_t (*new_text)(const char *, size_t, void **);
    int32_t (*item_bool)(AtenTensorHandle, bool *);
    int32_t (*clone)(AtenTensorHandle, AtenTensorHandle *);
    void *(*new_memory)(size_t); /* of C++, which torch deletes */
    const char *(*key_name)(uint16_t); /* of a dispatch key; these five may be absent */
    bool (*is_key_excluded)(uint16_t);
    void (*set_key_excluded)(uint16_t, bool);
    bool (*is_key_included)(uint16_t);
    void (*set_key_included)(uint16_t, bool);
    int (*thread_count)(void);
    void (*parallel)(void (*)(void *), void *, unsigned, unsigned);
    int (*thread_number)(void);
    int (*team_size)(void);
    int (*in_parallel)(void);
} PackageTorch;

extern PackageTorch torch;

/* Find all. The name of one that is missing, or NULL. */
const char *package_torch_find(void);

/* The word of an argument that may be absent and is there; the dispatcher deletes its memory. */
uint64_t package_torch_optional(uint64_t word);

/* Call an operator, which takes the arguments off `stack` and leaves its results there. Not 0: it
   fails.

   Where a list of sizes may be symbolic, the dispatcher gets it as a list of that type, which
   autograd's kernels take and many of the CPU's do not. In inference mode, and for tensors made in
   it, autograd's are passed over. Here they are called all the same: they hand the list on as
   integers, and record nothing while gradients are disabled. */
int32_t package_torch_dispatch(const char *name, const char *overload, uint64_t *stack);

#ifdef __cplusplus
}
#endif

#endif
