//! The language: what it means, what it refuses, and that pgbench itself means the same.

use std::cell::RefCell;
use std::process::Command;

use fathom_stats::rng::SplitMix64;
use proptest::prelude::*;

use super::eval::Scope;
use super::value::{Val, Var};
use super::*;

/// Sets variables as a script says, without a database; returns what `debug()` said.
fn set(text: &str) -> Result<Vec<String>, String> {
    let mut names = Names::default();
    let seed = names.slot("default_seed");
    let script = Script::parse(text, &mut names).map_err(|e| e.to_string())?;
    let mut variables: Vec<Option<Var>> = vec![None; names.all().len()];
    variables[seed] = Some(Var::Val(Val::Int(42)));
    let said = RefCell::new(Vec::new());
    let mut random = SplitMix64::new(1);
    let mut at = 0;
    while let Some(step) = script.0.get(at) {
        at += 1;
        let mut value = |of: &Expr| {
            Scope {
                variables: &variables,
                names: names.all(),
                random: &mut random,
                debug: &|s| said.borrow_mut().push(s.to_owned()),
            }
            .value(of)
        };
        match &step.does {
            Do::Set(slot, of) => {
                let v = value(of)?;
                variables[*slot] = Some(Var::Val(v));
            }
            Do::Unless(of, to) if !value(of)?.truth() => at = *to,
            Do::Jump(to) => at = *to,
            _ => {}
        }
    }
    Ok(said.into_inner())
}

/// Expressions whose value depends on no stream of random numbers.
const EXPRESSIONS: [&str; 98] = [
    "1 + 2 * 3 - 4 / 2 % 3",
    "-7 / 2",
    "-7 % 3",
    "7 % -1",
    "2 + 3.5",
    "1.0 / 3",
    "1 / 3",
    ".5e1",
    "1.",
    "1e300 * 1e10",
    "- 1.0 / 0",
    "0.0",
    "-9223372036854775808",
    "9223372036854775807",
    "1e15",
    "123456789012345678.0",
    "1e-5",
    "0.0001",
    "100000.5",
    "2 > 1 AND NOT 1 > 2 OR FALSE",
    "NOT TRUE = FALSE",
    "1 = 1.0",
    "1 <> 2",
    "1 != 1",
    "3 >= 3 and 2 <= 1",
    "NULL IS NULL",
    "1 isnull",
    "1 notnull",
    "true is true",
    "(1 = 2) is not true",
    "(1 = 2) is false",
    "NULL + 1",
    "NULL and false",
    "false and NULL",
    "true or NULL",
    "NULL or true",
    "NULL = NULL",
    "5 & 3 | 8",
    "5 # 3",
    "~0",
    "~1 + 2",
    "~1 | 4",
    "1 << 10 >> 3",
    "1 << 70",
    "-1 >> 1",
    "1 + 1 << 2",
    "1 | 2 < 4",
    "CASE WHEN 1 > 2 THEN 'x'",
    "CASE WHEN 1 > 2 THEN 3 WHEN 2 > 1 THEN 4 ELSE 5 END",
    "case when false then 1 end",
    "case when NULL then 1 else 2.5 end",
    "case when 0 then 1 when 0.1 then 2 end",
    "abs(-17)",
    "ABS(-1.5)",
    "least(1, 2.5, -3)",
    "greatest(1, 2, 3, 2)",
    "greatest(4)",
    "mod(10, 3)",
    "mod(-10.4, 3)",
    "pi()",
    "sqrt(2)",
    "sqrt(-1)",
    "ln(0)",
    "ln(exp(2.5))",
    "exp(1000)",
    "int(2.5)",
    "int(3.5)",
    "int(-2.5)",
    "double(7)",
    "pow(2, 10)",
    "power(-3, 3)",
    "pow(0, 0)",
    "pow(2.5, -1)",
    "hash(10, 5432)",
    "hash_murmur2(-5, 5432)",
    "hash_fnv1a(10, 5432)",
    "hash_fnv1a(-1, -1)",
    "hash(1)",
    "hash_fnv1a(2)",
    "permute(0, 1)",
    "permute(5, 10, 5432)",
    "permute(0, 9223372036854775807, 5432)",
    "permute(123456, 1000000, -3)",
    "permute(2, 3)",
    "permute(-1, 10, 7)",
    "debug(1 + debug(2))",
    "9223372036854775807 + 1",
    "9223372036854775808",
    "1 / 0",
    "1 % 0",
    "1 < 2 < 3",
    "int(1e30)",
    "not 1",
    "1 and true",
    "permute(1, 0)",
    "random(5, 1)",
    "random_zipfian(1, 5, 1.0)",
    "nosuch(1)",
];

#[test]
fn expressions_come_to_what_the_manual_says() {
    let value = |e: &str| set(&format!("\\set x debug({e})")).unwrap().pop().unwrap();
    for (expression, comes_to) in [
        ("1 + 2 * 3", "int 7"),
        ("-7 / 2", "int -3"),
        ("2 + 3.5", "double 5.5"),
        ("1.0 / 3", "double 0.333333333333333"),
        ("1e15", "double 1e+15"),
        ("NOT 1 = 2", "boolean true"),
        ("NULL + 1", "null"),
        ("NULL IS NULL", "boolean true"),
        ("~1 | 4", "int -2"),
        ("CASE WHEN 1 > 2 THEN 3 ELSE 5 END", "int 5"),
        ("least(1, 2.5, -3)", "double -3"),
        ("int(2.5)", "int 2"),
        ("hash_fnv1a(10, 5432)", "int -7793829335365542153"),
        ("hash_murmur2(10, 5432)", "int -5817877081768721676"),
    ] {
        assert_eq!(value(expression), comes_to, "{expression}");
    }
}

#[test]
fn conditions_choose_what_is_done() {
    let said = set(
        "\\set i 3\n\\if :i > 5\n\\set x debug(1)\n\\elif :i > 2\n\\if false\n\\set x debug(2)\n\\else\n\\set x debug(3)\n\\endif\n\\else\n\\set x debug(4)\n\\endif\n\\set x debug(5)",
    );
    assert_eq!(said.unwrap(), ["int 3", "int 5"]);
}

fn sqls(text: &str) -> Vec<(usize, Vec<String>)> {
    let mut names = Names::default();
    let script = Script::parse(text, &mut names).unwrap();
    let shown = |pieces: &Vec<Piece>| {
        let piece = |p: &Piece| match p {
            Piece::Text(t) => t.clone(),
            Piece::Variable(v) => format!("<{}>", names.all()[*v]),
        };
        pieces.iter().map(piece).collect::<String>()
    };
    let all = script.0.iter().filter_map(|s| match &s.does {
        Do::Sql(sql) => Some((s.line, sql.parts.iter().map(shown).collect())),
        _ => None,
    });
    all.collect()
}

#[test]
fn statements_end_at_semicolons_that_end_them() {
    let found = sqls(concat!(
        "-- a comment; not ended\n",
        "SELECT ':' || :a::int, ';' -- more; :x\n  FROM t /* ; /* : */ */ WHERE b = \":c\"; SELECT 2;\n",
        "DO $x$ BEGIN; END $x$;\n",
        "CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT 1; SELECT 2; END;\n",
        "SELECT E'it\\';s', (1;2) \\; SELECT arr[1:2], `a;b`\n",
        "\\set y 1 + \\\n 2\nSELECT '12:30:00' \\gset p_\n"
    ));
    let one = |line: usize, sql: &str| (line, vec![sql.to_owned()]);
    assert_eq!(
        found[0],
        one(
            2,
            "SELECT ':' || <a>::int, ';' \n  FROM t /* ; /* : */ */ WHERE b = \"<c>\""
        )
    );
    assert_eq!(found[1], one(3, "SELECT 2"));
    assert_eq!(found[2], one(4, "DO $x$ BEGIN; END $x$"));
    assert!(found[3].1[0].ends_with("SELECT 2; END"), "{found:?}");
    assert_eq!(
        found[4].1,
        ["SELECT E'it\\';s', (1;2)", "SELECT arr[1:2], `a;b`"]
    );
    assert_eq!(found[5], one(9, "SELECT '12:30:00'"));
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    for (text, said) in [
        (
            "\\set x 1 +",
            "line 1, column 11: a value was expected, found the end of the line",
        ),
        (
            "SELECT 1;\n  \\set 1x 2",
            "line 2, column 7: \\set: '1x' is no name",
        ),
        (
            "\\set x nosuch(1)",
            "line 1, column 8: unexpected function name 'nosuch'",
        ),
        (
            "\\set x random(1)",
            "unexpected number of arguments of random: 2 expected, found 1",
        ),
        (
            "\\set x 1 $ 2",
            "line 1, column 10: unexpected character '$'",
        ),
        ("\\set x 99999999999999999999", "bigint constant overflow"),
        ("\\set x 1 < 2 < 3", "brackets between two comparisons"),
        (
            "\\if true\nSELECT 1;",
            "line 1, column 1: \\if without matching \\endif",
        ),
        ("\\else", "\\else without matching \\if"),
        (
            "\\if 1\n\\else\n\\elif 2\n\\endif",
            "line 3, column 1: \\elif after \\else",
        ),
        ("\\gset", "\\gset must follow an SQL command"),
        ("SELECT 1 \\gset a b", "unexpected argument of \\gset: 'b'"),
        ("\\sleep 5 min", "'min' is no unit"),
        ("\\sleep soon", "'soon' is no time"),
        (
            "\\shell rm -rf x",
            "\\shell is not done here; a load runs no programs",
        ),
        ("\\setshell x date", "give the value with --define"),
        ("\\startpipeline", "each answer is waited for"),
        ("\\echo hello", "invalid command \\echo: expected set"),
        (
            "SELECT 'open",
            "line 1, column 8: a quote begins here and has no end",
        ),
        ("SELECT $a$ open", "has no end"),
        ("SELECT 1 /* open", "a comment begins here"),
    ] {
        let wrong = Script::parse(text, &mut Names::default()).unwrap_err();
        assert!(wrong.to_string().contains(said), "{text:?}: {wrong}");
    }
}

#[test]
fn doubles_are_written_as_postgresql_writes_them() {
    for (d, text) in [
        (0.0, "0"),
        (-0.0, "-0"),
        (1e14, "100000000000000"),
        (1e15, "1e+15"),
        (123_456.789, "123456.789"),
        (1e-4, "0.0001"),
        (1.5e-7, "1.5e-07"),
        (1e300, "1e+300"),
        (f64::INFINITY, "Infinity"),
        (f64::NEG_INFINITY, "-Infinity"),
        (f64::NAN, "NaN"),
    ] {
        assert_eq!(Val::Double(d).to_string(), text);
    }
}

/// What pgbench says of an expression: its value, or `None` where it ends with an error.
fn pgbench(program: &std::path::Path, host: &str, expression: &str) -> Option<Vec<String>> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("s.sql");
    std::fs::write(&file, format!("\\set x debug({expression})\n")).unwrap();
    let done = Command::new(program)
        .args([
            "-n",
            "-t",
            "1",
            "-D",
            "default_seed=42",
            "-h",
            host,
            "-U",
            "postgres",
            "-f",
        ])
        .arg(&file)
        .arg("postgres")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    let values = said
        .lines()
        .filter_map(|l| Some(l.strip_prefix("debug(")?.split_once("): ")?.1.to_owned()));
    done.status.success().then(|| values.collect())
}

#[test]
fn pgbench_means_the_same() {
    let program = super::super::cluster::program("pgbench", None);
    let Some(program) = program else {
        println!("SKIP pgbench_means_the_same: no pgbench: apt-get install postgresql-contrib");
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(place.path(), open).unwrap();
    let server = super::super::cluster::probe(None).and_then(|programs| {
        let dir = place.path().join("pg");
        let sizes = (1 << 20, 32 << 20);
        let dirs = (dir.clone(), dir);
        let mut server = super::super::cluster::Cluster::create(&programs, dirs, sizes, &|| false)?;
        server.start(&[], &|| false)?;
        Ok(server)
    });
    let server = match server {
        Ok(server) => server,
        Err(e) => {
            println!("SKIP pgbench_means_the_same: {e}");
            return;
        }
    };
    let host = place.path().join("pg");
    let mut differs = Vec::new();
    for expression in EXPRESSIONS {
        let theirs = pgbench(&program, host.to_str().unwrap(), expression);
        let ours = set(&format!("\\set x debug({expression})\n")).ok();
        if theirs != ours {
            differs.push(format!("{expression}: {theirs:?} there, {ours:?} here"));
        }
    }
    drop(server);
    assert!(differs.is_empty(), "{}", differs.join("\n"));
}

/// Pieces of which scripts are made, so that texts come near to being some.
fn nearly() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "\\set x ",
        "\\if ",
        "\\elif ",
        "\\else",
        "\\endif",
        "\\sleep ",
        "\\gset ",
        "\\aset",
        "\\;",
        "\\:",
        "\\\n",
        "\n",
        " ",
        ";",
        ":a",
        "::",
        "'",
        "\"",
        "$",
        "$$",
        "(",
        ")",
        "--",
        "/*",
        "*/",
        "1",
        "2.5e",
        "9223372036854775808",
        "+",
        "-",
        "~",
        "not ",
        "is ",
        "null",
        "case when ",
        " then ",
        " end",
        "random(",
        ",",
        "ü",
        "E'",
        "\\",
        "SELECT ",
        "CREATE FUNCTION f() BEGIN ",
        "END",
        "us",
        "\r\n",
        "permute(1, ",
        "hash(",
    ]);
    prop::collection::vec(piece, 0..40).prop_map(|p| p.concat())
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in prop_oneof![nearly(), ".{0,200}", "(\\\\set x )[-+(~]{0,400}1?"]) {
        let lines = text.matches('\n').count() + 1;
        match Script::parse(&text, &mut Names::default()) {
            Ok(script) => for step in &script.0 {
                prop_assert!((1..=lines).contains(&step.line));
                if let Do::Jump(to) | Do::Unless(_, to) = &step.does {
                    prop_assert!(*to <= script.0.len());
                }
            },
            Err(e) => {
                prop_assert!((1..=lines).contains(&e.line), "{e}");
                prop_assert!(e.column >= 1 && !e.message.is_empty());
            }
        }
        let _ = set(&text);
    }

    #[test]
    fn no_value_makes_it_panic(a in any::<i64>(), b in any::<i64>(), d in any::<f64>()) {
        let values = [a.to_string(), format!("{:e}", if d.is_finite() { d } else { 0.5 }), "NULL".into(), "TRUE".into()];
        let calls = ["A + B", "A - B", "A * B", "A / B", "A % B", "A << B", "A >> B", "A # B", "A < B", "A = B", "abs(A)",
            "least(A, B)", "int(A)", "pow(A, B)", "sqrt(A)", "hash(A, B)", "hash_fnv1a(A, B)", "permute(A, B, A)", "random(A, B)",
            "random_gaussian(A, B, 2.5)", "random_exponential(A, B, 2)", "random_zipfian(A, B, 1.1)", "A and B", "not A"];
        let b = b.to_string();
        for x in &values {
            for call in calls {
                let _ = set(&format!("\\set y debug({})", call.replace('A', x).replace('B', &b)));
            }
        }
    }
}
