-- renamings end in the scan
select x y from (select a x, b from r) q;
SELECT `a` AS `y` FROM r_new;

-- expressions are put into others
select x * 2 y from (select a + 1 x from r) q;
SELECT (`a` + 1) * 2 AS `y` FROM (SELECT `a`, `b`, `s`, `d` FROM r_new);

-- what is used twice is computed once
select x, x * 2 y from (select a + 1 x from r) q;
SELECT `x`, `x` * 2 AS `y` FROM (SELECT `a` + 1 AS `x` FROM (SELECT `a`, `b`, `s`, `d` FROM r_new));

-- renamings move above a join
select p, v from (select a p, b from r) q join (select a w, v from t) z on q.p = z.w;
SELECT `p`, `v_2` AS `v` FROM (SELECT * FROM (SELECT `a` AS `p`, `b` AS `b_2` FROM r_new) INNER JOIN (SELECT `a` AS `w`, `v` AS `v_2` FROM t_new) ON `p` = `w`);
