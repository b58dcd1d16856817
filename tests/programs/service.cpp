/* service RECORD leaky|mended: a service that serves 10,000 requests for each command.

   Each request opens a session, which the next one with its number should replace. `leaky` has two faults: every third request fails,
   and its Reply is lost on the way out; sessions are entered under a number that never comes again, so that none is ever removed.
   `mended` has neither. */

#include <map>
#include <string>

extern "C" {
#include "stage.h"
}

struct Session {
    virtual ~Session() {}
    std::string user, token;
};

struct Reply {
    virtual ~Reply() {}
    char text[600];
    Reply *next = nullptr;
};

std::map<unsigned, Session *> g_sessions;
static bool leaky;
static unsigned served;
static void *volatile record; /* what nothing points to would be listed as lost */

__attribute__((noinline)) static bool answer(Reply *reply, bool fails)
{
    memset(reply->text, 'r', sizeof reply->text);
    return !fails;
}

__attribute__((noinline)) static void serve(unsigned number)
{
    Reply *reply = new Reply;
    Session *&session = g_sessions[leaky ? number : number % 500];

    delete session;
    session = new Session;
    session->user = "somebody with a name that takes a block, number " + std::to_string(number);
    session->token.assign(100, 't');
    if (!answer(reply, number % 3 == 0) && leaky)
        return; /* the reply is lost */
    delete reply;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        stage_fail("usage: service RECORD leaky|mended");
    leaky = !strcmp(argv[2], "leaky");
    record = stage_record(argv[1], 8);
    (void)record;
    for (;;) {
        for (unsigned i = 0; i < 10000; i++)
            serve(served++);
        stage_deepen();
        stage_ready(1);
        stage_command();
    }
}
