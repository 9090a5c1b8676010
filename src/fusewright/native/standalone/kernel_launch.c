/* Launches of compiled kernels on torch's threads. */
#include "kernel_launch.h"

#include "package_torch.h"

typedef struct {
    KernelFunction function;
    void **arguments;
    int64_t units, fault;
} Launch;

static void run_share(void *data)
{
    Launch *launch = data;
    int64_t team = torch.team_size(), share = (launch->units + team - 1) / team;
    int64_t begin = torch.thread_number() * share;
    int64_t end = begin + share < launch->units ? begin + share : launch->units;
    int64_t fault = begin < end ? launch->function(launch->arguments, begin, end) : 0;
    if (fault != 0) {
        __atomic_store_n(&launch->fault, fault, __ATOMIC_RELAXED);
    }
}

int64_t kernel_launch(KernelFunction function, void **arguments, int64_t units, int64_t grain)
{
    Launch launch = {function, arguments, units, 0};
    int64_t threads = 1;
    if (units > grain && torch.parallel != NULL && torch.team_size != NULL &&
        torch.thread_number != NULL && torch.in_parallel != NULL && !torch.in_parallel()) {
        int64_t shares = (units - 1) / grain + 1, most = torch.thread_count();
        threads = shares < most ? shares : most;
    }
    if (threads > 1) {
        torch.parallel(run_share, &launch, (unsigned)threads, 0);
    } else if (units > 0) {
        launch.fault = function(arguments, 0, units);
    }
    return launch.fault;
}
