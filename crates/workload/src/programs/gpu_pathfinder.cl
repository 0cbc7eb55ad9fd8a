// Shortest paths through a grid, twenty rows in a launch: 216 columns are a work-group's own, and twenty on either side.

kernel void dynproc(const global uint *gpuWall, const global uint *gpuResult0, global uint *gpuResult1, ulong columns, ulong row)
{
    local uint paths[2][256];
    uint place = get_local_id(0);
    ulong column = get_group_id(0) * 216 + place - 20;
    // Columns left of the first are large numbers.
    bool is_inside = column < columns;
    uint best = 0;
    if (is_inside)
        best = gpuResult0[column];
    uint left = place - (place > 0 && column != 0), right = place + (place < 255 && column != columns - 1);
    for (uint step = 0; step < 20; step++) {
        local uint *now = paths[step % 2];
        now[place] = best;
        barrier(CLK_LOCAL_MEM_FENCE);
        uint wall = 0;
        if (is_inside)
            wall = gpuWall[(row + step) * columns + column];
        best = wall + min(best, min(now[left], now[right]));
    }
    if (is_inside && place >= 20 && place < 236)
        gpuResult1[column] = best;
}
