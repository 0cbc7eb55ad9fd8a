//! A recency order of up to sixteen ways in one word: nibble 0 names the most recently used way.

/// Most ways that one word can order.
pub const ORDER_MAX_WAYS: u32 = 16;

const ONES: u64 = 0x1111_1111_1111_1111;
const HIGHS: u64 = 0x8888_8888_8888_8888;

/// Way 0 first, the highest way last (so empty ways are filled from the highest down).
pub const fn order_initial(ways: u32) -> u64 {
    let identity = 0xFEDC_BA98_7654_3210;
    if ways >= 16 { identity } else { identity & ((1 << (4 * ways)) - 1) }
}

/// Position of `way` in the order.
#[inline(always)]
fn position(order: u64, way: u32) -> u32 {
    let zeroed = order ^ (ONES * u64::from(way));
    // The lowest flagged nibble is exact: a borrow can only flag nibbles above a true zero. Unused high nibbles read
    // as way 0, but the true one lies below them.
    (zeroed.wrapping_sub(ONES) & !zeroed & HIGHS).trailing_zeros() / 4
}

/// Makes `way` the most recently used.
#[inline(always)]
pub fn order_touch(order: u64, way: u32) -> u64 {
    let at = 4 * position(order, way);
    let below = order & ((1u64 << at) - 1);
    let above = order & !((0xFu64 << at) | ((1u64 << at) - 1));
    above | below << 4 | u64::from(way)
}

/// Makes `way` the next victim among `ways`.
pub fn order_move_to_back(order: u64, way: u32, ways: u32) -> u64 {
    let at = 4 * position(order, way);
    let below = order & ((1u64 << at) - 1);
    let above = if at >= 60 { 0 } else { order >> (at + 4) << at };
    below | above | u64::from(way) << (4 * (ways - 1))
}

/// The least recently used of `ways`.
#[inline(always)]
pub fn order_find_victim(order: u64, ways: u32) -> u32 {
    ((order >> (4 * (ways - 1))) & 0xF) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn as_list(order: u64, ways: u32) -> Vec<u32> {
        (0..ways).map(|i| (order >> (4 * i) & 0xF) as u32).collect()
    }

    proptest! {
        #[test]
        fn agrees_with_a_list(ways in 1u32..=16, steps in prop::collection::vec((0u32..16, any::<bool>()), 0..200)) {
            let mut order = order_initial(ways);
            let mut list: Vec<u32> = (0..ways).collect();
            for (way, to_back) in steps {
                let way = way % ways;
                list.retain(|&w| w != way);
                if to_back {
                    order = order_move_to_back(order, way, ways);
                    list.push(way);
                } else {
                    order = order_touch(order, way);
                    list.insert(0, way);
                }
                prop_assert_eq!(as_list(order, ways), list.clone());
                prop_assert_eq!(order_find_victim(order, ways), *list.last().unwrap());
                prop_assert_eq!(order & !(order_initial(ways) | ONES * 15 & if ways == 16 { u64::MAX } else { (1 << (4 * ways)) - 1 }), 0);
            }
        }
    }
}
