-- a column of a filter alone ends at the filter
select r.a, t.v from r join t on r.a = t.a where r.b > 0 and t.s is not null;
SELECT `a_3` AS `a`, `v_2` AS `v` FROM (SELECT `a` AS `a_3`, `v` AS `v_2` FROM (SELECT * FROM (SELECT `a` FROM (SELECT * FROM (SELECT `a`, `b` FROM r_new) WHERE `b` > 0)) INNER JOIN (SELECT `a_2`, `v` FROM (SELECT * FROM (SELECT `a` AS `a_2`, `v`, `s` AS `s_2` FROM t_new) WHERE NOT `s_2` IS NULL)) ON `a` = `a_2`));

-- a column that is needed later stays
select a, b from r where b > 0;
SELECT `a_2` AS `a`, `b_2` AS `b` FROM (SELECT `a` AS `a_2`, `b` AS `b_2` FROM (SELECT * FROM (SELECT `a`, `b` FROM r_new) WHERE `b` > 0));
