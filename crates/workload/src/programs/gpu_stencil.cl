// A stencil of seven points over a grid of three dimensions; points at the border take the nearest inside.

kernel void stencil(const global uint *A0, global uint *Anext, ulong side, ulong planes)
{
    size_t point = get_global_id(0);
    size_t plane = point / (side * side), row = point / side % side, column = point % side;
    size_t up = min(plane + 1, planes - 1), down = plane - (plane > 0), behind = min(row + 1, side - 1);
    size_t before = row - (row > 0), right = min(column + 1, side - 1), left = column - (column > 0);
    Anext[point] = A0[(up * side + row) * side + column] + A0[(down * side + row) * side + column] +
                   A0[(plane * side + behind) * side + column] + A0[(plane * side + before) * side + column] +
                   A0[(plane * side + row) * side + right] + A0[(plane * side + row) * side + left] - 5 * A0[point];
}
