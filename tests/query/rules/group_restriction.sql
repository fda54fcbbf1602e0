-- groups are restricted to the keys of a filtered relation with which their rows are joined by the same column
select r.b, r.d from r join t on r.a = t.k join (select a, avg(d) m from r group by a) q on q.a = t.k where t.s = 'x' and r.d < q.m;
SELECT `b`, `d` FROM (SELECT * FROM (SELECT * FROM (SELECT `a`, `b`, `d` FROM r_new) INNER JOIN (SELECT * FROM (SELECT `k`, `s` AS `s_2` FROM t_new) WHERE `s_2` = 'x') ON `a` = `k`) INNER JOIN (SELECT `a_3` AS `a_3_2`, AVG(`d_2`) AS `_avg` FROM (SELECT * FROM (SELECT `a` AS `a_3`, `d` AS `d_2` FROM r_new) LEFT SEMI JOIN (SELECT `a_3_2__k` FROM (SELECT `k` AS `a_3_2__k` FROM (SELECT * FROM (SELECT `k`, `s` AS `s_2` FROM t_new) WHERE `s_2` = 'x'))) ON `a_3` = `a_3_2__k`) GROUP BY `a_3`) ON `a_3_2` = `k` AND `d` < `_avg`);

-- groups of a correlated subquery are restricted, also where their key equals that of the relation indirectly
select sum(r.b) n from r, u where u.k = r.a and u.x = 1 and r.d < (select avg(o.d) from r o where o.a = r.a);
SELECT `_sum` AS `n` FROM (SELECT SUM(`b`) AS `_sum` FROM (SELECT `a`, `b`, `d`, `k`, `x`, `_key`, `_avg` AS `_value` FROM (SELECT * FROM (SELECT * FROM (SELECT `a`, `b`, `d` FROM r_new) INNER JOIN (SELECT * FROM (SELECT `k`, `x` FROM u_new) WHERE `x` = 1) ON `k` = `a`) INNER JOIN (SELECT `a_2` AS `_key`, AVG(`d_2`) AS `_avg` FROM (SELECT * FROM (SELECT `a` AS `a_2`, `d` AS `d_2` FROM r_new) LEFT SEMI JOIN (SELECT `_key__k` FROM (SELECT `k` AS `_key__k` FROM (SELECT * FROM (SELECT `k`, `x` FROM u_new) WHERE `x` = 1))) ON `a_2` = `_key__k`) GROUP BY `a_2`) ON `_key` = `a` AND `d` < `_avg`)));

-- groups that are joined from the left, with nulls where there is none, are restricted
select r.b, (select max(o.b) from r o where o.a = t.k) m from r join t on t.k = r.a where t.s = 'x';
SELECT `b`, `_max` AS `m` FROM (SELECT * FROM (SELECT * FROM (SELECT `a`, `b` FROM r_new) INNER JOIN (SELECT * FROM (SELECT `k`, `s` AS `s_2` FROM t_new) WHERE `s_2` = 'x') ON `k` = `a`) LEFT OUTER JOIN (SELECT `a_3` AS `_key`, MAX(`b_2`) AS `_max` FROM (SELECT * FROM (SELECT `a` AS `a_3`, `b` AS `b_2` FROM r_new) LEFT SEMI JOIN (SELECT `_key__k` FROM (SELECT `k` AS `_key__k` FROM (SELECT * FROM (SELECT `k`, `s` AS `s_2` FROM t_new) WHERE `s_2` = 'x'))) ON `a_3` = `_key__k`) GROUP BY `a_3`) ON `_key` = `k`);

-- groups whose existence is asked for are restricted
select r.b from r join t on t.k = r.a where t.s = 'x' and not exists (select 1 from (select a, sum(b) n from r group by a) q where q.a = t.k and q.n > r.b);
SELECT `b` FROM (SELECT * FROM (SELECT * FROM (SELECT `a`, `b` FROM r_new) INNER JOIN (SELECT * FROM (SELECT `k`, `s` AS `s_2` FROM t_new) WHERE `s_2` = 'x') ON `k` = `a`) LEFT ANTI JOIN (SELECT `a_3` AS `a_3_2`, SUM(`b_2`) AS `_sum` FROM (SELECT * FROM (SELECT `a` AS `a_3`, `b` AS `b_2` FROM r_new) LEFT SEMI JOIN (SELECT `a_3_2__k` FROM (SELECT `k` AS `a_3_2__k` FROM (SELECT * FROM (SELECT `k`, `s` AS `s_2` FROM t_new) WHERE `s_2` = 'x'))) ON `a_3` = `a_3_2__k`) GROUP BY `a_3`) ON `a_3_2` = `k` AND `_sum` > `b`);

-- groups of a join are restricted below it, by one of two keys
select r.b, q.n from r join t on r.a = t.k join (select o.a, u.x, count(*) n from r o join u on o.b = u.k group by o.a, u.x) q on q.a = t.k where t.s = 'x';
SELECT `b`, `_count` AS `n` FROM (SELECT * FROM (SELECT * FROM (SELECT `a`, `b` FROM r_new) INNER JOIN (SELECT * FROM (SELECT `k`, `s` AS `s_2` FROM t_new) WHERE `s_2` = 'x') ON `a` = `k`) INNER JOIN (SELECT `a_3` AS `a_3_2`, `x` AS `x_2`, COUNT(*) AS `_count` FROM (SELECT * FROM (SELECT * FROM (SELECT `a` AS `a_3`, `b` AS `b_2` FROM r_new) LEFT SEMI JOIN (SELECT `a_3_2__k` FROM (SELECT `k` AS `a_3_2__k` FROM (SELECT * FROM (SELECT `k`, `s` AS `s_2` FROM t_new) WHERE `s_2` = 'x'))) ON `a_3` = `a_3_2__k`) INNER JOIN (SELECT `k` AS `k_2`, `x` FROM u_new) ON `b_2` = `k_2`) GROUP BY `a_3`, `x`) ON `a_3_2` = `k`);

-- a condition above groups stays above them
select r.b, q.m from r join t on r.a = t.k join (select a, sum(b) m from r group by a having count(*) > 1) q on q.a = r.a where t.s = 'x';
SELECT `b`, `_sum` AS `m` FROM (SELECT * FROM (SELECT * FROM (SELECT `a`, `b` FROM r_new) INNER JOIN (SELECT * FROM (SELECT `k`, `s` AS `s_2` FROM t_new) WHERE `s_2` = 'x') ON `a` = `k`) INNER JOIN (SELECT * FROM (SELECT `a_3` AS `a_3_2`, SUM(`b_2`) AS `_sum`, COUNT(*) AS `_count` FROM (SELECT * FROM (SELECT `a` AS `a_3`, `b` AS `b_2` FROM r_new) LEFT SEMI JOIN (SELECT `a_3_2__k` FROM (SELECT `k` AS `a_3_2__k` FROM (SELECT * FROM (SELECT `k`, `s` AS `s_2` FROM t_new) WHERE `s_2` = 'x'))) ON `a_3` = `a_3_2__k`) GROUP BY `a_3`) WHERE `_count` > 1) ON `a_3_2` = `a`);

-- a condition that keeps many rows restricts nothing
select r.b from r join t on r.a = t.k join (select a, avg(d) m from r group by a) q on q.a = t.k where t.s > 'x' and r.d < q.m;
SELECT `b` FROM (SELECT * FROM (SELECT * FROM (SELECT `a`, `b`, `d` FROM r_new) INNER JOIN (SELECT * FROM (SELECT `k`, `s` AS `s_2` FROM t_new) WHERE `s_2` > 'x') ON `a` = `k`) INNER JOIN (SELECT `a_3` AS `a_3_2`, AVG(`d_2`) AS `_avg` FROM (SELECT `a` AS `a_3`, `d` AS `d_2` FROM r_new) GROUP BY `a_3`) ON `a_3_2` = `k` AND `d` < `_avg`);

-- groups that another relation's rows are joined with are not restricted, because new rows would read what is grouped
select t.v from t join (select a, avg(d) m from r group by a) q on q.a = t.k where t.s = 'x' and t.v < q.m;
SELECT `v` FROM (SELECT * FROM (SELECT * FROM (SELECT `k`, `v`, `s` FROM t_new) WHERE `s` = 'x') INNER JOIN (SELECT `a_2` AS `a_2_2`, AVG(`d`) AS `_avg` FROM (SELECT `a` AS `a_2`, `d` FROM r_new) GROUP BY `a_2`) ON `a_2_2` = `k` AND `v` < `_avg`);

-- groups by another column than that of the join are not restricted
select r.b from r join t on r.b = t.k join (select a, avg(d) m from r group by a) q on q.a = t.k where t.s = 'x' and r.d < q.m;
SELECT `b` FROM (SELECT * FROM (SELECT * FROM (SELECT `b`, `d` FROM r_new) INNER JOIN (SELECT * FROM (SELECT `k`, `s` AS `s_2` FROM t_new) WHERE `s_2` = 'x') ON `b` = `k`) INNER JOIN (SELECT `a_3` AS `a_3_2`, AVG(`d_2`) AS `_avg` FROM (SELECT `a` AS `a_3`, `d` AS `d_2` FROM r_new) GROUP BY `a_3`) ON `a_3_2` = `k` AND `d` < `_avg`);

-- groups of a full join are not restricted
select r.b, q.m from (select r.a, r.b from r join t on r.a = t.k where t.s = 'x') r full join (select a, avg(d) m from r group by a) q on q.a = r.a;
SELECT `b`, `_avg` AS `m` FROM (SELECT * FROM (SELECT * FROM (SELECT `a`, `b` FROM r_new) INNER JOIN (SELECT * FROM (SELECT `k`, `s` AS `s_2` FROM t_new) WHERE `s_2` = 'x') ON `a` = `k`) FULL OUTER JOIN (SELECT `a_4` AS `a_4_2`, AVG(`d_2`) AS `_avg` FROM (SELECT `a` AS `a_4`, `d` AS `d_2` FROM r_new) GROUP BY `a_4`) ON `a_4_2` = `a`);

-- groups are not restricted to the keys of what is grouped itself, because these change with the groups
select q.b from r q where q.s = 'x' and q.d < (select avg(o.d) from r o where o.a = q.a);
SELECT `b` FROM (SELECT * FROM (SELECT * FROM (SELECT `a`, `b`, `s`, `d` FROM r_new) WHERE `s` = 'x') INNER JOIN (SELECT `a_2` AS `_key`, AVG(`d_2`) AS `_avg` FROM (SELECT `a` AS `a_2`, `d` AS `d_2` FROM r_new) GROUP BY `a_2`) ON `_key` = `a` AND `d` < `_avg`);
