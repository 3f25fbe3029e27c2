/* What a call reports. */
#include "phases.h"

#include "record.h"
#include "table.h"

const char *const phase_name[PHASES] = {"exchange", "plan",  "dispatch", "gate_up", "down",
                                        "dgrad",    "wgrad", "combine",  "fused",   "total"};

void phase_seconds(const mmoe_report *report, double seconds[PHASES]) {
    const double in_order[PHASES] = {report->seconds_exchange, report->seconds_plan,    report->seconds_dispatch,
                                     report->seconds_gate_up,  report->seconds_down,    report->seconds_dgrad,
                                     report->seconds_wgrad,    report->seconds_combine, report->seconds_fused,
                                     report->seconds_total};
    for (int p = 0; p < PHASES; p++)
        seconds[p] = in_order[p];
}

void phases_print(const mmoe_report *reports, int world, const char *title, FILE *file) {
    static const char *const headings[] = {"rank",     "rows",    "padded",   "dropped", "pulled", "pushed",
                                           "exchange", "plan",    "dispatch", "gate_up", "down",   "dgrad",
                                           "wgrad",    "combine", "fused",    "total",   NULL};
    struct table table;
    char text[24];
    fprintf(file, "%s, milliseconds\n", title);
    table_start(&table, headings);
    for (int r = 0; r < world; r++) {
        double seconds[PHASES];
        phase_seconds(&reports[r], seconds);
        table_cell(&table, "%d", r);
        table_cell(&table, "%lld", (long long)reports[r].rows);
        table_cell(&table, "%lld", (long long)reports[r].padded_rows);
        table_cell(&table, "%lld", (long long)reports[r].dropped);
        table_cell(&table, "%s", record_bytes_text((double)reports[r].bytes_pulled, text));
        table_cell(&table, "%s", record_bytes_text((double)reports[r].bytes_pushed, text));
        for (int p = 0; p < PHASES; p++)
            table_cell(&table, "%.3f", 1e3 * seconds[p]);
    }
    table_print(&table, file);
}

static json_t *report_record(const mmoe_report *report) {
    double seconds[PHASES];
    json_t *times = json_object();
    phase_seconds(report, seconds);
    for (int p = 0; p < PHASES; p++)
        json_object_set_new(times, phase_name[p], record_real(seconds[p]));
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:o}", "rows", (json_int_t)report->rows, "padded_rows",
                     (json_int_t)report->padded_rows, "dropped", (json_int_t)report->dropped, "bytes_pulled",
                     (json_int_t)report->bytes_pulled, "bytes_pushed", (json_int_t)report->bytes_pushed, "seconds",
                     times);
}

json_t *phases_record(const mmoe_report *reports, int world) {
    json_t *array = json_array();
    for (int r = 0; r < world; r++)
        json_array_append_new(array, report_record(&reports[r]));
    return array;
}
