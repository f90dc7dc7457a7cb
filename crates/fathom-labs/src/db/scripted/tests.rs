//! What clients say to a database, by one that only listens.

use std::sync::Mutex;

use fathom_telemetry::Nanos;

use super::super::database::Database;
use super::super::on_databases::on_each;
use super::super::sql::{Answer, Dialect, Result, Session, SqlError, Value};
use super::super::workload::Workload;
use super::super::{linkbench, ycsb};
use super::ScriptText;
use super::driver::{self, How, Tries, Weighted, client_seed};
use super::workload::Mode;
use super::workload::Scripts;

/// Writes down what it is told; the first so many statements that contain a word end in a deadlock.
#[derive(Default)]
struct Listening {
    told: Vec<String>,
    prepared: Vec<String>,
    deadlocks: Option<(&'static str, usize)>,
}

impl Listening {
    fn tell(&mut self, text: String) -> Result<()> {
        let deadlock =
            matches!(&mut self.deadlocks, Some((word, left)) if text.contains(*word) && *left > 0);
        self.told.push(text);
        if deadlock {
            if let Some((_, left)) = &mut self.deadlocks {
                *left -= 1;
            }
            return Err(SqlError {
                code: "1213".into(),
                message: "deadlock".into(),
                again: true,
            });
        }
        Ok(())
    }
}

impl Session for Listening {
    fn batch(&mut self, sql: &str) -> Result<()> {
        self.tell(sql.to_owned())
    }
    fn prepare(&mut self, sql: &str) -> Result<usize> {
        self.prepared.push(sql.to_owned());
        Ok(self.prepared.len() - 1)
    }
    fn execute(&mut self, statement: usize, values: &[Value<'_>], _: &mut Answer) -> Result<()> {
        let values: Vec<String> = values
            .iter()
            .map(|v| match v {
                Value::Int(i) => format!("int {i}"),
                Value::Num(n) => format!("num {n}"),
                Value::Text(t) => format!("text {t}"),
            })
            .collect();
        self.tell(format!("{statement}: {}", values.join(", ")))
    }
    fn query(&mut self, sql: &str, _: &mut Answer) -> Result<()> {
        self.tell(sql.to_owned())
    }
}

fn scripts(texts: &[(&str, &str, u32)], mode: Mode) -> Scripts {
    let text = |(name, text, weight): &(&str, &str, u32)| ScriptText {
        name: (*name).to_owned(),
        text: (*text).to_owned(),
        weight: *weight,
    };
    let texts: Vec<ScriptText> = texts.iter().map(text).collect();
    let texts: Vec<&ScriptText> = texts.iter().collect();
    let defines = [("word".to_owned(), "it".to_owned())];
    Scripts::new(&texts, &[], &defines, mode, (3, 7)).unwrap()
}

/// Does so many transactions; returns the kinds that ended well, and the last error.
fn transactions(
    all: &Scripts,
    database: &mut Listening,
    dialect: Dialect,
    count: usize,
) -> (Vec<usize>, Option<SqlError>) {
    let mut client = all.client(database, dialect, 5, 1).unwrap();
    let mut done = (Vec::new(), None);
    for _ in 0..count {
        match client.transaction() {
            Ok(kind) => done.0.push(kind),
            Err(e) => done.1 = Some(e),
        }
    }
    done
}

#[test]
fn values_are_text_in_simple_mode_and_values_in_prepared_mode() {
    let text = "\\set half 1 / 2.0\n\\set yes :scale = 3\nSELECT :client_id, ':word', :half, :yes, '10:30', :nobody;\n";
    let all = scripts(&[("a", text, 1)], Mode::Simple);
    let mut database = Listening::default();
    assert_eq!(
        transactions(&all, &mut database, Dialect::Postgres, 1).0,
        [0]
    );
    assert_eq!(
        database.told,
        ["SELECT 5, 'it', 0.5, true, '10:30', :nobody"]
    );

    let text = text.replace(", :nobody", "").replace("':word'", ":word");
    let all = scripts(&[("a", &text, 1)], Mode::Prepared);
    for (dialect, sql, values) in [
        (
            Dialect::Postgres,
            "SELECT $1, $2, $3, $4, '10:30'",
            "int 5, text it, num 0.5, text true",
        ),
        (
            Dialect::Mysql,
            "SELECT ?, ?, ?, ?, '10:30'",
            "int 5, text it, num 0.5, int 1",
        ),
    ] {
        let mut database = Listening::default();
        transactions(&all, &mut database, dialect, 3);
        assert_eq!(database.prepared, [sql]);
        assert_eq!(database.told, vec![format!("0: {values}"); 3]);
    }
    let all = scripts(&[("a.sql", "\nSELECT :nobody;\n", 1)], Mode::Prepared);
    let said = transactions(&all, &mut Listening::default(), Dialect::Mysql, 1)
        .1
        .unwrap();
    assert_eq!(said.message, "a.sql, line 2: undefined variable \"nobody\"");
}

#[test]
fn a_transaction_is_tried_again_with_the_same_choices_and_variables() {
    let text = "\\set n 1 + :scale\n\\set scale :n\n\\set id random(1, 1000000)\nBEGIN;\nUPDATE t SET n = :n WHERE id = :id;\nCOMMIT;\n";
    let all = scripts(
        &[
            ("a", text, 1),
            ("b", &text.replace("UPDATE t", "UPDATE u"), 1),
        ],
        Mode::Simple,
    );
    let mut database = Listening {
        deadlocks: Some(("UPDATE", 2)),
        ..Listening::default()
    };
    let (done, failed) = transactions(&all, &mut database, Dialect::Mysql, 4);
    assert!(done.len() == 2 && failed.is_some_and(|e| e.again));
    let updates: Vec<&String> = database
        .told
        .iter()
        .filter(|t| t.starts_with("UPDATE"))
        .collect();
    assert!(
        updates[0].contains("n = 4 ") && updates[3].contains("n = 5 "),
        "{updates:?}"
    );
    assert!(
        updates[0] == updates[1] && updates[1] == updates[2] && updates[2] != updates[3],
        "{updates:?}"
    );
    assert_eq!(database.told.iter().filter(|t| *t == "ROLLBACK").count(), 2);
}

#[test]
fn a_transaction_that_is_given_up_is_followed_by_another() {
    let text = "\\set id random(1, 1000000000)\nUPDATE t SET n = 1 WHERE id = :id;\n";
    let all = scripts(&[("a", text, 1)], Mode::Simple);
    let mut database = Listening {
        deadlocks: Some(("UPDATE", 2)),
        ..Listening::default()
    };
    let mut client = all.client(&mut database, Dialect::Mysql, 5, 1).unwrap();
    assert!(client.transaction().unwrap_err().is_deadlock());
    assert!(client.transaction().unwrap_err().again);
    client.give_up();
    client.transaction().unwrap();
    drop(client);
    let updates = database.told.iter().filter(|t| t.starts_with("UPDATE"));
    let [first, second, third] = updates.collect::<Vec<_>>()[..] else {
        panic!("{:?}", database.told);
    };
    assert!(first == second && second != third, "{:?}", database.told);
}

/// Clients on a database for a while: what became of transactions that it undid.
fn undone(database: &Database, script: &str, max_tries: u32) -> (u64, Tries) {
    // One that nothing undoes is beside it.
    let workload = scripts(&[("a", script, 1), ("b", "SELECT 1;\n", 1)], Mode::Simple);
    let all = [Weighted {
        workload: Box::new(workload),
        weight: 1,
        first: 0,
    }];
    let how = How {
        clients: 4,
        ramp: Nanos::from_millis(100),
        time: Nanos::from_secs(4),
        rate: None,
        seed: 3,
        max_tries,
    };
    let terms: (&dyn Fn() -> bool, &dyn Fn() -> Option<&'static str>) = (&|| false, &|| None);
    let done = driver::run(
        database,
        &all,
        how,
        terms,
        &mut |_| (),
        &mut |_| (),
        &mut |_| (),
    );
    let (loads, tries) = done.unwrap();
    let [Some(own), Some(other)] = tries.of_kinds[..] else {
        panic!("{tries:?}");
    };
    assert_eq!(own, tries.all);
    assert_eq!((other.again, other.failed()), (0, 0));
    (loads[0].operations(), own)
}

#[test]
fn what_a_database_undoes_is_tried_so_often_and_counted() {
    // Clients with even numbers take two rows in one order, the others in the other.
    let deadlocks = "\\set a 1 + :client_id % 2\n\\set b 3 - :a\nBEGIN;\nUPDATE undone SET n = n + 1 WHERE id = :a;\n\\sleep 5 ms\nUPDATE undone SET n = n + 1 WHERE id = :b;\nCOMMIT;\n";
    let conflicts = "BEGIN ISOLATION LEVEL REPEATABLE READ;\nSELECT n FROM undone WHERE id = 1;\nUPDATE undone SET n = n + 1 WHERE id = 1;\nCOMMIT;\n";
    on_each("what_a_database_undoes_is_tried", &|database| {
        let mut session = database.connect().unwrap();
        for sql in [
            "CREATE TABLE undone (id INT PRIMARY KEY, n INT)",
            "INSERT INTO undone VALUES (1, 0), (2, 0)",
        ] {
            session.batch(sql).unwrap();
        }
        let (done, tries) = undone(database, deadlocks, 1);
        // It has one writer, and the others wait.
        if database.dialect() == Dialect::Sqlite {
            assert!(done > 0 && tries.failed() + tries.again == 0, "{tries:?}");
            return;
        }
        assert_eq!((tries.again, tries.retried), (0, Some(0)), "{tries:?}");
        assert!(tries.deadlocks > 0, "{done} {tries:?}");
        let (done, tries) = undone(database, deadlocks, 0);
        assert!(done > 0 && tries.failed() == 0, "{done} {tries:?}");
        assert!(tries.again >= tries.retried.unwrap(), "{tries:?}");
        assert!(tries.retried > Some(0), "{tries:?}");
        if database.dialect() == Dialect::Postgres {
            let (done, tries) = undone(database, conflicts, 2);
            assert!(done > 0 && tries.conflicts > 0, "{done} {tries:?}");
            // Each that failed had been tried again once.
            assert!(tries.again >= tries.conflicts, "{tries:?}");
        }
    });
}

#[test]
fn scripts_are_chosen_by_their_weights() {
    let all = scripts(
        &[
            ("a", "SELECT 1;", 3),
            ("b", "SELECT 2;", 0),
            ("c", "DELETE FROM t;", 1),
        ],
        Mode::Simple,
    );
    let (done, _) = transactions(&all, &mut Listening::default(), Dialect::Sqlite, 4000);
    let share = |k: usize| done.iter().filter(|d| **d == k).count();
    // Three standard deviations.
    assert!(
        (2918..3083).contains(&share(0)) && share(1) == 0,
        "{} {}",
        share(0),
        share(1)
    );
    use fathom_telemetry::Op;
    let ops: Vec<Op> = all.kinds().into_iter().map(|k| k.1).collect();
    assert_eq!(ops, [Op::Read, Op::Read, Op::Write]);
}

#[test]
fn who_sleeps_is_woken_when_the_load_ends() {
    let all = scripts(&[("a", "\\sleep 100 s\n", 1)], Mode::Simple);
    let ended = Mutex::new(None);
    std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let mut database = Listening::default();
            *ended.lock().unwrap() = transactions(&all, &mut database, Dialect::Sqlite, 1).1;
        });
        // It may not have begun yet.
        while !client.is_finished() {
            all.end();
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    });
    assert!(ended.into_inner().unwrap().is_some_and(|e| e.again));
}

#[test]
fn no_two_clients_of_a_load_ask_for_the_same() {
    let told = |load: &dyn Workload, number| {
        let mut session = Listening::default();
        let seed = client_seed(7, number);
        {
            let mut client = load
                .client(&mut session, Dialect::Sqlite, number, seed)
                .unwrap();
            for _ in 0..20 {
                // Some want an answer, which this one does not give.
                let _ = client.transaction();
            }
        }
        // Without the time of day, which some send, too.
        let day = |word: &&str| word.len() < 13 || !word.bytes().all(|b| b.is_ascii_digit());
        let plain = |t: &String| {
            t.split([' ', ','])
                .filter(day)
                .collect::<Vec<_>>()
                .join(" ")
        };
        session.told.iter().map(plain).collect::<Vec<_>>()
    };
    let ycsb = ycsb::named("ycsb-c", 10_000).unwrap();
    let graph = linkbench::named("linkbench", 10_000).unwrap();
    for load in [&*ycsb, &*graph] {
        let all = [0, 1, 2].map(|number| told(load, number));
        assert!(all[0].len() > 10, "{:?}", all[0]);
        assert!(all[0] != all[1] && all[1] != all[2] && all[0] != all[2]);
        assert_eq!(all[0], told(load, 0));
    }
}
