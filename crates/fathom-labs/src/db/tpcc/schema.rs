//! The nine tables of TPC-C (revision 5.11, clauses 1.3 and 4.3): made and filled, for three dialects of SQL.

use fathom_stats::rng::SplitMix64;

use super::super::sql::{Dialect, Result, Rows, Session};

/// Items, and stocked items of a warehouse.
pub(super) const ITEMS: i64 = 100_000;
/// Districts of a warehouse.
pub(super) const DISTRICTS: i64 = 10;
/// Customers of a district, and its first orders.
pub(super) const CUSTOMERS: i64 = 3000;
/// Of the first orders, those that are not delivered yet begin here.
const UNDELIVERED: i64 = 2101;
/// Bytes of a warehouse, indexes included, as databases store it.
pub(super) const WAREHOUSE_BYTES: u64 = 150 << 20;

const ADDRESS: &str = "street_1 VARCHAR(20), PREFIX_street_2 VARCHAR(20), PREFIX_city VARCHAR(20), PREFIX_state CHAR(2), PREFIX_zip CHAR(9)";

/// Makes the tables.
pub(super) fn create(session: &mut dyn Session, dialect: Dialect) -> Result<()> {
    let address = |p: &str| format!("{p}_{}", ADDRESS.replace("PREFIX", p));
    let dists: String = (1..=10)
        .map(|d| format!("s_dist_{d:02} CHAR(24), "))
        .collect();
    let (time, engine) = (dialect.time(), dialect.engine());
    for (name, columns) in [
        ("warehouse", format!("w_id INT PRIMARY KEY, w_name VARCHAR(10), {}, w_tax DECIMAL(4,4), w_ytd DECIMAL(12,2)", address("w"))),
        ("district", format!("d_w_id INT, d_id INT, d_name VARCHAR(10), {}, d_tax DECIMAL(4,4), d_ytd DECIMAL(12,2), d_next_o_id INT, PRIMARY KEY (d_w_id, d_id)", address("d"))),
        ("customer", format!("c_w_id INT, c_d_id INT, c_id INT, c_first VARCHAR(16), c_middle CHAR(2), c_last VARCHAR(16), {}, c_phone CHAR(16), c_since {time}, c_credit CHAR(2), c_credit_lim DECIMAL(12,2), c_discount DECIMAL(4,4), c_balance DECIMAL(12,2), c_ytd_payment DECIMAL(12,2), c_payment_cnt INT, c_delivery_cnt INT, c_data VARCHAR(500), PRIMARY KEY (c_w_id, c_d_id, c_id)", address("c"))),
        ("history", format!("h_c_id INT, h_c_d_id INT, h_c_w_id INT, h_d_id INT, h_w_id INT, h_date {time}, h_amount DECIMAL(6,2), h_data VARCHAR(24)")),
        ("new_order", "no_w_id INT, no_d_id INT, no_o_id INT, PRIMARY KEY (no_w_id, no_d_id, no_o_id)".into()),
        ("orders", format!("o_w_id INT, o_d_id INT, o_id INT, o_c_id INT, o_entry_d {time}, o_carrier_id INT, o_ol_cnt INT, o_all_local INT, PRIMARY KEY (o_w_id, o_d_id, o_id)")),
        ("order_line", format!("ol_w_id INT, ol_d_id INT, ol_o_id INT, ol_number INT, ol_i_id INT, ol_supply_w_id INT, ol_delivery_d {time}, ol_quantity INT, ol_amount DECIMAL(6,2), ol_dist_info CHAR(24), PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number)")),
        ("item", "i_id INT PRIMARY KEY, i_im_id INT, i_name VARCHAR(24), i_price DECIMAL(5,2), i_data VARCHAR(50)".into()),
        ("stock", format!("s_w_id INT, s_i_id INT, s_quantity INT, {dists}s_ytd INT, s_order_cnt INT, s_remote_cnt INT, s_data VARCHAR(50), PRIMARY KEY (s_w_id, s_i_id)")),
    ] {
        session.batch(&format!("CREATE TABLE {name} ({columns}){engine}"))?;
    }
    Ok(())
}

/// Makes the indexes, when the tables are filled.
pub(super) fn index(session: &mut dyn Session, dialect: Dialect) -> Result<()> {
    session.batch("CREATE INDEX customer_name ON customer (c_w_id, c_d_id, c_last, c_first)")?;
    session.batch("CREATE INDEX orders_customer ON orders (o_w_id, o_d_id, o_c_id, o_id)")?;
    match dialect {
        Dialect::Mysql => session.batch("ANALYZE TABLE customer, orders, order_line, stock, item"),
        _ => session.batch("ANALYZE"),
    }
}

const SYLLABLES: [&str; 10] = [
    "BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING",
];

/// A last name from a number below 1000 (clause 4.3.2.3).
pub(super) fn last_name(n: i64) -> String {
    let s = |i: i64| SYLLABLES[(i % 10) as usize];
    format!("{}{}{}", s(n / 100), s(n / 10), s(n))
}

/// A number from both ends' range.
pub(super) fn between(random: &mut SplitMix64, low: i64, high: i64) -> i64 {
    low + random.below((high - low + 1) as usize) as i64
}

/// NURand of clause 2.1.6.
pub(super) fn nurand(random: &mut SplitMix64, a: i64, c: i64, low: i64, high: i64) -> i64 {
    let mixed = between(random, 0, a) | between(random, low, high);
    (mixed + c) % (high - low + 1) + low
}

/// Constants of the last name's NURand: one for the load, one for the run, as far apart as clause 2.1.6.1 wants.
pub(super) fn last_name_constants(random: &mut SplitMix64) -> (i64, i64) {
    let load = between(random, 0, 255);
    loop {
        let run = between(random, 0, 255);
        let delta = (run - load).abs();
        if (65..=119).contains(&delta) && delta != 96 && delta != 112 {
            return (load, run);
        }
    }
}

fn letters(random: &mut SplitMix64, low: i64, high: i64, out: &mut String) {
    const SET: &[u8; 62] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    let mut n = between(random, low, high);
    while n > 0 {
        let mut bits = random.next_u64();
        for _ in 0..n.min(10) {
            out.push(char::from(SET[(bits % 62) as usize]));
            bits /= 62;
        }
        n -= 10;
    }
}

fn text(random: &mut SplitMix64, low: i64, high: i64, out: &mut String) {
    out.push('\'');
    letters(random, low, high, out);
    out.push('\'');
}

/// Data of items and stock: a tenth says ORIGINAL somewhere.
fn data(random: &mut SplitMix64, out: &mut String) {
    let mut s = String::new();
    letters(random, 26, 50, &mut s);
    if random.below(10) == 0 {
        let at = random.below(s.len() - 8);
        s.replace_range(at..at + 8, "ORIGINAL");
    }
    out.push('\'');
    out.push_str(&s);
    out.push('\'');
}

fn address(random: &mut SplitMix64, out: &mut String) {
    for (low, high) in [(10, 20), (10, 20), (10, 20), (2, 2)] {
        text(random, low, high, out);
        out.push(',');
    }
    out.push_str(&format!("'{:04}11111'", random.below(10_000)));
}

fn hundredths(random: &mut SplitMix64, low: i64, high: i64) -> f64 {
    between(random, low, high) as f64 / 100.0
}

/// Fills the items.
pub(super) fn load_items(session: &mut dyn Session, seed: u64) -> Result<()> {
    let mut random = SplitMix64::new(seed);
    session.batch("BEGIN")?;
    let mut rows = Rows::of(session, "item");
    for i in 1..=ITEMS {
        rows.row(|s| {
            s.push_str(&format!("{i},{},", between(&mut random, 1, 10_000)));
            text(&mut random, 14, 24, s);
            s.push_str(&format!(",{:.2},", hundredths(&mut random, 100, 10_000)));
            data(&mut random, s);
        })?;
    }
    rows.flush()?;
    session.batch("COMMIT")
}

/// Fills everything of a warehouse (clause 4.3.3.1).
pub(super) fn load_warehouse(
    session: &mut dyn Session,
    w: i64,
    seed: u64,
    c_last: i64,
    now: &str,
    stop: &dyn Fn() -> bool,
) -> Result<()> {
    let mut random = SplitMix64::new(seed ^ SplitMix64::new(w as u64).next_u64());
    let random = &mut random;
    session.batch("BEGIN")?;
    let mut rows = Rows::of(session, "warehouse");
    rows.row(|s| {
        s.push_str(&format!("{w},"));
        text(random, 6, 10, s);
        s.push(',');
        address(random, s);
        let tax = between(random, 0, 2000) as f64 / 10_000.0;
        s.push_str(&format!(",{tax},300000.00"));
    })?;
    rows.flush()?;
    let mut rows = Rows::of(session, "stock");
    for i in 1..=ITEMS {
        if i % 1000 == 0 && stop() {
            return Ok(());
        }
        rows.row(|s| {
            s.push_str(&format!("{w},{i},{},", between(random, 10, 100)));
            for _ in 0..10 {
                text(random, 24, 24, s);
                s.push(',');
            }
            s.push_str("0,0,0,");
            data(random, s);
        })?;
    }
    rows.flush()?;
    session.batch("COMMIT")?;
    for d in 1..=DISTRICTS {
        if stop() {
            return Ok(());
        }
        session.batch("BEGIN")?;
        load_district(session, w, d, random, c_last, now)?;
        session.batch("COMMIT")?;
    }
    Ok(())
}

fn load_district(
    session: &mut dyn Session,
    w: i64,
    d: i64,
    random: &mut SplitMix64,
    c_last: i64,
    now: &str,
) -> Result<()> {
    let mut rows = Rows::of(session, "district");
    rows.row(|s| {
        s.push_str(&format!("{w},{d},"));
        text(random, 6, 10, s);
        s.push(',');
        address(random, s);
        let tax = between(random, 0, 2000) as f64 / 10_000.0;
        s.push_str(&format!(",{tax},30000.00,{}", CUSTOMERS + 1));
    })?;
    rows.flush()?;
    load_customers(session, w, d, random, c_last, now)?;
    load_orders(session, w, d, random, now)
}

/// With one payment each.
fn load_customers(
    session: &mut dyn Session,
    w: i64,
    d: i64,
    random: &mut SplitMix64,
    c_last: i64,
    now: &str,
) -> Result<()> {
    let mut rows = Rows::of(session, "customer");
    for c in 1..=CUSTOMERS {
        rows.row(|s| {
            s.push_str(&format!("{w},{d},{c},"));
            text(random, 8, 16, s);
            let name = if c <= 1000 {
                c - 1
            } else {
                nurand(random, 255, c_last, 0, 999)
            };
            s.push_str(&format!(",'OE','{}',", last_name(name)));
            address(random, s);
            let phone = random.next_u64() % 10_000_000_000_000_000;
            let credit = if random.below(10) == 0 { "BC" } else { "GC" };
            let discount = between(random, 0, 5000) as f64 / 10_000.0;
            s.push_str(&format!(
                ",'{phone:016}','{now}','{credit}',50000.00,{discount},-10.00,10.00,1,0,"
            ));
            text(random, 300, 500, s);
        })?;
    }
    rows.flush()?;
    let mut rows = Rows::of(session, "history");
    for c in 1..=CUSTOMERS {
        rows.row(|s| {
            s.push_str(&format!("{c},{d},{w},{d},{w},'{now}',10.00,"));
            text(random, 12, 24, s);
        })?;
    }
    rows.flush()
}

/// Each customer has one order, in random order.
fn load_orders(
    session: &mut dyn Session,
    w: i64,
    d: i64,
    random: &mut SplitMix64,
    now: &str,
) -> Result<()> {
    let mut customers: Vec<i64> = (1..=CUSTOMERS).collect();
    for i in (1..customers.len()).rev() {
        customers.swap(i, random.below(i + 1));
    }
    let lines: Vec<i64> = customers.iter().map(|_| between(random, 5, 15)).collect();
    let mut rows = Rows::of(session, "orders");
    for (o, (c, n)) in (1..).zip(customers.iter().zip(&lines)) {
        rows.row(|s| {
            s.push_str(&format!("{w},{d},{o},{c},'{now}',"));
            if o < UNDELIVERED {
                s.push_str(&between(random, 1, 10).to_string());
            } else {
                s.push_str("NULL");
            }
            s.push_str(&format!(",{n},1"));
        })?;
    }
    rows.flush()?;
    let mut rows = Rows::of(session, "new_order");
    for o in UNDELIVERED..=CUSTOMERS {
        rows.row(|s| s.push_str(&format!("{w},{d},{o}")))?;
    }
    rows.flush()?;
    let mut rows = Rows::of(session, "order_line");
    for (o, n) in (1..).zip(&lines) {
        for number in 1..=*n {
            rows.row(|s| {
                let item = between(random, 1, ITEMS);
                s.push_str(&format!("{w},{d},{o},{number},{item},{w},"));
                if o < UNDELIVERED {
                    s.push_str(&format!("'{now}',5,0.00,"));
                } else {
                    let amount = hundredths(random, 1, 999_999);
                    s.push_str(&format!("NULL,5,{amount:.2},"));
                }
                text(random, 24, 24, s);
            })?;
        }
    }
    rows.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_names_are_the_specifications() {
        assert_eq!(last_name(371), "PRICALLYOUGHT");
        assert_eq!(last_name(40), "BARPRESBAR");
        assert_eq!(last_name(999), "EINGEINGEING");
    }

    #[test]
    fn nurand_stays_in_its_range_and_is_not_uniform() {
        let mut random = SplitMix64::new(1);
        let mut hits = [0u32; 3000];
        for _ in 0..300_000 {
            hits[nurand(&mut random, 1023, 123, 1, 3000) as usize - 1] += 1;
        }
        let (least, most) = (hits.iter().min().unwrap(), hits.iter().max().unwrap());
        assert!(most > &(least * 5), "{least} {most}");
    }

    #[test]
    fn constants_are_as_far_apart_as_allowed() {
        for seed in 0..200 {
            let (load, run) = last_name_constants(&mut SplitMix64::new(seed));
            let delta = (load - run).abs();
            assert!((65..=119).contains(&delta) && delta != 96 && delta != 112);
        }
    }
}
