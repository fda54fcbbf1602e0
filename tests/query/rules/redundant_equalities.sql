-- the third equality of three columns goes
select a.k, c.v from t a join t b on a.k = b.k join t c on b.k = c.k and a.k = c.k;
SELECT `k_4` AS `k`, `v_4` AS `v` FROM (SELECT `k` AS `k_4`, `v_3` AS `v_4` FROM (SELECT * FROM (SELECT * FROM (SELECT `k`, `a`, `v`, `s` FROM t_new) INNER JOIN (SELECT `k` AS `k_2`, `a` AS `a_2`, `v` AS `v_2`, `s` AS `s_2` FROM t_new) ON `k` = `k_2`) INNER JOIN (SELECT `k` AS `k_3`, `a` AS `a_3`, `v` AS `v_3`, `s` AS `s_3` FROM t_new) ON `k_2` = `k_3`));

-- an outer join tells nothing
select a.k, c.v from t a left join t b on a.k = b.k join t c on a.k = c.k and b.k = c.k;
SELECT `k_4` AS `k`, `v_4` AS `v` FROM (SELECT `k` AS `k_4`, `v_3` AS `v_4` FROM (SELECT * FROM (SELECT * FROM (SELECT `k`, `a`, `v`, `s` FROM t_new) LEFT OUTER JOIN (SELECT `k` AS `k_2`, `a` AS `a_2`, `v` AS `v_2`, `s` AS `s_2` FROM t_new) ON `k` = `k_2`) INNER JOIN (SELECT `k` AS `k_3`, `a` AS `a_3`, `v` AS `v_3`, `s` AS `s_3` FROM t_new) ON `k` = `k_3` AND `k_2` = `k_3`));
