// Runs a package without Python: a row of tokens through a model that was packaged with inputs
// `input_ids` and `attention_mask`. docs/packages.md says how it is built.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include "fusewright_package.h"

static AtenTensorHandle tensor_of(std::vector<int64_t> &values)
{
    int64_t sizes[] = {1, (int64_t)values.size()}, strides[] = {sizes[1], 1};
    AtenTensorHandle tensor;
    aoti_torch_create_tensor_from_blob(values.data(), 2, sizes, strides, 0,
                                       aoti_torch_dtype_int64(), aoti_torch_device_type_cpu(), 0,
                                       &tensor);
    return tensor;
}

int main(int argc, char **argv)
{
    char message[300];
    if (argc < 3) {
        std::printf("usage: %s PACKAGE TOKEN...\n", argv[0]);
        return 2;
    }
    FusewrightPackage *package =
        fusewright_package_load(argv[1], "forward", message, sizeof message);
    if (package == nullptr) {
        std::printf("%s\n", message);
        return 1;
    }
    std::vector<int64_t> tokens, mask(argc - 2, 1);
    for (int i = 2; i < argc; i++) {
        tokens.push_back(std::atoll(argv[i]));
    }
    for (size_t i = 0; i < fusewright_package_input_count(package); i++) {
        std::printf("input %s\n", fusewright_package_input_name(package, i));
    }
    std::vector<AtenTensorHandle> inputs = {tensor_of(tokens), tensor_of(mask)};
    std::vector<AtenTensorHandle> outputs(fusewright_package_output_count(package));
    int failed = fusewright_package_run(package, inputs.data(), outputs.data(), message,
                                        sizeof message);
    if (failed) {
        std::printf("%s\n", message);
    } else {
        void *data;
        int64_t count;
        aoti_torch_get_data_ptr(outputs[0], &data);
        aoti_torch_get_numel(outputs[0], &count);
        for (int64_t i = 0; i < count; i++) {
            std::printf("%.9g\n", static_cast<float *>(data)[i]);
        }
        for (AtenTensorHandle output : outputs) {
            aoti_torch_delete_tensor_object(output);
        }
    }
    for (AtenTensorHandle input : inputs) {
        aoti_torch_delete_tensor_object(input);
    }
    fusewright_package_free(package);
    return failed ? 1 : 0;
}
