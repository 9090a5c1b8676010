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
    {"aoti_torch_call_dispatcher", &torch.dispatch, true},
    {"aoti_torch_grad_mode_is_enabled", &torch.grad_mode_is_enabled, true},
    {"aoti_torch_grad_mode_set_enabled", &torch.grad_mode_set_enabled, true},
    {"aoti_torch_abi_version", &torch.abi_version, true},
    {"torch_exception_get_what_without_backtrace", &torch.last_error, false},
    {"torch_new_list_reserve_size", &torch.new_list, false},
    {"torch_list_push_back", &torch.list_push, false},
    {"torch_new_string_handle", &torch.new_text, false},
    {"aoti_torch_item_bool", &torch.item_bool, true},
    {"aoti_torch_clone", &torch.clone, true},
    {"_Znwm", &torch.new_memory, true},
    {"_ZN2at15get_num_threadsEv", &torch.thread_count, true},
    {"GOMP_parallel", &torch.parallel, false},
    {"omp_get_thread_num", &torch.thread_number, false},
    {"omp_get_num_threads", &torch.team_size, false},
    {"omp_in_parallel", &torch.in_parallel, false},
};

const char *package_torch_find(void)
{
    for (size_t i = 0; i < sizeof torch_functions / sizeof *torch_functions; i++) {
        void *address = dlsym(RTLD_DEFAULT, torch_functions[i].name);
        memcpy(torch_functions[i].field, &address, sizeof address);
        if (address == NULL && torch_functions[i].required) {
            return torch_functions[i].name;
        }
    }
    return NULL;
}
