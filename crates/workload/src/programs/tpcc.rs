//! Order processing on a relational database.

use crate::WorkloadInfo;
use crate::layout::Layout;
use crate::memory::Memory;
use crate::parameters::*;
use crate::program::{Program, share};
use crate::random::{Random, hash};
use crate::requests::{Client, Extents, Pace, Plan, Service, VECTOR_BYTES, WarmupRequests, expected};
use terrace_model::{AddressRange, Bytes};

const INFO: WorkloadInfo = WorkloadInfo {
    name: "tpcc",
    summary: "order-processing transactions over tables of which the largest is history (TPC-C on MySQL)",
    description: "\
The five transactions of TPC-C in their proportions. New-order (45 %) reads a customer, takes a number from a \
district, reads five to fifteen items and updates their stock, and appends an order line for each; payment (43 %) \
updates warehouse, district and customer; order-status (4 %) reads a customer's last order; delivery (4 %) updates the \
oldest orders not delivered; stock-level (4 %) reads the last orders of a district and the stock of what they hold. \
Every row is found through two dependent loads of index pages. Customers and items are drawn by TPC-C's non-uniform \
distribution. Order lines are appended in extents of 1 MiB; every transaction writes a circular redo log.

Stands for TPC-C on MySQL as Thermostat (Agarwal, PhD thesis, 2017, sections 6.4 and 6.5) runs it: scale factor 320, 6 \
GB and 3.5 GB of file pages, of which 40 to 50 % is found cold because the table of order lines, the largest, is read \
seldom. That table takes the share `cold` of the memory; within it only the orders not delivered, its last 30 %, and \
now and then a customer's last order are touched. Stock and customers are warm and uneven, indexes, districts and the \
log hot. No rate is published; threads=8,think=4e6 makes about 9,000 transactions a second at 2.3 GHz and two \
instructions a cycle; with less memory the same `think` keeps the share of it that a budget of accesses a second \
admits. It differs: tables are scaled with `bytes`, not whole warehouses; no locks, no rollbacks, no undo log and no \
page checksums; orders and new orders are kept with their lines; rows have whole multiples of 32 bytes.",
    parameters: declared::<Parameters>,
    exact: false,
};

#[derive(Clone, Debug, PartialEq, Parameters)]
pub(crate) struct Parameters {
    /// Size of all tables at the start.
    #[parameter(default = "256 MiB", range = "4 MiB"..="32 TiB")]
    bytes: Bytes,
    /// Share of the order lines loaded beforehand.
    #[parameter(default = 0.45, range = 0.05..=0.9, unit = "share")]
    cold: f64,
    /// Transactions, all threads together.
    #[parameter(default = "50e3", range = 1..=LARGEST_COUNT, unit = "transactions")]
    requests: u64,
    #[parameter(flatten)]
    warmup: WarmupRequests,
    #[parameter(flatten)]
    pace: Pace,
    #[parameter(flatten)]
    start: Start,
    #[parameter(flatten)]
    threads: Threads,
    #[parameter(flatten)]
    seed: Seed,
}

const ITEM_BYTES: u64 = 96;
const STOCK_BYTES: u64 = 320;
const CUSTOMER_BYTES: u64 = 672;
const LINE_BYTES: u64 = 64;
const DISTRICT_BYTES: u64 = 128;
/// TPC-C: 100,000 items, as many stock rows and 30,000 customers for each warehouse, ten districts.
const CUSTOMERS_PER_DISTRICT: u64 = 3000;
/// Index entries of 32 bytes: one for each page of rows, one for each page of those.
const PAGE: u64 = 16 << 10;
const ENTRY_BYTES: u64 = 32;
const ENTRIES_PER_PAGE: u64 = PAGE / ENTRY_BYTES;
/// InnoDB's.
const EXTENT: u64 = 1 << 20;
const LINES_PER_ORDER: u64 = 10;
/// Share of the loaded orders that are delivered already, in tenths: 2100 of 3000.
const DELIVERED_TENTHS: u64 = 7;
/// What a transaction of many rows writes to the log.
const LARGEST_RECORD: u64 = 2048;

/// A table and the two index levels above its pages.
#[derive(Clone, Copy)]
struct Table {
    rows: u64,
    row_bytes: u64,
    address: u64,
    inner: u64,
    root: u64,
}

impl Table {
    fn new(layout: &mut Layout, name: &'static str, rows: u64, row_bytes: u64) -> Table {
        let pages = (rows * row_bytes).div_ceil(PAGE);
        Table {
            rows,
            row_bytes,
            address: layout.array(name, rows * row_bytes),
            inner: layout.array("inner index pages", pages * ENTRY_BYTES),
            root: layout.array("index roots", pages.div_ceil(ENTRIES_PER_PAGE) * ENTRY_BYTES),
        }
    }

    /// Finds a row: root, inner page, the row's header. Parsing and planning come before.
    fn find(&self, plan: &mut Plan, row: u64) -> u64 {
        let at = row * self.row_bytes;
        let page = at / PAGE;
        plan.enter(self.root + page / ENTRIES_PER_PAGE * ENTRY_BYTES, 300);
        plan.follow(self.inner + page * ENTRY_BYTES, 60);
        plan.follow(self.address + at, 60);
        self.address + at
    }

    /// Finds and reads a row.
    fn read(&self, plan: &mut Plan, row: u64) {
        let at = self.find(plan, row);
        plan.read(at + VECTOR_BYTES, self.row_bytes - VECTOR_BYTES);
    }

    /// Finds, reads and updates a row: its second and third vector.
    fn update(&self, plan: &mut Plan, row: u64) {
        let at = self.find(plan, row);
        plan.read(at + VECTOR_BYTES, self.row_bytes - VECTOR_BYTES);
        plan.write(at + VECTOR_BYTES, 2 * VECTOR_BYTES);
    }
}

#[derive(Clone)]
pub(crate) struct OrderProcessing {
    items: Table,
    stock: Table,
    customers: Table,
    districts: Table,
    /// Loaded order lines.
    history: u64,
    orders: u64,
    /// Room of each thread for new order lines.
    room: Vec<AddressRange>,
    log: u64,
    log_bytes: u64,
    requests: u64,
    warmup: WarmupRequests,
    pace: Pace,
    site: u32,
    threads: u32,
    seed: u64,
    layout: Layout,
}

impl OrderProcessing {
    fn requests_of(&self, thread: u32) -> u64 {
        let own = share(self.requests, thread, self.threads);
        own.end - own.start
    }
}

impl Program for OrderProcessing {
    const INFO: &WorkloadInfo = &INFO;
    type Parameters = Parameters;
    type Thread = Client<OrderProcessing>;

    fn new(parameters: &Parameters) -> Result<OrderProcessing, Problem> {
        let threads = parameters.threads.count;
        let bytes = at_least("bytes", parameters.bytes, Bytes((1 << 20) * u64::from(threads).max(4)))?.0;
        let cold = parameters.cold;
        let history_bytes = (bytes as f64 * cold) as u64;
        let orders = history_bytes / (LINES_PER_ORDER * LINE_BYTES);
        // The rest, in a real database of hundreds of warehouses, is stock, 32 MB each, customers, 20 MB, and little else.
        let rest = bytes - history_bytes;
        let log_bytes = (rest / 64).next_multiple_of(4096);
        let mut layout = Layout::new(parameters.start.init);
        let history = layout.array("order lines", orders * LINES_PER_ORDER * LINE_BYTES);
        let mut table = |name, share: f64, row_bytes| {
            Table::new(&mut layout, name, (rest as f64 * share) as u64 / row_bytes, row_bytes)
        };
        let stock = table("stock", 0.57, STOCK_BYTES);
        let customers = table("customers", 0.36, CUSTOMER_BYTES);
        let items = table("items", 0.05, ITEM_BYTES);
        let districts = (customers.rows / CUSTOMERS_PER_DISTRICT).max(u64::from(threads));
        let districts = Table::new(&mut layout, "districts", districts, DISTRICT_BYTES);
        let mut program = OrderProcessing {
            items,
            stock,
            customers,
            districts,
            history,
            orders,
            room: Vec::new(),
            log: layout.array("redo log", log_bytes * u64::from(threads)),
            log_bytes,
            requests: at_least("requests", parameters.requests, threads.into())?,
            warmup: parameters.warmup.of(parameters.requests, parameters.threads.count)?,
            pace: parameters.pace,
            site: layout.site("new order lines"),
            threads,
            seed: parameters.seed.number,
            layout,
        };
        for thread in 0..threads {
            let requests = program.requests_of(thread);
            let most = Extents::room(requests * 15 * LINE_BYTES, EXTENT);
            let likely = requests * 45 / 100 * LINES_PER_ORDER * LINE_BYTES;
            program.room.push(AddressRange::new(program.layout.reserve(most, likely), most));
        }
        Ok(program)
    }

    fn populates(&self) -> bool {
        self.warmup.requests > 0
    }

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn threads(&self) -> u32 {
        self.threads
    }

    fn thread(&self, index: u32) -> Client<OrderProcessing> {
        let warmup = self.warmup.share(index, self.threads);
        Client::new(self, index, self.requests_of(index), warmup, self.pace)
    }

    fn kernel_accesses(&self) -> u64 {
        expected(self, self.requests)
    }
}

/// One thread's terminal: it serves a share of the districts.
pub(crate) struct Terminal {
    thread: u32,
    random: Random,
    lines: Extents,
    /// Lines appended.
    appended: u64,
    /// Loaded orders delivered.
    delivered: u64,
    /// Bytes of log written.
    logged: u64,
}

impl Terminal {
    /// TPC-C's NURand: the bitwise or of a number up to `spread` and any, turned by a constant of the run.
    fn uneven(&mut self, spread: u64, constant: u64, n: u64) -> u64 {
        ((self.random.below(spread + 1) | self.random.below(n)) + constant) % n
    }
}

impl OrderProcessing {
    fn customer(&self, terminal: &mut Terminal) -> u64 {
        let rows = self.customers.rows;
        terminal.uneven(1023, hash(self.seed, 1) % rows, rows)
    }

    fn item(&self, terminal: &mut Terminal) -> u64 {
        let rows = self.items.rows;
        terminal.uneven(8191.min(rows / 2), hash(self.seed, 2) % rows, rows)
    }

    /// The stock row of an item: in the terminal's own warehouses, which one is as good as random.
    fn stock_of(&self, terminal: &mut Terminal, item: u64) -> u64 {
        let warehouses = (self.stock.rows / self.items.rows).max(1);
        (terminal.random.below(warehouses) * self.items.rows + item) % self.stock.rows
    }

    fn district(&self, terminal: &mut Terminal) -> u64 {
        let own = share(self.districts.rows, terminal.thread, self.threads);
        own.start + terminal.random.below((own.end - own.start).max(1))
    }

    fn new_order<M: Memory>(&self, terminal: &mut Terminal, plan: &mut Plan, memory: &mut M) {
        self.customers.read(plan, self.customer(terminal));
        self.districts.update(plan, self.district(terminal));
        for _ in 0..5 + terminal.random.below(11) {
            let item = self.item(terminal);
            self.items.read(plan, item);
            self.stock.update(plan, self.stock_of(terminal, item));
            let line = terminal.lines.allocate(memory, LINE_BYTES);
            plan.independent();
            plan.write(line, LINE_BYTES);
            terminal.appended += 1;
        }
    }

    fn payment(&self, terminal: &mut Terminal, plan: &mut Plan) {
        self.districts.update(plan, self.district(terminal));
        self.customers.update(plan, self.customer(terminal));
    }

    fn order_status(&self, terminal: &mut Terminal, plan: &mut Plan) {
        self.customers.read(plan, self.customer(terminal));
        // The customer's last order is anywhere among the loaded orders.
        let order = terminal.random.below(self.orders);
        plan.read(self.history + order * LINES_PER_ORDER * LINE_BYTES, LINES_PER_ORDER * LINE_BYTES);
    }

    fn delivery(&self, terminal: &mut Terminal, plan: &mut Plan) {
        // Ten districts' oldest orders, near one another since they were entered in turn.
        let own = share(self.orders * (10 - DELIVERED_TENTHS) / 10, terminal.thread, self.threads);
        for _ in 0..10 {
            let order = self.orders * DELIVERED_TENTHS / 10
                + own.start
                + terminal.delivered % (own.end - own.start).max(1);
            let at = self.history + order.min(self.orders - 1) * LINES_PER_ORDER * LINE_BYTES;
            plan.independent();
            for line in 0..LINES_PER_ORDER {
                plan.read(at + line * LINE_BYTES, LINE_BYTES);
                plan.write(at + line * LINE_BYTES + VECTOR_BYTES, VECTOR_BYTES);
            }
            self.customers.update(plan, self.customer(terminal));
            terminal.delivered += 1;
        }
    }

    fn stock_level(&self, terminal: &mut Terminal, plan: &mut Plan) {
        let count = (20 * LINES_PER_ORDER).min(terminal.appended);
        let end = self.room[terminal.thread as usize].start.0 + terminal.appended * LINE_BYTES;
        plan.independent();
        plan.read(end - count * LINE_BYTES, count * LINE_BYTES);
        for _ in 0..count {
            let item = self.item(terminal);
            let row = self.stock_of(terminal, item);
            self.stock.find(plan, row);
        }
    }
}

impl Service for OrderProcessing {
    type State = Terminal;

    fn state(&self, thread: u32) -> Terminal {
        Terminal {
            thread,
            random: Random::of_thread(self.seed, thread),
            lines: Extents::new(self.room[thread as usize], EXTENT, self.site, thread, 0),
            appended: 0,
            delivered: 0,
            logged: 0,
        }
    }

    fn plan<M: Memory>(&self, terminal: &mut Terminal, plan: &mut Plan, memory: &mut M) {
        let logged = match terminal.random.below(100) {
            0..45 => {
                self.new_order(terminal, plan, memory);
                LARGEST_RECORD
            }
            45..88 => {
                self.payment(terminal, plan);
                512
            }
            88..92 => {
                self.order_status(terminal, plan);
                0
            }
            92..96 => {
                self.delivery(terminal, plan);
                LARGEST_RECORD
            }
            _ => {
                self.stock_level(terminal, plan);
                0
            }
        };
        plan.independent();
        let own = self.log + u64::from(terminal.thread) * self.log_bytes;
        plan.write(own + terminal.logged % (self.log_bytes - LARGEST_RECORD), logged);
        terminal.logged += logged;
    }
}
