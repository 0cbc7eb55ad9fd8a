// Lattice Boltzmann: each cell's nineteen distributions and flags are read, and each distribution goes to a neighbour.

#define MOVE(velocity, x, y, z)                                                                                                  \
    dst_grid[velocity * cells + (cell + cells + (x) + side * ((y) + side * (z))) % cells] =                                      \
        density + (velocity + 1) * own[velocity]

kernel void stream_collide(const global uint *src_grid, global uint *dst_grid, long side)
{
    long cells = side * side * side, cell = get_global_id(0);
    uint own[19], density = 0;
    for (uint velocity = 0; velocity < 19; velocity++) {
        own[velocity] = src_grid[velocity * cells + cell];
        density += own[velocity];
    }
    density *= src_grid[19 * cells + cell];
    MOVE(0, 0, 0, 0);
    MOVE(1, 1, 0, 0);
    MOVE(2, -1, 0, 0);
    MOVE(3, 0, 1, 0);
    MOVE(4, 0, -1, 0);
    MOVE(5, 0, 0, 1);
    MOVE(6, 0, 0, -1);
    MOVE(7, 1, 1, 0);
    MOVE(8, 1, -1, 0);
    MOVE(9, -1, 1, 0);
    MOVE(10, -1, -1, 0);
    MOVE(11, 1, 0, 1);
    MOVE(12, 1, 0, -1);
    MOVE(13, -1, 0, 1);
    MOVE(14, -1, 0, -1);
    MOVE(15, 0, 1, 1);
    MOVE(16, 0, 1, -1);
    MOVE(17, 0, -1, 1);
    MOVE(18, 0, -1, -1);
}
