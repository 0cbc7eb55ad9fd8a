// Short texts are followed down a tree of suffixes, and from its root again when a walk ends.
//
// Nodes are 32 bytes. The first word of a node's children is where they begin, and in its upper half how far apart they lie.

kernel void mummergpuKernel(const global ulong *nodetex, const global ulong *childrentex, const global uchar *queries,
                            global ulong *match_coords, ulong letters, ulong levels)
{
    size_t text = get_global_id(0);
    ulong node = 0;
    ulong level = 0;
    for (ulong at = 0; at < letters; at++) {
        uint letter = queries[text * (letters + 1) + at];
        ulong children = childrentex[4 * node];
        match_coords[text * letters + at] = nodetex[4 * node] + letter;
        level = level + 1 < levels ? level + 1 : 0;
        node = level == 0 ? 0 : (children & UINT_MAX) + letter * (children >> 32);
    }
}
