-- a condition below stored sums: what it lets through is added
select a, sum(b) x from r where d > 1 group by a;
select a, sum(b) x from r where d > 0 group by a;
changes: adds the contribution of the rows of r for which d > 0 AND d <= 1;
SELECT `a`, `x`, `_kept_rows`, `_kept_count___sum`, `_kept_sum___sum`, `_weight` FROM (SELECT `_kept_key__a_2` AS `a`, CASE WHEN `_kept_count___sum` > 0 THEN `_kept_sum___sum` END AS `x`, `_kept_rows`, `_kept_count___sum`, `_kept_sum___sum`, `_weight` FROM (SELECT `_kept_key__a_2`, CASE WHEN `_weight` < 0 THEN `_kept_rows__old` ELSE `_kept_rows__new` END AS `_kept_rows`, CASE WHEN `_weight` < 0 THEN `_kept_count___sum__old` ELSE `_kept_count___sum__new` END AS `_kept_count___sum`, CASE WHEN `_weight` < 0 THEN `_kept_sum___sum__old` ELSE `_kept_sum___sum__new` END AS `_kept_sum___sum`, `_weight` FROM (SELECT * FROM (SELECT * FROM (SELECT * FROM (SELECT `_kept_key__a_2`, SUM(`_kept_rows__old`) AS `_kept_rows__old`, SUM(`_kept_count___sum__old`) AS `_kept_count___sum__old`, SUM(`_kept_sum___sum__old`) AS `_kept_sum___sum__old`, SUM(`_kept_rows__new`) AS `_kept_rows__new`, SUM(`_kept_count___sum__new`) AS `_kept_count___sum__new`, SUM(`_kept_sum___sum__new`) AS `_kept_sum___sum__new`, SUM(`_was`) AS `_was`, SUM(`_touched`) AS `_touched` FROM (SELECT `_kept_key__a_2`, `_kept_rows__old`, `_kept_count___sum__old`, `_kept_sum___sum__old`, `_kept_rows__new`, `_kept_count___sum__new`, `_kept_sum___sum__new`, `_was`, `_touched` FROM (SELECT `_kept_key__a_2`, NULL AS `_kept_rows__old`, NULL AS `_kept_count___sum__old`, NULL AS `_kept_sum___sum__old`, `_kept_rows__new`, `_kept_count___sum__new`, `_kept_sum___sum__new`, 0L AS `_was`, 1L AS `_touched` FROM (SELECT `a` AS `_kept_key__a_2`, CASE WHEN `_weight` > 0 THEN 1L ELSE -1L END AS `_kept_rows__new`, CASE WHEN (`b`) IS NULL THEN 0L WHEN `_weight` > 0 THEN 1L ELSE -1L END AS `_kept_count___sum__new`, COALESCE(CASE WHEN `_weight` > 0 THEN `b` ELSE -(`b`) END, 0) AS `_kept_sum___sum__new` FROM (SELECT * FROM (SELECT `a`, `b`, `_weight` FROM (SELECT `a`, `b`, CAST(1 AS BIGINT) AS `_weight` FROM (SELECT `a`, `b` FROM (SELECT * FROM (SELECT `a`, `b`, `d` FROM r_new) WHERE `d` > 0 AND `d` <= 1)))) LATERAL VIEW EXPLODE(SEQUENCE(1, CAST(ABS(`_weight`) AS INT))) _e AS `_each`))) UNION ALL SELECT `_kept_key__a_2`, `_kept_rows__old`, `_kept_count___sum__old`, `_kept_sum___sum__old`, `_kept_rows__new`, `_kept_count___sum__new`, `_kept_sum___sum__new`, `_was`, `_touched` FROM (SELECT `_kept_key__a_2`, CASE WHEN `_weight` > 0 THEN `_kept_rows` ELSE -`_kept_rows` END AS `_kept_rows__old`, CASE WHEN `_weight` > 0 THEN `_kept_count___sum` ELSE -`_kept_count___sum` END AS `_kept_count___sum__old`, CASE WHEN `_weight` > 0 THEN `_kept_sum___sum` ELSE -`_kept_sum___sum` END AS `_kept_sum___sum__old`, CASE WHEN `_weight` > 0 THEN `_kept_rows` ELSE -`_kept_rows` END AS `_kept_rows__new`, CASE WHEN `_weight` > 0 THEN `_kept_count___sum` ELSE -`_kept_count___sum` END AS `_kept_count___sum__new`, CASE WHEN `_weight` > 0 THEN `_kept_sum___sum` ELSE -`_kept_sum___sum` END AS `_kept_sum___sum__new`, `_weight` AS `_was`, 0L AS `_touched` FROM (SELECT `_kept_key__a_2`, `_kept_rows`, `_kept_count___sum`, `_kept_sum___sum`, CAST(1 AS BIGINT) AS `_weight` FROM (SELECT `a` AS `_kept_key__a_2`, `_kept_rows`, `_kept_count___sum`, `_kept_sum___sum` FROM v_old)))) GROUP BY `_kept_key__a_2`) WHERE `_touched` > 0 AND (NOT (`_kept_rows__old` IS NOT DISTINCT FROM `_kept_rows__new`) OR NOT (`_kept_count___sum__old` IS NOT DISTINCT FROM `_kept_count___sum__new`) OR NOT (`_kept_sum___sum__old` IS NOT DISTINCT FROM `_kept_sum___sum__new`))) LATERAL VIEW EXPLODE(ARRAY(-1L, 1L)) _e AS `_weight`) WHERE CASE WHEN `_weight` < 0 THEN `_was` > 0 ELSE `_kept_rows__new` > 0 END)));

-- a condition on a grouping key
select a, sum(b) x from r group by a;
select a, sum(b) x from r where a > 1 group by a;
changes: removes the rows for which a <= 1 OR a IS NULL;
SELECT `a`, `x`, `_kept_rows`, `_kept_count___sum`, `_kept_sum___sum`, CAST(-1 AS BIGINT) AS `_weight` FROM (SELECT `a__out` AS `a`, `x__out` AS `x`, `_kept_rows__out` AS `_kept_rows`, `_kept_count___sum__out` AS `_kept_count___sum`, `_kept_sum___sum__out` AS `_kept_sum___sum` FROM (SELECT * FROM (SELECT `a` AS `a__out`, `x` AS `x__out`, `_kept_rows` AS `_kept_rows__out`, `_kept_count___sum` AS `_kept_count___sum__out`, `_kept_sum___sum` AS `_kept_sum___sum__out` FROM v_old) WHERE (`a__out` <= 1) OR (`a__out` IS NULL)));

-- an aggregate is added
select k, max(v) x from t group by k;
select k, max(v) x, min(a) y from t group by k;
columns(k): computes y;
SELECT `k_2` AS `k`, `_min__new` AS `y` FROM (SELECT * FROM (SELECT `k` AS `k_2`, MIN(`a__new`) AS `_min__new` FROM (SELECT `k`, `a` AS `a__new` FROM t_new) GROUP BY `k`) WHERE NOT `_min__new` IS NULL);

-- an aggregate that follows from stored sums
select k, sum(v) x from t group by k;
select k, sum(v) x, avg(v) y, count(*) n from t group by k;
columns(k): computes y, n from the output;
SELECT `k__out` AS `k`, CASE WHEN (`_kept_count___sum__out` > 0) THEN CAST((CAST(`_kept_sum___sum__out` AS DECIMAL(38, 6)) / CAST(`_kept_count___sum__out` AS DECIMAL(20, 0))) AS DECIMAL(14, 6)) END AS `y`, `_kept_rows__out` AS `n` FROM (SELECT * FROM (SELECT `k` AS `k__out`, `_kept_rows` AS `_kept_rows__out`, `_kept_count___sum` AS `_kept_count___sum__out`, `_kept_sum___sum` AS `_kept_sum___sum__out` FROM v_old) WHERE NOT CASE WHEN (`_kept_count___sum__out` > 0) THEN CAST((CAST(`_kept_sum___sum__out` AS DECIMAL(38, 6)) / CAST(`_kept_count___sum__out` AS DECIMAL(20, 0))) AS DECIMAL(14, 6)) END IS NULL OR NOT `_kept_rows__out` IS NULL);

-- a threshold above groups is raised
select a, count(distinct b) n from r group by a having count(distinct b) > 1;
select a, count(distinct b) n from r group by a having count(distinct b) > 2;
changes: removes the rows for which n = 2;
SELECT * FROM (SELECT `a`, `n`, SUM(`_weight`) AS `_weight` FROM (SELECT `a`, `n`, CAST(-1 AS BIGINT) AS `_weight` FROM (SELECT `a__out` AS `a`, `n__out` AS `n` FROM (SELECT * FROM (SELECT `a` AS `a__out`, `n` AS `n__out` FROM v_old) WHERE `n__out` = 2))) GROUP BY `a`, `n`) WHERE `_weight` <> 0;

-- a threshold above groups is lowered: stored groups are not computed again
select a, count(distinct b) n from r group by a having count(distinct b) > 1;
select a, count(distinct b) n from r group by a having count(distinct b) > 0;
changes: adds the rows for which n = 1;
SELECT * FROM (SELECT `a`, `n`, SUM(`_weight`) AS `_weight` FROM (SELECT `a`, `n`, CAST(1 AS BIGINT) AS `_weight` FROM (SELECT `a_2` AS `a`, `_count` AS `n` FROM (SELECT * FROM (SELECT `a_2`, `_count` FROM v__2_new) WHERE `_count` = 1))) GROUP BY `a`, `n`) WHERE `_weight` <> 0;

-- other groups
select a, count(*) n from r group by a;
select b, count(*) n from r group by b;
none: the grouping keys differ;

-- a condition on the partitions of a window function
select k, rank() over (partition by a order by k) n, a from t;
select k, rank() over (partition by a order by k) n, a from t where a > 1;
changes: removes the rows for which a <= 1 OR a IS NULL;
SELECT `k`, `n`, `a`, CAST(-1 AS BIGINT) AS `_weight` FROM (SELECT `k__out` AS `k`, `n__out` AS `n`, `a__out` AS `a` FROM (SELECT * FROM (SELECT `k` AS `k__out`, `n` AS `n__out`, `a` AS `a__out` FROM v_old) WHERE (`a__out` <= 1) OR (`a__out` IS NULL)));

-- a condition within the partitions of a window function
select k, rank() over (partition by a order by k) n, a from t;
select k, rank() over (partition by a order by k) n, a from t where k > 1;
changes: subtracts the contribution of the rows of t for which k <= 1 OR k IS NULL;
SELECT `k`, `n`, `a`, `_weight` FROM (SELECT * FROM (SELECT `k`, `n`, `a`, SUM(`_weight`) AS `_weight` FROM (SELECT `k`, `n`, `a`, `_weight` FROM (SELECT `k`, `n`, `a`, CAST(1 AS BIGINT) AS `_weight` FROM (SELECT `k`, `_window` AS `n`, `a` FROM (SELECT *, RANK() OVER (PARTITION BY `a` ORDER BY `k`) AS `_window` FROM (SELECT /*+ BROADCAST(_few) */ * FROM (SELECT `k`, `a` FROM (SELECT `k`, `a` FROM (SELECT * FROM (SELECT `k`, `a` FROM t_new) WHERE `k` > 1))) LEFT SEMI JOIN (SELECT `_k1` FROM (SELECT `a` AS `_k1` FROM (SELECT `a` FROM (SELECT `a` FROM (SELECT `a` FROM (SELECT * FROM (SELECT `k`, `a` FROM t_new) WHERE `k` <= 1 OR `k` IS NULL)))))) AS _few ON `a` IS NOT DISTINCT FROM `_k1`)))) UNION ALL SELECT `k`, `n`, `a`, `_weight` FROM (SELECT `k`, `n`, `a`, CAST(-1 AS BIGINT) AS `_weight` FROM (SELECT /*+ BROADCAST(_few) */ * FROM (SELECT `k`, `n`, `a` FROM v_old) LEFT SEMI JOIN (SELECT `_k1` FROM (SELECT `a` AS `_k1` FROM (SELECT `a` FROM (SELECT `a` FROM (SELECT `a` FROM (SELECT * FROM (SELECT `k`, `a` FROM t_new) WHERE `k` <= 1 OR `k` IS NULL)))))) AS _few ON `a` IS NOT DISTINCT FROM `_k1`))) GROUP BY `k`, `n`, `a`) WHERE `_weight` <> 0);
