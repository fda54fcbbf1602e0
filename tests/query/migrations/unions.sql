-- a part is added
select a from r;
select a from r union all select k from t;
changes: adds the contribution of the rows of t;
SELECT `a`, `_weight` FROM (SELECT * FROM (SELECT `a`, SUM(`_weight`) AS `_weight` FROM (SELECT `a__part` AS `a`, `_weight` FROM (SELECT `a__part`, `_weight` FROM (SELECT `a__part`, CAST(1 AS BIGINT) AS `_weight` FROM (SELECT `k_2_2__new` AS `a__part` FROM (SELECT `k` AS `k_2_2__new` FROM t_new))))) GROUP BY `a`) WHERE `_weight` <> 0);

-- a part is removed
select a from r union all select k from t;
select k from t;
changes: subtracts the contribution of the rows of r;
SELECT * FROM (SELECT `a`, SUM(`_weight`) AS `_weight` FROM (SELECT `a_4` AS `a`, `_weight` FROM (SELECT `a_4`, `_weight` FROM (SELECT `a_4`, CAST(-1 AS BIGINT) AS `_weight` FROM (SELECT `a_2_2` AS `a_4` FROM (SELECT `a` AS `a_2_2` FROM r_new))))) GROUP BY `a`) WHERE `_weight` <> 0;
then the whole output: renames a to k;
SELECT `a__out` AS `k` FROM (SELECT `a` AS `a__out` FROM v_old);
or, with columns renamed by reference, changes: renames a to k;

-- a part has other rows
select a from r union all select k from t where v > 1;
select a from r union all select k from t where v > 2;
changes: subtracts the contribution of the rows of t for which v > 1 AND v <= 2;
SELECT `a`, `_weight` FROM (SELECT * FROM (SELECT `a`, SUM(`_weight`) AS `_weight` FROM (SELECT `a_4` AS `a`, `_weight` FROM (SELECT `a_4`, `_weight` FROM (SELECT `a_4`, CAST(-1 AS BIGINT) AS `_weight` FROM (SELECT `k` AS `a_4` FROM (SELECT * FROM (SELECT `k`, `v` FROM t_new) WHERE `v` > 1 AND `v` <= 2))))) GROUP BY `a`) WHERE `_weight` <> 0);
