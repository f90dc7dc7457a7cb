//! The consistency conditions of TPC-C (clause 3.3.2), as queries that count what contradicts them.

use super::super::sql::{Answer, Result, Session};

/// Number of the condition, what it says, and the query.
pub(super) const CONDITIONS: [(u32, &str, &str); 12] = [
    (
        1,
        "W_YTD is the sum of D_YTD",
        "SELECT COUNT(*) FROM warehouse JOIN (SELECT d_w_id, SUM(d_ytd) AS s FROM district GROUP BY d_w_id) x ON d_w_id = w_id WHERE ABS(w_ytd - s) > 0.005",
    ),
    (
        2,
        "D_NEXT_O_ID - 1 is the largest O_ID and NO_O_ID",
        "SELECT COUNT(*) FROM district JOIN (SELECT o_w_id, o_d_id, MAX(o_id) AS o FROM orders GROUP BY o_w_id, o_d_id) x ON o_w_id = d_w_id AND o_d_id = d_id LEFT JOIN (SELECT no_w_id, no_d_id, MAX(no_o_id) AS n FROM new_order GROUP BY no_w_id, no_d_id) y ON no_w_id = d_w_id AND no_d_id = d_id WHERE d_next_o_id - 1 <> o OR (n IS NOT NULL AND n <> o)",
    ),
    (
        3,
        "NO_O_ID has no gaps",
        "SELECT COUNT(*) FROM (SELECT no_w_id, no_d_id, MAX(no_o_id) - MIN(no_o_id) + 1 AS r, COUNT(*) AS n FROM new_order GROUP BY no_w_id, no_d_id) x WHERE r <> n",
    ),
    (
        4,
        "the sum of O_OL_CNT is the number of lines",
        "SELECT COUNT(*) FROM (SELECT o_w_id, o_d_id, SUM(o_ol_cnt) AS s FROM orders GROUP BY o_w_id, o_d_id) x JOIN (SELECT ol_w_id, ol_d_id, COUNT(*) AS n FROM order_line GROUP BY ol_w_id, ol_d_id) y ON ol_w_id = o_w_id AND ol_d_id = o_d_id WHERE s <> n",
    ),
    (
        5,
        "an order has no carrier as long as it is in NEW_ORDER",
        "SELECT COUNT(*) FROM orders LEFT JOIN new_order ON no_w_id = o_w_id AND no_d_id = o_d_id AND no_o_id = o_id WHERE (o_carrier_id IS NULL) <> (no_o_id IS NOT NULL)",
    ),
    (
        6,
        "O_OL_CNT is the number of the order's lines",
        "SELECT COUNT(*) FROM orders LEFT JOIN (SELECT ol_w_id, ol_d_id, ol_o_id, COUNT(*) AS n FROM order_line GROUP BY ol_w_id, ol_d_id, ol_o_id) x ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id WHERE o_ol_cnt <> COALESCE(n, 0)",
    ),
    (
        7,
        "lines are delivered with their order",
        "SELECT COUNT(*) FROM order_line JOIN orders ON o_w_id = ol_w_id AND o_d_id = ol_d_id AND o_id = ol_o_id WHERE (ol_delivery_d IS NULL) <> (o_carrier_id IS NULL)",
    ),
    (
        8,
        "W_YTD is the sum of H_AMOUNT",
        "SELECT COUNT(*) FROM warehouse JOIN (SELECT h_w_id, SUM(h_amount) AS s FROM history GROUP BY h_w_id) x ON h_w_id = w_id WHERE ABS(w_ytd - s) > 0.005",
    ),
    (
        9,
        "D_YTD is the sum of H_AMOUNT",
        "SELECT COUNT(*) FROM district JOIN (SELECT h_w_id, h_d_id, SUM(h_amount) AS s FROM history GROUP BY h_w_id, h_d_id) x ON h_w_id = d_w_id AND h_d_id = d_id WHERE ABS(d_ytd - s) > 0.005",
    ),
    (
        10,
        "C_BALANCE is what was delivered less what was paid",
        "SELECT COUNT(*) FROM customer LEFT JOIN (SELECT o_w_id, o_d_id, o_c_id, SUM(ol_amount) AS a FROM orders JOIN order_line ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id WHERE ol_delivery_d IS NOT NULL GROUP BY o_w_id, o_d_id, o_c_id) x ON o_w_id = c_w_id AND o_d_id = c_d_id AND o_c_id = c_id LEFT JOIN (SELECT h_c_w_id, h_c_d_id, h_c_id, SUM(h_amount) AS h FROM history GROUP BY h_c_w_id, h_c_d_id, h_c_id) y ON h_c_w_id = c_w_id AND h_c_d_id = c_d_id AND h_c_id = c_id WHERE ABS(c_balance - COALESCE(a, 0) + COALESCE(h, 0)) > 0.005",
    ),
    (
        11,
        "orders less new orders are 2100 and the deliveries",
        "SELECT COUNT(*) FROM (SELECT o_w_id, o_d_id, COUNT(*) AS o FROM orders GROUP BY o_w_id, o_d_id) x LEFT JOIN (SELECT no_w_id, no_d_id, COUNT(*) AS n FROM new_order GROUP BY no_w_id, no_d_id) y ON no_w_id = o_w_id AND no_d_id = o_d_id JOIN (SELECT c_w_id, c_d_id, SUM(c_delivery_cnt) AS d FROM customer GROUP BY c_w_id, c_d_id) z ON c_w_id = o_w_id AND c_d_id = o_d_id WHERE o - COALESCE(n, 0) <> 2100 + d",
    ),
    (
        12,
        "C_BALANCE and C_YTD_PAYMENT are what was delivered",
        "SELECT COUNT(*) FROM customer LEFT JOIN (SELECT o_w_id, o_d_id, o_c_id, SUM(ol_amount) AS a FROM orders JOIN order_line ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id WHERE ol_delivery_d IS NOT NULL GROUP BY o_w_id, o_d_id, o_c_id) x ON o_w_id = c_w_id AND o_d_id = c_d_id AND o_c_id = c_id WHERE ABS(c_balance + c_ytd_payment - COALESCE(a, 0)) > 0.005",
    ),
];

/// Rows that contradict each condition.
pub(super) fn check(session: &mut dyn Session) -> Result<[i64; 12]> {
    let mut found = [0; 12];
    let mut answer = Answer::default();
    for (into, (_, _, sql)) in found.iter_mut().zip(CONDITIONS) {
        session.query(sql, &mut answer)?;
        // A table that is empty satisfies nothing: no answer is a contradiction.
        *into = answer.int(0, 0).unwrap_or(-1);
    }
    // Conditions over nothing hold: the load must be there.
    session.query("SELECT COUNT(*) FROM warehouse", &mut answer)?;
    if answer.int(0, 0)? == 0 {
        found = [-1; 12];
    }
    Ok(found)
}
