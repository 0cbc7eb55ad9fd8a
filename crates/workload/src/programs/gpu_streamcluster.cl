// What opening a centre would save each point: those that change over write it, others add it to what their own centre's end
// would cost.
//
// A point's record has eight words, of which three are read: weight, centre and cost.

kernel void compute_cost(const global uint *coord_d, const global uint *p, global uint *switch_membership_d,
                         global uint *work_mem_d, const global uint *center_table_d, ulong dimensions, ulong centres,
                         ulong candidate, ulong launch)
{
    local uint centre[4096];
    size_t point = get_global_id(0), points = get_global_size(0);
    if (get_local_id(0) == 0)
        for (ulong dimension = 0; dimension < dimensions; dimension++)
            centre[dimension] = coord_d[dimension * points + candidate];
    barrier(CLK_LOCAL_MEM_FENCE);
    uint distance = 0;
    for (ulong dimension = 0; dimension < dimensions; dimension++) {
        uint difference = coord_d[dimension * points + point] - centre[dimension];
        distance += difference * difference;
    }
    uint weight = p[8 * point], cost = p[8 * point + 6], assigned = p[8 * point + 4];
    uint saved = cost - weight * distance;
    global uint *costs = work_mem_d + point * (centres + 1);
    // Every eighth point gains, by its number.
    if ((point % 32 + point / 32 + launch) % 8 == 0) {
        switch_membership_d[point] = assigned + 1;
        costs[centres] = saved;
    } else {
        costs[center_table_d[assigned]] += saved;
    }
}
