//! LinkBench (Armstrong et al. 2013) on a database: nodes, links between them and counts of links, asked and changed as Facebook's
//! graph was.
//!
//! Tables are those of its README without partitions, statements those of `LinkStoreMysql.java`, shares, skew and sizes those of
//! `config/FBWorkload.properties`. What is approximated is said in [`draw`]; and statements are prepared, where LinkBench writes their
//! values into them, and a commit is a statement of its own, where LinkBench appends it to the last one. Where there is no `ON DUPLICATE KEY`
//! (PostgreSQL, SQLite), whether a link was there is asked by an insert that does nothing on conflict.

mod draw;

use std::time::{SystemTime, UNIX_EPOCH};

use fathom_stats::rng::SplitMix64;
use fathom_telemetry::Op;

use super::sql::{Answer, Dialect, Result, Rows, Session, Value};
use super::workload::{Transactions, Workload};
use Value::{Int, Text};
use draw::{Access, Graph, Payload, TYPES, multiget};

/// Bytes of a node with its links and indexes, as databases store it ("1M ids ~= 1GB").
pub(super) const NODE_BYTES: u64 = 1100;
/// Of `LinkStore.java`.
const NODE_TYPE: i64 = 2048;
const LINK_TYPE: i64 = 123_456_789;
const HIDDEN: i64 = 0;
const VISIBLE: i64 = 1;
/// Links that a list has at most (`DEFAULT_LIMIT`); where there are more the rest may be asked for later.
const LIST_MAX: usize = 10_000;
/// Lists with a rest that a client remembers (`listTailHistoryLimit`), and how often it asks for one (`getlinklist_history`, 0.3 %).
const TAILS: usize = 2048;
const TAIL_SHARE: f64 = 0.003;
/// Chances that a link is there already which is added, changed or deleted, or asked for (`ID2Chooser.java`).
const ADDS: f64 = 0.05;
const CHANGES: f64 = 0.9;
const GETS: f64 = 0.5;

/// What is done, with its share in percent (`config/FBWorkload.properties`), in LinkBench's order.
const OPERATIONS: [(Operation, &str, f64, Op); 10] = [
    (Operation::AddLink, "add-link", 8.988_660_1, Op::Write),
    (Operation::DeleteLink, "delete-link", 2.990_766_4, Op::Write),
    (Operation::UpdateLink, "update-link", 8.012_212_5, Op::Write),
    (Operation::CountLinks, "count-links", 4.886_356_7, Op::Read),
    (Operation::GetLinks, "get-links", 0.526_114_2, Op::Read),
    (Operation::ListLinks, "list-links", 50.711_914_5, Op::Read),
    (Operation::AddNode, "add-node", 2.573_278_9, Op::Write),
    (Operation::UpdateNode, "update-node", 7.366_437, Op::Write),
    (Operation::DeleteNode, "delete-node", 1.011_591_4, Op::Write),
    (Operation::GetNode, "get-node", 12.932_668_3, Op::Read),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    AddLink,
    DeleteLink,
    UpdateLink,
    CountLinks,
    GetLinks,
    ListLinks,
    AddNode,
    UpdateNode,
    DeleteNode,
    GetNode,
}

/// The load by its name, `linkbench`, on a graph of so many nodes at the start.
pub(super) fn named(name: &str, nodes: u64) -> Option<Box<dyn Workload>> {
    (name == "linkbench").then(|| -> Box<dyn Workload> { Box::new(LinkBench::new(nodes)) })
}

struct LinkBench {
    graph: Graph,
    link: Payload,
    node: Payload,
}

impl LinkBench {
    fn new(nodes: u64) -> Self {
        Self {
            graph: Graph::new(nodes),
            link: Payload::of_links(),
            node: Payload::of_nodes(),
        }
    }
}

/// Milliseconds since 1970, as links have them.
fn millis() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |d| d.as_millis() as i64)
}

/// Makes the tables.
fn create(session: &mut dyn Session, dialect: Dialect) -> Result<()> {
    let id = match dialect {
        Dialect::Mysql => "BIGINT PRIMARY KEY AUTO_INCREMENT",
        Dialect::Postgres => "BIGSERIAL PRIMARY KEY",
        Dialect::Sqlite => "INTEGER PRIMARY KEY",
    };
    let text = match dialect {
        Dialect::Mysql => "MEDIUMTEXT",
        _ => "TEXT",
    };
    for table in [
        format!(
            "nodetable (id {id}, type INT NOT NULL, version BIGINT NOT NULL, time BIGINT NOT NULL, data {text} NOT NULL)"
        ),
        "linktable (id1 BIGINT NOT NULL, id2 BIGINT NOT NULL, link_type BIGINT NOT NULL, visibility SMALLINT NOT NULL, data VARCHAR(255) NOT NULL, time BIGINT NOT NULL, version BIGINT NOT NULL, PRIMARY KEY (link_type, id1, id2))".into(),
        "counttable (id BIGINT NOT NULL, link_type BIGINT NOT NULL, count BIGINT NOT NULL, time BIGINT NOT NULL, version BIGINT NOT NULL, PRIMARY KEY (id, link_type))".into(),
    ] {
        session.batch(&format!("CREATE TABLE {table}{}", dialect.engine()))?;
    }
    // Made before the rows come, as LinkBench fills tables that have it.
    session.batch(
        "CREATE INDEX id1_type ON linktable (id1, link_type, visibility, time, id2, version, data)",
    )
}

impl Workload for LinkBench {
    fn kinds(&self) -> Vec<(String, Op)> {
        let all = OPERATIONS.iter();
        all.map(|(_, name, _, op)| ((*name).to_owned(), *op))
            .collect()
    }

    fn fill(
        &self,
        session: &mut dyn Session,
        dialect: Dialect,
        seed: u64,
        stop: &dyn Fn() -> bool,
    ) -> Result<()> {
        /// Nodes of a transaction.
        const STEP: u64 = 2000;
        create(session, dialect)?;
        let mut random = SplitMix64::new(seed);
        let mut data = String::new();
        let now = millis();
        let mut first = 1;
        while first <= self.graph.nodes && !stop() {
            let nodes = first..(first + STEP).min(self.graph.nodes + 1);
            first = nodes.end;
            session.batch("BEGIN")?;
            let mut rows = Rows::of(session, "nodetable (type, version, time, data)");
            for _ in nodes.clone() {
                self.node.fill(&mut random, &mut data);
                rows.row(|s| s.push_str(&format!("{NODE_TYPE},1,{},'{data}'", now / 1000)))?;
            }
            rows.flush()?;
            let mut rows = Rows::of(session, "linktable");
            for node in nodes.clone() {
                for t in 0..TYPES {
                    for link in 0..self.graph.links(node, t) {
                        self.link.fill(&mut random, &mut data);
                        // Of the last 50 days, so that times and ends have nothing to do with each other.
                        let time = now - random.below(1 << 32) as i64;
                        let (other, kind) = (node + link, LINK_TYPE + t as i64);
                        rows.row(|s| {
                            s.push_str(&format!(
                                "{node},{other},{kind},{VISIBLE},'{data}',{time},0"
                            ));
                        })?;
                    }
                }
            }
            rows.flush()?;
            let mut rows = Rows::of(session, "counttable");
            for node in nodes {
                for t in 0..TYPES {
                    let n = self.graph.links(node, t);
                    if n > 0 {
                        let kind = LINK_TYPE + t as i64;
                        rows.row(|s| s.push_str(&format!("{node},{kind},{n},{now},0")))?;
                    }
                }
            }
            rows.flush()?;
            session.batch("COMMIT")?;
        }
        session.batch(match dialect {
            Dialect::Mysql => "ANALYZE TABLE nodetable, linktable, counttable",
            _ => "ANALYZE",
        })
    }

    fn client<'a>(
        &'a self,
        session: &'a mut dyn Session,
        dialect: Dialect,
        _number: u32,
        seed: u64,
    ) -> Result<Box<dyn Transactions + 'a>> {
        let statements = Statements::prepare(session, dialect)?;
        Ok(Box::new(Client {
            session,
            dialect,
            load: self,
            statements,
            random: SplitMix64::new(seed),
            tails: Vec::new(),
            data: String::with_capacity(4096),
            answer: Answer::default(),
        }))
    }
}

/// Numbers of the prepared statements.
struct Statements {
    insert_link: usize,
    update_link: usize,
    find_link: usize,
    hide_link: usize,
    count_up: usize,
    count_down: usize,
    count: usize,
    /// For 1, 2, 4, … 128 ends.
    get_links: Vec<usize>,
    list: usize,
    tail: usize,
    insert_node: usize,
    update_node: usize,
    delete_node: usize,
    get_node: usize,
}

impl Statements {
    fn prepare(s: &mut dyn Session, dialect: Dialect) -> Result<Self> {
        let mysql = dialect == Dialect::Mysql;
        let link = "WHERE id1 = ? AND id2 = ? AND link_type = ?";
        let columns = "id1, id2, link_type, visibility, data, time, version";
        // How an insert goes on where the row is there.
        let conflict = if mysql {
            "ON DUPLICATE KEY UPDATE visibility = VALUES(visibility)"
        } else {
            "ON CONFLICT (link_type, id1, id2) DO NOTHING"
        };
        let counted = if mysql {
            "ON DUPLICATE KEY UPDATE"
        } else {
            "ON CONFLICT (id, link_type) DO UPDATE SET"
        };
        let count = "counttable.count";
        let force = if mysql { " FORCE INDEX (id1_type)" } else { "" };
        let list = format!(
            "SELECT {columns} FROM linktable{force} WHERE id1 = ? AND link_type = ? AND time >= ? AND time <= ? AND visibility = {VISIBLE} ORDER BY time DESC LIMIT {LIST_MAX}"
        );
        let get_links = (0..8)
            .map(|power| {
                let ends = vec!["?"; 1 << power].join(", ");
                s.prepare(&format!(
                    "SELECT {columns} FROM linktable WHERE id1 = ? AND link_type = ? AND id2 IN ({ends})"
                ))
            })
            .collect::<Result<_>>()?;
        Ok(Self {
            insert_link: s.prepare(&format!(
                "INSERT INTO linktable ({columns}) VALUES (?, ?, ?, {VISIBLE}, ?, ?, 0) {conflict}"
            ))?,
            update_link: s.prepare(&format!(
                "UPDATE linktable SET visibility = {VISIBLE}, data = ?, time = ?, version = 0 {link}"
            ))?,
            find_link: s.prepare(&format!(
                "SELECT visibility FROM linktable {link}{}",
                dialect.for_update()
            ))?,
            hide_link: s.prepare(&format!("UPDATE linktable SET visibility = {HIDDEN} {link}"))?,
            count_up: s.prepare(&format!(
                "INSERT INTO counttable (id, link_type, count, time, version) VALUES (?, ?, 1, ?, 0) {counted} count = {count} + 1, version = counttable.version + 1, time = ?"
            ))?,
            count_down: s.prepare(&format!(
                "INSERT INTO counttable (id, link_type, count, time, version) VALUES (?, ?, 0, ?, 0) {counted} count = CASE WHEN {count} = 0 THEN 0 ELSE {count} - 1 END, time = ?, version = counttable.version + 1"
            ))?,
            count: s.prepare("SELECT count FROM counttable WHERE id = ? AND link_type = ?")?,
            get_links,
            tail: s.prepare(&format!("{list} OFFSET 1"))?,
            list: s.prepare(&list)?,
            insert_node: s.prepare(
                "INSERT INTO nodetable (type, version, time, data) VALUES (?, 1, ?, ?)",
            )?,
            update_node: s.prepare(
                "UPDATE nodetable SET version = 2, time = ?, data = ? WHERE id = ? AND type = ?",
            )?,
            delete_node: s.prepare("DELETE FROM nodetable WHERE id = ? AND type = ?")?,
            get_node: s.prepare("SELECT id, type, version, time, data FROM nodetable WHERE id = ?")?,
        })
    }
}

/// A list of which there was more than was asked for: node, type, and the time of the last link that came.
type Tail = (i64, i64, i64);

/// One client.
struct Client<'a> {
    session: &'a mut dyn Session,
    dialect: Dialect,
    load: &'a LinkBench,
    statements: Statements,
    random: SplitMix64,
    tails: Vec<Tail>,
    data: String,
    answer: Answer,
}

impl Client<'_> {
    fn sql(&mut self, statement: usize, values: &[Value<'_>]) -> Result<()> {
        self.session.execute(statement, values, &mut self.answer)
    }

    /// The same with a payload as one of its values.
    fn with_data(&mut self, statement: usize, at: usize, values: &[Value<'_>]) -> Result<()> {
        let data = std::mem::take(&mut self.data);
        let mut all = [Int(0); 8];
        all[..values.len()].copy_from_slice(values);
        all[at] = Text(&data);
        let done = self
            .session
            .execute(statement, &all[..values.len()], &mut self.answer);
        self.data = data;
        done
    }

    /// A node with a type of links, as numbers and as values.
    fn start(&mut self, access: Access) -> (u64, u64, [Value<'static>; 2]) {
        let node = self.load.graph.draw(access, &mut self.random);
        let t = self.random.below(TYPES as usize) as u64;
        (node, t, [Int(node as i64), Int(LINK_TYPE + t as i64)])
    }

    /// A link that is there with a chance.
    fn link(&mut self, exists: f64) -> [Value<'static>; 3] {
        let (node, t, [id1, kind]) = self.start(Access::LinkWrite);
        let other = self.load.graph.other(node, t, exists, &mut self.random);
        [id1, Int(other as i64), kind]
    }

    /// Does what writes several times in one transaction.
    fn whole(&mut self, work: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let begun = self.session.batch(self.dialect.begin());
        let done = begun.and_then(|()| work(self));
        let done = done.and_then(|()| self.session.batch("COMMIT"));
        if done.is_err() {
            // A lost connection cannot roll back, and need not.
            let _ = self.session.batch("ROLLBACK");
        }
        done
    }

    /// Adds a link, or changes the one that is there (`addLinkImpl`).
    fn put_link(&mut self, exists: f64) -> Result<()> {
        let link @ [id1, id2, kind] = self.link(exists);
        self.load.link.fill(&mut self.random, &mut self.data);
        self.whole(|me| {
            let now = Int(millis());
            let row = [id1, id2, kind, Int(0), now];
            me.with_data(me.statements.insert_link, 3, &row)?;
            let (added, visible) = match (me.dialect, me.answer.affected) {
                (_, 1) => (true, true),
                // Of a row that was there two are counted where it was hidden, none where not.
                (Dialect::Mysql, n) => (false, n == 2),
                _ => {
                    // Who hides it at this moment has locked it: what is asked without a lock is what was before.
                    me.sql(me.statements.find_link, &link)?;
                    (false, me.answer.int(0, 0)? == HIDDEN)
                }
            };
            if visible {
                me.sql(me.statements.count_up, &[id1, kind, now, now])?;
            }
            if !added {
                let row = [Int(0), now, id1, id2, kind];
                me.with_data(me.statements.update_link, 0, &row)?;
            }
            Ok(())
        })
    }

    fn delete_link(&mut self) -> Result<()> {
        let link @ [id1, _, kind] = self.link(CHANGES);
        self.whole(|me| {
            me.sql(me.statements.find_link, &link)?;
            if me.answer.rows() == 0 || me.answer.int(0, 0)? == HIDDEN {
                return Ok(());
            }
            me.sql(me.statements.hide_link, &link)?;
            let now = Int(millis());
            me.sql(me.statements.count_down, &[id1, kind, now, now])
        })
    }

    /// Different ends of one node's links; the last is said again to make up the number that a statement takes.
    fn get_links(&mut self) -> Result<()> {
        let (node, t, [id1, kind]) = self.start(Access::LinkRead);
        let n = multiget(&mut self.random);
        let power = n.next_power_of_two();
        let mut values = [Int(0); 130];
        values[..2].copy_from_slice(&[id1, kind]);
        let range = (self.load.graph.links(node, t) as f64 / GETS).ceil();
        let all = range <= n as f64;
        let mut last = node;
        for i in 0..n {
            if all {
                last = node + i as u64;
            } else {
                // One that was not drawn yet, where that is soon found.
                for _ in 0..100 {
                    last = self.load.graph.other(node, t, GETS, &mut self.random);
                    let drawn = |v: &Value<'_>| matches!(v, Int(id) if *id == last as i64);
                    if !values[2..2 + i].iter().any(drawn) {
                        break;
                    }
                }
            }
            values[2 + i] = Int(last as i64);
        }
        values[2 + n..2 + power].fill(Int(last as i64));
        let statement = self.statements.get_links[power.trailing_zeros() as usize];
        self.sql(statement, &values[..2 + power])
    }

    /// The newest links of a node; now and then what a list had not shown.
    fn list_links(&mut self) -> Result<()> {
        if self.random.unit() < TAIL_SHARE && !self.tails.is_empty() {
            let at = self.random.below(self.tails.len());
            let (id, kind, time) = self.tails[at];
            self.sql(
                self.statements.tail,
                &[Int(id), Int(kind), Int(0), Int(time)],
            )?;
            match self.last()? {
                Some(last) => self.tails[at].2 = last,
                None => drop(self.tails.swap_remove(at)),
            }
            return Ok(());
        }
        let (node, t, [id1, kind]) = self.start(Access::LinkRead);
        self.sql(self.statements.list, &[id1, kind, Int(0), Int(i64::MAX)])?;
        if let Some(last) = self.last()? {
            let tail = (node as i64, LINK_TYPE + t as i64, last);
            if !self.tails.iter().any(|t| (t.0, t.1) == (tail.0, tail.1)) {
                if self.tails.len() == TAILS {
                    let at = self.random.below(TAILS);
                    self.tails[at] = tail;
                } else {
                    self.tails.push(tail);
                }
            }
        }
        Ok(())
    }

    /// Time of the last link of a list that may have more.
    fn last(&self) -> Result<Option<i64>> {
        if self.answer.rows() < LIST_MAX {
            return Ok(None);
        }
        self.answer.int(LIST_MAX - 1, 5).map(Some)
    }

    fn add_node(&mut self) -> Result<()> {
        self.load.node.fill(&mut self.random, &mut self.data);
        let row = [Int(NODE_TYPE), Int(millis() / 1000), Int(0)];
        self.with_data(self.statements.insert_node, 2, &row)
    }

    fn update_node(&mut self) -> Result<()> {
        let node = self.load.graph.draw(Access::NodeUpdate, &mut self.random);
        self.load.node.fill(&mut self.random, &mut self.data);
        let row = [
            Int(millis() / 1000),
            Int(0),
            Int(node as i64),
            Int(NODE_TYPE),
        ];
        self.with_data(self.statements.update_node, 1, &row)
    }
}

impl Transactions for Client<'_> {
    fn transaction(&mut self) -> Result<usize> {
        let kind = kind(self.random.unit() * 100.0);
        match OPERATIONS[kind].0 {
            Operation::AddLink => self.put_link(ADDS)?,
            Operation::DeleteLink => self.delete_link()?,
            Operation::UpdateLink => self.put_link(CHANGES)?,
            Operation::CountLinks => {
                let (_, _, who) = self.start(Access::LinkRead);
                self.sql(self.statements.count, &who)?;
            }
            Operation::GetLinks => self.get_links()?,
            Operation::ListLinks => self.list_links()?,
            Operation::AddNode => self.add_node()?,
            Operation::UpdateNode => self.update_node()?,
            Operation::DeleteNode => {
                let node = self.load.graph.draw(Access::NodeDelete, &mut self.random);
                let who = [Int(node as i64), Int(NODE_TYPE)];
                self.sql(self.statements.delete_node, &who)?;
            }
            Operation::GetNode => {
                let node = self.load.graph.draw(Access::NodeRead, &mut self.random);
                self.sql(self.statements.get_node, &[Int(node as i64)])?;
            }
        }
        Ok(kind)
    }
}

/// The kind at so many percent of all.
fn kind(mut percent: f64) -> usize {
    for (i, operation) in OPERATIONS.iter().enumerate() {
        if percent < operation.2 {
            return i;
        }
        percent -= operation.2;
    }
    OPERATIONS.len() - 1
}

#[cfg(test)]
mod tests {
    use super::super::on_databases::{fill, number, on_each, run};
    use super::*;
    use fathom_telemetry::Nanos;

    #[test]
    fn the_mix_is_the_published_one() {
        let mut seen = [0.0; OPERATIONS.len()];
        let mut random = SplitMix64::new(1);
        for _ in 0..200_000 {
            seen[kind(random.unit() * 100.0)] += 5e-4;
        }
        // config/FBWorkload.properties, rounded to tenths.
        for (name, share) in [
            ("add-link", 9.0),
            ("delete-link", 3.0),
            ("update-link", 8.0),
            ("count-links", 4.9),
            ("get-links", 0.5),
            ("list-links", 50.7),
            ("add-node", 2.6),
            ("update-node", 7.4),
            ("delete-node", 1.0),
            ("get-node", 12.9),
        ] {
            let at = OPERATIONS.iter().position(|o| o.1 == name).unwrap();
            assert!((OPERATIONS[at].2 - share).abs() < 0.051, "{name}");
            assert!((seen[at] - share).abs() < 0.4, "{name}: {}", seen[at]);
        }
        let all: f64 = OPERATIONS.iter().map(|o| o.2).sum();
        assert!((all - 100.0).abs() < 1e-5);
        // 69 % of its operations read.
        let reads = OPERATIONS.iter().filter(|o| o.3 == Op::Read);
        let reads: f64 = reads.map(|o| o.2).sum();
        assert!((69.0..69.2).contains(&reads), "{reads}");
        assert!(named("linkbench", 10).is_some() && named("graph", 10).is_none());
    }

    #[test]
    fn links_are_counted_as_they_are_on_every_database() {
        on_each(
            "links_are_counted_as_they_are_on_every_database",
            &|database| {
                let load = LinkBench::new(2000);
                fill(database, &load);
                assert_eq!(number(database, "SELECT COUNT(*) FROM nodetable"), 2000);
                // What LinkBench's own testCount asks, of all: counts are the visible links.
                let wrong = "SELECT COUNT(*) FROM (SELECT id1, link_type AS t, SUM(visibility) AS n FROM linktable GROUP BY id1, link_type) x LEFT JOIN counttable ON id = id1 AND link_type = t WHERE n <> COALESCE(count, 0)";
                assert_eq!(number(database, wrong), 0);
                let before = number(database, "SELECT COUNT(*) FROM linktable");
                assert!(before > 5000, "{before}");
                let (kinds, _) = run(database, &load, 4, Nanos::from_secs(2));
                for (name, load) in &kinds {
                    println!("  {name}: {}", load.operations());
                    assert!(load.operations() > 0, "no {name}");
                }
                assert_eq!(number(database, wrong), 0);
                assert!(number(database, "SELECT COUNT(*) FROM linktable") > before);
                let hidden = "SELECT COUNT(*) FROM linktable WHERE visibility = 0";
                assert!(number(database, hidden) > 0);
                let nodes = "SELECT COUNT(*) FROM nodetable WHERE id > 2000";
                assert!(number(database, nodes) > 0);
            },
        );
    }
}
