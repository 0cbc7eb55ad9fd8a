// a[i] = b[i] + s*c[i]; a work-item has eight elements, a whole grid apart.

kernel void triad(global uint *a, const global uint *b, const global uint *c)
{
    size_t i = get_global_id(0);
    for (uint piece = 0; piece < 8; piece++, i += get_global_size(0))
        a[i] = b[i] + 3 * c[i];
}
