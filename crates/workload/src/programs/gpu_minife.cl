// Conjugate gradients: a matrix with 27 entries a row, stored entry by entry, times a vector; then two updates.

kernel void matvec(const global uint *columns, const global ulong *coefficients, const global ulong *p, global ulong *Ap)
{
    size_t row = get_global_id(0), rows = get_global_size(0);
    ulong sum = 0;
    for (size_t entry = 0; entry < 27; entry++)
        sum += coefficients[entry * rows + row] * p[columns[entry * rows + row]];
    Ap[row] = sum;
}

kernel void waxpby(const global ulong *p, const global ulong *Ap, global ulong *x, global ulong *r)
{
    size_t row = get_global_id(0);
    x[row] += 3 * p[row];
    r[row] -= 3 * Ap[row];
}
