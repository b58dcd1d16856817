#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
struct node { struct node *next; char *text; } *volatile head;
int main(void)
{
    const int lengths[] = {30, 60, 61, 100, 400, 20000};
    for (int kind = 0; kind < 6; kind++)
        for (int i = 0; i < 100; i++) {
            char *text = malloc(lengths[kind] + 1);
            memset(text, 'x', lengths[kind]);
            text[lengths[kind]] = 0;
            text[sprintf(text, kind % 2 ? "{\n  \"id\": %d" : "GET /index %d", kind)] = 'x';
            struct node *node = malloc(sizeof *node);
            node->text = text, node->next = head, head = node;
        }
    (void) !write(1, "ready\n", 6);
    return pause();
}
