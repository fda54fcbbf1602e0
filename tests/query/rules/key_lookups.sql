-- a channel joined with a change by its key
SELECT r.s, u.x FROM r JOIN u ON r.a = u.k;
SELECT `s`, `x`, `_weight` FROM (SELECT `a`, `b`, `s`, `d`, `k`, `x`, `b_2`, `_weight` FROM (SELECT * FROM (SELECT `a`, `b`, `s`, `d`, `_weight` FROM r_change) INNER JOIN (SELECT `k`, `x`, `b` AS `b_2` FROM (SELECT * FROM u_new WHERE `k` IN (SELECT `a` FROM r_change))) ON `a` = `k`));

-- through an equality with another channel
SELECT r.s, u.x FROM r JOIN t ON r.a = t.k JOIN u ON t.k = u.k;
SELECT `s`, `x`, `_weight` FROM (SELECT `a`, `b`, `s`, `d`, `k`, `a_2`, `v`, `s_2`, `k_2`, `x`, `b_2`, `_weight` FROM (SELECT * FROM (SELECT `a`, `b`, `s`, `d`, `k`, `a_2`, `v`, `s_2`, `_weight` FROM (SELECT `a`, `b`, `s`, `d`, `k`, `a_2`, `v`, `s_2`, `_weight` FROM (SELECT * FROM (SELECT `a`, `b`, `s`, `d`, `_weight` FROM r_change) INNER JOIN (SELECT `k`, `a` AS `a_2`, `v`, `s` AS `s_2` FROM (SELECT * FROM t_new WHERE `k` IN (SELECT `a` FROM r_change))) ON `a` = `k`)) UNION ALL SELECT `a`, `b`, `s`, `d`, `k`, `a_2`, `v`, `s_2`, `_weight` FROM (SELECT `a`, `b`, `s`, `d`, `k`, `a_2`, `v`, `s_2`, `_weight` FROM (SELECT * FROM (SELECT `k`, `a` AS `a_2`, `v`, `s` AS `s_2`, `_weight` FROM t_change) INNER JOIN (SELECT `a`, `b`, `s`, `d` FROM r_old) ON `a` = `k`))) INNER JOIN (SELECT `k` AS `k_2`, `x`, `b` AS `b_2` FROM (SELECT * FROM u_new WHERE `k` IN (SELECT `a` FROM r_change UNION ALL SELECT `k` FROM t_change))) ON `k` = `k_2`));

-- below a semi-join and groups
SELECT u.k, sum(u.x) AS n FROM u WHERE EXISTS (SELECT * FROM t WHERE t.k = u.k AND t.a > 1) GROUP BY u.k;
SELECT `k_3` AS `k`, `_sum` AS `n`, `_weight` FROM (SELECT `k_3`, `_sum`, `_weight` FROM (SELECT `k_3`, `_sum`, CAST(1 AS BIGINT) AS `_weight` FROM (SELECT `k` AS `k_3`, SUM(`x`) AS `_sum` FROM (SELECT * FROM (SELECT * FROM (SELECT `k`, `x`, `b` FROM (SELECT * FROM u_new WHERE `k` IN (SELECT `k` FROM t_change))) LEFT SEMI JOIN (SELECT `_k1` FROM (SELECT `k_2` AS `_k1` FROM (SELECT * FROM (SELECT `k` AS `k_2`, `a`, `v`, `s`, `_weight` FROM t_change) WHERE `a` > 1))) ON `k` = `_k1`) LEFT SEMI JOIN (SELECT * FROM (SELECT * FROM (SELECT `k` AS `k_2`, `a`, `v`, `s` FROM (SELECT * FROM t_new WHERE `k` IN (SELECT `k` FROM t_change))) LEFT SEMI JOIN (SELECT `_k1` FROM (SELECT `k_2` AS `_k1` FROM (SELECT * FROM (SELECT `k` AS `k_2`, `a`, `v`, `s`, `_weight` FROM t_change) WHERE `a` > 1))) ON `k_2` = `_k1`) WHERE `a` > 1) ON `k_2` = `k`) GROUP BY `k`)) UNION ALL SELECT `k_3`, `_sum`, `_weight` FROM (SELECT `k_3`, `_sum`, CAST(-1 AS BIGINT) AS `_weight` FROM (SELECT `k` AS `k_3`, SUM(`x`) AS `_sum` FROM (SELECT * FROM (SELECT * FROM (SELECT `k`, `x`, `b` FROM (SELECT * FROM u_new WHERE `k` IN (SELECT `k` FROM t_change))) LEFT SEMI JOIN (SELECT `_k1` FROM (SELECT `k_2` AS `_k1` FROM (SELECT * FROM (SELECT `k` AS `k_2`, `a`, `v`, `s`, `_weight` FROM t_change) WHERE `a` > 1))) ON `k` = `_k1`) LEFT SEMI JOIN (SELECT * FROM (SELECT * FROM (SELECT `k` AS `k_2`, `a`, `v`, `s` FROM (SELECT * FROM t_old WHERE `k` IN (SELECT `k` FROM t_change))) LEFT SEMI JOIN (SELECT `_k1` FROM (SELECT `k_2` AS `_k1` FROM (SELECT * FROM (SELECT `k` AS `k_2`, `a`, `v`, `s`, `_weight` FROM t_change) WHERE `a` > 1))) ON `k_2` = `_k1`) WHERE `a` > 1) ON `k_2` = `k`) GROUP BY `k`)));

-- the right side of an outer join, not the left one
SELECT r.s, u.x FROM r LEFT JOIN u ON r.a = u.k;
SELECT `s`, `x`, `_weight` FROM (SELECT `a`, `b`, `s`, `d`, `k`, `x`, `b_2`, `_weight` FROM (SELECT * FROM (SELECT `a`, `b`, `s`, `d`, `_weight` FROM r_change) LEFT OUTER JOIN (SELECT * FROM (SELECT `k`, `x`, `b` AS `b_2` FROM (SELECT * FROM u_new WHERE `k` IN (SELECT `a` FROM r_change))) LEFT SEMI JOIN (SELECT `_k1` FROM (SELECT `a` AS `_k1` FROM (SELECT `a`, `b`, `s`, `d`, `_weight` FROM r_change))) ON `k` = `_k1`) ON `a` = `k`));

-- not by a column of another type
SELECT t.s, u.x FROM t LEFT JOIN u ON t.v = u.k;
SELECT `s`, `x`, `_weight` FROM (SELECT `k`, `a`, `v`, `s`, `k_2`, `x`, `b`, `_weight` FROM (SELECT * FROM (SELECT `k`, `a`, `v`, `s`, `_weight` FROM t_change) LEFT OUTER JOIN (SELECT * FROM (SELECT `k` AS `k_2`, `x`, `b` FROM u_new) LEFT SEMI JOIN (SELECT `_k1` FROM (SELECT `v` AS `_k1` FROM (SELECT `k`, `a`, `v`, `s`, `_weight` FROM t_change))) ON `k_2` = `_k1`) ON `v` = `k_2`));

-- not by other columns than the key
SELECT r.s, u.k FROM r JOIN u ON r.a = u.x;
SELECT `s`, `k`, `_weight` FROM (SELECT `a`, `b`, `s`, `d`, `k`, `x`, `b_2`, `_weight` FROM (SELECT * FROM (SELECT `a`, `b`, `s`, `d`, `_weight` FROM r_change) INNER JOIN (SELECT `k`, `x`, `b` AS `b_2` FROM u_new) ON `a` = `x`));
