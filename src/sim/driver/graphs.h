/* Streams that are captured: what would be queued is kept, as often as it is replayed. Not thread-safe. */
#ifndef SIM_DRIVER_GRAPHS_H
#define SIM_DRIVER_GRAPHS_H

#include <functional>
#include <memory>
#include <vector>

#include "cuda/driver_api.h"
#include "sim/sim.h"

namespace sim::driver {

class gpus;
struct stream;
struct event;

/* Work that a stream does, given to the simulator's stream whose turn it is. */
using work = std::function<void(gpus &, sim::stream)>;

/* A lane is a stream that took part; lane 0 is the one whose capture was begun. */
struct captured {
    enum { WORK, RECORD, WAIT } kind;
    size_t lane;
    work what;    /* of WORK */
    size_t event; /* of the others */
};

struct graph {
    std::vector<captured> all;
    std::vector<stream *> lanes;  /* while it is captured */
    std::vector<size_t> recorded; /* of each event: what its lane had done by then */
    std::vector<size_t> done;     /* of each lane: its number of works, */
    std::vector<size_t> joined;   /* and how many of them lane 0 waits for in the end */
};

/* Whether the stream is captured: then what it is given has been kept. */
bool keep_work(stream *s, const work &what);
bool keep_record(stream *s, event &e);
mm_cu_result keep_wait(stream *s, const event &e);

} // namespace sim::driver

#endif
