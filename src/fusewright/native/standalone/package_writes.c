/* Writes of a package to its inputs and buffers. */
#include <stdlib.h>

#include "package_call.h"
#include "package_torch.h"

typedef struct {
    uintptr_t begin, end;
    bool has_memory;
} Span;

/* The addresses from a tensor's first byte to behind its last. */
static Span span_of(AtenTensorHandle tensor)
{
    int64_t dims, *sizes, *strides, count = 1;
    int32_t dtype;
    void *data;
    if (torch.get_dim(tensor, &dims) != 0 || torch.get_sizes(tensor, &sizes) != 0 ||
        torch.get_strides(tensor, &strides) != 0 || torch.get_dtype(tensor, &dtype) != 0 ||
        torch.get_data_ptr(tensor, &data) != 0) {
        return (Span){0};
    }
    for (int64_t i = 0; i < dims; i++) {
        count = sizes[i] == 0 || count == 0 ? 0 : count + (sizes[i] - 1) * strides[i];
    }
    uintptr_t begin = (uintptr_t)data;
    return (Span){begin, begin + (uintptr_t)count * torch.element_size(dtype), true};
}

/* The name of an input among two tensors that share memory: the written one, and the one at `other`
   among the leaves, then the weights. */
static const char *name_of(const FusewrightPackage *package, const Write *write, int64_t other)
{
    if (other < package->leaf_count) {
        return package->leaves[other].name;
    }
    return write->is_weight ? "of the package" : package->leaves[write->index].name;
}

/* Whether what is written shares no memory: `spans` are those of the leaves, then the weights. */
static bool check_spans(Call *call, const Span *spans)
{
    const FusewrightPackage *package = call->package;
    int64_t count = package->leaf_count + package->weight_count;
    for (int64_t i = 0; i < package->write_count; i++) {
        const Write *write = &package->writes[i];
        int64_t place = write->index + (write->is_weight ? package->leaf_count : 0);
        Span written = spans[place];
        if (!written.has_memory) {
            return package_refuse(call, "a tensor that is written to has no memory");
        }
        for (int64_t j = 0; j < count; j++) {
            bool is_shared = j != place && spans[j].has_memory && written.begin < spans[j].end &&
                             spans[j].begin < written.end;
            if (is_shared) {
                return package_refuse(call, "input %s lies in memory of a tensor that is written to",
                                      name_of(package, write, j));
            }
        }
    }
    return true;
}

bool package_check_writes(Call *call, const AtenTensorHandle *given)
{
    const FusewrightPackage *package = call->package;
    if (package->write_count == 0) {
        return true;
    }
    int64_t leaves = package->leaf_count, count = leaves + package->weight_count;
    Span *spans = calloc((size_t)count, sizeof *spans);
    if (spans == NULL) {
        return package_refuse(call, "there is no memory for a call");
    }
    for (int64_t i = 0; i < count; i++) {
        spans[i] = span_of(i < leaves ? given[i] : package->weights[i - leaves]);
    }
    bool is_right = check_spans(call, spans);
    free(spans);
    return is_right;
}

bool package_write_values(Call *call, const AtenTensorHandle *given)
{
    for (int64_t i = 0; i < call->package->write_count; i++) {
        const Write *write = &call->package->writes[i];
        AtenTensorHandle own =
            write->is_weight ? call->package->weights[write->index] : call->leaves[write->index];
        AtenTensorHandle value =
            write->output < call->returned_count ? call->returned[write->output] : NULL;
        if (value == NULL || torch.copy(own, value, 0) != 0 ||
            (!write->is_weight && torch.copy(given[write->index], own, 0) != 0)) {
            return package_refuse(call, "a tensor cannot be written to");
        }
    }
    return true;
}
