// A level of a breadth-first search: nodes of the level mark their neighbours, then marked nodes become the next level.

kernel void Kernel(const global ulong *d_graph_nodes, const global uint *d_graph_edges, global uchar *d_graph_mask,
                   global uchar *d_updating_graph_mask, const global uchar *d_graph_visited, global uint *d_cost)
{
    size_t node = get_global_id(0);
    if (!d_graph_mask[node])
        return;
    d_graph_mask[node] = 0;
    // The node's first edge, and in the upper half how many it has.
    ulong edges = d_graph_nodes[node];
    uint first = edges, count = edges >> 32, cost = d_cost[node] + 1;
    for (uint edge = first; edge < first + count; edge++) {
        uint other = d_graph_edges[edge];
        if (!d_graph_visited[other]) {
            d_cost[other] = cost;
            d_updating_graph_mask[other] = 1;
        }
    }
}

kernel void Kernel2(global uchar *d_graph_mask, global uchar *d_updating_graph_mask, global uchar *d_graph_visited)
{
    size_t node = get_global_id(0);
    if (d_updating_graph_mask[node]) {
        d_graph_mask[node] = 1;
        d_graph_visited[node] = 1;
        d_updating_graph_mask[node] = 0;
    }
}
