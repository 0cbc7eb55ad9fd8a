// Look-ups in a tree of nodes with 256 children: a work-group for each, a work-item for each key of a node.
//
// A node has two words, 257 keys and 257 children.

kernel void findK(const global uint *knodesD, global ulong *currKnodeD, const global uint *keysD, global uint *ansD, ulong levels)
{
    local uint found;
    size_t lookup = get_group_id(0), place = get_local_id(0);
    for (ulong level = 0; level < levels; level++) {
        const global uint *keys = knodesD + 516 * currKnodeD[lookup] + 2;
        uint from = keys[place], wanted = keysD[lookup];
        bool here = from <= wanted && wanted < keys[place + 1];
        barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
        if (here) {
            found = keys[257 + place];
            currKnodeD[lookup] = found;
        }
        barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    }
    if (place == 0)
        ansD[lookup] = found;
}
