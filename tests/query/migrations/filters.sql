-- a threshold is raised: rows are removed, found in the output
select k, v from t where v > 1;
select k, v from t where v > 2;
changes: removes the rows for which v <= 2;
SELECT `k`, `v`, CAST(-1 AS BIGINT) AS `_weight` FROM (SELECT `k__out` AS `k`, `v__out` AS `v` FROM (SELECT * FROM (SELECT `k` AS `k__out`, `v` AS `v__out` FROM v_old) WHERE `v__out` <= 2));

-- a threshold is lowered: only the rows between the two are read
select k, v from t where v > 1;
select k, v from t where v > 0;
changes: adds the rows for which v > 0 AND v <= 1;
SELECT `k`, `v`, CAST(1 AS BIGINT) AS `_weight` FROM (SELECT `k`, `v` FROM (SELECT * FROM (SELECT `k`, `v` FROM t_new) WHERE `v` > 0 AND `v` <= 1));

-- a condition on another column: both
select k, v from t where v > 1;
select k, v from t where a = 2;
changes: removes the rows for which a <> 2 OR a IS NULL and adds the rows for which a = 2 AND (v <= 1 OR v IS NULL);
SELECT `k`, `v`, CASE WHEN `v` > 1 AND (`a__new` <> 2 OR `a__new` IS NULL) THEN CAST(-1 AS BIGINT) ELSE CAST(1 AS BIGINT) END AS `_weight` FROM (SELECT * FROM (SELECT `k`, `v`, `a` AS `a__new` FROM t_new) WHERE (`v` > 1 AND (`a__new` <> 2 OR `a__new` IS NULL)) OR (`a__new` = 2 AND (`v` <= 1 OR `v` IS NULL)));

-- a condition on a column that the output has not
select k from t;
select k from t where v > 1;
changes: removes the rows for which v <= 1 OR v IS NULL;
SELECT `k`, CAST(-1 AS BIGINT) AS `_weight` FROM (SELECT `k` FROM (SELECT * FROM (SELECT `k`, `v` AS `v__new` FROM t_new) WHERE `v__new` <= 1 OR `v__new` IS NULL));

-- a column that equals one of the output
select t.k, t.s from t join u on t.a = u.k;
select t.k, t.s from t join u on t.a = u.k where t.a > 1;
changes: removes the rows for which a <= 1 OR a IS NULL;
SELECT `k`, `s`, CAST(-1 AS BIGINT) AS `_weight` FROM (SELECT `k`, `s` FROM (SELECT * FROM (SELECT * FROM (SELECT `k`, `a`, `s` FROM t_new) WHERE `a` <= 1 OR `a` IS NULL) INNER JOIN (SELECT `k` AS `k_2` FROM u_new) ON `a` = `k_2`));

-- rows that occur more than once
select a, b from r where b > 1;
select a, b from r where b > 0;
changes: adds the rows for which b = 1;
SELECT `a`, `b`, CAST(1 AS BIGINT) AS `_weight` FROM (SELECT `a`, `b` FROM (SELECT * FROM (SELECT `a`, `b` FROM r_new) WHERE `b` = 1));

-- conditions that protect others are evaluated before them
select k from t where a <> 0 and 1 / a > 0.5;
select k from t where a > 1 and 1 / a > 0.5;
changes: removes the rows for which a <= 1;
SELECT `k`, CAST(-1 AS BIGINT) AS `_weight` FROM (SELECT `k` FROM (SELECT * FROM (SELECT `k`, `a` FROM t_new) WHERE `a` <> 0 AND `a` <= 1 AND 1 / `a` > 0.5));

-- none of the rows stays
select k, s from t where a = 1;
select k, s from t where a = 2;
none: none of its rows is a row of the new query;

-- rows are removed and added by a column that the output has not: they are read once
select k, s from t where a between 1 and 3;
select k, s from t where a between 2 and 5;
changes: removes the rows for which a = 1 and adds the rows for which a BETWEEN 2 AND 5 AND NOT a IN (2, 3);
SELECT `k`, `s`, CASE WHEN `a` = 1 THEN CAST(-1 AS BIGINT) ELSE CAST(1 AS BIGINT) END AS `_weight` FROM (SELECT * FROM (SELECT `k`, `a`, `s` FROM t_new) WHERE `a` = 1 OR (`a` BETWEEN 2 AND 5 AND NOT `a` IN (2, 3)));

-- conditions on columns of two relations: each selects rows of its own
select t.k, u.x from t join u on t.a = u.k where t.v > 1;
select t.k, u.x from t join u on t.a = u.k where u.b > 1;
changes: removes the rows for which b <= 1 OR b IS NULL and adds the rows for which b > 1 AND (v <= 1 OR v IS NULL);
SELECT `k`, `x`, `_weight` FROM (SELECT `k`, `x`, CAST(-1 AS BIGINT) AS `_weight` FROM (SELECT `k`, `x` FROM (SELECT * FROM (SELECT * FROM (SELECT `k`, `a`, `v` FROM t_new) WHERE `v` > 1) INNER JOIN (SELECT * FROM (SELECT `k` AS `k_2`, `x`, `b` AS `b__new` FROM u_new) WHERE `b__new` <= 1 OR `b__new` IS NULL) ON `a` = `k_2`))) UNION ALL SELECT `k`, `x`, `_weight` FROM (SELECT `k`, `x`, CAST(1 AS BIGINT) AS `_weight` FROM (SELECT `k`, `x` FROM (SELECT * FROM (SELECT * FROM (SELECT `k`, `a`, `v` FROM t_new) WHERE `v` <= 1 OR `v` IS NULL) INNER JOIN (SELECT * FROM (SELECT `k` AS `k_2`, `x`, `b` AS `b__new` FROM u_new) WHERE `b__new` > 1) ON `a` = `k_2`)));
