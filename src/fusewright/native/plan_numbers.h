/* Operations of a CallPlan on numbers; plan_operations.c has their names and operands. */
#ifndef FUSEWRIGHT_PLAN_NUMBERS_H
#define FUSEWRIGHT_PLAN_NUMBERS_H

#include "call_plan.h"

int plan_add(PlanFrame *frame, const int64_t *operands);
int plan_multiply(PlanFrame *frame, const int64_t *operands);
int plan_floor_divide(PlanFrame *frame, const int64_t *operands);
int plan_remainder(PlanFrame *frame, const int64_t *operands);
int plan_minimum(PlanFrame *frame, const int64_t *operands);
int plan_maximum(PlanFrame *frame, const int64_t *operands);
int plan_read_number(PlanFrame *frame, const int64_t *operands);
int plan_read_size(PlanFrame *frame, const int64_t *operands);
int plan_read_stride(PlanFrame *frame, const int64_t *operands);
int plan_make_integer(PlanFrame *frame, const int64_t *operands);

#endif
