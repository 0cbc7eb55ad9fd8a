// The cluster whose centre is nearest to a point, whose features lie side by side.

kernel void nearest_cluster(const global uint *features, const global uint *clusters, global uint *membership, ulong n_features,
                            ulong n_clusters)
{
    size_t point = get_global_id(0);
    uint nearest = 0, least = UINT_MAX;
    for (ulong cluster = 0; cluster < n_clusters; cluster++) {
        uint distance = 0;
        for (ulong feature = 0; feature < n_features; feature++) {
            uint difference = features[point * n_features + feature] - clusters[cluster * n_features + feature];
            distance += difference * difference;
        }
        if (distance < least) {
            least = distance;
            nearest = cluster;
        }
    }
    membership[point] = nearest;
}
