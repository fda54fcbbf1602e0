-- columns that are not selected are not read
select a from (select a, b, s, d from r) q;
SELECT `a_3` AS `a` FROM (SELECT `a_2` AS `a_3` FROM (SELECT `a` AS `a_2` FROM (SELECT `a` FROM r_new)));

-- what a condition needs is read
select t.k from t join u on t.k = u.k where u.b > 0;
SELECT `k_3` AS `k` FROM (SELECT `k` AS `k_3` FROM (SELECT * FROM (SELECT `k` FROM t_new) INNER JOIN (SELECT * FROM (SELECT `k` AS `k_2`, `b` FROM u_new) WHERE `b` > 0) ON `k` = `k_2`));

-- a window that is not selected is not computed
select k from (select k, rank() over (order by v) n from t) q;
SELECT `k_3` AS `k` FROM (SELECT `k_2` AS `k_3` FROM (SELECT `k` AS `k_2` FROM (SELECT `k` FROM t_new)));

-- all keys of groups are kept
select n from (select a, s, count(*) n, sum(b) x from r group by a, s) q;
SELECT `n_2` AS `n` FROM (SELECT `n` AS `n_2` FROM (SELECT `_count` AS `n` FROM (SELECT `a` AS `a_2`, `s` AS `s_2`, COUNT(*) AS `_count` FROM (SELECT `a`, `s` FROM r_new) GROUP BY `a`, `s`)));

-- a distinct row keeps its columns
select a from (select distinct a, s from r) q;
SELECT `a_3` AS `a` FROM (SELECT `a_2_2` AS `a_3` FROM (SELECT `a_2` AS `a_2_2`, `s_2` AS `s_2_2` FROM (SELECT `a` AS `a_2`, `s` AS `s_2` FROM (SELECT `a`, `s` FROM r_new)) GROUP BY `a_2`, `s_2`));

-- both parts of a union are narrowed
select x from (select a x, s y from r union all select a, s from t) q;
SELECT `x_4` AS `x` FROM (SELECT `x_3` AS `x_4` FROM (SELECT `x_2` AS `x_3` FROM (SELECT `x` AS `x_2` FROM (SELECT `a` AS `x` FROM (SELECT `a` FROM r_new))) UNION ALL SELECT `a_3_2` AS `x_3` FROM (SELECT `a_3` AS `a_3_2` FROM (SELECT `a_2` AS `a_3` FROM (SELECT `a` AS `a_2` FROM t_new)))));
