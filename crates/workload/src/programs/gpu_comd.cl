// Forces between the atoms of neighbouring cells: a work-item for each atom, 16 atoms in each cell, which has room for 64.

kernel void LJ_Force_thread_atom(const global uint *nAtoms, const global ulong *r_x, const global ulong *r_y,
                                 const global ulong *r_z, global ulong *f_x, global ulong *f_y, global ulong *f_z,
                                 global ulong *e, ulong side)
{
    ulong cell = get_global_id(0) / 16, own = cell * 64 + get_global_id(0) % 16;
    ulong x = cell % side, y = cell / side % side, z = cell / (side * side);
    ulong at_x = r_x[own], at_y = r_y[own], at_z = r_z[own];
    ulong force_x = 0, force_y = 0, force_z = 0, energy = 0;
    for (ulong which = 0; which < 27; which++) {
        ulong beside_x = (x + side + which % 3 - 1) % side;
        ulong beside_y = (y + side + which / 3 % 3 - 1) % side;
        ulong beside_z = (z + side + which / 9 - 1) % side;
        ulong beside = beside_x + side * (beside_y + side * beside_z);
        uint atoms = nAtoms[beside];
        for (uint atom = 0; atom < atoms; atom++) {
            ulong other = beside * 64 + atom;
            ulong dx = at_x - r_x[other], dy = at_y - r_y[other], dz = at_z - r_z[other];
            ulong square = dx * dx + dy * dy + dz * dz;
            energy += square;
            force_x += square * dx;
            force_y += square * dy;
            force_z += square * dz;
        }
    }
    f_x[own] = force_x;
    f_y[own] = force_y;
    f_z[own] = force_z;
    e[own] = energy;
}
