/* The whole suite, in the order in which it runs: what others stand on comes first. */
#include "case.h"

namespace conformance {

case_list all_cases() {
    case_list cases;
    add_warp_cases(cases);
    add_memory_cases(cases);
    add_arithmetic_cases(cases);
    add_sync_cases(cases);
    add_matrix_cases(cases);
    add_mbarrier_cases(cases);
    add_bulk_cases(cases);
    add_tma_load_cases(cases);
    add_tma_store_cases(cases);
    add_message_cases(cases);
    add_wgmma_cases(cases);
    add_pipeline_cases(cases);
    return cases;
}

} // namespace conformance
