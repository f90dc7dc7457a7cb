//! The five transactions of TPC-C (clause 2).

use fathom_stats::rng::SplitMix64;
use fathom_telemetry::Op;

use super::super::sql::{Answer, Dialect, Result, Session, Value};
use super::schema::{CUSTOMERS, DISTRICTS, ITEMS, between, last_name, nurand};
use Value::{Int, Num, Text};

/// Which transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    NewOrder,
    Payment,
    OrderStatus,
    Delivery,
    StockLevel,
}

impl Kind {
    pub(super) const ALL: [Self; 5] = [
        Self::NewOrder,
        Self::Payment,
        Self::OrderStatus,
        Self::Delivery,
        Self::StockLevel,
    ];
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::NewOrder => "new-order",
            Self::Payment => "payment",
            Self::OrderStatus => "order-status",
            Self::Delivery => "delivery",
            Self::StockLevel => "stock-level",
        }
    }
    /// Whether it writes.
    pub(super) fn op(self) -> Op {
        match self {
            Self::OrderStatus | Self::StockLevel => Op::Read,
            _ => Op::Write,
        }
    }
    /// The same as what a recorder takes.
    pub(super) fn ops(self) -> &'static [Op] {
        match self.op() {
            Op::Read => &[Op::Read],
            _ => &[Op::Write],
        }
    }
    /// A deck of cards: 10 new orders, 10 payments, one of each other (clause 5.2.4.2).
    pub(super) fn deck(random: &mut SplitMix64) -> Vec<Self> {
        let mut deck = vec![Self::OrderStatus, Self::Delivery, Self::StockLevel];
        deck.extend([Self::NewOrder; 10]);
        deck.extend([Self::Payment; 10]);
        for i in (1..deck.len()).rev() {
            deck.swap(i, random.below(i + 1));
        }
        deck
    }
}

/// Constants of NURand for a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Constants {
    pub(super) last: i64,
    pub(super) customer: i64,
    pub(super) item: i64,
}

/// A transaction's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Committed,
    /// The 1 % of new orders whose last item does not exist.
    RolledBack,
}

macro_rules! statements {
    ($($name:ident: $sql:expr,)*) => {
        /// Numbers of the prepared statements.
        struct Statements { stock: Vec<usize>, $($name: usize,)* }
        impl Statements {
            fn prepare(s: &mut dyn Session, dialect: Dialect) -> Result<Self> {
                let lock = dialect.for_update();
                let stock = (1..=10)
                    .map(|d| s.prepare(&format!("SELECT s_quantity, s_data, s_dist_{d:02} FROM stock WHERE s_w_id = ? AND s_i_id = ?{lock}")))
                    .collect::<Result<_>>()?;
                Ok(Self { stock, $($name: s.prepare(&$sql.replace("LOCK", lock))?,)* })
            }
        }
    };
}

statements! {
    warehouse_tax: "SELECT w_tax FROM warehouse WHERE w_id = ?",
    district_next: "SELECT d_tax, d_next_o_id FROM district WHERE d_w_id = ? AND d_id = ?LOCK",
    district_count: "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = ? AND d_id = ?",
    customer_credit: "SELECT c_discount, c_last, c_credit FROM customer WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?",
    order_insert: "INSERT INTO orders VALUES (?, ?, ?, ?, ?, NULL, ?, ?)",
    new_order_insert: "INSERT INTO new_order VALUES (?, ?, ?)",
    item: "SELECT i_price, i_name, i_data FROM item WHERE i_id = ?",
    stock_update: "UPDATE stock SET s_quantity = ?, s_ytd = s_ytd + ?, s_order_cnt = s_order_cnt + 1, s_remote_cnt = s_remote_cnt + ? WHERE s_w_id = ? AND s_i_id = ?",
    line_insert: "INSERT INTO order_line VALUES (?, ?, ?, ?, ?, ?, NULL, ?, ?, ?)",
    warehouse_pay: "UPDATE warehouse SET w_ytd = w_ytd + ? WHERE w_id = ?",
    warehouse: "SELECT w_name, w_street_1, w_street_2, w_city, w_state, w_zip FROM warehouse WHERE w_id = ?",
    district_pay: "UPDATE district SET d_ytd = d_ytd + ? WHERE d_w_id = ? AND d_id = ?",
    district: "SELECT d_name, d_street_1, d_street_2, d_city, d_state, d_zip FROM district WHERE d_w_id = ? AND d_id = ?",
    by_name: "SELECT c_id FROM customer WHERE c_w_id = ? AND c_d_id = ? AND c_last = ? ORDER BY c_first",
    customer_lock: "SELECT c_first, c_middle, c_last, c_street_1, c_city, c_phone, c_since, c_credit, c_credit_lim, c_discount, c_balance FROM customer WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?LOCK",
    customer_data: "SELECT c_data FROM customer WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?",
    customer_pay: "UPDATE customer SET c_balance = c_balance - ?, c_ytd_payment = c_ytd_payment + ?, c_payment_cnt = c_payment_cnt + 1 WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?",
    customer_pay_bad: "UPDATE customer SET c_balance = c_balance - ?, c_ytd_payment = c_ytd_payment + ?, c_payment_cnt = c_payment_cnt + 1, c_data = ? WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?",
    history_insert: "INSERT INTO history VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
    customer: "SELECT c_balance, c_first, c_middle, c_last FROM customer WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?",
    last_order: "SELECT o_id, o_entry_d, o_carrier_id FROM orders WHERE o_w_id = ? AND o_d_id = ? AND o_c_id = ? ORDER BY o_id DESC LIMIT 1",
    lines: "SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d FROM order_line WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id = ?",
    oldest: "SELECT no_o_id FROM new_order WHERE no_w_id = ? AND no_d_id = ? ORDER BY no_o_id LIMIT 1LOCK",
    new_order_delete: "DELETE FROM new_order WHERE no_w_id = ? AND no_d_id = ? AND no_o_id = ?",
    order_customer: "SELECT o_c_id FROM orders WHERE o_w_id = ? AND o_d_id = ? AND o_id = ?",
    order_carrier: "UPDATE orders SET o_carrier_id = ? WHERE o_w_id = ? AND o_d_id = ? AND o_id = ?",
    lines_deliver: "UPDATE order_line SET ol_delivery_d = ? WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id = ?",
    lines_sum: "SELECT SUM(ol_amount) FROM order_line WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id = ?",
    customer_deliver: "UPDATE customer SET c_balance = c_balance + ?, c_delivery_cnt = c_delivery_cnt + 1 WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?",
    next_order: "SELECT d_next_o_id FROM district WHERE d_w_id = ? AND d_id = ?",
    low_stock: "SELECT COUNT(DISTINCT s_i_id) FROM order_line, stock WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id < ? AND ol_o_id >= ? AND s_w_id = ? AND s_i_id = ol_i_id AND s_quantity < ?",
}

/// A connection that does transactions.
pub(super) struct Client {
    session: Box<dyn Session>,
    statements: Statements,
    answer: Answer,
    dialect: Dialect,
    constants: Constants,
    warehouses: i64,
    pub(super) random: SplitMix64,
    text: String,
}

fn cents(v: f64) -> f64 {
    (v * 100.0).round() / 100.0
}

impl Client {
    /// Prepares everything.
    pub(super) fn new(
        mut session: Box<dyn Session>,
        dialect: Dialect,
        constants: Constants,
        warehouses: i64,
        seed: u64,
    ) -> Result<Self> {
        let statements = Statements::prepare(&mut *session, dialect)?;
        Ok(Self {
            session,
            statements,
            answer: Answer::default(),
            dialect,
            constants,
            warehouses,
            random: SplitMix64::new(seed),
            text: String::new(),
        })
    }

    /// Does one; an error leaves nothing open.
    ///
    /// # Errors
    /// As the database says; [`super::super::sql::SqlError::again`] where it may be tried again.
    pub(super) fn run(&mut self, kind: Kind, w: i64, d: i64, now: &str) -> Result<End> {
        let writes = !matches!(kind, Kind::OrderStatus | Kind::StockLevel);
        let begin = if writes {
            self.dialect.begin()
        } else {
            "BEGIN"
        };
        let done = self.session.batch(begin).and_then(|()| match kind {
            Kind::NewOrder => self.new_order(w, now),
            Kind::Payment => self.payment(w, now),
            Kind::OrderStatus => self.order_status(w),
            Kind::Delivery => self.delivery(w, now),
            Kind::StockLevel => self.stock_level(w, d),
        });
        let done = done.and_then(|end| {
            let last = if end == End::Committed {
                "COMMIT"
            } else {
                "ROLLBACK"
            };
            self.session.batch(last).map(|()| end)
        });
        if done.is_err() {
            // A lost connection cannot roll back, and need not.
            let _ = self.session.batch("ROLLBACK");
        }
        done
    }

    fn sql(&mut self, statement: usize, values: &[Value<'_>]) -> Result<()> {
        self.session.execute(statement, values, &mut self.answer)
    }

    fn pick_customer(&mut self) -> i64 {
        nurand(
            &mut self.random,
            1023,
            self.constants.customer,
            1,
            CUSTOMERS,
        )
    }

    fn other_warehouse(&mut self, w: i64) -> i64 {
        let n = between(&mut self.random, 1, self.warehouses - 1);
        if n >= w { n + 1 } else { n }
    }

    /// Lines of an order: from which warehouse, which item, how many. Of a hundred orders one has an item that nobody has.
    fn draw_items(&mut self, w: i64) -> Vec<(i64, i64, i64)> {
        let n = between(&mut self.random, 5, 15);
        let fails = self.random.below(100) == 0;
        let mut items: Vec<(i64, i64, i64)> = (0..n)
            .map(|_| {
                let item = nurand(&mut self.random, 8191, self.constants.item, 1, ITEMS);
                let remote = self.warehouses > 1 && self.random.below(100) == 0;
                let from = if remote { self.other_warehouse(w) } else { w };
                (from, item, between(&mut self.random, 1, 10))
            })
            .collect();
        // Everybody takes stock in the same order, so that few wait for each other.
        items.sort_unstable();
        if fails && let Some(last) = items.last_mut() {
            last.1 = ITEMS + 1;
        }
        items
    }

    fn new_order(&mut self, w: i64, now: &str) -> Result<End> {
        let d = between(&mut self.random, 1, DISTRICTS);
        let c = self.pick_customer();
        let items = self.draw_items(w);
        let n = items.len() as i64;
        let local = items.iter().all(|i| i.0 == w);
        self.sql(self.statements.warehouse_tax, &[Int(w)])?;
        let w_tax = self.answer.num(0, 0)?;
        self.sql(self.statements.district_next, &[Int(w), Int(d)])?;
        let (d_tax, o) = (self.answer.num(0, 0)?, self.answer.int(0, 1)?);
        self.sql(self.statements.district_count, &[Int(w), Int(d)])?;
        self.sql(self.statements.customer_credit, &[Int(w), Int(d), Int(c)])?;
        let discount = self.answer.num(0, 0)?;
        let order = [
            Int(w),
            Int(d),
            Int(o),
            Int(c),
            Text(now),
            Int(n),
            Int(i64::from(local)),
        ];
        self.sql(self.statements.order_insert, &order)?;
        self.sql(self.statements.new_order_insert, &[Int(w), Int(d), Int(o)])?;
        let mut total = 0.0;
        for (number, (from, item, quantity)) in (1..).zip(items) {
            self.sql(self.statements.item, &[Int(item)])?;
            if self.answer.rows() == 0 {
                return Ok(End::RolledBack);
            }
            let amount = cents(self.answer.num(0, 0)? * quantity as f64);
            let stock = self.statements.stock[d as usize - 1];
            self.sql(stock, &[Int(from), Int(item)])?;
            let left = self.answer.int(0, 0)?;
            let left = if left >= quantity + 10 {
                left - quantity
            } else {
                left - quantity + 91
            };
            let mut info = std::mem::take(&mut self.text);
            info.clear();
            info.push_str(self.answer.text(0, 2));
            let update = [
                Int(left),
                Int(quantity),
                Int(i64::from(from != w)),
                Int(from),
                Int(item),
            ];
            self.sql(self.statements.stock_update, &update)?;
            let line = [
                Int(w),
                Int(d),
                Int(o),
                Int(number),
                Int(item),
                Int(from),
                Int(quantity),
                Num(amount),
                Text(&info),
            ];
            let inserted = self.sql(self.statements.line_insert, &line);
            self.text = info;
            inserted?;
            total += amount;
        }
        // The terminal would show it.
        std::hint::black_box(total * (1.0 - discount) * (1.0 + w_tax + d_tax));
        Ok(End::Committed)
    }

    /// A customer by number, or in 60 % by last name: the one in the middle by first name.
    fn customer(&mut self, w: i64, d: i64) -> Result<i64> {
        if self.random.below(100) >= 60 {
            return Ok(self.pick_customer());
        }
        let n = nurand(&mut self.random, 255, self.constants.last, 0, 999);
        let name = last_name(n);
        self.sql(self.statements.by_name, &[Int(w), Int(d), Text(&name)])?;
        let rows = self.answer.rows();
        // Each of the thousand names was given to a customer of each district.
        self.answer.int(rows.div_ceil(2).saturating_sub(1), 0)
    }

    fn payment(&mut self, w: i64, now: &str) -> Result<End> {
        let d = between(&mut self.random, 1, DISTRICTS);
        let remote = self.warehouses > 1 && self.random.below(100) >= 85;
        let (cw, cd) = if remote {
            let cw = self.other_warehouse(w);
            (cw, between(&mut self.random, 1, DISTRICTS))
        } else {
            (w, d)
        };
        let amount = between(&mut self.random, 100, 500_000) as f64 / 100.0;
        self.sql(self.statements.warehouse_pay, &[Num(amount), Int(w)])?;
        self.sql(self.statements.warehouse, &[Int(w)])?;
        let mut data = self.answer.text(0, 0).to_owned();
        let paid = [Num(amount), Int(w), Int(d)];
        self.sql(self.statements.district_pay, &paid)?;
        self.sql(self.statements.district, &[Int(w), Int(d)])?;
        data.push_str("    ");
        data.push_str(self.answer.text(0, 0));
        let c = self.customer(cw, cd)?;
        let who = [Int(cw), Int(cd), Int(c)];
        self.sql(self.statements.customer_lock, &who)?;
        if self.answer.text(0, 7) == "BC" {
            self.sql(self.statements.customer_data, &who)?;
            let mut said = format!("{c} {cd} {cw} {d} {w} {amount:.2} | ");
            said.push_str(self.answer.text(0, 0));
            said.truncate(500);
            let values = [
                Num(amount),
                Num(amount),
                Text(&said),
                Int(cw),
                Int(cd),
                Int(c),
            ];
            self.sql(self.statements.customer_pay_bad, &values)?;
        } else {
            let values = [Num(amount), Num(amount), Int(cw), Int(cd), Int(c)];
            self.sql(self.statements.customer_pay, &values)?;
        }
        let row = [
            Int(c),
            Int(cd),
            Int(cw),
            Int(d),
            Int(w),
            Text(now),
            Num(amount),
            Text(&data),
        ];
        self.sql(self.statements.history_insert, &row)?;
        Ok(End::Committed)
    }

    fn order_status(&mut self, w: i64) -> Result<End> {
        let d = between(&mut self.random, 1, DISTRICTS);
        let c = self.customer(w, d)?;
        self.sql(self.statements.customer, &[Int(w), Int(d), Int(c)])?;
        self.sql(self.statements.last_order, &[Int(w), Int(d), Int(c)])?;
        let o = self.answer.int(0, 0)?;
        self.sql(self.statements.lines, &[Int(w), Int(d), Int(o)])?;
        Ok(End::Committed)
    }

    fn delivery(&mut self, w: i64, now: &str) -> Result<End> {
        let carrier = between(&mut self.random, 1, 10);
        for d in 1..=DISTRICTS {
            self.sql(self.statements.oldest, &[Int(w), Int(d)])?;
            if self.answer.rows() == 0 {
                continue;
            }
            let o = self.answer.int(0, 0)?;
            let order = [Int(w), Int(d), Int(o)];
            self.sql(self.statements.new_order_delete, &order)?;
            self.sql(self.statements.order_customer, &order)?;
            let c = self.answer.int(0, 0)?;
            let carried = [Int(carrier), Int(w), Int(d), Int(o)];
            self.sql(self.statements.order_carrier, &carried)?;
            let delivered = [Text(now), Int(w), Int(d), Int(o)];
            self.sql(self.statements.lines_deliver, &delivered)?;
            self.sql(self.statements.lines_sum, &order)?;
            let amount = cents(self.answer.num(0, 0)?);
            let values = [Num(amount), Int(w), Int(d), Int(c)];
            self.sql(self.statements.customer_deliver, &values)?;
        }
        Ok(End::Committed)
    }

    fn stock_level(&mut self, w: i64, d: i64) -> Result<End> {
        let threshold = between(&mut self.random, 10, 20);
        self.sql(self.statements.next_order, &[Int(w), Int(d)])?;
        let next = self.answer.int(0, 0)?;
        let values = [
            Int(w),
            Int(d),
            Int(next),
            Int(next - 20),
            Int(w),
            Int(threshold),
        ];
        self.sql(self.statements.low_stock, &values)?;
        Ok(End::Committed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deck_has_the_specifications_shares() {
        let deck = Kind::deck(&mut SplitMix64::new(3));
        let count = |k| deck.iter().filter(|x| **x == k).count();
        assert_eq!(Kind::ALL.map(count), [10, 10, 1, 1, 1]);
    }
}
