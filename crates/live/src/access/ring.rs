//! Records of one trace event from the kernel's ring buffer, read raw: text would cost several times as much.
//!
//! Source: the header pages that tracefs describes in `events/header_page` and `events/header_event`.
//!
//! Give [`Format::parse`] the event's `format` file, and [`Format::records`] each page that a read of `trace_pipe_raw`
//! returns. The pages of several processors come in no order: sort by [`Region::time`].

/// Where the fields of `damon:damon_aggregated` lie in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    identifier: u16,
    target: usize,
    start: usize,
    end: usize,
    accesses: usize,
}

/// A region as DAMON reports it at the end of an aggregation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// When it was reported, by the buffer's clock, in nanoseconds.
    pub time: u64,
    /// The number of the process among DAMON's targets.
    pub target: u64,
    /// First address.
    pub start: u64,
    /// The address after the last.
    pub end: u64,
    /// Samples that found it accessed.
    pub accesses: u32,
}

impl Format {
    /// Reads the event's `format` file; none where it is not as expected.
    pub fn parse(text: &str) -> Option<Format> {
        let field = |name: &str| {
            let fields = text.lines().filter_map(|line| line.trim().strip_prefix("field:")?.split_once(';'));
            let mut named = fields.filter(|(declaration, _)| declaration.rsplit(' ').next() == Some(name));
            let (offset, _) = named.next()?.1.trim().strip_prefix("offset:")?.split_once(';')?;
            offset.parse::<usize>().ok()
        };
        Some(Format {
            identifier: text.lines().find_map(|line| line.strip_prefix("ID: ")?.trim().parse().ok())?,
            target: field("target_id")?,
            start: field("start")?,
            end: field("end")?,
            accesses: field("nr_accesses")?,
        })
    }

    /// The records of one page of the buffer: a time stamp, the bytes in use, then records. A record's first word holds
    /// its length in words (5 bits) and a time difference; 0 means that the length in bytes follows, 29 is padding,
    /// 30 and 31 carry more time. What does not fit is left out.
    pub fn records(&self, page: &[u8], regions: &mut Vec<Region>) {
        const HEADER: usize = 16;
        let (Some(mut time), Some(in_use)) = (long(page, 0), word(page, 8)) else { return };
        let end = page.len().min(HEADER + (in_use & 0xf_ffff) as usize);
        let mut at = HEADER;
        while let Some(first) = word(page, at).filter(|_| at + 4 <= end) {
            let kind = first & 0x1f;
            let (data, length) = match (kind, word(page, at + 4)) {
                (0, Some(length)) => (at + 8, (length as usize).saturating_sub(4)),
                (29, Some(length)) => (at + 4, length as usize),
                (0 | 29, None) => return,
                (30 | 31, _) => (at + 4, 4),
                (words, _) => (at + 4, words as usize * 4),
            };
            let (low, high) = (u64::from(first >> 5), u64::from(word(page, at + 4).unwrap_or(0)) << 27);
            match kind {
                29 => {}
                30 => time = time.wrapping_add(low).wrapping_add(high),
                // The highest five bits are those of the time before.
                31 => time = (time >> 59 << 59) | low | high,
                _ => time = time.wrapping_add(low),
            }
            if kind < 29
                && let Some(region) = self.region(page, data, time)
            {
                regions.push(region);
            }
            at = data + length;
        }
    }

    fn region(&self, page: &[u8], data: usize, time: u64) -> Option<Region> {
        if word(page, data)? as u16 != self.identifier {
            return None;
        }
        Some(Region {
            time,
            target: long(page, data + self.target)?,
            start: long(page, data + self.start)?,
            end: long(page, data + self.end)?,
            accesses: word(page, data + self.accesses)?,
        })
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FORMAT: &str = "\
name: damon_aggregated
ID: 521
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:unsigned long target_id;\toffset:8;\tsize:8;\tsigned:0;
\tfield:unsigned int nr_regions;\toffset:16;\tsize:4;\tsigned:0;
\tfield:unsigned long start;\toffset:24;\tsize:8;\tsigned:0;
\tfield:unsigned long end;\toffset:32;\tsize:8;\tsigned:0;
\tfield:unsigned int nr_accesses;\toffset:40;\tsize:4;\tsigned:0;
\tfield:unsigned int age;\toffset:44;\tsize:4;\tsigned:0;
";

    fn record(kind: u32, after: u32, target: u64, start: u64) -> Vec<u8> {
        let mut record = (kind | after << 5).to_ne_bytes().to_vec();
        record.extend(521u32.to_ne_bytes());
        record.extend(0u32.to_ne_bytes());
        for number in [target, 3, start, start + 4096] {
            record.extend(number.to_ne_bytes());
        }
        record.extend(7u32.to_ne_bytes());
        record.extend(1u32.to_ne_bytes());
        record
    }

    fn page(records: &[u8]) -> Vec<u8> {
        let mut page = 1_000u64.to_ne_bytes().to_vec();
        page.extend((records.len() as u64).to_ne_bytes());
        page.extend(records);
        page.resize(4096, 0);
        page
    }

    #[test]
    fn records_are_read_between_time_stamps() {
        let format = Format::parse(FORMAT).unwrap();
        // 48 bytes are 12 words; a time extension of 8 bytes lies between the two.
        let extension = [(30u32 | 5 << 5).to_ne_bytes(), 2u32.to_ne_bytes()].concat();
        let records = [record(12, 7, 0, 0x1000), extension, record(12, 1, 1, 0x9000)].concat();
        let mut regions = Vec::new();
        format.records(&page(&records), &mut regions);
        let region = |time, target, start| Region { time, target, start, end: start + 4096, accesses: 7 };
        assert_eq!(regions, [region(1_007, 0, 0x1000), region(1_007 + 5 + (2 << 27) + 1, 1, 0x9000)]);
    }

    #[test]
    fn another_format_is_no_format() {
        assert_eq!(Format::parse("ID: 5"), None);
        assert_eq!(Format::parse(&FORMAT.replace("offset:24", "offset:x")), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_harm(bytes in proptest::collection::vec(any::<u8>(), 0..256), text in any::<String>()) {
            let mut regions = Vec::new();
            Format::parse(FORMAT).unwrap().records(&bytes, &mut regions);
            Format::parse(&text);
        }
    }
}
