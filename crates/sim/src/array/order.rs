//! A recency order of the ways of a set in one word: field 0 names the most recently used way.
//!
//! Up to sixteen ways fit in the 4-bit fields of a `u64` ([`narrow`]); up to twenty-five in the 5-bit fields of a `u128`
//! ([`wide`]), at about twice the cost.

/// Most ways that one word can order.
pub const ORDER_MAX_WAYS: u32 = 25;
/// Most ways that the cheaper word can order.
pub const NARROW_MAX_WAYS: u32 = 16;

macro_rules! order {
    ($name:ident, $word:ty, $bits:expr, $doc:expr) => {
        #[doc = $doc]
        pub mod $name {
            const BITS: u32 = $bits;
            const FIELDS: u32 = <$word>::BITS / BITS;
            const FIELD: $word = (1 << BITS) - 1;

            const fn repeat(value: $word) -> $word {
                let mut word = 0;
                let mut at = 0;
                while at < FIELDS {
                    word |= value << (BITS * at);
                    at += 1;
                }
                word
            }
            const ONES: $word = repeat(1);
            const HIGHS: $word = repeat(1 << (BITS - 1));

            /// Way 0 first, the highest way last (so empty ways are filled from the highest down).
            pub const fn initial(ways: u32) -> $word {
                let mut word = 0;
                let mut at = 0;
                while at < ways {
                    word |= (at as $word) << (BITS * at);
                    at += 1;
                }
                word
            }

            /// All bits up to the field that names `way`, that field included.
            #[inline(always)]
            fn up_to(order: $word, way: u32) -> $word {
                let zeroed = order ^ (ONES * (way as $word));
                // The lowest flagged field is exact: a borrow can only flag fields above a true zero. Unused high
                // fields read as way 0, but the true one lies below them.
                let flagged = zeroed.wrapping_sub(ONES) & !zeroed & HIGHS;
                flagged ^ flagged.wrapping_sub(1)
            }

            /// Makes `way` the most recently used.
            #[inline(always)]
            pub fn touch(order: $word, way: u32) -> $word {
                // The fields below the way's move up by one, over it. No shift by a variable, since each access does this.
                order ^ ((order ^ (order << BITS)) & up_to(order, way)) | way as $word
            }

            /// The least recently used of `ways`, and the order with it as the most recently used.
            #[inline(always)]
            pub fn rotate(order: $word, ways: u32) -> (u32, $word) {
                let way = victim(order, ways);
                let used = <$word>::MAX >> (<$word>::BITS - BITS * ways);
                (way, (order << BITS | way as $word) & used)
            }

            /// Makes `way` the next victim among `ways`.
            pub fn move_to_back(order: $word, way: u32, ways: u32) -> $word {
                let up_to = up_to(order, way);
                let (below, above) = (order & (up_to >> BITS), order & !up_to);
                below | above >> BITS | (way as $word) << (BITS * (ways - 1))
            }

            /// The least recently used of `ways`.
            #[inline(always)]
            pub fn victim(order: $word, ways: u32) -> u32 {
                ((order >> (BITS * (ways - 1))) & FIELD) as u32
            }

            #[cfg(test)]
            mod tests {
                use super::*;
                use proptest::prelude::*;

                proptest! {
                    #[test]
                    fn agrees_with_a_list(
                        ways in 1u32..=FIELDS, steps in prop::collection::vec((0u32..25, any::<bool>()), 0..200),
                    ) {
                        let mut order = initial(ways);
                        let mut list: Vec<u32> = (0..ways).collect();
                        for (way, to_back) in steps {
                            let way = way % ways;
                            list.retain(|&w| w != way);
                            if to_back {
                                order = move_to_back(order, way, ways);
                                list.push(way);
                            } else {
                                order = touch(order, way);
                                list.insert(0, way);
                            }
                            let held: Vec<u32> = (0..ways).map(|i| (order >> (BITS * i) & FIELD) as u32).collect();
                            prop_assert_eq!(held, list.clone());
                            let last = *list.last().unwrap();
                            prop_assert_eq!(victim(order, ways), last);
                            prop_assert_eq!(rotate(order, ways), (last, touch(order, last)));
                        }
                    }
                }
            }
        }
    };
}

order!(narrow, u64, 4, "Up to sixteen ways.");
order!(wide, u128, 5, "Up to twenty-five ways.");
