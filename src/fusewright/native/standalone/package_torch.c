/* Looks up libtorch's stable C functions in the process. */
#include "package_torch.h"

#include "dynamic_linking.h"
#include <string.h>

PackageTorch torch;

static const struct {
    const char *name;
    void *field;
    bool required;
} torch_functions[] = {
    {"aoti_torch_get_data_ptr", &torch.get_data_ptr, true},
    {"aoti_torch_get_dim", &torch.get_dim, true},
    {"aoti_torch_get_sizes", &torch.get_sizes, true},
    {"aoti_torch_get_strides", &torch.get_strides, true},
    {"aoti_torch_get_storage_offset", &torch.get_offset, true},
    {"aoti_torch_get_dtype", &torch.get_dtype, true},
    {"aoti_torch_get_device_type", &torch.get_device_type, true},
    {"aoti_torch_dtype_element_size", &torch.element_size, true},
    {"aoti_torch_empty_strided", &torch.empty_strided, true},
    {"aoti_torch__reinterpret_tensor", &torch.reinterpret, true},
    {"aoti_torch__alloc_from_pool", &torch.place_in, true},
    {"aoti_torch_create_tensor_from_blob", &torch.from_blob, true},
    {"aoti_torch_new_tensor_handle", &torch.new_handle, true},
    {"aoti_torch_delete_tensor_object", &torch.delete_tensor, true},
    {"aoti_torch_copy_", &torch.copy, true},
    {"aoti_torch_mm_out", &torch.mm_out, true},
    {"aoti_torch_bmm_out", &torch.bmm_out, true},
    {"aoti_torch_addmm_out", &torch.addmm_out, true},
    {"aoti_torch_call_dispatcher", &torch.call_dispatcher, true},
    {"aoti_torch_grad_mode_is_enabled", &torch.grad_mode_is_enabled, true},
    {"aoti_torch_grad_mode_set_enabled", &torch.grad_mode_set_enabled, true},
    {"aoti_torch_abi_version", &torch.abi_version, true},
    {"_ZN3c108toStringENS_11DispatchKeyE", &torch.key_name, false},
    {"_ZN3c104impl28tls_is_dispatch_key_excludedENS_11DispatchKeyE", &torch.is_key_excluded, false},
    {"_ZN3c104impl29tls_set_dispatch_key_excludedENS_11DispatchKeyEb", &torch.set_key_excluded,
     false},
    {"_ZN3c104impl28tls_is_dispatch_key_includedENS_11DispatchKeyE", &torch.is_key_included, false},
    {"_ZN3c104impl29tls_set_dispatch_key_includedENS_11DispatchKeyEb", &torch.set_key_included,
     false},
    {"torch_exception_get_what_without_backtrace", &torch.last_error, false},
    {"torch_new_list_reserve_size", &torch.new_list, true},
    {"torch_list_push_back", &torch.list_push, true},
    {"torch_new_string_handle", &torch.new_text, true},
    {"aoti_torch_item_bool", &torch.item_bool, true},
    {"aoti_torch_clone", &torch.clone, true},
    {"_Znwm", &torch.new_memory, true},
    {"_ZN2at15get_num_threadsEv", &torch.thread_count, true},
    {"GOMP_parallel", &torch.parallel, false},
    {"omp_get_thread_num", &torch.thread_number, false},
    {"omp_get_num_threads", &torch.team_size, false},
    {"omp_in_parallel", &torch.in_parallel, false},
};

enum { NO_KEY = 0, MOST_KEYS = 256 };

/* The dispatch key of autograd's kernels; NO_KEY where this libtorch does not tell. */
static uint16_t autograd_key;

static uint16_t find_autograd_key(void)
{
    if (torch.key_name == NULL || torch.is_key_excluded == NULL || torch.set_key_excluded == NULL ||
        torch.is_key_included == NULL || torch.set_key_included == NULL) {
        return NO_KEY;
    }
    for (uint16_t key = NO_KEY + 1; key < MOST_KEYS; key++) {
        const char *name = torch.key_name(key);
        if (name != NULL && strcmp(name, "AutogradFunctionality") == 0) {
            return key;
        }
    }
    return NO_KEY;
}

const char *package_torch_find(void)
{
    for (size_t i = 0; i < sizeof torch_functions / sizeof *torch_functions; i++) {
        void *address = dlsym(RTLD_DEFAULT, torch_functions[i].name);
        memcpy(torch_functions[i].field, &address, sizeof address);
        if (address == NULL && torch_functions[i].required) {
            return torch_functions[i].name;
        }
    }
    autograd_key = find_autograd_key();
    return NULL;
}

uint64_t package_torch_optional(uint64_t word)
{
    uint64_t *memory = torch.new_memory(sizeof word);
    *memory = word;
    return (uint64_t)(uintptr_t)memory;
}

int32_t package_torch_dispatch(const char *name, const char *overload, uint64_t *stack)
{
    uint16_t key = autograd_key;
    bool was_excluded = key != NO_KEY && torch.is_key_excluded(key);
    bool was_included = key == NO_KEY || torch.is_key_included(key);
    if (was_excluded) {
        torch.set_key_excluded(key, false);
    }
    if (!was_included) {
        torch.set_key_included(key, true);
    }
    int32_t refusal = torch.call_dispatcher(name, overload, stack);
    if (!was_included) {
        torch.set_key_included(key, false);
    }
    if (was_excluded) {
        torch.set_key_excluded(key, true);
    }
    return refusal;
}
