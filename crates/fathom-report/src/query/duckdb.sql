CREATE OR REPLACE TEMP VIEW io AS
SELECT *, greatest(submitted_ns - intended_ns, 0) AS submit_ns,
       greatest(completed_ns - submitted_ns, 0) AS service_ns,
       greatest(completed_ns - intended_ns, 0) AS response_ns
FROM read_parquet('{dir}/{below}io.parquet', hive_partitioning = false);

CREATE OR REPLACE TEMP VIEW series AS SELECT * FROM read_parquet('{dir}/{below}series.parquet', hive_partitioning = false);

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

CREATE OR REPLACE TEMP VIEW hosts AS
SELECT job, h->>'host' AS host,
       (h->>'ios')::BIGINT AS ios, (h->>'bytes')::BIGINT AS bytes, (h->>'tail_ios')::BIGINT AS tail_ios,
       (h->>'tail_bytes')::BIGINT AS tail_bytes, (h->>'p99_ns')::BIGINT AS p99_ns, (h->>'slowest_windows')::BIGINT AS slowest_windows,
       (h->>'wall_ns')::BIGINT AS wall_ns, (h->>'late_ns')::BIGINT AS late_ns, (h->>'clock_offset_ns')::BIGINT AS clock_offset_ns,
       (h->>'clock_bound_ns')::BIGINT AS clock_bound_ns, (h->>'clock_moved_ns')::BIGINT AS clock_moved_ns
FROM (SELECT job, unnest(from_json(j->'hosts', '["JSON"]')) AS h
      FROM (SELECT unnest(l) AS j, generate_subscripts(l, 1) - 1 AS job
            FROM (SELECT from_json(json->'jobs', '["JSON"]') AS l FROM run)));

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
SELECT job, op, host_index, start_ns, latency, high, unnest(b) AS bucket, unnest(n) AS n
FROM (SELECT job, op, host_index, start_ns, 'submit' AS latency, submit_max_ns AS high, submit_bucket AS b, submit_n AS n FROM series
      UNION ALL SELECT job, op, host_index, start_ns, 'service', service_max_ns, service_bucket, service_n FROM series
      UNION ALL SELECT job, op, host_index, start_ns, 'response', response_max_ns, response_bucket, response_n FROM series);

CREATE OR REPLACE TEMP MACRO top(bucket) AS
  ((bucket - 128 * greatest(bucket // 128 - 1, 0))::BIGINT << greatest(bucket // 128 - 1, 0)::INTEGER)
    + (1::BIGINT << greatest(bucket // 128 - 1, 0)::INTEGER) - 1;

CREATE OR REPLACE TEMP MACRO quantiles(span) AS TABLE
WITH merged AS (
  SELECT job, op, coalesce(start_ns // span * span, 0) AS start_ns, latency, bucket, sum(n) AS n, max(high) AS high
  FROM buckets GROUP BY ALL),
seen AS (
  SELECT *, top(bucket) AS top, sum(n) OVER (PARTITION BY job, op, start_ns, latency ORDER BY bucket) AS seen,
         sum(n) OVER (PARTITION BY job, op, start_ns, latency) AS total
  FROM merged)
SELECT job, op, start_ns, latency,
       least(min(top) FILTER (WHERE seen >= ceil(total * 0.5)), max(high)) AS p50_ns,
       least(min(top) FILTER (WHERE seen >= ceil(total * 0.9)), max(high)) AS p90_ns,
       least(min(top) FILTER (WHERE seen >= ceil(total * 0.99)), max(high)) AS p99_ns,
       least(min(top) FILTER (WHERE seen >= ceil(total * 0.999)), max(high)) AS p99_9_ns,
       least(min(top) FILTER (WHERE seen >= ceil(total * 0.9999)), max(high)) AS p99_99_ns
FROM seen GROUP BY ALL;

CREATE OR REPLACE TEMP MACRO quantiles_by_host() AS TABLE
WITH merged AS (
  SELECT job, op, host_index, latency, bucket, sum(n) AS n, max(high) AS high FROM buckets GROUP BY ALL),
seen AS (
  SELECT *, top(bucket) AS top, sum(n) OVER (PARTITION BY job, op, host_index, latency ORDER BY bucket) AS seen,
         sum(n) OVER (PARTITION BY job, op, host_index, latency) AS total
  FROM merged)
SELECT job, op, host_index, latency,
       least(min(top) FILTER (WHERE seen >= ceil(total * 0.5)), max(high)) AS p50_ns,
       least(min(top) FILTER (WHERE seen >= ceil(total * 0.99)), max(high)) AS p99_ns
FROM seen GROUP BY ALL;
