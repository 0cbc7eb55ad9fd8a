// Breadth-first search from node 0 of a graph of argv[1] nodes with argv[2] edges each, a level per launch: the kernels of
// Rodinia's bfs (Che et al., IISWC 2009), written anew. Edges come from a generator with a fixed seed.
#include "host.h"
#include <string.h>

static const char *source =
    "kernel void visit(global const int *starts, global const int *edges, global char *mask,\n"
    "                  global char *updating, global const char *visited, global int *cost, int nodes) {\n"
    "    int node = get_global_id(0);\n"
    "    if (node < nodes && mask[node]) {\n"
    "        mask[node] = 0;\n"
    "        for (int i = starts[node]; i < starts[node + 1]; i++) {\n"
    "            int next = edges[i];\n"
    "            if (!visited[next]) {\n"
    "                cost[next] = cost[node] + 1;\n"
    "                updating[next] = 1;\n"
    "            }\n"
    "        }\n"
    "    }\n"
    "}\n"
    "kernel void update(global char *mask, global char *updating, global char *visited, global int *over, int nodes) {\n"
    "    int node = get_global_id(0);\n"
    "    if (node < nodes && updating[node]) {\n"
    "        mask[node] = 1;\n"
    "        visited[node] = 1;\n"
    "        *over = 1;\n"
    "        updating[node] = 0;\n"
    "    }\n"
    "}\n";

int main(int argc, char **argv)
{
    int nodes = argc > 1 ? atoi(argv[1]) : 4096, degree = argc > 2 ? atoi(argv[2]) : 6;
    int *starts = malloc(4 * (nodes + 1)), *edges = malloc(4L * nodes * degree), *cost = malloc(4 * nodes);
    char *mask = calloc(nodes, 1), *none = calloc(nodes, 1);
    unsigned long random = 1;
    for (int i = 0; i <= nodes; i++)
        starts[i] = i * degree;
    for (int i = 0; i < nodes * degree; i++) {
        random = random * 6364136223846793005UL + 1442695040888963407UL;
        edges[i] = (random >> 33) % nodes;
    }
    for (int i = 0; i < nodes; i++)
        cost[i] = i ? -1 : 0;
    mask[0] = 1;
    start(source);
    cl_mem d_starts = buffer(4 * (nodes + 1), starts), d_edges = buffer(4L * nodes * degree, edges);
    cl_mem d_mask = buffer(nodes, mask), d_updating = buffer(nodes, none), d_visited = buffer(nodes, mask);
    cl_mem d_cost = buffer(4 * nodes, cost), d_over = buffer(4, NULL);
    cl_kernel visit = clCreateKernel(program, "visit", NULL), update = clCreateKernel(program, "update", NULL);
    cl_mem of_visit[] = {d_starts, d_edges, d_mask, d_updating, d_visited, d_cost};
    cl_mem of_update[] = {d_mask, d_updating, d_visited, d_over};
    for (int i = 0; i < 6; i++)
        clSetKernelArg(visit, i, sizeof(cl_mem), &of_visit[i]);
    for (int i = 0; i < 4; i++)
        clSetKernelArg(update, i, sizeof(cl_mem), &of_update[i]);
    clSetKernelArg(visit, 6, sizeof nodes, &nodes);
    clSetKernelArg(update, 4, sizeof nodes, &nodes);
    size_t items = (nodes + 255) / 256 * 256;
    int over, levels = 0;
    do {
        over = 0;
        check(clEnqueueWriteBuffer(queue, d_over, CL_TRUE, 0, 4, &over, 0, NULL, NULL), "write");
        launch(visit, items, 256);
        launch(update, items, 256);
        check(clEnqueueReadBuffer(queue, d_over, CL_TRUE, 0, 4, &over, 0, NULL, NULL), "read");
        levels++;
    } while (over);
    check(clEnqueueReadBuffer(queue, d_cost, CL_TRUE, 0, 4 * nodes, cost, 0, NULL, NULL), "read");
    // The same by a queue.
    int *found = malloc(4 * nodes), *line = malloc(4 * nodes), head = 0, tail = 0;
    memset(found, -1, 4 * nodes);
    found[0] = 0, line[tail++] = 0;
    while (head < tail) {
        int node = line[head++];
        for (int i = starts[node]; i < starts[node + 1]; i++)
            if (found[edges[i]] < 0)
                found[edges[i]] = found[node] + 1, line[tail++] = edges[i];
    }
    for (int i = 0; i < nodes; i++)
        if (found[i] != cost[i]) {
            fprintf(stderr, "node %d: %d instead of %d\n", i, cost[i], found[i]);
            return 2;
        }
    printf("%d levels\n", levels);
    return 0;
}
