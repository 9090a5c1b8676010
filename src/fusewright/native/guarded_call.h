/* Runs machine code that may touch memory which it must not. */
#ifndef FUSEWRIGHT_GUARDED_CALL_H
#define FUSEWRIGHT_GUARDED_CALL_H

#include "cpu_kernel.h"

/* Call `function`, and return 1 where it stopped at an access to memory that may not be touched,
   whose address is then in `touched`; 0 where it returned, with its result in `fault`. -1 with
   OSError. By one thread at a time. */
int guarded_call(KernelFunction function, void **arguments, int64_t begin, int64_t end,
                 int64_t *fault, void **touched);

#endif
