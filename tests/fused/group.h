/* Ranks of a group, each on a simulated GPU of one machine, that make whole calls, forwards and backwards, with the
 * kernels alone, in the order in which the host launches them. Nothing is reset between two calls. */
#ifndef TESTS_FUSED_GROUP_H
#define TESTS_FUSED_GROUP_H

#include <memory>
#include <string>
#include <vector>

#include "kernels/backward_params.h"
#include "kernels/enter_params.h"
#include "kernels/forward_params.h"
#include "layer.h"
#include "sim/sim.h"

enum class y_layout { CONTIGUOUS, GAPS, ODD_GAPS, COLUMNS };

struct group_options {
    unsigned world = 1;
    int64_t max_tokens = 0;
    uint32_t row_room = 0; /* at first; 0: enough for every routing */
    uint32_t capacity = PLAN_NO_CAPACITY;
    bool drop = false;
    bool keep = false;                /* x, gate and up; a backward fetches and computes them again */
    bool grouped = false;             /* forwards over several ranks sum what a rank computed of a token there */
    bool narrow = false;              /* gradients of weights in bf16, */
    bool accumulate = false;          /* added to what is there */
    std::vector<unsigned> omit = {0}; /* gradients that rank r % size leaves out, a bit each */
    bool map_an_expert = false;       /* weights as a tensor map an expert */
    bool callers_x = false;           /* a rank's own tokens are read where the caller has them */
    bool programmatic = false;        /* launches that may start early */
    bool one_told = false;            /* what is told of all calls of a rank is told in one place */
    y_layout layout = y_layout::CONTIGUOUS;
    unsigned enter_ctas = 2, chunks = 2, warps = 2;
    uint32_t counted = 0; /* where all counters stand at first, the number of the last call too */
    std::vector<unsigned> ctas = {2}, backward_ctas = {2}; /* of the large kernels, rank r % size */
    uint64_t arrive_ns = 600ull * 1000 * 1000 * 1000, progress_ns = 30ull * 1000 * 1000 * 1000;
};

/* The kernels of a call, in order: from OPEN to FORWARD, or from OPEN to MEET and then from RESUME on. In the place of
 * one there may be another: mm_forward as it is launched before the host knows whether there is room, or what tells
 * that the host gives up. */
enum call_stage {
    OPEN,
    ENTER,
    MEET,
    COUNT,
    PLACE,
    FORWARD,
    RESUME,
    ROWS,    /* mm_backward */
    WEIGHTS, /* their gradients */
    END,
    SPOIL, /* those of a backward that has failed */
    FORWARD_IF_ROOM,
    GIVE_UP
};

/* What a rank does otherwise than it should. */
struct misdeed {
    uint32_t agreed = 0;      /* added to a word of the header that all ranks must agree on */
    int32_t status = 0;       /* of the header */
    uint64_t combine = 0;     /* bytes added to where it pushes results */
    int32_t result_tiles = 0; /* added to how often the plan believes that a row arrives */
    int32_t h_tiles = 0;      /* added to how many tiles the plan believes a block of activations has, */
    int32_t dgrad_tiles = 0;  /* or a block of gradients of gate and up */
    int32_t wants_dw = 0;     /* added to how often it believes that a dw arrives */
    uint64_t dw = 0;          /* bytes added to where it pushes dw */
    bool no_tokens = false;   /* does not copy them to its slot */
    bool stale = false;       /* takes its own tokens, or their gradients, from where those of a call before are */
    bool swapped = false;     /* keeps gate for up and up for gate; backward: stores their gradients so, */
    bool swapped_in = false;  /* or reads them so */
};

using gradient_bits = std::vector<std::vector<uint32_t>>;

/* What element `element` of a gradient of weights is before it is added to: exact in bf16, and -0 where it is zero,
 * which adding 0 would change. */
float gradient_start(size_t element);

class fused_group {
  public:
    fused_group(const fused_layer &layer, const group_options &group, const sim::options &machine);

    /* Buffers of a call on all ranks: inputs there, outputs filled with `poison`. */
    size_t prepare(const fused_batch &batch, unsigned char poison = 0xff);
    /* The backward of a forward, which is the last one before it. */
    size_t prepare_backward(size_t forward, const fused_batch &batch, unsigned char poison = 0xff);
    /* Queues the kernels of a call on a rank's stream, or those of first .. last. */
    void launch(size_t call, unsigned rank);
    void launch(size_t call, unsigned rank, call_stage first, call_stage last);
    void launch_all(size_t call);
    /* All ranks, with room that grows: mm_forward is launched for the room there is, and again when the plan turns out
     * to need more. "": launched without a fault. */
    std::string launch_growing(size_t call);
    /* In the order of the rank's stream: everything that a forward, or a backward, writes in this rank's pools, plan
     * and slots of results. */
    void poison(unsigned rank, unsigned char value);
    void poison_for_backward(unsigned rank, unsigned char value);
    /* "": all that was launched has ended without a fault. */
    std::string finish();

    /* What the rank's host was told of the call, and the last of it: CALL_GOOD unless that call failed. */
    bool is_backward(size_t call) const { return calls[call].backward; }
    call_told told(size_t call, unsigned rank);
    /* The rank's host takes note of a failure that it was told of. */
    void see(unsigned rank, uint32_t number);
    call_result result(size_t call, unsigned rank);
    uint32_t number_of(size_t call) const { return how.counted + (uint32_t)call + 1; }
    /* "": the rank was told of a good call, nothing but its y was written and, of exact layers, y is the expected one.
     */
    std::string check_good(size_t call, unsigned rank, const fused_batch &batch, const std::vector<double> &expected);
    std::string check_good(size_t call, const fused_batch &batch);
    /* What the rank's y holds: its elements; *untouched says whether all between them is still poison. */
    std::vector<uint16_t> y(size_t call, unsigned rank, bool *untouched);
    std::vector<uint16_t> all_y(size_t call);
    /* The same of a backward's gradients: the expected ones of exact layers, within a relative error of others. */
    std::string check_backward(size_t call, const fused_batch &batch, double bound);
    /* Bits of all ranks' gradients. */
    gradient_bits all_gradients(size_t call);
    /* What a failed backward must leave: NaN, or what was there. `added`: gradients of weights have a part. */
    std::string check_spoilt(size_t call, unsigned rank, bool added);
    plan_summary summary(unsigned rank);
    /* After the last call: "" when the kept rows are the tokens, gate and up what the oracle's formula gives, pads
     * zero, and combine slots without a result still `poison`. */
    std::string check_kept(const fused_batch &batch);
    std::string check_combine(const fused_batch &batch, unsigned char poison);
    /* After a backward: slots whose results nobody wanted are still `poison`. */
    std::string check_unsent(const fused_batch &batch, unsigned char poison);

    sim::machine &machine() { return gpus; }
    const group_options &options() const { return how; }
    misdeed &misdeed_of(unsigned rank) { return ranks[rank].wrong; }

  private:
    struct rank_memory {
        uint32_t row_room;
        call_state *state;
        call_work work;
        uint32_t *first_faults, *ctas_done, *ctas_copied, *chunk_counts;
        sim::stream side; /* where its tokens are copied */
        sim::event copied;
        unsigned char *x_rows, *h, *gate_up, *dy_rows, *dgrad;
        float *dw_parts;
        plan_tables tables;
        plan_rows rows;
        plan_slots slots;
        int32_t *token_rows;
        tensor_map x_map, h_map, h_out, gate_out, up_out;
        weight_map gate, up, down, gate_by_columns, up_by_columns, down_by_columns;
        misdeed wrong;
    };
    struct rank_call {
        uint16_t *x, *y;
        int64_t *ids;
        float *weights;
        call_told *told;
        uint32_t tokens;
        /* of a backward */
        uint16_t *dy, *dx;
        float *dweights;
        unsigned char *dweight[3]; /* dgate, dup, ddown, [El, rows, columns] */
    };
    struct prepared_call {
        std::vector<rank_call> ranks;
        unsigned char poison;
        bool backward;
    };

    template <class type> type *room(unsigned rank, size_t count) {
        return (type *)gpus.allocate((int)rank, count * sizeof(type) + 1);
    }
    template <class type> type *zeros(unsigned rank, size_t count) {
        type *memory = room<type>(rank, count);
        gpus.fill(memory, 0, count * sizeof(type));
        return memory;
    }
    template <class type> type *copy_of(unsigned rank, const type *from, size_t count) {
        type *memory = room<type>(rank, count);
        if (count > 0)
            gpus.write(memory, from, count * sizeof(type));
        return memory;
    }
    void count_from(void *memory, size_t bytes);
    void lay_segments();
    void make_rank(unsigned rank);
    void make_room(unsigned rank, uint32_t rows);
    weight_map map_weight(unsigned rank, const std::vector<uint16_t> &weight, bool is_down, bool by_columns);
    tensor_map rows_map(const void *pool, uint64_t columns, uint64_t pitch, unsigned rank, uint32_t box_rows) const;
    strided_matrix y_matrix(const rank_call &call) const;
    size_t y_elements(const rank_call &call) const;
    call_told *make_told(unsigned rank);
    call_group group_of(size_t call, unsigned rank) const;
    enter_params enter_of(size_t call, unsigned rank) const;
    copy_params copy_of(size_t call, unsigned rank) const;
    bool sums_on_ranks() const { return how.grouped && how.world > 1; }
    bool copies() const; /* somebody reads tokens in their slots */
    void launch_copy(size_t call, unsigned rank);
    bool wants(unsigned rank, gradient which) const;
    bool wants_weights(unsigned rank) const { return wants(rank, DGATE) || wants(rank, DUP) || wants(rank, DDOWN); }
    size_t gradient_bytes() const { return how.narrow ? sizeof(uint16_t) : sizeof(float); }
    size_t matrix_elements() const { return (size_t)(layer.hidden * layer.intermediate); }
    size_t local_experts() const { return (size_t)layer.experts / how.world; }
    resume_params resume_of(size_t call, unsigned rank) const;
    backward_params backward_of(size_t call, unsigned rank) const;
    wgrad_params wgrad_of(size_t call, unsigned rank, bool down, bool closing) const;
    backward_end_params end_of(size_t call, unsigned rank) const;
    void launch_weights(size_t call, unsigned rank, bool closing);
    void launch_backward_stage(size_t call, unsigned rank, call_stage stage);
    void write_start(unsigned char *gradient, size_t count);
    size_t gradient_size(size_t call, unsigned rank, gradient which) const;
    uint32_t untouched_bits(size_t call, gradient which, size_t element) const;
    std::vector<uint32_t> bits_of(size_t call, unsigned rank, gradient which);
    double value_of(uint32_t bits, gradient which) const;
    double expected_value(const fused_gradients &all, const fused_batch &batch, unsigned rank, gradient which,
                          size_t element) const;
    std::string check_gradient(size_t call, gradient which, const fused_batch &batch, const fused_gradients &all,
                               double bound);
    plan_params plan_of(size_t call, unsigned rank) const;
    fused_call fused_of(size_t call, unsigned rank) const;
    forward_params forward_of(size_t call, unsigned rank, bool tentative) const;
    void launch_stage(size_t call, unsigned rank, call_stage stage);

    const fused_layer &layer;
    const group_options how;
    sim::machine gpus;
    uint32_t most_rows, h_tiles, result_tiles; /* padded rows of any routing */
    uint64_t x_slot, dy_slot, ids_slot, weights_slot, combine, dw, segment_bytes;
    std::vector<unsigned char *> segments;
    std::vector<rank_memory> ranks;
    std::vector<prepared_call> calls;
};

#endif
