-- what changes comes first, large relations last
select r.s, t.v, u.b from t join u on t.k = u.k join r on r.a = t.a;
SELECT `s_2` AS `s`, `v`, `b` FROM (SELECT * FROM (SELECT * FROM (SELECT `a` AS `a_2`, `b` AS `b_2`, `s` AS `s_2`, `d` FROM r_new) INNER JOIN (SELECT `k`, `a`, `v`, `s` FROM t_new) ON `a_2` = `a`) INNER JOIN (SELECT `k` AS `k_2`, `x`, `b` FROM u_new) ON `k` = `k_2`);

-- a chain follows its equalities
select r.s, u.b from u join t on u.x = t.k join r on r.a = t.k;
SELECT `s_2` AS `s`, `b` FROM (SELECT * FROM (SELECT * FROM (SELECT `a` AS `a_2`, `b` AS `b_2`, `s` AS `s_2`, `d` FROM r_new) INNER JOIN (SELECT `k` AS `k_2`, `a`, `v`, `s` FROM t_new) ON `a_2` = `k_2`) INNER JOIN (SELECT `k`, `x`, `b` FROM u_new) ON `x` = `k_2` AND `a_2` = `x`);

-- outer joins stay
select r.s, t.v, u.b from t left join u on t.k = u.k join r on r.a = t.a;
SELECT `s_2` AS `s`, `v`, `b` FROM (SELECT * FROM (SELECT * FROM (SELECT `k`, `a`, `v`, `s` FROM t_new) LEFT OUTER JOIN (SELECT `k` AS `k_2`, `x`, `b` FROM u_new) ON `k` = `k_2`) INNER JOIN (SELECT `a` AS `a_2`, `b` AS `b_2`, `s` AS `s_2`, `d` FROM r_new) ON `a_2` = `a`);
