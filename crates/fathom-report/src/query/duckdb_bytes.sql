CREATE OR REPLACE TEMP VIEW buckets AS
WITH stored AS (
  SELECT job, op, start_ns, 'submit' AS latency, submit_histogram AS h FROM series
  UNION ALL SELECT job, op, start_ns, 'service', service_histogram FROM series
  UNION ALL SELECT job, op, start_ns, 'response', response_histogram FROM series),
bytes AS (
  SELECT * EXCLUDE l, unnest(l) AS b, generate_subscripts(l, 1) AS i
  FROM (SELECT * EXCLUDE h, [('0x' || x)::INTEGER FOR x IN regexp_extract_all(hex(h), '..')] AS l FROM stored)),
numbered AS (
  SELECT *, coalesce(sum((b < 128)::INTEGER) OVER (PARTITION BY job, op, start_ns, latency ORDER BY i
                     ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0)::INTEGER AS number
  FROM bytes),
numbers AS (
  SELECT job, op, start_ns, latency, number, sum((b & 127)::BIGINT << (7 * place))::BIGINT AS value
  FROM (SELECT *, (i - min(i) OVER (PARTITION BY job, op, start_ns, latency, number))::INTEGER AS place
        FROM numbered WHERE number > 2)
  GROUP BY ALL)
SELECT job, op, NULL::INTEGER AS host_index, start_ns, latency, low + spread AS high,
       sum(gap) OVER (PARTITION BY job, op, start_ns, latency ORDER BY pair)::BIGINT AS bucket, n
FROM (SELECT job, op, start_ns, latency, number // 2 AS pair, max(value) FILTER (WHERE number % 2 = 0) AS gap,
             max(value) FILTER (WHERE number % 2 = 1) AS n
      FROM numbers WHERE number > 5 GROUP BY ALL)
JOIN (SELECT job, op, start_ns, latency, max(value) FILTER (WHERE number = 3) AS low, max(value) FILTER (WHERE number = 4) AS spread
      FROM numbers WHERE number < 5 GROUP BY ALL) USING (job, op, start_ns, latency);

