-- keys are joined with the input of a projection, a filter and an aggregate
select * from (select a + 1 as b, n from (select a, count(*) n from r where s = 'x' group by a)) where exists (select 1 from g where g.a = b);
SELECT `b_2` AS `b`, `n_2` AS `n` FROM (SELECT `a_2` + 1 AS `b_2`, `_count` AS `n_2` FROM (SELECT `a` AS `a_2`, COUNT(*) AS `_count` FROM (SELECT * FROM (SELECT * FROM (SELECT `a`, `b`, `s`, `d` FROM r_new) LEFT SEMI JOIN (SELECT `a_4` FROM (SELECT `a` AS `a_4`, `s` AS `s_2`, `n` AS `n_3` FROM g_new)) ON (`a` + 1) = `a_4`) WHERE `s` = 'x') GROUP BY `a`));

-- both sides of a join are restricted where its equality passes the keys on
select * from (select r.a, r.b, u.x from r join u on r.a = u.k) q where exists (select 1 from g where g.a = q.a);
SELECT `a`, `b`, `x` FROM (SELECT * FROM (SELECT * FROM (SELECT `a`, `b`, `s`, `d` FROM r_new) LEFT SEMI JOIN (SELECT `a_3` FROM (SELECT `a` AS `a_3`, `s` AS `s_2`, `n` FROM g_new)) ON `a` = `a_3`) INNER JOIN (SELECT * FROM (SELECT `k`, `x`, `b` AS `b_2` FROM u_new) LEFT SEMI JOIN (SELECT `a_3` FROM (SELECT `a` AS `a_3`, `s` AS `s_2`, `n` FROM g_new)) ON `k` = `a_3`) ON `a` = `k`);

-- a left join is restricted on both sides
select * from (select r.a, u.x from r left join u on r.a = u.k) q where exists (select 1 from g where g.a = q.a);
SELECT `a`, `x` FROM (SELECT * FROM (SELECT * FROM (SELECT `a`, `b`, `s`, `d` FROM r_new) LEFT SEMI JOIN (SELECT `a_3` FROM (SELECT `a` AS `a_3`, `s` AS `s_2`, `n` FROM g_new)) ON `a` = `a_3`) LEFT OUTER JOIN (SELECT * FROM (SELECT `k`, `x`, `b` AS `b_2` FROM u_new) LEFT SEMI JOIN (SELECT `a_3` FROM (SELECT `a` AS `a_3`, `s` AS `s_2`, `n` FROM g_new)) ON `k` = `a_3`) ON `a` = `k`);

-- a full join is restricted as a whole
select * from (select r.a, u.x from r full join u on r.a = u.k) q where exists (select 1 from g where g.a = q.a);
SELECT `a`, `x` FROM (SELECT * FROM (SELECT * FROM (SELECT `a`, `b`, `s`, `d` FROM r_new) FULL OUTER JOIN (SELECT `k`, `x`, `b` AS `b_2` FROM u_new) ON `a` = `k`) LEFT SEMI JOIN (SELECT `a_3` FROM (SELECT `a` AS `a_3`, `s` AS `s_2`, `n` FROM g_new)) ON `a` = `a_3`);

-- all inputs of a union are restricted
select * from (select a, b from r union all select k, x from u) q where exists (select 1 from g where g.a = q.a);
SELECT `a_3` AS `a`, `b_4` AS `b` FROM (SELECT `a_2_2` AS `a_3`, `b_2_2` AS `b_4` FROM (SELECT * FROM (SELECT `a` AS `a_2_2`, `b` AS `b_2_2` FROM r_new) LEFT SEMI JOIN (SELECT `a_4` FROM (SELECT `a` AS `a_4`, `s` AS `s_2`, `n` FROM g_new)) ON `a_2_2` = `a_4`) UNION ALL SELECT `k_2_2` AS `a_3`, `x_2_2` AS `b_4` FROM (SELECT * FROM (SELECT `k` AS `k_2_2`, `x` AS `x_2_2` FROM u_new) LEFT SEMI JOIN (SELECT `a_4` FROM (SELECT `a` AS `a_4`, `s` AS `s_2`, `n` FROM g_new)) ON `k_2_2` = `a_4`));

-- a window is restricted to whole partitions
select * from (select a, b, row_number() over (partition by a order by b, s, d) n from r) q where exists (select 1 from g where g.a = q.a);
SELECT `a`, `b`, `_window` AS `n` FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY `a` ORDER BY `b`, `s`, `d`) AS `_window` FROM (SELECT * FROM (SELECT `a`, `b`, `s`, `d` FROM r_new) LEFT SEMI JOIN (SELECT `a_3` FROM (SELECT `a` AS `a_3`, `s` AS `s_2`, `n` AS `n_2` FROM g_new)) ON `a` = `a_3`));

-- a key that is an aggregate is restricted above
select * from (select a, max(b) m from r group by a) q where exists (select 1 from g where g.a = q.m);
SELECT `a_2` AS `a`, `_max` AS `m` FROM (SELECT * FROM (SELECT `a` AS `a_2`, MAX(`b`) AS `_max` FROM (SELECT `a`, `b`, `s`, `d` FROM r_new) GROUP BY `a`) LEFT SEMI JOIN (SELECT `a_4` FROM (SELECT `a` AS `a_4`, `s` AS `s_2`, `n` FROM g_new)) ON `_max` = `a_4`);
