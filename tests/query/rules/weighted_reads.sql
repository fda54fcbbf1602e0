-- a few rows of a relation with deltas are added up
select r.a, r.b from r where exists (select 1 from t where t.a = r.a);
SELECT `a`, `b` FROM (SELECT * FROM (SELECT * FROM (SELECT `a`, `b`, SUM(`_weight`) AS `_weight` FROM (SELECT `a`, `b`, `_weight` FROM (SELECT * FROM (SELECT `a`, `b`, `s`, `d`, `_weight` FROM r_new__weighed) LEFT SEMI JOIN (SELECT `k`, `a` AS `a_2`, `v`, `s` AS `s_2` FROM t_new) ON `a_2` = `a`)) GROUP BY `a`, `b`) WHERE `_weight` <> 0) LATERAL VIEW EXPLODE(SEQUENCE(1, CAST(`_weight` AS INT))) _e AS `_each`);

-- aggregates read merged rows
select a, count(*) n from r group by a;
SELECT `a_2` AS `a`, `_count` AS `n` FROM (SELECT `a` AS `a_2`, COUNT(*) AS `_count` FROM (SELECT `a`, `b`, `s`, `d` FROM r_new) GROUP BY `a`);

-- weights of both sides of a join are multiplied
select r.a, u.b from r join u on r.a = u.k;
SELECT `a`, `b` FROM (SELECT * FROM (SELECT * FROM (SELECT `a`, `b`, SUM(`_weight`) AS `_weight` FROM (SELECT `a`, `b_2` AS `b`, `_weight` FROM (SELECT `a`, `b`, `s`, `d`, `k`, `x`, `b_2`, `_weight` * `_w1` AS `_weight` FROM (SELECT * FROM (SELECT `a`, `b`, `s`, `d`, `_weight` FROM r_new__weighed) INNER JOIN (SELECT `k`, `x`, `b_2`, `_weight` AS `_w1` FROM (SELECT `k`, `x`, `b` AS `b_2`, `_weight` FROM u_new__weighed)) ON `a` = `k`))) GROUP BY `a`, `b`) WHERE `_weight` <> 0) LATERAL VIEW EXPLODE(SEQUENCE(1, CAST(`_weight` AS INT))) _e AS `_each`);
