/* The values of a call of a CallPlan. */
#ifndef FUSEWRIGHT_PLAN_SLOTS_H
#define FUSEWRIGHT_PLAN_SLOTS_H

#include "call_plan.h"

static inline void plan_slot_clear(PlanSlot *slot)
{
    PlanSlot held = *slot;
    *slot = (PlanSlot){0}; /* first: what dies may run code */
    if (held.object != NULL) {
        Py_DECREF(held.object);
    } else if (held.handle != NULL) {
        torch_library.delete_tensor(held.handle);
    }
}

/* Hold `object`, whose reference is taken. -1 where it is NULL: an exception is set. */
static inline int plan_slot_set(PlanSlot *slot, PyObject *object)
{
    if (object == NULL) {
        return -1;
    }
    plan_slot_clear(slot);
    slot->object = object;
    slot->handle = tensor_access_is_tensor(object) ? tensor_access_handle(object) : NULL;
    return 0;
}

/* The object, borrowed; that of a tensor which had none is made. NULL with an exception. */
static inline PyObject *plan_slot_object(PlanSlot *slot)
{
    if (slot->object != NULL) {
        return slot->object;
    }
    if (slot->handle == NULL) {
        PyErr_SetString(PyExc_SystemError, "an operation of a plan reads an empty slot");
        return NULL;
    }
    PyObject *object = torch_library.wrap_tensor(slot->handle);
    return plan_slot_set(slot, object) < 0 ? NULL : object;
}

/* The slot at an operand: of the call, or a constant's. */
static inline PlanSlot *slot_at(const PlanFrame *frame, int64_t place)
{
    return place >= 0 ? &frame->slots[place] : &frame->plan->constants[~place];
}

#endif
