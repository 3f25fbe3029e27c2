/* The suite of tests/conformance on a GPU:
 *
 *     conformance_gpu CUBIN ...
 *
 * Cases run in a child process, one after another. When one hangs or leaves the GPU unusable, a new child goes on with
 * the next, a few times. Ends with a table; the exit status is 0 when every case passed, 2 when none could run. */
#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../conformance/report.h"
#include "gpu_machine.h"

using namespace conformance;

namespace {

enum { CASE_SECONDS = 60, CHILDREN = 8 };

/* What the child says to its parent, a line each: '+' passed, '-' and what is wrong, '!' and why nothing can run, '#'
 * and the machine. */
void say(int to, char what, std::string text) {
    for (char &letter : text)
        if (letter == '\n')
            letter = ' ';
    text = what + text + '\n';
    if (write(to, text.data(), text.size()) != (ssize_t)text.size())
        _exit(1);
}

std::string run_twice(machine &m, const test_case &c) {
    for (uint8_t poison : POISONS) {
        std::string wrong = run_case(m, c, poison);
        if (!wrong.empty())
            return wrong;
    }
    return "";
}

[[noreturn]] void run_from(size_t first, const case_list &cases, const std::vector<std::string> &cubins, int to) {
    gpu_machine gpu;
    const std::string unusable = gpu.open(cubins);
    if (!unusable.empty()) {
        say(to, '!', unusable);
        _exit(1);
    }
    say(to, '#', gpu.describe());
    for (size_t i = first; i < cases.size(); i++) {
        const std::string wrong = run_twice(gpu, cases[i]);
        say(to, wrong.empty() ? '+' : '-', wrong);
        if (!wrong.empty() && !gpu.usable())
            _exit(1);
    }
    _exit(0);
}

/* The next line from the child: false when it has ended or says nothing for too long. */
class line_reader {
  public:
    explicit line_reader(int from) : from_(from) {}

    bool next(std::string &line, std::string &why_not) {
        size_t end;
        while ((end = held_.find('\n')) == std::string::npos) {
            pollfd waiting = {from_, POLLIN, 0};
            char bytes[4096];
            if (poll(&waiting, 1, CASE_SECONDS * 1000) <= 0) {
                why_not = "no result after " + std::to_string(CASE_SECONDS) + " seconds";
                return false;
            }
            const ssize_t got = ::read(from_, bytes, sizeof bytes);
            if (got <= 0) {
                why_not = "the process ended";
                return false;
            }
            held_.append(bytes, (size_t)got);
        }
        line = held_.substr(0, end);
        held_.erase(0, end + 1);
        return true;
    }

  private:
    int from_;
    std::string held_;
};

class parent {
  public:
    parent(const case_list &cases, const std::vector<std::string> &cubins)
        : outcomes(cases.size()), cases_(cases), cubins_(cubins) {}

    /* false: nothing can run. */
    bool run() {
        for (int child = 0; child < CHILDREN && next_ < cases_.size(); child++) {
            int ends[2];
            if (pipe(ends) != 0)
                return false;
            const pid_t id = fork();
            if (id < 0)
                return false;
            if (id == 0) {
                close(ends[0]);
                run_from(next_, cases_, cubins_, ends[1]);
            }
            close(ends[1]);
            listen(ends[0]);
            close(ends[0]);
            kill(id, SIGKILL);
            waitpid(id, nullptr, 0);
            if (!unusable.empty())
                return false;
        }
        return true;
    }

    std::vector<outcome> outcomes;
    std::string machine_name, unusable;

  private:
    /* After a failure the child may go on or end; which of them, it says. */
    void listen(int from) {
        line_reader lines(from);
        std::string line, why_not;
        bool failed_last = false;
        while (next_ < cases_.size()) {
            if (!lines.next(line, why_not)) {
                if (!failed_last)
                    outcomes[next_++] = {verdict::failed, why_not};
                return;
            }
            const std::string text = line.substr(1);
            failed_last = line[0] == '-';
            if (line[0] == '!') {
                unusable = text;
                return;
            }
            if (line[0] == '#')
                machine_name = text;
            else
                outcomes[next_++] = {failed_last ? verdict::failed : verdict::passed, text};
        }
    }

    const case_list &cases_;
    const std::vector<std::string> &cubins_;
    size_t next_ = 0;
};

} // namespace

int main(int count, char **arguments) {
    const std::vector<std::string> cubins(arguments + 1, arguments + count);
    if (cubins.empty()) {
        std::fprintf(stderr, "usage: conformance_gpu CUBIN ...\n");
        return 2;
    }
    const case_list cases = all_cases();
    parent p(cases, cubins);
    if (!p.run()) {
        std::printf("conformance: not run: %s\n", p.unusable.empty() ? "no process could start" : p.unusable.c_str());
        return 2;
    }
    std::printf("conformance on %s\n", p.machine_name.c_str());
    return print_outcomes(cases, p.outcomes) ? 0 : 1;
}
