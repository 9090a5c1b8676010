/* Launches of compiled kernels, shared among the threads of the OpenMP that torch runs on. */
#ifndef FUSEWRIGHT_KERNEL_LAUNCH_H
#define FUSEWRIGHT_KERNEL_LAUNCH_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A kernel's machine code: does the units of work from `begin` to before `end`; 0, or the code of a
   fault. The arguments are addresses of tensors' data, then sizes. */
typedef int64_t (*KernelFunction)(void **arguments, int64_t begin, int64_t end);

/* Codes of faults, as kernels/llvm/values.py writes them. The kernel has gone on with element 0 or
   divisor 1 instead. */
enum { INDEX_OUT_OF_RANGE = 1, DIVISION_BY_ZERO = 2 };

/* Run all units; no thread gets fewer than `grain` of them. 0, or the code of a fault of any. */
int64_t kernel_launch(KernelFunction function, void **arguments, int64_t units, int64_t grain);

#ifdef __cplusplus
}
#endif

#endif
