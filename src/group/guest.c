/* Meeting rank 0, as a guest. */
#include <errno.h>
#include <unistd.h>

#include "base/clock.h"
#include "group/hello.h"
#include "group/meeting.h"
#include "group/wire.h"

/* A host that closes before it says welcome has not taken this rank in: it was about to end, or to begin. */
static int introduce(struct mm_meeting *meeting) {
    const struct mm_hello hello = mm_hello_of(meeting->group, mm_now() - meeting->started);
    int error = mm_wire_send(meeting->host, &hello, sizeof hello, mm_answers_deadline(meeting));
    char welcome;
    return error != 0 ? error : mm_wire_receive(meeting->host, &welcome, sizeof welcome, mm_answers_deadline(meeting));
}

static mmoe_status failed(const struct mm_meeting *meeting, int error) {
    const bool nobody_there =
        error == ENOENT || error == ECONNREFUSED || error == ECONNRESET || error == EAGAIN || error == EINTR;
    return nobody_there ? MMOE_OK : mm_meeting_lost(meeting, 0, error);
}

mmoe_status mm_guest_knock(struct mm_meeting *meeting, bool *welcome) {
    int error = 0;
    meeting->host = mm_place_connect(&meeting->place, &error);
    if (meeting->host < 0) {
        return failed(meeting, error);
    }
    error = mm_wire_same_user(meeting->host) ? introduce(meeting) : EPERM;
    if (error != 0) {
        close(meeting->host);
        meeting->host = -1;
        return failed(meeting, error);
    }
    *welcome = true;
    return MMOE_OK;
}
