-- a join with at most one row adds a column
select k, a from t;
select t.k, t.a, u.x from t left join u on t.a = u.k;
columns(k): computes x from the output;
SELECT `k__out` AS `k`, `x__new` AS `x` FROM (SELECT * FROM (SELECT * FROM (SELECT `k` AS `k__out`, `a` AS `a__out` FROM v_old) LEFT OUTER JOIN (SELECT `k` AS `k_2__new`, `x` AS `x__new` FROM u_new) ON `a__out` = `k_2__new`) WHERE NOT `x__new` IS NULL);

-- an inner join with at most one row
select k, a from t;
select t.k, t.a from t join u on t.a = u.k where u.b > 1;
changes: removes the rows for which no row of u with b > 1 matches a;
SELECT `k`, `a`, CAST(-1 AS BIGINT) AS `_weight` FROM (SELECT `k__out` AS `k`, `a__out` AS `a` FROM (SELECT * FROM (SELECT `k` AS `k__out`, `a` AS `a__out` FROM v_old) LEFT ANTI JOIN (SELECT * FROM (SELECT `k` AS `k_2__new`, `b` AS `b__new` FROM u_new) WHERE `b__new` > 1) ON `a__out` = `k_2__new`));

-- an inner join with at most one row is removed
select t.k, t.s from t join u on t.a = u.k;
select k, s from t;
changes: adds the rows for which no row of u matches a;
SELECT `k`, `s`, CAST(1 AS BIGINT) AS `_weight` FROM (SELECT `k`, `s` FROM (SELECT * FROM (SELECT `k`, `a`, `s` FROM t_new) LEFT ANTI JOIN (SELECT `k` AS `k_2` FROM u_new) ON `a` = `k_2`));

-- a semi-join is added
select k, a from t;
select k, a from t where a in (select b from r);
changes: removes the rows for which no row of r matches a;
SELECT `k`, `a`, CAST(-1 AS BIGINT) AS `_weight` FROM (SELECT `k__out` AS `k`, `a__out` AS `a` FROM (SELECT * FROM (SELECT `k` AS `k__out`, `a` AS `a__out` FROM v_old) LEFT ANTI JOIN (SELECT `b__new` AS `b__new__met1` FROM (SELECT `b` AS `b__new` FROM r_new)) ON `a__out` = `b__new__met1`));

-- an anti-join is removed
select k, a from t where not exists (select 1 from r where r.a = t.a);
select k, a from t;
changes: adds the rows for which a row of r matches a;
SELECT `k`, `a`, CAST(1 AS BIGINT) AS `_weight` FROM (SELECT `k`, `a` FROM (SELECT * FROM (SELECT `k`, `a` FROM t_new) LEFT SEMI JOIN (SELECT `a_2` AS `a_2__met1` FROM (SELECT `a` AS `a_2` FROM r_new)) ON `a` = `a_2__met1`));

-- the rows of a semi-join are others
select k, a from t where a in (select b from r where d > 1);
select k, a from t where a in (select b from r where d > 2);
changes: removes the rows for which no row of r with d > 2 matches a and adds the rows for which a row of r with d > 2 matches a AND no row of r with d > 1 matches a;
SELECT `k`, `a`, `_weight` FROM (SELECT `k`, `a`, CAST(-1 AS BIGINT) AS `_weight` FROM (SELECT `k__out` AS `k`, `a__out` AS `a` FROM (SELECT * FROM (SELECT `k` AS `k__out`, `a` AS `a__out` FROM v_old) LEFT ANTI JOIN (SELECT `b__new` AS `b__new__met1` FROM (SELECT * FROM (SELECT `b` AS `b__new`, `d` AS `d__new` FROM r_new) WHERE `d__new` > 2)) ON `a__out` = `b__new__met1`))) UNION ALL SELECT `k`, `a`, `_weight` FROM (SELECT `k`, `a`, CAST(1 AS BIGINT) AS `_weight` FROM (SELECT `k`, `a` FROM (SELECT * FROM (SELECT * FROM (SELECT `k`, `a` FROM t_new) LEFT ANTI JOIN (SELECT `b` AS `b__met1` FROM (SELECT * FROM (SELECT `b`, `d` FROM r_new) WHERE `d` > 1)) ON `a` = `b__met1`) LEFT SEMI JOIN (SELECT `b__new` AS `b__new__met1` FROM (SELECT * FROM (SELECT `b` AS `b__new`, `d` AS `d__new` FROM r_new) WHERE `d__new` > 2)) ON `a` = `b__new__met1`)));

-- the rows of an outer join are others
select t.k, r.b from t left join r on t.a = r.a and r.d > 1;
select t.k, r.b from t left join r on t.a = r.a and r.d > 2;
changes: subtracts the contribution of the rows of r for which d > 1 AND d <= 2;
SELECT `k`, `b`, `_weight` FROM (SELECT * FROM (SELECT `k`, `b`, SUM(`_weight`) AS `_weight` FROM (SELECT `k`, `b`, `_weight` FROM (SELECT `k`, `b`, CASE WHEN `_after0__k1` THEN CAST(1 AS BIGINT) ELSE CAST(-1 AS BIGINT) END AS `_weight` FROM (SELECT * FROM (SELECT * FROM (SELECT /*+ BROADCAST(_few) */ * FROM (SELECT `k`, `a` FROM t_new) LEFT SEMI JOIN (SELECT `_k1` FROM (SELECT `a_2` AS `_k1` FROM (SELECT `a_2` FROM (SELECT `a_2` FROM (SELECT `a_2` FROM (SELECT * FROM (SELECT `a` AS `a_2`, `d` FROM r_new) WHERE `d` > 1 AND `d` <= 2)))))) AS _few ON `a` IS NOT DISTINCT FROM `_k1`) LATERAL VIEW EXPLODE(ARRAY(TRUE, FALSE)) _e AS `_after0__k1`) LEFT OUTER JOIN (SELECT `a_2`, `b`, `_after1__k1` FROM (SELECT * FROM (SELECT * FROM (SELECT `a_2`, `b`, `_after1__k1`, SUM(`_weight`) AS `_weight` FROM (SELECT `a_2`, `b`, `_after1__k1`, `_weight` FROM (SELECT `a_2`, `b`, `_after1__k1`, `_weight` FROM (SELECT * FROM (SELECT `a_2`, `b`, CAST(1 AS BIGINT) AS `_weight` FROM (SELECT /*+ BROADCAST(_few) */ * FROM (SELECT `a_2`, `b` FROM (SELECT `a_2`, `b` FROM (SELECT * FROM (SELECT `a` AS `a_2`, `b`, `d` FROM r_new) WHERE `d` > 1))) LEFT SEMI JOIN (SELECT `_k1` FROM (SELECT `a_2` AS `_k1` FROM (SELECT `a_2` FROM (SELECT `a_2` FROM (SELECT `a_2` FROM (SELECT * FROM (SELECT `a` AS `a_2`, `d` FROM r_new) WHERE `d` > 1 AND `d` <= 2)))))) AS _few ON `a_2` IS NOT DISTINCT FROM `_k1`)) LATERAL VIEW EXPLODE(ARRAY(TRUE, FALSE)) _e AS `_after1__k1`)) UNION ALL SELECT `a_2`, `b`, `_after1__k1`, `_weight` FROM (SELECT `a_2`, `b`, TRUE AS `_after1__k1`, `_weight` FROM (SELECT /*+ BROADCAST(_few) */ * FROM (SELECT `a_2`, `b`, `_weight` FROM (SELECT `a_2`, `b`, CAST(-1 AS BIGINT) AS `_weight` FROM (SELECT `a_2`, `b` FROM (SELECT * FROM (SELECT `a` AS `a_2`, `b`, `d` FROM r_new) WHERE `d` > 1 AND `d` <= 2)))) LEFT SEMI JOIN (SELECT `_k1` FROM (SELECT `a_2` AS `_k1` FROM (SELECT `a_2` FROM (SELECT `a_2` FROM (SELECT `a_2` FROM (SELECT * FROM (SELECT `a` AS `a_2`, `d` FROM r_new) WHERE `d` > 1 AND `d` <= 2)))))) AS _few ON `a_2` IS NOT DISTINCT FROM `_k1`))) GROUP BY `a_2`, `b`, `_after1__k1`) WHERE `_weight` <> 0) LATERAL VIEW EXPLODE(SEQUENCE(1, CAST(`_weight` AS INT))) _e AS `_each`)) ON `a` = `a_2` AND `_after0__k1` = `_after1__k1`))) GROUP BY `k`, `b`) WHERE `_weight` <> 0);

-- a join with several rows is added
select k, a from t;
select t.k, t.a from t join r on t.a = r.a;
none: r was added to a join, in which a row may match several of its rows;

-- a relation that is joined with itself
select x.k, y.k l from t x join t y on x.a = y.a where x.v > 1 and y.v > 0;
select x.k, y.k l from t y join t x on y.a = x.a where y.v > 0 and x.v > 2;
changes: removes the rows for which v <= 2;
SELECT `k`, `l`, CAST(-1 AS BIGINT) AS `_weight` FROM (SELECT `k`, `k_2` AS `l` FROM (SELECT * FROM (SELECT * FROM (SELECT `k`, `a`, `v` FROM t_new) WHERE `v` > 1 AND `v` <= 2) INNER JOIN (SELECT * FROM (SELECT `k` AS `k_2`, `a` AS `a_2`, `v` AS `v_2` FROM t_new) WHERE `v_2` > 0) ON `a` = `a_2`));

-- conditions of a join that are equalities of other columns
select u.k, u.b from u join t on u.x = t.k;
select u.k, u.b from u join t on u.b = t.k;
changes: removes the rows for which no row of t matches b and adds the rows for which a row of t matches b AND no row of t matches x;
SELECT `k`, `b`, `_weight` FROM (SELECT `k`, `b`, CAST(-1 AS BIGINT) AS `_weight` FROM (SELECT `k__out` AS `k`, `b__out` AS `b` FROM (SELECT * FROM (SELECT `k` AS `k__out`, `b` AS `b__out` FROM v_old) LEFT ANTI JOIN (SELECT `k` AS `k_2__new` FROM t_new) ON `b__out` = `k_2__new`))) UNION ALL SELECT `k`, `b`, `_weight` FROM (SELECT `k`, `b`, CAST(1 AS BIGINT) AS `_weight` FROM (SELECT `k`, `b` FROM (SELECT * FROM (SELECT * FROM (SELECT `k`, `x`, `b` FROM u_new) LEFT ANTI JOIN (SELECT `k` AS `k_2` FROM t_new) ON `x` = `k_2`) LEFT SEMI JOIN (SELECT `k` AS `k_2__new` FROM t_new) ON `b` = `k_2__new`)));

-- an inner join becomes an outer one
select u.k, t.s from u join t on u.x = t.k;
select u.k, t.s from u left join t on u.x = t.k;
changes: adds the rows for which no row of t matches x;
SELECT `k`, `s`, CAST(1 AS BIGINT) AS `_weight` FROM (SELECT `k`, `s` FROM (SELECT * FROM (SELECT * FROM (SELECT `k`, `x` FROM u_new) LEFT OUTER JOIN (SELECT `k` AS `k_2`, `s` FROM t_new) ON `x` = `k_2`) WHERE `k_2` IS NULL));

-- elements of arrays
select t.k, e from t lateral view explode(array(t.a, t.k)) x as e where t.v > 1;
select t.k, e from t lateral view explode(array(t.a, t.k)) x as e where t.v > 1 and e > 1;
changes: removes the rows for which NOT COALESCE(e > 1, FALSE);
SELECT `k`, `e`, CAST(-1 AS BIGINT) AS `_weight` FROM (SELECT `k__out` AS `k`, `e__out` AS `e` FROM (SELECT * FROM (SELECT `k` AS `k__out`, `e` AS `e__out` FROM v_old) WHERE NOT COALESCE((`e__out` > 1), FALSE)));

-- a column beside elements of arrays
select t.k, e from t lateral view explode(array(t.a, t.k)) x as e;
select t.k, e, e + 1 f from t lateral view explode(array(t.a, t.k)) x as e;
the whole output: computes f from the output;
SELECT `k__out` AS `k`, `e__out` AS `e`, `e__out` + 1 AS `f` FROM (SELECT `k` AS `k__out`, `e` AS `e__out` FROM v_old);

-- columns of one name in several relations
select t.k, g.n from t join g on t.k = g.n where t.a > 1;
select t.k, g.n from t join g on t.k = g.n where t.a > 2 and g.a > 0;
changes: removes the rows for which t.a = 2 OR g.a <= 0 OR g.a IS NULL;
SELECT `k`, `n`, CAST(-1 AS BIGINT) AS `_weight` FROM (SELECT `k`, `n` FROM (SELECT * FROM (SELECT * FROM (SELECT `k`, `a` FROM t_new) WHERE `a` > 1) INNER JOIN (SELECT `n`, `a` AS `a_2__new` FROM g_new) ON `k` = `n` AND (`a` = 2 OR `a_2__new` <= 0 OR `a_2__new` IS NULL)));
