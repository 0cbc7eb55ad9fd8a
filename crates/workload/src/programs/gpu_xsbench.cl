// Look-ups of cross-sections: a binary search over all energies, then for ten nuclides the two points around the energy.

typedef struct {
    ulong energy, sections[5];
} Point;

ulong mix(ulong word)
{
    word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9;
    word = (word ^ (word >> 27)) * 0x94d049bb133111eb;
    return word ^ (word >> 31);
}

ulong hash(ulong seed, ulong index)
{
    return mix(seed + (index + 1) * 0x9e3779b97f4a7c15);
}

kernel void lookup(const global ulong *unionized_energies, const global uint *index_grid, const global Point *nuclide_grids,
                   global ulong *results, ulong nuclides, ulong gridpoints, ulong seed)
{
    size_t lookup = get_global_id(0);
    ulong energies = nuclides * gridpoints;
    ulong wanted = mul_hi(hash(seed, lookup), energies);
    ulong found = 0;
    for (ulong left = energies; left > 1; left -= left / 2)
        found += unionized_energies[found + left / 2] <= wanted ? left / 2 : 0;
    ulong first = hash(seed ^ 1, lookup) % nuclides, sum = 0;
    for (ulong at = 0; at < 10; at++) {
        ulong nuclide = (first + at) % nuclides;
        ulong place = nuclide * gridpoints + index_grid[found * nuclides + nuclide];
        Point low = nuclide_grids[place];
        Point high = nuclide_grids[place + 1];
        sum += (high.energy - wanted) * (wanted - low.energy);
        for (uint section = 0; section < 5; section++)
            sum += (section + 1) * (high.sections[section] - low.sections[section]);
    }
    results[lookup] = sum;
}
