// Alignment of two sequences: a work-group of 32 has a tile of 32 by 32 scores, and a launch an anti-diagonal of tiles.

void align(const global int *reference, global int *scores, local int (*tile)[33], size_t across, size_t row, size_t column)
{
    int lane = get_local_id(0);
    size_t corner = row * 32 * across + column * 32;
    tile[lane + 1][0] = scores[corner + (lane + 1) * across];
    if (lane == 0)
        tile[0][0] = scores[corner];
    tile[0][lane + 1] = scores[corner + lane + 1];
    int own[32];
    for (int at = 0; at < 32; at++)
        own[at] = reference[corner + (at + 1) * across + lane + 1];
    for (int step = 0; step < 63; step++) {
        barrier(CLK_LOCAL_MEM_FENCE);
        int at = step - lane;
        if (at >= 0 && at < 32)
            tile[at + 1][lane + 1] = max(tile[at][lane] + own[at], max(tile[at + 1][lane], tile[at][lane + 1]) - 10);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int at = 0; at < 32; at++)
        scores[corner + (at + 1) * across + lane + 1] = tile[at + 1][lane + 1];
}

kernel void needle_cuda_shared_1(const global int *referrence_cuda, global int *matrix_cuda, ulong tiles, ulong launch)
{
    local int tile[33][33];
    size_t column = get_group_id(0);
    align(referrence_cuda, matrix_cuda, tile, tiles * 32 + 1, launch - column, column);
}

kernel void needle_cuda_shared_2(const global int *referrence_cuda, global int *matrix_cuda, ulong tiles, ulong launch)
{
    local int tile[33][33];
    size_t column = get_group_id(0) + launch + 1 - tiles;
    align(referrence_cuda, matrix_cuda, tile, tiles * 32 + 1, launch - column, column);
}
