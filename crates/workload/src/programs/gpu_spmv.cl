// A sparse matrix in jagged diagonals times a vector: the lengths of rows fall evenly from the longest to one, warp by warp.

kernel void spmv_jds(const global uint *jds_ptr, const global uint *jds_col_index, const global uint *jds_data,
                     const global uint *x_vec, const global uint *jds_perm, global uint *dst_vector, ulong longest)
{
    size_t row = get_global_id(0), warps = get_global_size(0) / 32;
    ulong length = longest - (longest - 1) * (row / 32) / max(warps - 1, (size_t)1);
    uint sum = 0;
    for (ulong diagonal = 0; diagonal < length; diagonal++) {
        size_t entry = jds_ptr[diagonal] + row;
        uint column = jds_col_index[entry];
        sum += jds_data[entry] * x_vec[column];
    }
    dst_vector[jds_perm[row]] = sum;
}
