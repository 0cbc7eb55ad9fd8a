// Steps in time of a chip's temperatures, in tiles of 16 by 16 that overlap by a border as wide as there are steps.

kernel void calculate_temp(const global uint *MatrixPower, const global uint *MatrixTemp0, global uint *MatrixTemp1, ulong side,
                           ulong height)
{
    local uint tile[2][16][16];
    long row = get_local_id(0) / 16, column = get_local_id(0) % 16;
    long size = side, border = height, inner = 16 - 2 * border, tiles = size / inner, group = get_group_id(0);
    long y = group / tiles * inner + row - border, x = group % tiles * inner + column - border;
    bool is_there = y >= 0 && y < size && x >= 0 && x < size;
    uint temperature = 0, power = 0;
    if (is_there) {
        temperature = MatrixTemp0[y * size + x];
        power = MatrixPower[y * size + x];
    }
    tile[0][row][column] = temperature;
    // Beyond the chip's edge lies the cell itself; what lies beyond the tile's spoils the border alone.
    long north = row - (row > 0 && y > 0), south = row + (row < 15 && y < size - 1);
    long west = column - (column > 0 && x > 0), east = column + (column < 15 && x < size - 1);
    for (long step = 0; step < border; step++) {
        barrier(CLK_LOCAL_MEM_FENCE);
        local uint(*now)[16] = tile[step % 2];
        temperature = 3 * now[row][column] + now[north][column] + now[south][column] + now[row][west] + now[row][east] + power;
        tile[(step + 1) % 2][row][column] = temperature;
    }
    bool is_inner = row >= border && row < 16 - border && column >= border && column < 16 - border;
    if (is_inner && is_there)
        MatrixTemp1[y * size + x] = temperature;
}
