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
    int32_t (*dispatch)(const char *, const char *, uint64_t *);
    bool (*grad_mode_is_enabled)(void);
    void (*grad_mode_set_enabled)(bool);
    uint64_t (*abi_version)(void);
    const char *(*last_error)(void); /* may be absent */
    int32_t (*new_list)(size_t, void **);
    int32_t (*list_push)(void *, uint64_t);
    int32_t (*new_text)(const char *, size_t, void **); /* may be absent */
    int32_t (*item_bool)(AtenTensorHandle, bool *);
    int32_t (*clone)(AtenTensorHandle, AtenTensorHandle *);
    void *(*new_memory)(size_t); /* of C++, which torch deletes */
    int (*thread_count)(void);
    void (*parallel)(void (*)(void *), void *, unsigned, unsigned);
    int (*thread_number)(void);
    int (*team_size)(void);
    int (*in_parallel)(void);
} PackageTorch;

extern PackageTorch torch;

/* Find all. The name of one that is missing, or NULL. */
const char *package_torch_find(void);

#ifdef __cplusplus
}
#endif

#endif
