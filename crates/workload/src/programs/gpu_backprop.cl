// A layer of a neural network, forward and back: 16 hidden units, sixteen inputs to a work-group, rows of 17 weights.

kernel void bpnn_layerforward_CUDA(const global uint *input_cuda, global uint *input_hidden_cuda,
                                   global uint *hidden_partial_sum)
{
    local uint inputs[16];
    local uint products[16][16];
    size_t group = get_group_id(0);
    uint row = get_local_id(0) / 16, hidden = get_local_id(0) % 16;
    size_t unit = group * 16 + row + 1, weight = unit * 17 + hidden + 1;
    if (hidden == 0)
        inputs[row] = input_cuda[unit];
    barrier(CLK_LOCAL_MEM_FENCE);
    uint product = input_hidden_cuda[weight] * inputs[row];
    input_hidden_cuda[weight] = product;
    products[row][hidden] = product;
    for (uint rows = 8; rows > 0; rows /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (row < rows)
            products[row][hidden] += products[row + rows][hidden];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (row == 0)
        hidden_partial_sum[group * 16 + hidden] = products[0][hidden];
}

kernel void bpnn_adjust_weights_cuda(const global uint *hidden_delta_cuda, const global uint *input_cuda,
                                     global uint *input_hidden_cuda, global uint *input_prev_weights_cuda)
{
    uint hidden = get_local_id(0) % 16;
    size_t unit = get_global_id(0) / 16 + 1, weight = unit * 17 + hidden + 1;
    uint change = 3 * hidden_delta_cuda[hidden + 1] * input_cuda[unit] + 5 * input_prev_weights_cuda[weight];
    input_hidden_cuda[weight] += change;
    input_prev_weights_cuda[weight] = change;
}
