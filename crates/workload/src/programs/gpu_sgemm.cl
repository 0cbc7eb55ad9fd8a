// A product of two square matrices: a work-group has a tile of 16 by 16 of the result.

kernel void mysgemmNT(const global uint *matA, const global uint *matBT, global uint *matC, ulong tiles)
{
    local uint a[16][16], b[16][16];
    uint down = get_local_id(0) / 16, across = get_local_id(0) % 16;
    size_t rows = tiles * 16;
    size_t row = get_group_id(0) / tiles * 16 + down, column = get_group_id(0) % tiles * 16 + across;
    uint sum = 0;
    for (size_t step = 0; step < rows; step += 16) {
        a[down][across] = matA[row * rows + step + across];
        b[down][across] = matBT[(step + down) * rows + column];
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint at = 0; at < 16; at++)
            sum += a[down][at] * b[at][across];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    matC[row * rows + column] = sum;
}
