// Diffusion of speckles: differences to four neighbours and a coefficient, then the update of the image, column by column.

kernel void srad(const global uint *d_iN, const global uint *d_iS, const global uint *d_jE, const global uint *d_jW,
                 global uint *d_dN, global uint *d_dS, global uint *d_dW, global uint *d_dE, global uint *d_c,
                 const global uint *d_I, ulong side)
{
    size_t pixel = get_global_id(0), row = pixel % side, column = pixel / side;
    uint north = d_iN[row], south = d_iS[row], west = d_jW[column], east = d_jE[column];
    uint own = d_I[pixel];
    uint to_north = d_I[column * side + north] - own, to_south = d_I[column * side + south] - own;
    uint to_west = d_I[west * side + row] - own, to_east = d_I[east * side + row] - own;
    d_dN[pixel] = to_north;
    d_dS[pixel] = to_south;
    d_dW[pixel] = to_west;
    d_dE[pixel] = to_east;
    d_c[pixel] = to_north * to_north + to_south * to_south + to_west * to_west + to_east * to_east + own;
}

kernel void srad2(const global uint *d_iS, const global uint *d_jE, const global uint *d_dN, const global uint *d_dS,
                  const global uint *d_dW, const global uint *d_dE, const global uint *d_c, global uint *d_I, ulong side)
{
    size_t pixel = get_global_id(0), row = pixel % side, column = pixel / side;
    uint south = d_iS[row], east = d_jE[column];
    uint own = d_c[pixel], below = d_c[column * side + south], beside = d_c[east * side + row];
    d_I[pixel] += own * d_dN[pixel] + below * d_dS[pixel] + own * d_dW[pixel] + beside * d_dE[pixel];
}
