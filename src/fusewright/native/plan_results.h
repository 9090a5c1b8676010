/* Memory that a caller has for the results of a plan. */
#ifndef FUSEWRIGHT_PLAN_RESULTS_H
#define FUSEWRIGHT_PLAN_RESULTS_H

#include "call_plan.h"

/* What the caller gave for an allocation, by its operands, borrowed: a tensor or None. NULL: it makes
   no result, or no memory is given (`results` is NULL). */
PyObject *plan_results_memory(const PlanResults *results, const int64_t *operands);

/* Tell the caller what was allocated instead. -1 with an exception where it is NULL. */
int plan_results_note(const PlanResults *results, const int64_t *operands, PyObject *tensor);

/* `plan.run_into(inputs, memory)` */
PyObject *plan_results_run_into(PyObject *plan, PyObject *args);

extern const char plan_results_run_into_doc[];

#endif
