//! What expressions come to.

use fathom_stats::rng::SplitMix64;

use super::expr::{Expr, Function};
use super::random;
use super::value::{Out, Val, Var};

/// What an evaluation needs.
pub(crate) struct Scope<'a> {
    pub(crate) variables: &'a [Option<Var>],
    /// Names of the variables.
    pub(crate) names: &'a [String],
    pub(crate) random: &'a mut SplitMix64,
    /// Takes what `debug()` says.
    pub(crate) debug: &'a dyn Fn(&str),
}

impl Scope<'_> {
    /// Comes to a value.
    ///
    /// # Errors
    /// What pgbench would end with: a division by zero, a number that is out of range, a variable that is not defined.
    pub(crate) fn value(&mut self, of: &Expr) -> Out<Val> {
        match of {
            Expr::Constant(v) => Ok(*v),
            Expr::Variable(slot) => {
                let name = &self.names[*slot];
                let there = self.variables[*slot].as_ref();
                there
                    .ok_or_else(|| format!("undefined variable \"{name}\""))?
                    .value(name)
            }
            Expr::Call(Function::And, args) => self.both(args, false),
            Expr::Call(Function::Or, args) => self.both(args, true),
            Expr::Call(Function::Case, args) => {
                let (branches, last) = args.split_at(args.len() - 1);
                for branch in branches.chunks_exact(2) {
                    if self.value(&branch[0])?.truth() {
                        return self.value(&branch[1]);
                    }
                }
                self.value(&last[0])
            }
            Expr::Call(function, args) => {
                let mut values = [Val::Null; super::expr::ARGUMENTS_MAX];
                for (slot, arg) in values.iter_mut().zip(args) {
                    *slot = self.value(arg)?;
                }
                self.call(*function, &values[..args.len()])
            }
        }
    }

    /// AND and OR: what `decides` does so without the other side.
    fn both(&mut self, args: &[Expr], decides: bool) -> Out<Val> {
        for arg in args {
            match self.value(arg)? {
                Val::Null => return Ok(Val::Null),
                v if v.boolean()? == decides => return Ok(Val::Bool(decides)),
                _ => {}
            }
        }
        Ok(Val::Bool(!decides))
    }

    fn call(&mut self, function: Function, args: &[Val]) -> Out<Val> {
        use Function as F;
        let with_null = matches!(function, F::Is | F::Debug);
        if !with_null && args.contains(&Val::Null) {
            return Ok(Val::Null);
        }
        let arg = |i: usize| args.get(i).copied().unwrap_or(Val::Null);
        let (a, b) = (arg(0), arg(1));
        Ok(match function {
            F::Add | F::Sub | F::Mul | F::Div | F::Mod | F::Eq | F::Ne | F::Le | F::Lt => {
                arithmetic(function, a, b)?
            }
            F::BitAnd => Val::Int(a.int()? & b.int()?),
            F::BitOr => Val::Int(a.int()? | b.int()?),
            F::BitXor => Val::Int(a.int()? ^ b.int()?),
            F::ShiftLeft => Val::Int(a.int()?.wrapping_shl(b.int()? as u32)),
            F::ShiftRight => Val::Int(a.int()?.wrapping_shr(b.int()? as u32)),
            F::Not => Val::Bool(!a.boolean()?),
            F::Is => Val::Bool(a == b),
            F::Pi => Val::Double(std::f64::consts::PI),
            F::Abs => match a {
                Val::Int(i) => Val::Int(i.wrapping_abs()),
                other => Val::Double(other.double()?.abs()),
            },
            F::Debug => {
                (self.debug)(&match a {
                    Val::Null => "null".to_owned(),
                    v => format!("{} {v}", v.kind()),
                });
                a
            }
            F::Double => Val::Double(a.double()?),
            F::Sqrt => Val::Double(a.double()?.sqrt()),
            F::Ln => Val::Double(a.double()?.ln()),
            F::Exp => Val::Double(a.double()?.exp()),
            F::Pow => Val::Double(a.double()?.powf(b.double()?)),
            F::Int => Val::Int(a.int()?),
            F::Least | F::Greatest => extreme(function == F::Least, args)?,
            F::Random | F::Gaussian | F::Exponential | F::Zipfian => {
                Val::Int(self.drawn(function, a, b, arg(2))?)
            }
            F::Fnv1a => Val::Int(random::fnv1a(a.int()?, b.int()?)),
            F::Murmur2 => Val::Int(random::murmur2(a.int()?, b.int()?)),
            F::Permute => {
                let size = b.int()?;
                if size <= 0 {
                    return Err("permute size parameter must be greater than zero".into());
                }
                Val::Int(random::permute(a.int()?, size, arg(2).int()?))
            }
            // They were looked at before their arguments.
            F::And | F::Or | F::Case => Val::Null,
        })
    }

    fn drawn(&mut self, function: Function, min: Val, max: Val, parameter: Val) -> Out<i64> {
        let range = (min.int()?, max.int()?);
        if range.0 > range.1 {
            return Err(format!(
                "empty range given to random: {} to {}",
                range.0, range.1
            ));
        }
        let count = range.1.checked_sub(range.0).and_then(|d| d.checked_add(1));
        count.ok_or_else(|| format!("random range is too large: {} to {}", range.0, range.1))?;
        let random = &mut *self.random;
        if function == Function::Random {
            return Ok(random::uniform(random, range));
        }
        let p = parameter.double()?;
        match function {
            Function::Gaussian if p >= random::GAUSSIAN_MIN => {
                Ok(random::gaussian(random, range, p))
            }
            Function::Gaussian => Err(format!("gaussian parameter must be at least 2 (not {p})")),
            Function::Exponential if p > 0.0 => Ok(random::exponential(random, range, p)),
            Function::Exponential => Err(format!(
                "exponential parameter must be greater than zero (not {p})"
            )),
            _ if (random::ZIPFIAN.0..=random::ZIPFIAN.1).contains(&p) => {
                Ok(random::zipfian(random, range, p))
            }
            _ => Err(format!(
                "zipfian parameter must be in range [1.001, 1000] (not {p})"
            )),
        }
    }
}

/// Doubles where one is, but in a remainder.
fn arithmetic(function: Function, a: Val, b: Val) -> Out<Val> {
    use Function as F;
    let either = matches!(a, Val::Double(_)) || matches!(b, Val::Double(_));
    if either && function != F::Mod {
        let (a, b) = (a.double()?, b.double()?);
        return Ok(match function {
            F::Add => Val::Double(a + b),
            F::Sub => Val::Double(a - b),
            F::Mul => Val::Double(a * b),
            F::Div => Val::Double(a / b),
            F::Eq => Val::Bool(a == b),
            F::Ne => Val::Bool(a != b),
            F::Le => Val::Bool(a <= b),
            _ => Val::Bool(a < b),
        });
    }
    let (a, b) = (a.int()?, b.int()?);
    let whole = |name: &str, n: Option<i64>| {
        n.map(Val::Int)
            .ok_or_else(|| format!("bigint {name} out of range"))
    };
    match function {
        F::Add => whole("add", a.checked_add(b)),
        F::Sub => whole("sub", a.checked_sub(b)),
        F::Mul => whole("mul", a.checked_mul(b)),
        F::Div | F::Mod if b == 0 => Err("division by zero".into()),
        F::Div => whole("div", a.checked_div(b)),
        F::Mod => Ok(Val::Int(a.wrapping_rem(b))),
        F::Eq => Ok(Val::Bool(a == b)),
        F::Ne => Ok(Val::Bool(a != b)),
        F::Le => Ok(Val::Bool(a <= b)),
        _ => Ok(Val::Bool(a < b)),
    }
}

fn extreme(least: bool, args: &[Val]) -> Out<Val> {
    if args.iter().any(|v| matches!(v, Val::Double(_))) {
        let all = args.iter().map(|v| v.double()).collect::<Out<Vec<_>>>()?;
        let of = all.into_iter().reduce(|a, b| match least {
            true => {
                if a < b {
                    a
                } else {
                    b
                }
            }
            false => {
                if a > b {
                    a
                } else {
                    b
                }
            }
        });
        return Ok(of.map_or(Val::Null, Val::Double));
    }
    let all = args.iter().map(|v| v.int()).collect::<Out<Vec<_>>>()?;
    let all = all.into_iter();
    let of = if least { all.min() } else { all.max() };
    Ok(of.map_or(Val::Null, Val::Int))
}
