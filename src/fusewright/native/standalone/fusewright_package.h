/* Runs a package that fusewright has compiled ahead of time, from C or C++, without Python: with
   libtorch alone, through its stable C functions.

       char message[200];
       FusewrightPackage *package = fusewright_package_load("model.fwp", "forward", message, 200);
       AtenTensorHandle inputs[] = {...}, outputs[1];
       if (fusewright_package_run(package, inputs, outputs, message, 200) == 0) { ... }

   Build all C files of this folder with the program, and link it with libtorch_cpu and libc10.
   examples/run_package.cpp is such a program. */
#ifndef FUSEWRIGHT_PACKAGE_H
#define FUSEWRIGHT_PACKAGE_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A tensor, as torch/csrc/inductor/aoti_torch/c/shim.h has it: in C++, the address of an
   at::Tensor. */
struct AtenTensorOpaque;
typedef struct AtenTensorOpaque *AtenTensorHandle;

typedef struct FusewrightPackage FusewrightPackage;

/* An entry point of a package. NULL, with a sentence in `message`, where the file is damaged, for
   another version of torch or another processor, or needs what only Python has. Nothing of it has
   been executed then. */
FusewrightPackage *fusewright_package_load(const char *path, const char *entry, char *message,
                                           size_t message_size);

/* Tensors that a call takes, and returns: those among the arguments and results of the program, in
   the order in which they stand there. */
size_t fusewright_package_input_count(const FusewrightPackage *package);
size_t fusewright_package_output_count(const FusewrightPackage *package);

/* How the program's author writes an input, such as `input_ids` or `x['mask'][0]`. */
const char *fusewright_package_input_name(const FusewrightPackage *package, size_t position);

/* Run it. `inputs` stay the caller's; `outputs` become the caller's, to be deleted. 0; or -1 with a
   sentence in `message`, which names an input that the package was not made for. Any number of
   threads may run one package at a time. */
int fusewright_package_run(const FusewrightPackage *package, const AtenTensorHandle *inputs,
                           AtenTensorHandle *outputs, char *message, size_t message_size);

void fusewright_package_free(FusewrightPackage *package);

#ifdef __cplusplus
}
#endif

#endif
