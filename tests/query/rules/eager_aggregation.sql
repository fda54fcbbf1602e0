-- distinct values are counted over groups
select a, count(distinct s) n from r group by a;
SELECT `a_2` AS `a`, `_count` AS `n` FROM (SELECT `a_2`, COUNT(`_count__each`) AS `_count` FROM (SELECT `a` AS `a_2`, `s` AS `_count__each` FROM (SELECT `a`, `s` FROM r_new) GROUP BY `a`, `s`) GROUP BY `a_2`);

-- two different distinct counts stay
select a, count(distinct s) n, count(distinct b) m from r group by a;
SELECT `a_2` AS `a`, `_count` AS `n`, `_count_2` AS `m` FROM (SELECT `a` AS `a_2`, COUNT(DISTINCT `s`) AS `_count`, COUNT(DISTINCT `b`) AS `_count_2` FROM (SELECT `a`, `b`, `s` FROM r_new) GROUP BY `a`);

-- groups of the rows of a key are made below a left join
select t.k, count(u.b) n, sum(u.b) x from t left join u on t.k = u.x group by t.k;
SELECT `k_3` AS `k`, `_count` AS `n`, `_sum` AS `x` FROM (SELECT `k` AS `k_3`, COALESCE(`_count`, CAST(0 AS BIGINT)) AS `_count`, `_sum` FROM (SELECT * FROM (SELECT `k` FROM t_new) LEFT OUTER JOIN (SELECT `x` AS `_count__met0`, COUNT(`b`) AS `_count`, SUM(`b`) AS `_sum` FROM (SELECT * FROM (SELECT `x`, `b` FROM u_new) WHERE NOT `x` IS NULL) GROUP BY `x`) ON `k` = `_count__met0`));

-- groups without a key are made above the join
select t.a, sum(u.b) x from t left join u on t.k = u.x group by t.a;
SELECT `a_2` AS `a`, `_sum` AS `x` FROM (SELECT `a` AS `a_2`, SUM(`b`) AS `_sum` FROM (SELECT * FROM (SELECT `k`, `a` FROM t_new) LEFT OUTER JOIN (SELECT `x`, `b` FROM u_new) ON `k` = `x`) GROUP BY `a`);

-- values that exist in a join are met once
select k from t where exists (select 1 from r join u on r.a = u.k where r.b = t.k);
SELECT * FROM (SELECT `k` FROM t_new) LEFT SEMI JOIN (SELECT `b` AS `a_2__met0` FROM (SELECT * FROM (SELECT * FROM (SELECT `a` AS `a_2`, `b` FROM r_new) INNER JOIN (SELECT `k` AS `k_2` FROM u_new) ON `a_2` = `k_2`) WHERE NOT `b` IS NULL) GROUP BY `b`) ON `k` = `a_2__met0`;
