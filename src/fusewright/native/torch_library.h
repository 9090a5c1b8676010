/* The C functions of libtorch and of its OpenMP library, found at run time in the libraries that
   `import torch` loaded. */
#ifndef FUSEWRIGHT_TORCH_LIBRARY_H
#define FUSEWRIGHT_TORCH_LIBRARY_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>

/* `at::Tensor *`: for a tensor object, the address of its handle inside the object. */
typedef void *TensorHandle;

/* Each of libtorch's functions returns 0, or an error code when the tensor refuses (a fake or
   nested tensor, say). */
typedef struct {
    int32_t (*get_data_pointer)(TensorHandle, void **);
    int32_t (*get_dim)(TensorHandle, int64_t *);
    int32_t (*get_sizes)(TensorHandle, int64_t **);
    int32_t (*get_strides)(TensorHandle, int64_t **);
    int32_t (*get_storage_size)(TensorHandle, int64_t *);   /* in bytes */
    int32_t (*get_storage_offset)(TensorHandle, int64_t *); /* in elements */
    int32_t (*get_dtype)(TensorHandle, int32_t *);
    int32_t (*get_device_type)(TensorHandle, int32_t *);
    int32_t (*get_device_index)(TensorHandle, int32_t *);
    int32_t (*empty_strided)(int64_t dim, const int64_t *sizes, const int64_t *strides,
                             int32_t dtype, int32_t device_type, int32_t device_index,
                             TensorHandle *result);
    int32_t (*delete_tensor)(TensorHandle);

    /* The memory of a tensor through another layout, whose offset counts from the tensor's own first
       element: no view in autograd's eyes, and with versions of its own. May be null. */
    int32_t (*reinterpret)(TensorHandle, int64_t dim, const int64_t *sizes, const int64_t *strides,
                           int64_t offset, TensorHandle *result);

    /* A tensor of its own in the memory of another, so many bytes from its beginning. May be null. */
    int32_t (*place_in)(TensorHandle, int64_t offset, int32_t dtype, int64_t dim,
                        const int64_t *sizes, const int64_t *strides, TensorHandle *result);

    /* Products into memory that is there; `addmm_out` takes beta and alpha last. May be null. */
    int32_t (*mm_out)(TensorHandle out, TensorHandle, TensorHandle);
    int32_t (*bmm_out)(TensorHandle out, TensorHandle, TensorHandle);
    int32_t (*addmm_out)(TensorHandle out, TensorHandle, TensorHandle, TensorHandle, float, float);

    /* Any operator, by its name and overload: arguments and results are words of a stack. Words of
       tensors are handles, which it takes, and gives; what may be None is NULL or in an object made
       by `new_object`, C++'s operator new. `version`: of the conversions, torch's. May be null. */
    int32_t (*call_dispatcher)(const char *name, const char *overload, uint64_t *stack,
                               uint64_t version);
    int32_t (*new_handle)(TensorHandle, TensorHandle *result); /* of the same tensor */
    void *(*new_object)(size_t);

    bool (*grad_mode_is_enabled)(void);
    void (*set_grad_mode)(bool);
    int32_t (*get_cpu_device_type)(void);
    int32_t cpu_device_type;

    /* c10::TensorImpl::requires_grad, of a tensor's implementation: a quarter of the time of the
       Python getter, which first looks for function modes. May be null. */
    bool (*requires_grad)(const void *);

    /* at::TensorBase::is_view: whether autograd holds the tensor for one. May be null. */
    bool (*is_view)(TensorHandle);

    /* THPVariable_Wrap: the tensor object of a tensor, a new reference. May be null. */
    PyObject *(*wrap_tensor)(TensorHandle);

    /* at::get_num_threads: the size of a team that torch's own operators would use on this thread.
     */
    int (*get_thread_count)(void);
    bool (*has_callbacks)(void); /* whether a profiler looks; NULL: this torch cannot tell */

    /* c10::impl::raw_local_dispatch_key_set: the calling thread's included and excluded dispatch
       keys, two words, at another address in each thread; null where thread-local variables cannot
       be looked up. */
    void *local_dispatch_state;

    /* The entry points that a C compiler calls for `#pragma omp parallel`; all null where OpenMP is
       another one. */
    void (*parallel)(void (*body)(void *), void *data, unsigned threads, unsigned flags);
    int (*get_thread_number)(void);
    int (*get_team_size)(void);
    int (*in_parallel)(void);
} TorchLibrary;

extern TorchLibrary torch_library;

/* Fill `torch_library` from the shared library at `path` (torch._C) and all that it depends on. -1
   with ImportError set when a function is missing. */
int torch_library_load(const char *path);

/* The address of a symbol in torch's libraries; NULL where there is none, or before they are
 * loaded. */
void *torch_library_symbol(const char *name);

/* The calling thread's two words of dispatch state; needs `local_dispatch_state`. */
const uint64_t *torch_library_dispatch_state(void);

#endif
