CREATE OR REPLACE TEMP VIEW io AS
SELECT *, greatest(submitted_ns - intended_ns, 0) AS submit_ns,
       greatest(completed_ns - submitted_ns, 0) AS service_ns,
       greatest(completed_ns - intended_ns, 0) AS response_ns
FROM '{dir}/io.parquet';

CREATE OR REPLACE TEMP VIEW series AS SELECT * FROM '{dir}/series.parquet';

CREATE OR REPLACE TEMP VIEW run AS
SELECT json FROM read_json_objects('{dir}/run.json', format = 'unstructured', maximum_object_size = 1000000000);

CREATE OR REPLACE TEMP VIEW jobs AS
SELECT job, j->>'name' AS name, j->>'experiment' AS experiment, (j->>'repeat')::BIGINT AS repeat,
       j->>'engine' AS engine, (j->>'start_ns')::BIGINT AS start_ns, (j->>'wall_ns')::BIGINT AS wall_ns,
       (j->>'cpu_ns')::BIGINT AS cpu_ns, (j->>'qd_requested')::BIGINT AS qd_requested,
       (j->>'qd_achieved')::DOUBLE AS qd_achieved,
       list_contains(j->'flags'->>'$[*].void', 'true')::INTEGER AS void, to_json(j->'flags'->>'$[*].code')::VARCHAR AS flags, j->'spec' AS spec
FROM (SELECT unnest(l) AS j, generate_subscripts(l, 1) - 1 AS job
      FROM (SELECT from_json(json->'jobs', '["JSON"]') AS l FROM run));

CREATE OR REPLACE TEMP VIEW findings AS
SELECT rank, f->>'id' AS id, f->>'text' AS text, f->>'advice' AS advice, f->>'confidence' AS confidence,
       (f->'gain'->>'value')::DOUBLE AS gain, (f->'gain'->>'low')::DOUBLE AS gain_low,
       (f->'gain'->>'high')::DOUBLE AS gain_high
FROM (SELECT unnest(l) AS f, generate_subscripts(l, 1) AS rank
      FROM (SELECT from_json(json->'findings', '["JSON"]') AS l FROM run));

CREATE OR REPLACE TEMP VIEW headlines AS
SELECT h->>'id' AS id, h->>'group' AS heading, h->>'label' AS label, h->>'unit' AS unit,
       (h->'estimate'->>'value')::DOUBLE AS value, (h->'estimate'->>'low')::DOUBLE AS low,
       (h->'estimate'->>'high')::DOUBLE AS high, (h->'estimate'->>'samples')::BIGINT AS samples,
       (h->'extra'->>'p50')::DOUBLE AS p50, (h->'extra'->>'p99')::DOUBLE AS p99, (h->'extra'->>'p99_9')::DOUBLE AS p99_9,
       list_contains(h->'flags'->>'$[*].void', 'true')::INTEGER AS void, to_json(h->'flags'->>'$[*].code')::VARCHAR AS flags,
       (h->'jobs')::VARCHAR AS jobs
FROM (SELECT unnest(from_json(json->'headlines', '["JSON"]')) AS h FROM run);

CREATE OR REPLACE TEMP VIEW layers AS
SELECT c->>'name' AS "case", c->>'rung' AS rung, rank, l->>'name' AS layer, l->>'owner' AS owner,
       (l->>'mean_ns')::DOUBLE AS mean_ns, (l->>'p50_ns')::BIGINT AS p50_ns, (l->>'p99_ns')::BIGINT AS p99_ns,
       (l->>'share')::DOUBLE AS share, (l->>'ios')::BIGINT AS ios
FROM (SELECT c, unnest(ls) AS l, generate_subscripts(ls, 1) AS rank
      FROM (SELECT c, from_json(c->'layers', '["JSON"]') AS ls
            FROM (SELECT unnest(from_json(r->'data'->'cases', '["JSON"]')) AS c
                  FROM (SELECT unnest(from_json(json->'results', '["JSON"]')) AS r FROM run)
                  WHERE r->>'experiment' = 'stack')));

CREATE OR REPLACE TEMP VIEW device AS
SELECT job, d->>'name' AS name,
       (d->>'read_ios')::BIGINT AS read_ios, (d->>'read_merges')::BIGINT AS read_merges,
       (d->>'read_bytes')::BIGINT AS read_bytes, (d->>'read_ticks_ms')::BIGINT AS read_ticks_ms,
       (d->>'write_ios')::BIGINT AS write_ios, (d->>'write_merges')::BIGINT AS write_merges,
       (d->>'write_bytes')::BIGINT AS write_bytes, (d->>'write_ticks_ms')::BIGINT AS write_ticks_ms,
       (d->>'discard_ios')::BIGINT AS discard_ios, (d->>'discard_bytes')::BIGINT AS discard_bytes,
       (d->>'flush_ios')::BIGINT AS flush_ios, (d->>'busy_ms')::BIGINT AS busy_ms
FROM (SELECT job, j->'device' AS d
      FROM (SELECT unnest(l) AS j, generate_subscripts(l, 1) - 1 AS job
            FROM (SELECT from_json(json->'jobs', '["JSON"]') AS l FROM run)))
WHERE d->>'name' IS NOT NULL;

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
SELECT job, op, start_ns, latency, low, low + spread AS high,
       sum(gap) OVER (PARTITION BY job, op, start_ns, latency ORDER BY pair)::BIGINT AS bucket, n
FROM (SELECT job, op, start_ns, latency, number // 2 AS pair, max(value) FILTER (WHERE number % 2 = 0) AS gap,
             max(value) FILTER (WHERE number % 2 = 1) AS n
      FROM numbers WHERE number > 5 GROUP BY ALL)
JOIN (SELECT job, op, start_ns, latency, max(value) FILTER (WHERE number = 3) AS low, max(value) FILTER (WHERE number = 4) AS spread
      FROM numbers WHERE number < 5 GROUP BY ALL) USING (job, op, start_ns, latency);

CREATE OR REPLACE TEMP MACRO quantiles(span) AS TABLE
WITH merged AS (
  SELECT job, op, coalesce(start_ns // span * span, 0) AS start_ns, latency, bucket, sum(n) AS n, min(low) AS low, max(high) AS high
  FROM buckets GROUP BY ALL),
seen AS (
  SELECT *, sum(n) OVER (PARTITION BY job, op, start_ns, latency ORDER BY bucket) AS seen,
         sum(n) OVER (PARTITION BY job, op, start_ns, latency) AS total,
         ((bucket - 128 * greatest(bucket // 128 - 1, 0)) << greatest(bucket // 128 - 1, 0)::INTEGER)
           + (1::BIGINT << greatest(bucket // 128 - 1, 0)::INTEGER) - 1 AS top
  FROM merged)
SELECT job, op, start_ns, latency,
       greatest(least(min(top) FILTER (WHERE seen >= ceil(total * 0.5)), max(high)), min(low)) AS p50_ns,
       greatest(least(min(top) FILTER (WHERE seen >= ceil(total * 0.9)), max(high)), min(low)) AS p90_ns,
       greatest(least(min(top) FILTER (WHERE seen >= ceil(total * 0.99)), max(high)), min(low)) AS p99_ns,
       greatest(least(min(top) FILTER (WHERE seen >= ceil(total * 0.999)), max(high)), min(low)) AS p99_9_ns,
       greatest(least(min(top) FILTER (WHERE seen >= ceil(total * 0.9999)), max(high)), min(low)) AS p99_99_ns
FROM seen GROUP BY ALL;
