/* Writes of a package to its inputs and buffers. */
#include "package_call.h"
#include "package_torch.h"

typedef struct {
    uintptr_t begin, end;
} Span;

/* The addresses from a tensor's first byte to behind its last. */
static bool find_span(AtenTensorHandle tensor, Span *span)
{
    int64_t dims, *sizes, *strides, count = 1;
    int32_t dtype;
    void *data;
    if (torch.get_dim(tensor, &dims) != 0 || torch.get_sizes(tensor, &sizes) != 0 ||
        torch.get_strides(tensor, &strides) != 0 || torch.get_dtype(tensor, &dtype) != 0 ||
        torch.get_data_ptr(tensor, &data) != 0) {
        return false;
    }
    for (int64_t i = 0; i < dims; i++) {
        count = sizes[i] == 0 || count == 0 ? 0 : count + (sizes[i] - 1) * strides[i];
    }
    span->begin = (uintptr_t)data;
    span->end = span->begin + (uintptr_t)count * torch.element_size(dtype);
    return true;
}

static AtenTensorHandle tensor_of(const Call *call, const AtenTensorHandle *given, bool is_weight,
                                  int64_t index)
{
    return is_weight ? call->package->weights[index] : given[index];
}

/* The name of an input among two tensors that share memory. */
static const char *name_of(const FusewrightPackage *package, const Write *write, bool is_weight,
                           int64_t index)
{
    if (!is_weight) {
        return package->leaves[index].name;
    }
    return write->is_weight ? "of the package" : package->leaves[write->index].name;
}

/* Memory that is written may belong to no other tensor: the code was compiled for tensors apart. */
bool package_check_writes(Call *call, const AtenTensorHandle *given)
{
    const FusewrightPackage *package = call->package;
    for (int64_t i = 0; i < package->write_count; i++) {
        const Write *write = &package->writes[i];
        Span written, other;
        if (!find_span(tensor_of(call, given, write->is_weight, write->index), &written)) {
            return package_refuse(call, "a tensor that is written to has no memory");
        }
        for (int64_t j = 0; j < package->leaf_count + package->weight_count; j++) {
            bool is_weight = j >= package->leaf_count;
            int64_t index = is_weight ? j - package->leaf_count : j;
            bool is_itself = is_weight == write->is_weight && index == write->index;
            if (is_itself || !find_span(tensor_of(call, given, is_weight, index), &other)) {
                continue;
            }
            if (written.begin < other.end && other.begin < written.end) {
                return package_refuse(call, "input %s lies in memory of a tensor that is written to",
                                      name_of(package, write, is_weight, index));
            }
        }
    }
    return true;
}

/* Give written tensors their new values: the caller's, and copies of them in another layout. */
bool package_write_values(Call *call, const AtenTensorHandle *given)
{
    for (int64_t i = 0; i < call->package->write_count; i++) {
        const Write *write = &call->package->writes[i];
        AtenTensorHandle own = tensor_of(call, call->leaves, write->is_weight, write->index);
        AtenTensorHandle value =
            write->output < call->returned_count ? call->returned[write->output] : NULL;
        if (value == NULL || torch.copy(own, value, 0) != 0 ||
            (!write->is_weight && torch.copy(given[write->index], own, 0) != 0)) {
            return package_refuse(call, "a tensor cannot be written to");
        }
    }
    return true;
}
