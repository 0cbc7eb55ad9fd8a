// Differences of eighth order of five quantities along three axes of a cube.

ulong along(const global ulong *quantity, long point, long stride, long last)
{
    ulong flow = 0;
    for (long at = 1; at <= 4; at++) {
        ulong before = quantity[max(point - at * stride, 0L)];
        ulong behind = quantity[min(point + at * stride, last)];
        flow += (5 - at) * (behind - before);
    }
    return flow;
}

ulong flow(const global ulong *quantity, long point, long side)
{
    long last = side * side * side - 1;
    return along(quantity, point, 1, last) + along(quantity, point, side, last) + along(quantity, point, side * side, last);
}

kernel void hypterm(const global ulong *density, const global ulong *momentum_x, const global ulong *momentum_y,
                    const global ulong *momentum_z, const global ulong *energy, global ulong *flux_density,
                    global ulong *flux_x, global ulong *flux_y, global ulong *flux_z, global ulong *flux_energy, long side)
{
    size_t point = get_global_id(0);
    flux_density[point] = flow(density, point, side);
    flux_x[point] = flow(momentum_x, point, side);
    flux_y[point] = flow(momentum_y, point, side);
    flux_z[point] = flow(momentum_z, point, side);
    flux_energy[point] = flow(energy, point, side);
}
