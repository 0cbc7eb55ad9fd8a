//! A stride prefetcher: detects constant distances between the lines of one page that reach L2.

use super::parameters::PrefetcherParameters;
use terrace_model::CacheLine;

/// Lines of a base page; streams stop at its border, since the next page's frame is unknown.
const PAGE_LINES: u64 = 64;
/// Equal distances in a row before the stream is believed.
const CONFIRMED: u8 = 2;

#[derive(Clone, Copy, Debug)]
struct Stream {
    page: u64,
    last: u64,
    stride: i64,
    confidence: u8,
    used: u64,
}

/// Up to `streams` pages are tracked, the least recently used one gives way.
#[derive(Clone, Debug)]
pub struct StridePrefetcher {
    streams: Vec<Stream>,
    degree: u32,
    clock: u64,
}

impl StridePrefetcher {
    /// A prefetcher that knows nothing yet.
    pub fn new(parameters: &PrefetcherParameters) -> StridePrefetcher {
        let empty = Stream { page: u64::MAX, last: 0, stride: 0, confidence: 0, used: 0 };
        StridePrefetcher {
            streams: vec![empty; parameters.streams.max(1) as usize],
            degree: parameters.degree,
            clock: 0,
        }
    }

    /// Learns from an access and returns the lines to fetch, nearest first.
    pub fn train(&mut self, line: CacheLine) -> impl Iterator<Item = CacheLine> + use<> {
        self.clock += 1;
        let line = line.0;
        let page = line / PAGE_LINES;
        let at = self.streams.iter().position(|s| s.page == page).unwrap_or_else(|| {
            let oldest = (0..self.streams.len()).min_by_key(|&i| self.streams[i].used).unwrap_or(0);
            self.streams[oldest] = Stream { page, last: line, stride: 0, confidence: 0, used: 0 };
            oldest
        });
        let stream = &mut self.streams[at];
        stream.used = self.clock;
        let stride = line as i64 - stream.last as i64;
        if stride != 0 {
            stream.confidence =
                if stride == stream.stride { (stream.confidence + 1).min(CONFIRMED) } else { 1 };
            stream.stride = stride;
            stream.last = line;
        }
        let count = if stream.confidence >= CONFIRMED && stride != 0 { i64::from(self.degree) } else { 0 };
        let stride = stream.stride;
        (1..=count)
            .map(move |ahead| (line as i64 + ahead * stride) as u64)
            .take_while(move |next| next / PAGE_LINES == page)
            .map(CacheLine)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
