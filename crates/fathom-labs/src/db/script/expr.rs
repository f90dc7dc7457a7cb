//! The grammar of pgbench's expressions (PostgreSQL 15, `exprparse.y` and `exprscan.l`): operators by their precedence, CASE, calls.

use super::value::Val;
use super::{Cursor, Names, ScriptError};

/// Arguments of a call.
pub(super) const ARGUMENTS_MAX: usize = 16;
/// Brackets within brackets.
const DEPTH_MAX: u32 = 200;

/// An expression.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Expr {
    Constant(Val),
    /// By its place among all variables.
    Variable(usize),
    Call(Function, Vec<Expr>),
}

/// What is called; operators are calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Function {
    Add,
    Sub,
    Mul,
    Div,
    Mod,
    Eq,
    Ne,
    Le,
    Lt,
    BitAnd,
    BitOr,
    BitXor,
    ShiftLeft,
    ShiftRight,
    Not,
    And,
    Or,
    Is,
    Case,
    Pi,
    Abs,
    Debug,
    Double,
    Sqrt,
    Ln,
    Exp,
    Pow,
    Int,
    Least,
    Greatest,
    Random,
    Gaussian,
    Exponential,
    Zipfian,
    Fnv1a,
    Murmur2,
    Permute,
}

/// Name, function, least and most arguments. Where there may be one more than the least of a hash or a permutation, it is a
/// seed, `:default_seed` unasked.
const FUNCTIONS: [(&str, Function, usize, usize); 21] = [
    ("abs", Function::Abs, 1, 1),
    ("debug", Function::Debug, 1, 1),
    ("double", Function::Double, 1, 1),
    ("exp", Function::Exp, 1, 1),
    ("greatest", Function::Greatest, 1, ARGUMENTS_MAX),
    ("hash", Function::Murmur2, 1, 2),
    ("hash_fnv1a", Function::Fnv1a, 1, 2),
    ("hash_murmur2", Function::Murmur2, 1, 2),
    ("int", Function::Int, 1, 1),
    ("least", Function::Least, 1, ARGUMENTS_MAX),
    ("ln", Function::Ln, 1, 1),
    ("mod", Function::Mod, 2, 2),
    ("permute", Function::Permute, 2, 3),
    ("pi", Function::Pi, 0, 0),
    ("pow", Function::Pow, 2, 2),
    ("power", Function::Pow, 2, 2),
    ("random", Function::Random, 2, 2),
    ("random_exponential", Function::Exponential, 3, 3),
    ("random_gaussian", Function::Gaussian, 3, 3),
    ("random_zipfian", Function::Zipfian, 3, 3),
    ("sqrt", Function::Sqrt, 1, 1),
];

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Op(&'static str),
    Word(String),
    Variable(String),
    Int(u64),
    Double(f64),
    End,
}

/// Longer ones first.
const OPERATORS: [&str; 21] = [
    "<>", "!=", "<=", ">=", "<<", ">>", "<", ">", "=", "+", "-", "*", "/", "%", "&", "|", "#", "~",
    "(", ")", ",",
];

/// Left, by how tightly an operator binds.
const OR: u8 = 1;
const AND: u8 = 2;
const NOT: u8 = 3;
const IS: u8 = 4;
const COMPARE: u8 = 5;
const BITS: u8 = 6;
const SUM: u8 = 7;
const PRODUCT: u8 = 8;
const UNARY: u8 = 9;

pub(super) struct Parser<'a, 't> {
    cursor: &'a mut Cursor<'t>,
    names: &'a mut Names,
    token: Token,
    /// Where it begins.
    at: usize,
    depth: u32,
}

type Out<T> = Result<T, ScriptError>;

impl<'a, 't> Parser<'a, 't> {
    /// An expression to the end of its line.
    pub(super) fn expression(cursor: &'a mut Cursor<'t>, names: &'a mut Names) -> Out<Expr> {
        let at = cursor.at;
        let mut me = Self {
            cursor,
            names,
            token: Token::End,
            at,
            depth: 0,
        };
        me.advance()?;
        let whole = me.binary(OR)?;
        match me.token {
            Token::End => Ok(whole),
            _ => Err(me.unexpected("an operator or the end of the line")),
        }
    }

    fn unexpected(&self, expected: &str) -> ScriptError {
        let found = match &self.token {
            Token::End => "the end of the line".to_owned(),
            Token::Op(o) => format!("'{o}'"),
            Token::Word(w) => format!("'{w}'"),
            Token::Variable(v) => format!("':{v}'"),
            Token::Int(i) => format!("'{i}'"),
            Token::Double(d) => format!("'{d}'"),
        };
        self.cursor
            .error(self.at, format!("{expected} was expected, found {found}"))
    }

    fn advance(&mut self) -> Out<()> {
        self.cursor.blanks();
        self.at = self.cursor.at;
        let rest = self.cursor.line();
        let first = rest.bytes().next();
        let name = |t: &str| -> usize { t.find(|c| !super::in_name(c)).unwrap_or(t.len()) };
        let mut length = 0;
        self.token = match first {
            None => Token::End,
            Some(b'0'..=b'9' | b'.') => self.number(rest, &mut length)?,
            Some(b':') => {
                length = 1 + name(&rest[1..]);
                if length == 1 {
                    return Err(self
                        .cursor
                        .error(self.at, "a variable's name was expected after ':'".into()));
                }
                Token::Variable(rest[1..length].to_owned())
            }
            Some(_) => {
                length = name(rest);
                match OPERATORS.iter().find(|o| rest.starts_with(**o)) {
                    _ if length > 0 => Token::Word(rest[..length].to_owned()),
                    Some(o) => {
                        length = o.len();
                        Token::Op(o)
                    }
                    None => {
                        let c = rest.chars().next().unwrap_or(' ');
                        return Err(self
                            .cursor
                            .error(self.at, format!("unexpected character '{c}'")));
                    }
                }
            }
        };
        self.cursor.at += length;
        Ok(())
    }

    fn number(&self, rest: &str, length: &mut usize) -> Out<Token> {
        let bytes = rest.as_bytes();
        let digits = |from: usize| -> usize {
            bytes[from..]
                .iter()
                .take_while(|b| b.is_ascii_digit())
                .count()
        };
        let mut end = digits(0);
        let mut whole = true;
        if bytes.get(end) == Some(&b'.') {
            whole = false;
            let more = digits(end + 1);
            if end + more == 0 {
                return Err(self
                    .cursor
                    .error(self.at, "unexpected character '.'".into()));
            }
            end += 1 + more;
        }
        if matches!(bytes.get(end), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
            let from = (end + 1 + sign).min(bytes.len());
            if digits(from) > 0 {
                whole = false;
                end = from + digits(from);
            }
        }
        *length = end;
        let text = &rest[..end];
        if whole {
            let n = text.parse::<u64>().ok().filter(|n| *n <= 1 << 63);
            return n.map(Token::Int).ok_or_else(|| {
                self.cursor
                    .error(self.at, format!("bigint constant overflow: {text}"))
            });
        }
        let n = text.parse::<f64>().ok().filter(|n| n.is_finite());
        n.map(Token::Double).ok_or_else(|| {
            self.cursor
                .error(self.at, format!("double constant overflow: {text}"))
        })
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(&self.token, Token::Word(w) if w.eq_ignore_ascii_case(word))
    }

    fn word(&mut self, word: &str) -> Out<bool> {
        let is = self.is_word(word);
        if is {
            self.advance()?;
        }
        Ok(is)
    }

    fn expect(&mut self, op: &'static str) -> Out<()> {
        match self.token == Token::Op(op) {
            true => self.advance(),
            false => Err(self.unexpected(&format!("'{op}'"))),
        }
    }

    /// An operator between two operands: how tightly it binds, its function, and whether its operands change places.
    fn operator(&self) -> Option<(u8, Function, bool)> {
        use Function as F;
        Some(match &self.token {
            Token::Op("<") => (COMPARE, F::Lt, false),
            Token::Op("<=") => (COMPARE, F::Le, false),
            Token::Op(">") => (COMPARE, F::Lt, true),
            Token::Op(">=") => (COMPARE, F::Le, true),
            Token::Op("=") => (COMPARE, F::Eq, false),
            Token::Op("<>" | "!=") => (COMPARE, F::Ne, false),
            Token::Op("|") => (BITS, F::BitOr, false),
            Token::Op("#") => (BITS, F::BitXor, false),
            Token::Op("&") => (BITS, F::BitAnd, false),
            Token::Op("<<") => (BITS, F::ShiftLeft, false),
            Token::Op(">>") => (BITS, F::ShiftRight, false),
            Token::Op("+") => (SUM, F::Add, false),
            Token::Op("-") => (SUM, F::Sub, false),
            Token::Op("*") => (PRODUCT, F::Mul, false),
            Token::Op("/") => (PRODUCT, F::Div, false),
            Token::Op("%") => (PRODUCT, F::Mod, false),
            Token::Word(_) if self.is_word("and") => (AND, F::And, false),
            Token::Word(_) if self.is_word("or") => (OR, F::Or, false),
            Token::Word(_) if self.is_word("is") => (IS, F::Is, false),
            Token::Word(_) if self.is_word("isnull") => (IS, F::Is, false),
            Token::Word(_) if self.is_word("notnull") => (IS, F::Is, true),
            _ => return None,
        })
    }

    /// Operands and operators that bind at least so tightly.
    fn binary(&mut self, least: u8) -> Out<Expr> {
        let mut left = self.operand()?;
        while let Some((binds, function, other)) = self.operator().filter(|o| o.0 >= least) {
            if function == Function::Is {
                left = self.is(left, other)?;
                continue;
            }
            self.advance()?;
            let right = self.binary(binds + 1)?;
            let args = if other {
                vec![right, left]
            } else {
                vec![left, right]
            };
            left = Expr::Call(function, args);
            if binds == COMPARE && self.operator().is_some_and(|o| o.0 == COMPARE) {
                return Err(self.unexpected("brackets between two comparisons"));
            }
        }
        Ok(left)
    }

    /// IS [NOT] NULL, TRUE, FALSE; ISNULL; NOTNULL.
    fn is(&mut self, left: Expr, mut not: bool) -> Out<Expr> {
        let long = self.is_word("is");
        self.advance()?;
        let mut what = Val::Null;
        if long {
            not = self.word("not")?;
            what = match () {
                () if self.is_word("null") => Val::Null,
                () if self.is_word("true") => Val::Bool(true),
                () if self.is_word("false") => Val::Bool(false),
                () => return Err(self.unexpected("NULL, TRUE or FALSE")),
            };
            self.advance()?;
        }
        let is = Expr::Call(Function::Is, vec![left, Expr::Constant(what)]);
        Ok(match not {
            true => Expr::Call(Function::Not, vec![is]),
            false => is,
        })
    }

    fn operand(&mut self) -> Out<Expr> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.cursor.error(
                self.at,
                format!("more than {DEPTH_MAX} operations within each other"),
            ));
        }
        let found = self.operand_within();
        self.depth -= 1;
        found
    }

    fn operand_within(&mut self) -> Out<Expr> {
        let zero = |n| Expr::Constant(Val::Int(n));
        let token = self.token.clone();
        match token {
            Token::Int(n) => {
                let n = i64::try_from(n);
                let n = n.map_err(|_| {
                    self.cursor
                        .error(self.at, "bigint constant overflow".into())
                })?;
                self.advance()?;
                Ok(Expr::Constant(Val::Int(n)))
            }
            Token::Double(d) => {
                self.advance()?;
                Ok(Expr::Constant(Val::Double(d)))
            }
            Token::Variable(name) => {
                self.advance()?;
                Ok(Expr::Variable(self.names.slot(&name)))
            }
            Token::Op("+") => {
                self.advance()?;
                self.binary(UNARY)
            }
            Token::Op("-") => {
                self.advance()?;
                if self.token == Token::Int(1 << 63) {
                    self.advance()?;
                    return Ok(zero(i64::MIN));
                }
                Ok(Expr::Call(
                    Function::Sub,
                    vec![zero(0), self.binary(UNARY)?],
                ))
            }
            Token::Op("~") => {
                self.advance()?;
                Ok(Expr::Call(
                    Function::BitXor,
                    vec![zero(-1), self.binary(SUM)?],
                ))
            }
            Token::Op("(") => {
                self.advance()?;
                let within = self.binary(OR)?;
                self.expect(")")?;
                Ok(within)
            }
            Token::Word(word) => match word.to_ascii_lowercase().as_str() {
                "null" => self.constant(Val::Null),
                "true" => self.constant(Val::Bool(true)),
                "false" => self.constant(Val::Bool(false)),
                "not" => {
                    self.advance()?;
                    Ok(Expr::Call(Function::Not, vec![self.binary(NOT)?]))
                }
                "case" => self.case(),
                "and" | "or" | "is" | "isnull" | "notnull" | "when" | "then" | "else" | "end" => {
                    Err(self.unexpected("a value"))
                }
                name => self.call(name),
            },
            _ => Err(self.unexpected("a value")),
        }
    }

    fn constant(&mut self, v: Val) -> Out<Expr> {
        self.advance()?;
        Ok(Expr::Constant(v))
    }

    fn case(&mut self) -> Out<Expr> {
        self.advance()?;
        let mut args = Vec::new();
        while self.word("when")? {
            args.push(self.binary(OR)?);
            if !self.word("then")? {
                return Err(self.unexpected("THEN"));
            }
            args.push(self.binary(OR)?);
        }
        if args.is_empty() {
            return Err(self.unexpected("WHEN"));
        }
        args.push(match self.word("else")? {
            true => self.binary(OR)?,
            false => Expr::Constant(Val::Null),
        });
        match self.word("end")? {
            true => Ok(Expr::Call(Function::Case, args)),
            false => Err(self.unexpected("WHEN, ELSE or END")),
        }
    }

    fn call(&mut self, name: &str) -> Out<Expr> {
        let begins = self.at;
        let known = FUNCTIONS.iter().find(|f| f.0 == name);
        let Some((_, function, least, most)) = known else {
            return Err(self
                .cursor
                .error(begins, format!("unexpected function name '{name}'")));
        };
        self.advance()?;
        self.expect("(")?;
        let mut args = Vec::new();
        if self.token != Token::Op(")") {
            loop {
                args.push(self.binary(OR)?);
                if self.token != Token::Op(",") {
                    break;
                }
                self.advance()?;
            }
        }
        self.expect(")")?;
        if !(*least..=*most).contains(&args.len()) {
            let expected = match (*least, *most) {
                (a, b) if a == b => a.to_string(),
                (a, b) => format!("{a} to {b}"),
            };
            let found = args.len();
            return Err(self.cursor.error(
                begins,
                format!(
                    "unexpected number of arguments of {name}: {expected} expected, found {found}"
                ),
            ));
        }
        let seeded = matches!(
            function,
            Function::Fnv1a | Function::Murmur2 | Function::Permute
        );
        if seeded && args.len() < *most {
            args.push(Expr::Variable(self.names.slot("default_seed")));
        }
        Ok(Expr::Call(*function, args))
    }
}
