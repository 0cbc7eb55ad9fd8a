//! A stride prefetcher: detects constant distances between the lines of one page that reach L2.

use super::parameters::PrefetcherParameters;
use crate::array::FullyAssociative;
use terrace_model::CacheLine;

/// Lines of a base page; streams stop at its border, since the next page's frame is unknown.
const PAGE_LINES: u64 = 64;
/// Equal distances in a row before the stream is believed.
const CONFIRMED: u8 = 2;

/// What is known of a page: both numbers are of lines in it, so that all fits into a word of the array.
#[derive(Clone, Copy, Debug)]
struct Stream {
    last: u8,
    stride: i8,
    confidence: u8,
}

impl Stream {
    const fn packed(self) -> u64 {
        u64::from_le_bytes([self.last, self.stride as u8, self.confidence, 0, 0, 0, 0, 0])
    }

    const fn unpacked(word: u64) -> Stream {
        let [last, stride, confidence, ..] = word.to_le_bytes();
        Stream { last, stride: stride as i8, confidence }
    }
}

/// Up to `streams` pages are tracked, the least recently used one gives way.
#[derive(Clone, Debug)]
pub struct StridePrefetcher {
    streams: FullyAssociative,
    degree: u32,
}

impl StridePrefetcher {
    /// A prefetcher that knows nothing yet.
    pub fn new(parameters: &PrefetcherParameters) -> StridePrefetcher {
        StridePrefetcher {
            streams: FullyAssociative::new(parameters.streams.max(1)),
            degree: parameters.degree,
        }
    }

    /// Learns from an access and returns the lines to fetch, nearest first.
    #[inline(always)]
    pub fn train(&mut self, line: CacheLine) -> impl Iterator<Item = CacheLine> + use<> {
        let (page, at) = (line.0 / PAGE_LINES, (line.0 % PAGE_LINES) as u8);
        let mut ahead = 0;
        let mut stride = 0;
        if let Some(word) = self.streams.touch(page) {
            let mut stream = Stream::unpacked(*word);
            stride = at as i8 - stream.last as i8;
            if stride != 0 {
                stream.confidence =
                    if stride == stream.stride { (stream.confidence + 1).min(CONFIRMED) } else { 1 };
                (stream.stride, stream.last) = (stride, at);
                *word = stream.packed();
                ahead = if stream.confidence >= CONFIRMED { i64::from(self.degree) } else { 0 };
            }
        } else {
            self.streams.insert(page, Stream { last: at, stride: 0, confidence: 0 }.packed());
        }
        (1..=ahead)
            .map(move |steps| (line.0 as i64 + steps * i64::from(stride)) as u64)
            .take_while(move |next| next / PAGE_LINES == page)
            .map(CacheLine)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn prefetcher(degree: u32) -> StridePrefetcher {
        StridePrefetcher::new(&PrefetcherParameters { enabled: true, streams: 4, degree })
    }

    #[test]
    fn two_equal_strides_confirm_and_the_page_border_stops() {
        let mut prefetcher = prefetcher(2);
        assert_eq!(prefetcher.train(CacheLine(57)).count(), 0);
        assert_eq!(prefetcher.train(CacheLine(59)).count(), 0);
        assert_eq!(prefetcher.train(CacheLine(61)).collect::<Vec<_>>(), [CacheLine(63)]);
    }

    #[test]
    fn random_lines_of_a_page_predict_nothing() {
        let mut prefetcher = prefetcher(4);
        for line in [3, 17, 5, 40, 11, 60] {
            assert_eq!(prefetcher.train(CacheLine(line)).count(), 0);
        }
    }

    /// The prefetcher as a list of pages, most recent last: slow and obvious.
    struct Naive {
        streams: Vec<(u64, u64, i64, u8)>,
        degree: u64,
    }

    impl Naive {
        fn train(&mut self, line: u64) -> Vec<CacheLine> {
            let page = line / PAGE_LINES;
            let known = self.streams.iter().position(|stream| stream.0 == page);
            let (_, last, mut stride, mut confidence) =
                known.map_or((page, line, 0, 0), |at| self.streams.remove(at));
            if self.streams.len() == 4 {
                self.streams.remove(0);
            }
            let step = line as i64 - last as i64;
            if step != 0 {
                confidence = if step == stride { (confidence + 1).min(CONFIRMED) } else { 1 };
                stride = step;
            }
            self.streams.push((page, line, stride, confidence));
            let ahead = if step != 0 && confidence >= CONFIRMED { self.degree } else { 0 };
            (1..=ahead as i64)
                .map(|steps| line as i64 + steps * stride)
                .filter(|next| *next >= 0 && *next as u64 / PAGE_LINES == page)
                .map(|next| CacheLine(next as u64))
                .collect()
        }
    }

    proptest! {
        #[test]
        fn agrees_with_a_list_of_pages(
            steps in prop::collection::vec((0u64..6, 0u64..64, -9i64..9), 1..400),
        ) {
            let mut prefetcher = prefetcher(4);
            let mut naive = Naive { streams: Vec::new(), degree: 4 };
            for (page, first, stride) in steps {
                // A short run of one distance, so that streams are confirmed.
                for step in 0..4 {
                    let at = (first as i64 + step * stride).rem_euclid(PAGE_LINES as i64) as u64;
                    let line = page * PAGE_LINES + at;
                    prop_assert_eq!(prefetcher.train(CacheLine(line)).collect::<Vec<_>>(), naive.train(line));
                }
            }
        }
    }
}
