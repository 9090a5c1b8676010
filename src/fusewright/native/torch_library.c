/* Looks up libtorch's C functions. A handle of torch._C reaches everything that it was linked with,
   so that the OpenMP functions found are those of the very library that torch's operators run on,
   even when the process holds two. */
#include "torch_library.h"

#include "standalone/dynamic_linking.h"
#include <stddef.h>

TorchLibrary torch_library;

static void *torch_handle;

typedef struct {
    const char *symbol;
    size_t offset;
    bool required;
} Lookup;

#define LOCAL_DISPATCH_STATE "_ZN3c104impl26raw_local_dispatch_key_setE"

#define FIELD(name) offsetof(TorchLibrary, name)

static const Lookup lookups[] = {
    {"aoti_torch_get_data_ptr", FIELD(get_data_pointer), true},
    {"aoti_torch_get_dim", FIELD(get_dim), true},
    {"aoti_torch_get_sizes", FIELD(get_sizes), true},
    {"aoti_torch_get_strides", FIELD(get_strides), true},
    {"aoti_torch_get_storage_size", FIELD(get_storage_size), true},
    {"aoti_torch_get_storage_offset", FIELD(get_storage_offset), true},
    {"aoti_torch_get_dtype", FIELD(get_dtype), true},
    {"aoti_torch_get_device_type", FIELD(get_device_type), true},
    {"aoti_torch_get_device_index", FIELD(get_device_index), true},
    {"aoti_torch_empty_strided", FIELD(empty_strided), true},
    {"aoti_torch_delete_tensor_object", FIELD(delete_tensor), true},
    {"aoti_torch__reinterpret_tensor", FIELD(reinterpret), false},
    {"aoti_torch__alloc_from_pool", FIELD(place_in), false},
    {"aoti_torch_mm_out", FIELD(mm_out), false},
    {"aoti_torch_bmm_out", FIELD(bmm_out), false},
    {"aoti_torch_addmm_out", FIELD(addmm_out), false},
    {"torch_call_dispatcher", FIELD(call_dispatcher), false},
    {"aoti_torch_new_tensor_handle", FIELD(new_handle), true},
    {"_Znwm", FIELD(new_object), false},
    {"aoti_torch_grad_mode_is_enabled", FIELD(grad_mode_is_enabled), true},
    {"aoti_torch_grad_mode_set_enabled", FIELD(set_grad_mode), true},
    {"aoti_torch_device_type_cpu", FIELD(get_cpu_device_type), true},
    {"_Z16THPVariable_WrapRKN2at10TensorBaseE", FIELD(wrap_tensor), false},
    {"_ZNK3c1010TensorImpl13requires_gradEv", FIELD(requires_grad), false},
    {"_ZNK2at10TensorBase7is_viewEv", FIELD(is_view), false},
#ifdef __linux__ /* elsewhere such a symbol is not the address of the calling thread's variable */
    {LOCAL_DISPATCH_STATE, FIELD(local_dispatch_state), false},
#endif
    {"_ZN2at15get_num_threadsEv", FIELD(get_thread_count), false},
    {"_ZN2at12hasCallbacksEv", FIELD(has_callbacks), false},
    {"GOMP_parallel", FIELD(parallel), false},
    {"omp_get_thread_num", FIELD(get_thread_number), false},
    {"omp_get_num_threads", FIELD(get_team_size), false},
    {"omp_in_parallel", FIELD(in_parallel), false},
};

int torch_library_load(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    if (library == NULL) {
        PyErr_Format(PyExc_ImportError, "fusewright cannot open torch's library: %s", dlerror());
        return -1;
    }
    TorchLibrary found = {0};
    for (size_t i = 0; i < Py_ARRAY_LENGTH(lookups); i++) {
        void *address = dlsym(library, lookups[i].symbol);
        if (address == NULL && lookups[i].required) {
            PyErr_Format(PyExc_ImportError,
                         "this torch has no function %s; fusewright works with torch 2.11 to 2.13",
                         lookups[i].symbol);
            return -1;
        }
        *(void **)((char *)&found + lookups[i].offset) = address;
    }
    bool threads = found.get_thread_count && found.parallel && found.get_thread_number &&
                   found.get_team_size && found.in_parallel;
    if (!threads) {
        found.parallel = NULL;
    }
    found.cpu_device_type = found.get_cpu_device_type();
    torch_library = found;
    torch_handle = library;
    return 0;
}

void *torch_library_symbol(const char *name)
{
    return torch_handle ? dlsym(torch_handle, name) : NULL;
}

const uint64_t *torch_library_dispatch_state(void)
{
    static _Thread_local const uint64_t *words;
    if (words == NULL) {
        words = dlsym(torch_handle, LOCAL_DISPATCH_STATE);
    }
    return words;
}
