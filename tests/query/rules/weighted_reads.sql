-- a few rows of a relation with deltas are added up
select r.a, r.b from r where exists (select 1 from t where t.a = r.a);
SELECT `a`, `b` FROM (SELECT * FROM (SELECT * FROM (SELECT `a`, `b`, SUM(`_weight`) AS `_weight` FROM (SELECT `a`, `b`, `_weight` FROM (SELECT * FROM (SELECT `a`, `b`, `s`, `d`, `_weight` FROM r_new__weighed) LEFT SEMI JOIN (SELECT `k`, `a` AS `a_2`, `v`, `s` AS `s_2` FROM t_new) ON `a_2` = `a`)) GROUP BY `a`, `b`) WHERE `_weight` <> 0) LATERAL VIEW EXPLODE(SEQUENCE(1, CAST(`_weight` AS INT))) _e AS `_each`);

-- aggregates read merged rows
select a, count(*) n from r group by a;
SELECT `a_2` AS `a`, `_count` AS `n` FROM (SELECT `a` AS `a_2`, COUNT(*) AS `_count` FROM (SELECT `a`, `b`, `s`, `d` FROM r_new) GROUP BY `a`);

-- weights of both sides of a join are multiplied
select r.a, u.b from r join u on r.a = u.k;
SELECT `a`, `b` FROM (SELECT * FROM (SELECT * FROM (SELECT `a`, `b`, SUM(`_weight`) AS `_weight` FROM (SELECT `a`, `b_2` AS `b`, `_weight` FROM (SELECT `a`, `b`, `s`, `d`, `k`, `x`, `b_2`, `_weight` * `_w1` AS `_weight` FROM (SELECT * FROM (SELECT `a`, `b`, `s`, `d`, `_weight` FROM r_new__weighed) INNER JOIN (SELECT `k`, `x`, `b_2`, `_weight` AS `_w1` FROM (SELECT `k`, `x`, `b` AS `b_2`, `_weight` FROM u_new__weighed)) ON `a` = `k`))) GROUP BY `a`, `b`) WHERE `_weight` <> 0) LATERAL VIEW EXPLODE(SEQUENCE(1, CAST(`_weight` AS INT))) _e AS `_each`);

-- few weighted rows on the right of a semi-join are added up, and not repeated
select t.k from t join g on t.a = g.a where t.k in (select r.a from r where r.b in (select a from g));
SELECT `k` FROM (SELECT * FROM (SELECT * FROM (SELECT `k`, `a`, `v`, `s` FROM t_new) INNER JOIN (SELECT `a` AS `a_2`, `s` AS `s_2`, `n` FROM g_new) ON `a` = `a_2`) LEFT SEMI JOIN (SELECT `a_3`, `b`, `s_3`, `d` FROM (SELECT * FROM (SELECT `a_3`, `b`, `s_3`, `d`, SUM(`_weight`) AS `_weight` FROM (SELECT * FROM (SELECT `a` AS `a_3`, `b`, `s` AS `s_3`, `d`, `_weight` FROM r_new__weighed) LEFT SEMI JOIN (SELECT `a` AS `a_4`, `s` AS `s_4`, `n` AS `n_2` FROM g_new) ON `b` = `a_4`) GROUP BY `a_3`, `b`, `s_3`, `d`) WHERE `_weight` <> 0)) ON `k` = `a_3`);
