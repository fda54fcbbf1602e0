-- conditions of each side move below an inner join
select r.a, t.v from r, t where r.a = t.a and r.b > 1 and t.v < 2;
SELECT `a_3` AS `a`, `v_2` AS `v` FROM (SELECT `a` AS `a_3`, `v` AS `v_2` FROM (SELECT * FROM (SELECT * FROM (SELECT `a`, `b`, `s`, `d` FROM r_new) WHERE `b` > 1) INNER JOIN (SELECT * FROM (SELECT `k`, `a` AS `a_2`, `v`, `s` AS `s_2` FROM t_new) WHERE `v` < 2) ON `a` = `a_2`));

-- a condition of the right side stays above a left join
select r.a, t.v from r left join t on r.a = t.a where r.b > 1 and t.v is null;
SELECT `a_3` AS `a`, `v_2` AS `v` FROM (SELECT `a` AS `a_3`, `v` AS `v_2` FROM (SELECT * FROM (SELECT * FROM (SELECT * FROM (SELECT `a`, `b`, `s`, `d` FROM r_new) WHERE `b` > 1) LEFT OUTER JOIN (SELECT `k`, `a` AS `a_2`, `v`, `s` AS `s_2` FROM t_new) ON `a` = `a_2`) WHERE `v` IS NULL));

-- nothing moves below a full join
select r.a, t.v from r full join t on r.a = t.a where r.b > 1;
SELECT `a_3` AS `a`, `v_2` AS `v` FROM (SELECT `a` AS `a_3`, `v` AS `v_2` FROM (SELECT * FROM (SELECT * FROM (SELECT `a`, `b`, `s`, `d` FROM r_new) FULL OUTER JOIN (SELECT `k`, `a` AS `a_2`, `v`, `s` AS `s_2` FROM t_new) ON `a` = `a_2`) WHERE `b` > 1));

-- a condition on groups stays above them
select a, n from (select a, count(*) n from r group by a) q where n > 1;
SELECT `a_4` AS `a`, `n_2` AS `n` FROM (SELECT `a_3` AS `a_4`, `n` AS `n_2` FROM (SELECT * FROM (SELECT `a_2` AS `a_3`, `_count` AS `n` FROM (SELECT `a` AS `a_2`, COUNT(*) AS `_count` FROM (SELECT `a`, `b`, `s`, `d` FROM r_new) GROUP BY `a`)) WHERE `n` > 1));
