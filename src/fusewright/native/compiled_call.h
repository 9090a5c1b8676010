/* CompiledCall: a callable whose calls run under a frame compiler, without Python code of its own. */
#ifndef FUSEWRIGHT_COMPILED_CALL_H
#define FUSEWRIGHT_COMPILED_CALL_H

#include "frame_compiler.h"

extern PyTypeObject CompiledCall_Type;

#endif
