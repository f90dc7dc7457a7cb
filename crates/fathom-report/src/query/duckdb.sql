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

CREATE OR REPLACE TEMP MACRO histogram_quantile(histograms, q) AS (
  WITH bytes AS (
    SELECT h, i, b FROM (
      SELECT h, unnest(l) AS b, generate_subscripts(l, 1) AS i FROM (
        SELECT h, [('0x' || x)::INTEGER FOR x IN regexp_extract_all(hex(blob), '..')] AS l FROM (
          SELECT unnest(histograms) AS blob, generate_subscripts(histograms, 1) AS h)))),
  numbered AS (
    SELECT *, coalesce(sum((b < 128)::INTEGER) OVER (PARTITION BY h ORDER BY i ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS number
    FROM bytes),
  placed AS (SELECT *, i - min(i) OVER (PARTITION BY h, number) AS place FROM numbered),
  numbers AS (
    SELECT h, number, sum((b & 127)::HUGEINT << (7 * place)::INTEGER) AS value
    FROM placed WHERE number > 2 GROUP BY h, number),
  bounds AS (
    SELECT min(low) AS low, max(low + spread) AS high FROM (
      SELECT h, max(CASE WHEN number = 3 THEN value END) AS low, max(CASE WHEN number = 4 THEN value END) AS spread
      FROM numbers GROUP BY h)),
  pairs AS (
    SELECT h, (number - number % 2) AS pair, max(CASE WHEN number % 2 = 0 THEN value END) AS gap,
           max(CASE WHEN number % 2 = 1 THEN value END) AS n
    FROM numbers WHERE number > 5 GROUP BY h, pair),
  counts AS (
    SELECT bucket, sum(n) AS n FROM (SELECT sum(gap) OVER (PARTITION BY h ORDER BY pair) AS bucket, n FROM pairs)
    GROUP BY bucket),
  seen AS (SELECT bucket, sum(n) OVER (ORDER BY bucket) AS seen, sum(n) OVER () AS total FROM counts),
  found AS (SELECT min(bucket)::BIGINT AS bucket FROM seen WHERE seen >= greatest(ceil(total * q), 1)),
  upper AS (
    SELECT ((bucket - 128 * e) << e) + (1::BIGINT << e) - 1 AS v
    FROM (SELECT bucket, greatest(bucket // 128 - 1, 0) AS e FROM found))
  SELECT least(greatest(v, low), high)::BIGINT FROM upper, bounds);
