/* What a multiprocessor's time went to; see trace_account.h. */
#include "trace_account.h"

const char *const trace_account_name[TRACE_ACCOUNTS] = {"kernels", "multiply", "stage",   "sum",  "stages", "room",
                                                        "tasks",   "results",  "nothing", "rows", "inner",  "tokens"};

void trace_account_of(const struct trace_call *call, double us[TRACE_ACCOUNTS]) {
    const double *consumer = call->spent[MMOE_TRACE_CONSUMER], *waits = call->waited[MMOE_TRACE_CONSUMER];
    const double *finisher = call->spent[MMOE_TRACE_FINISHER], *loader = call->spent[MMOE_TRACE_LOADER];
    us[TRACE_ACCOUNT_KERNELS] = trace_length_us(&call->trace);
    us[TRACE_ACCOUNT_MULTIPLY] = trace_multiplying_us(call);
    us[TRACE_ACCOUNT_SUM] = trace_total(consumer, MMOE_TRACE_COPY_DW, MMOE_TRACE_SUM) +
                            trace_total(finisher, MMOE_TRACE_COPY_DW, MMOE_TRACE_SUM);
    us[TRACE_ACCOUNT_STAGES] = trace_total(waits, MMOE_TRACE_MULTIPLY_GATE_UP, MMOE_TRACE_MULTIPLY_WGRAD);
    us[TRACE_ACCOUNT_ROOM] = trace_total(waits, MMOE_TRACE_STAGE_GATE_UP, MMOE_TRACE_DIFFERENTIATE);
    us[TRACE_ACCOUNT_STAGE] =
        trace_total(consumer, MMOE_TRACE_STAGE_GATE_UP, MMOE_TRACE_DIFFERENTIATE) - us[TRACE_ACCOUNT_ROOM];
    us[TRACE_ACCOUNT_TASKS] = consumer[MMOE_TRACE_AWAIT_TASK];
    us[TRACE_ACCOUNT_RESULTS] = consumer[MMOE_TRACE_AWAIT_RESULTS] + finisher[MMOE_TRACE_AWAIT_RESULTS];
    us[TRACE_ACCOUNT_NOTHING] =
        us[TRACE_ACCOUNT_KERNELS] - trace_total(consumer, 0, MMOE_TRACE_SUM) - trace_total(finisher, 0, MMOE_TRACE_SUM);
    us[TRACE_ACCOUNT_ROWS] = loader[MMOE_TRACE_AWAIT_ROWS];
    us[TRACE_ACCOUNT_INNER] = trace_total(loader, MMOE_TRACE_AWAIT_H, MMOE_TRACE_AWAIT_GRADIENTS);
    us[TRACE_ACCOUNT_TOKENS] = call->spent[MMOE_TRACE_FETCHER][MMOE_TRACE_AWAIT_TOKENS];
}
